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
    height, width = round(image.height * scale), round(image.width * scale)
canvas = Image.new('RGB', (width, height), tuple(map(round, about['mean'])))
canvas.paste(image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR))
pixels = ((np.asarray(canvas) - about['mean']) / about['std']).transpose(2, 0, 1)[None].astype(np.float32)
boxes, scores, labels = session.run(['boxes', 'scores', 'labels'], {'image': pixels})
draw = ImageDraw.Draw(image)
for box, score, label in zip(boxes / scale, scores, labels):
    if score >= about['score_thr']:
        print(about['classes'][label], f'{score:.2f}', *box.round(1))
        draw.rectangle(box.tolist(), outline='red', width=3)
image.save('detections.png')
