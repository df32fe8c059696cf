"""Detect objects with a file of tools/export.py, with NumPy, OpenCV and ONNX Runtime: FILE IMAGE."""
import json
import sys

import cv2
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map['cvt_dense'])
image = cv2.imread(sys.argv[2])  # BGR, upright
sides = image.shape[:2]
if about['input_size']:  # a file for one size: the image is fitted into it
    scale = min(np.divide(about['input_size'], sides))
else:  # a file for any size: the image is resized as the network's config does
    longest, shortest = about['scale'] or (max(sides), min(sides))
    scale = min(longest / max(sides), shortest / min(sides))
height, width = (max(int(side * scale + 0.5), 1) for side in sides)
pixels = np.zeros((*(about['input_size'] or (height, width)), 3), np.float32)
order = -1 if about['bgr_to_rgb'] else 1  # of the network's channels: RGB or BGR
pixels[:height, :width] = (cv2.resize(image, (width, height))[..., ::order] - about['mean']) / about['std']
boxes, scores, labels = session.run(['boxes', 'scores', 'labels'], {'image': pixels.transpose(2, 0, 1)[None]})
for box, score, label in zip(boxes / scale, scores, labels):
    if score >= about['score_thr']:
        print(about['classes'][label] if about['classes'] else label, f'{score:.2f}', *box.round(1))
        left, top, right, bottom = map(int, box)
        cv2.rectangle(image, (left, top), (right, bottom), (0, 0, 255), 3)
cv2.imwrite('detections.png', image)
print('The boxes are drawn in detections.png.')
