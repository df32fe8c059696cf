"""Files that run without this package: exported, checked, and opened again.

``export.py`` and its helpers write a file, ``runtime.py`` opens one: ``open_exported(path, runtime=None)`` is a
callable with ``metadata``; ``exported.py`` puts one into the place of a config's backbone or model. The following
sections define the format, for both sides and for programs without this package:

**Suffixes.** ``.onnx`` (ONNX Runtime, TensorRT, OpenVINO), ``.xml`` with a ``.bin`` beside it (OpenVINO), ``.pt2``
(``torch.export``).

**Input.** One, ``image``. Without ``raw_input`` float32 (B, 3, H, W), normalised: what the config's data preprocessor
makes of a batch; with it uint8, RGB, 0 to 255, in ``layout`` (B, H, W, 3) or (B, 3, H, W), and normalised inside. B is
free, except where ``batch`` fixes it. A detector takes the image *before* the data preprocessor's padding: it
pads inside and clips boxes to the image.

**Outputs**, by name, float32 unless noted otherwise, for every precision inside:

- classifier: ``logits`` (B, classes).
- segmentor: ``logits`` (B, classes, H, W) at the input's size; with ``argmax`` ``labels`` (B, H, W) int64 instead.
- detector, one image at a time (``batch`` is 1): ``boxes`` (N, 4), x1 y1 x2 y2 in the input's pixels; ``scores``
  (N, ); ``labels`` (N, ) int64; with a mask head ``masks`` (N, h, w), the probability of the box's class on a grid
  over its box, to be resized to the box and compared with ``mask_thr``. As many as the model's ``test_cfg`` leaves, by
  falling score; N may be 0.
- backbone: ``feat0``, ``feat1``, ...: (B, C, h, w) of each of ``out_indices``, or one (B, C) of a classifier's.

**Metadata.** One JSON text under ``cvt_dense``: ONNX in ``metadata_props``, OpenVINO in ``rt_info``, ``.pt2`` in
``extra_files`` as ``cvt_dense.json``. Its keys, all of them always there:

- ``format_version``: 1. ``part``: 'model' or 'backbone'. ``task``: 'classification', 'segmentation' or 'detection', of
  the config, whatever the part.
- ``precision``: 'fp32', 'fp16', 'bf16' or 'int8'. ``inference_precision``: 'f32', 'bf16' or 'f16'; set it in a
  runtime that would choose another precision (OpenVINO's INFERENCE_PRECISION_HINT; it takes bf16 where the CPU has it).
- ``raw_input``: bool. ``layout``: 'NHWC' or 'NCHW'. ``input_size``: [H, W], or null with ``dynamic``. ``dynamic``:
  bool, H and W are free. ``batch``: null (free) or the one number that is allowed. ``outputs``: names, in order.
- ``classes``: names, or null. ``mean``, ``std``: one for each channel, in units of 0 to 255, of the data preprocessor
  or of the test pipeline's Normalize. ``bgr_to_rgb``: whether the data sets give BGR, which one of the two turns.
- ``crop_pct``, ``crop_mode``, ``interpolation``: how a classifier's images are prepared, in timm's terms: resized by
  ``interpolation`` to ``input_size`` / ``crop_pct`` (the short side in mode 'center', both sides in 'squash'), then
  the middle is cut out. null for other tasks.
- ``out_indices``, ``out_channels``, ``out_strides``: of the backbone. ``argmax``: bool. ``mask_thr``: float or null.
- ``config``: file name. ``config_hash``: SHA-256 of its resolved text, hexadecimal.
"""
