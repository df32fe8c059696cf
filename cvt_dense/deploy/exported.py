"""Test an exported classifier, segmentor or detector in the place of the config's networks."""
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.model import BaseModel
from mmengine.structures import InstanceData
from torch import Tensor, nn

from ..config import dicts, values
from ..errors import UserError
from ..models.task import task_of
from .runtime import Exported, as_json


def run_exported(network: BaseModel, exported: Exported, settings: dict[str, Any]) -> BaseModel:
    """Return a model that runs a file instead of its networks.

    What comes before and after the networks stays the model's: data preprocessor, sliding windows, resizing to the
    original image, masks on it. Test loops, metrics and mm's inference functions therefore work unchanged.

    Args:
        network: a classifier, segmentor or detector; its networks are dropped.
        exported: the file.
        settings: the config's ``model``, from which ``network`` was built.

    Returns:
        The classifier or segmentor, whose network is an :class:`ExportedNetwork`, or an :class:`ExportedDetector`.

    Raises:
        UserError: the file is a backbone, or one whose task, classes, normalisation or thresholds are not the config's.
    """
    _check_metadata(exported, network, settings)
    if task_of(network) == 'classification':
        network.backbone, network.head = ExportedNetwork(exported), nn.Identity()
    elif task_of(network) == 'segmentation':
        head, part = network.decode_head, ExportedNetwork(exported, getattr(network.decode_head, 'threshold', None))
        network.backbone, network.neck = nn.Identity(), None
        network.decode_head = nn.ModuleList([part] * len(head)) if isinstance(head, nn.ModuleList) else part
    else:
        network = ExportedDetector(network, exported)
    network.exported = exported
    print_log(f"{exported.file}: {exported.metadata['precision']}, exported from {exported.metadata['config']}, run by "
              f'{exported.runtime} on the CPU', logger='current')
    return network


def _check_metadata(exported: Exported, network: BaseModel, model: dict[str, Any]) -> None:
    """Raise ``UserError`` unless a file was exported from a model like ``network``, which was built from ``model``."""
    meta, file = exported.metadata, exported.file
    numbers = {node['num_classes'] for node in dicts(model) if isinstance(node.get('num_classes'), int)}
    names = meta['classes'] or ()
    if (meta['part'], meta['task']) != ('model', task_of(network)) or names and numbers and len(names) not in numbers:
        raise UserError(f"{file} is a {meta['part']} for {meta['task']} with {len(names)} classes; the config has a "
                        f"{type(network).__name__} with {sorted(numbers)}: use the file's config ({meta['config']}).")
    buffers = {name: value.flatten().tolist() for name, value in network.data_preprocessor.named_buffers()}
    preprocessor = model.get('data_preprocessor') or {}
    rgb = bool(preprocessor.get('bgr_to_rgb') or preprocessor.get('rgb_to_bgr'))
    for key, value in dict(buffers, bgr_to_rgb=rgb).items():
        if not np.allclose(value, meta.get(key, value), atol=1e-3):
            raise UserError(f"{file} has {key} {meta[key]}, and the config model.data_preprocessor.{key}={value}: use "
                            f"the file's config ({meta['config']}).")
    if meta.get('test_cfg'):  # thresholds are in the file of a detector, except that of its masks
        own, its = (dict(values(as_json(node), 'model.test_cfg')) for node in (model.get('test_cfg'), meta['test_cfg']))
        for key, value in own.items():
            if not (isinstance(value, (dict, list)) or key.endswith('.mask_thr_binary') or value == its.get(key)):
                raise UserError(f'{key}={value!r}: {file} was exported with {its.get(key)!r}, which is in the file; '
                                'leave the setting out, or export the file again with it.')


