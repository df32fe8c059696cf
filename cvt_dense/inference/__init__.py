"""Load a trained model and predict with it, as ``tools/predict.py`` does.

For example::

    from cvt_dense.inference import load, predict

    model = load('mine.py', 'work_dirs/mine/iter_1000.pth')   # or load('mine.py', 'mine.onnx')
    result = predict(model, 'photo.jpg')                      # a path, an array, or a list of these
    result = predict(model, 'large.tif', slice=1024)          # in overlapping slices

For a detector, ``result`` is a ``supervision.Detections``; for a segmentor, it is a label map; for a classifier, it
lists the classes with their probabilities, the most probable first.
"""
from .model import Model, load
from .prediction import predict

__all__ = ['Model', 'load', 'predict']
