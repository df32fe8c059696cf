"""Detect objects with a file of tools/export.py, with NumPy, Pillow and ONNX Runtime: FILE IMAGE."""
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map['cvt_dense'])
image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert('RGB')
if about['input_size']:  # a file for one size: the image is fitted into it
    height, width = about['input_size']
    scale = min(height / image.height, width / image.width)
else:  # a file for any size: the image is resized as the network's config does
    longest, shortest = about['scale'] or (max(image.size), min(image.size))
    scale = min(longest / max(image.size), shortest / min(image.size))
    height, width = int(image.height * scale + 0.5), int(image.width * scale + 0.5)
order = 1 if about['bgr_to_rgb'] else -1  # of the network's channels: RGB or BGR
canvas = Image.new('RGB', (width, height), tuple(map(round, about['mean'][::order])))
sides = int(image.width * scale + 0.5), int(image.height * scale + 0.5)  # resized without smoothing, as OpenCV does
canvas.paste(image.transform(sides, Image.Transform.EXTENT, (0, 0, *image.size), Image.Resampling.BILINEAR))
pixels = (np.asarray(canvas)[..., ::order] - about['mean']) / about['std']
pixels = pixels.transpose(2, 0, 1)[None].astype(np.float32)
boxes, scores, labels = session.run(['boxes', 'scores', 'labels'], {'image': pixels})
draw = ImageDraw.Draw(image)
for box, score, label in zip(boxes / scale, scores, labels):
    if score >= about['score_thr']:
        print(about['classes'][label], f'{score:.2f}', *box.round(1))
        draw.rectangle(box.tolist(), outline='red', width=3)
image.save('detections.png')