class ExportedNetwork(nn.Module):
    """Runs a file in the place of a classifier's backbone, or of a segmentor's decode head.

    Args:
        exported: the file.
        threshold: of a segmentor with one output, see MMSegmentation's decode heads.
    """

    def __init__(self, exported: Exported, threshold: float | None = None):
        super().__init__()
        self.exported, self.threshold = exported, threshold
        self.unused = nn.Parameter(torch.zeros(1))  # DistributedDataParallel needs a parameter

    def forward(self, inputs: Tensor, *_: Any) -> tuple[Tensor]:
        """Map normalised images (B, C, H, W) to logits, as a backbone returns its maps."""
        return (self.exported.run_normalised(inputs)['logits'], )

    def predict(self, inputs: Tensor, *_: Any) -> Tensor:
        """Map normalised images (B, C, H, W) to logits (B, classes, H, W), as a decode head does."""
        return self.forward(inputs)[0]


class ExportedDetector(BaseModel):
    """Runs a file in the place of one of MMDetection's detectors, whose methods process the file's outputs.

    Args:
        detector: the config's detector.
        exported: the file.
    """

    task = 'detection'  # see task_of

    def __init__(self, detector: BaseModel, exported: Exported):
        super().__init__()
        self.detector, self.exported = detector, exported
        self.data_preprocessor = detector.data_preprocessor
        detector.backbone = nn.Identity()  # its weights are in the file
        if 'masks' in exported.metadata['outputs']:  # the file gives the mask of the box's own class
            head = detector.roi_head.mask_head
            self.mask_head = head[-1] if isinstance(head, nn.ModuleList) else head  # of a cascade the last
            self.mask_head.class_agnostic = True

    def forward(self, inputs: Tensor, data_samples: Sequence[Any], mode: str = 'predict') -> Sequence[Any]:
        """Predict normalised images (B, C, H, W); return their data samples with predictions in original pixels."""
        results = [self._predict(image[None], sample.metainfo) for image, sample in zip(inputs, data_samples)]
        return self.detector.add_pred_to_datasample(data_samples, results)

    def _predict(self, image: Tensor, meta: dict[str, Any]) -> InstanceData:
        """Return the objects of one image (1, C, H, W), in the pixels of the image before it was resized."""
        height, width = meta['img_shape'][:2]  # without the padding of the batch
        image, scale = self._fit(image[..., :height, :width])
        outputs = self.exported.run_normalised(image)
        boxes = outputs['boxes'] / scale
        result = InstanceData(bboxes=boxes.clamp(min=0).minimum(boxes.new_tensor((width, height, width, height))),
                              scores=outputs['scores'], labels=outputs['labels'])
        if 'masks' not in outputs:
            result.bboxes /= result.bboxes.new_tensor(meta['scale_factor']).repeat(2)
            return result
        masks = outputs['masks'][:, None].cpu().numpy()  # of a tensor mmdet would warn that it copies it
        return self.mask_head.predict_by_feat((masks, ), [result], [meta], self.detector.roi_head.test_cfg,
                                              rescale=True, activate_map=True)[0]

    def _fit(self, image: Tensor) -> tuple[Tensor, float]:
        """Resize an image (1, C, H, W) into a file for one size and pad it; return it and the factor of its sides."""
        size, sides = self.exported.metadata['input_size'], image.shape[2:]
        if size is None:
            return image, 1.
        scale = min(new / old for new, old in zip(size, sides))
        if scale != 1:
            sides = [max(1, round(side * scale)) for side in sides]
            image = F.interpolate(image, sides, mode='bilinear', antialias=True)
        below, right = size[0] - sides[0], size[1] - sides[1]
        if scale != 1 or max(below, right) >= getattr(self.data_preprocessor, 'pad_size_divisor', 1):
            warnings.warn(f'{self.exported.file} takes images of {size[0]}x{size[1]}, into which others are fitted. '
                          'Global attention sees the padding: metrics may differ from those of the checkpoint. Export '
                          'without --size for images of any size.')
        return F.pad(image, (0, right, 0, below)), scale
