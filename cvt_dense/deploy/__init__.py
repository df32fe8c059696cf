"""Write files that run without this package, check them, and open them again.

``export.py`` and its helpers write a file. ``runtime.py`` opens one: ``open_exported(path, runtime=None)`` returns a
callable with ``metadata``. ``exported.py`` puts a file in the place of a config's model. The following sections define
the format, for both sides and for programs without this package.

**Suffixes.** ``.onnx`` files run in ONNX Runtime, OpenVINO and TensorRT (which has not been tried), ``.xml`` files with
a ``.bin`` file beside them in OpenVINO, and ``.pt2`` files in PyTorch (``torch.export``). Whole detectors with NMS or
RoIAlign have operators in a ``.pt2`` that only this package has: import :mod:`cvt_dense.deploy.operators` first.

**Input.** A file has one input, ``image``. Without ``raw_input`` it is float32 (B, 3, H, W) and normalised, as the
config's data preprocessor returns a batch. With ``raw_input`` it is uint8, RGB, from 0 to 255, (B, H, W, 3), and the
file normalises it. B is free unless ``batch`` fixes it. A detector takes the
image *before* the data preprocessor pads it; it pads the image itself and clips boxes to the image.

**Outputs.** Outputs are named, and float32 unless noted otherwise, whatever the precision inside:

- A classifier returns ``logits`` (B, classes).
- A segmentor returns ``logits`` (B, classes, H, W) at the input's size.
- A detector takes one image at a time (``batch`` is 1). It returns ``boxes`` (N, 4), x1 y1 x2 y2 in the input's pixels;
  ``scores`` (N, ); ``labels`` (N, ), int64; and with a mask head ``masks`` (N, h, w), the probability of the box's
  class on a grid over its box, to be resized to the box and compared with ``mask_thr``. N is the number of objects that
  the model's ``test_cfg`` leaves, by falling score; it may be 0.
- mmdet's Mask2Former, panoptic or of instances, returns ``class_logits`` (B, Q, classes + 1), the last for no object,
  and ``mask_logits`` (B, Q, H, W) of its Q queries. What mmdet's ``MaskFormerFusionHead`` makes of them is not in the
  file.
- A backbone returns ``feat0``, ``feat1``, ...: (B, C, h, w) for each of its maps; a classifier's backbone
  returns one (B, C).

**Metadata.** The metadata is one JSON text under ``cvt_dense``: in ``metadata_props`` of ONNX, in ``rt_info`` of
OpenVINO, and in ``extra_files`` of ``.pt2`` as ``cvt_dense.json``. All of these keys are always there:

- ``format_version``: 1.
- ``part``: 'model' or 'backbone'.
- ``task``: the config's task, 'classification', 'segmentation', 'detection' or 'panoptic' (mmdet's Mask2Former),
  whatever the part.
- ``precision``: 'fp32', 'bf16' or 'int8'.
- ``inference_precision``: 'f32' or 'bf16'. Set it in a runtime that would choose another precision (OpenVINO's
  INFERENCE_PRECISION_HINT; OpenVINO takes bf16 where the CPU has it).
- ``raw_input``: bool. ``layout``: 'NHWC' with it, or else 'NCHW'.
- ``input_size``: [H, W], or null with ``dynamic``. ``dynamic``: bool, whether H and W are free.
- ``batch``: the only batch size that is allowed, or null if it is free.
- ``outputs``: names of the outputs, in order.
- ``classes``: class names, or null.
- ``mean``, ``std``: one value for each channel, in units of 0 to 255, of the data preprocessor; 0 and 1 if it does not
  normalise. ``bgr_to_rgb``: whether the data sets return BGR, which it converts.
- ``crop_pct``, ``crop_mode``, ``interpolation``: how a classifier's images are prepared, in timm's terms. Images are
  resized by ``interpolation`` to ``input_size`` / ``crop_pct`` (the short side in mode 'center', both sides in
  'squash'), then the middle is cut out. These are null for other tasks.
- ``mask_thr``: float or null. ``score_thr``: the score from which objects are worth drawing (as
  ``tools/predict.py`` does), 0.3, or null of what is no whole detector.
- ``config``: file name of the config. ``config_hash``: SHA-256 of its resolved text, hexadecimal.
"""
