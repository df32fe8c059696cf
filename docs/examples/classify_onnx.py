"""Classify an image with a file of tools/export.py --raw-input, with NumPy, Pillow and ONNX Runtime: IMAGE."""
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession('classifier.onnx')
about = json.loads(session.get_modelmeta().custom_metadata_map['cvt_dense'])
image = ImageOps.exif_transpose(Image.open(sys.argv[1])).convert('RGB')
side = about['input_size'][0]
scaled = int(side / about['crop_pct'])  # the short side, or in mode 'squash' both sides; then the middle is cut out
width, height = [scaled] * 2 if about['crop_mode'] == 'squash' else [scaled * x // min(image.size) for x in image.size]
image = image.resize((width, height), Image.Resampling[about['interpolation'].upper()])
left, top = round((width - side) / 2), round((height - side) / 2)
image = image.crop((left, top, left + side, top + side))
logits = session.run(None, {'image': np.asarray(image)[None]})[0][0]
scores = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
for i in scores.argsort()[:-6:-1]:
    print(about['classes'][i], f'{scores[i]:.2f}')
