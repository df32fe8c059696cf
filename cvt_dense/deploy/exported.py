"""Test an exported classifier, segmentor or detector in the place of the config's model."""
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.structures import InstanceData
from torch import Tensor, nn

from ..config.settings import dicts, type_name
from ..errors import UserError
from ..models.task import task_of
from ..registry import MODELS
from .inputs import describe
from .runtime import open_exported

# An exported file has one set of weights, which was chosen when it was exported.
WEIGHT_HOOKS = ('EMAHook', 'RawWeightsHook')


def use_exported_model(cfg: Config, file: str, runtime: str | None = None) -> None:
    """Replace the model of ``cfg`` by a whole model that was exported; see :func:`exported_model`.

    Args:
        cfg: changed in place; it loads no checkpoint.
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        runtime: 'onnxruntime', 'openvino' or 'torch'. Default: by the file's suffix, in this order.
    """
    cfg.load_from = None
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if type_name(hook) not in WEIGHT_HOOKS]
    cfg.model.update(type='cvt_dense.ExportedModel', replaces=cfg.model.type, file=file, runtime=runtime)


@MODELS.register_module(name='ExportedModel')
def exported_model(file: str, replaces: str | type, runtime: str | None = None, **model: Any) -> BaseModel:
    """Build a config's model of a class that runs a file instead of its networks.

    What comes before and after the networks stays the config's: data preprocessor, sliding windows, resizing to the
    original image, masks on it. Test loops, metrics and mm's inference functions therefore work unchanged.

    Args:
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        replaces: the config's ``model.type``.
        runtime: runtime that opens the file, see :func:`use_exported_model`.
        model: the rest of the config's ``model``.

    Raises:
        UserError: no such file, a backbone, or one whose task, classes or normalisation are not the config's.
    """
    exported = open_exported(file, runtime)
    meta = exported.metadata
    if isinstance(replaces, str):
        with ROOT_MODELS.switch_scope_and_registry(None) as registry:
            replaces = registry.get(replaces)
    task = 'panoptic' if 'panoptic_fusion_head' in model else task_of(replaces)
    part = _PARTS.get(task)
    numbers = {node['num_classes'] for node in dicts(model) if isinstance(node.get('num_classes'), int)}
    names = meta['classes'] or ()
    if (meta['part'], meta['task']) != ('model', task) or names and numbers and len(names) not in numbers:
        raise UserError(f"{file} is a {meta['part']} for {meta['task']} with {len(names)} classes, and the config has "
                        f'a {replaces.__name__} with {" or ".join(map(str, sorted(numbers)))}: use the config that '
                        f"the file was exported with ({meta['config']}).")
    bases = (part, replaces) if part else (replaces, )
    network = ROOT_MODELS.build(dict(model, type=type(f'Exported{replaces.__name__}', bases, {})))
    for name, child in list(network.named_children()):
        if child is not network.data_preprocessor:
            delattr(network, name)
            vars(network)[name] = child.to('meta')  # post-processing reads its settings; the weights are removed
    buffers = {name: value.flatten().tolist() for name, value in network.data_preprocessor.named_buffers()}
    for key, given in (describe(Config(dict(model=model))) | buffers).items():
        if not np.allclose(given, meta.get(key, given), atol=1e-3):
            raise UserError(f'{file} was exported for images with {key} {meta[key]}, the config has '
                            f'model.data_preprocessor.{key}={given}: use the config that the file was exported with '
                            f"({meta['config']}).")
    network.register_parameter('none', nn.Parameter(torch.zeros(1)))  # several processes: DDP needs at least one
    network.exported = exported
    if part is None:  # a classifier, whose file has the heads and their mean
        vars(network).update(backbone=lambda inputs: (exported.run_normalised(inputs)['logits'], ), head=nn.Identity(),
                             head_dist=None)
    print_log(f"{file}: {meta['precision']}, exported from {meta['config']}, run by {exported.runtime} on the CPU",
              logger='current')
    return network


class _Segmentor:
    """Part of a class of mmseg's: it runs a file."""
    exported = None

    def encode_decode(self, inputs: Tensor, batch_img_metas: Any) -> Tensor:
        return self.exported.run_normalised(inputs)['logits']


class _Detector:
    """Part of a class of mmdet's: it runs a file on each image, without the padding of the batch."""
    exported = None

    def predict(self, batch_inputs: Tensor, batch_data_samples: Sequence[Any], rescale: bool = True) -> Sequence[Any]:
        results = []
        for image, sample in zip(batch_inputs, batch_data_samples):
            height, width = sample.metainfo['img_shape'][:2]
            found = self.exported.run_normalised(self._pad(image[None, :, :height, :width]))
            results.append(self._on_original(found, sample.metainfo, rescale))
        return self.add_pred_to_datasample(batch_data_samples, results)

    def _pad(self, image: Tensor) -> Tensor:
        """Pad an image to the size of a file for one size."""
        size = self.exported.metadata['input_size'] or image.shape[2:]
        below, right = (max(side - given, 0) for side, given in zip(size, image.shape[2:]))
        if max(below, right) >= getattr(self.data_preprocessor, 'pad_size_divisor', 1):
            warnings.warn(f'{self.exported.file} pads images to {size[0]}x{size[1]}, by more than the checkpoint, and '
                          'global attention sees the padding: metrics may differ. Export for free sizes (--dynamic).')
        return F.pad(image, (0, right, 0, below))

    def _on_original(self, found: dict[str, Tensor], meta: dict[str, Any], rescale: bool) -> InstanceData:
        """Return a detector's outputs for one image, in the pixels of the image before it was resized."""
        height, width = meta['img_shape'][:2]
        limits = found['boxes'].new_tensor((width, height, width, height))  # a file for one size pads smaller images
        result = InstanceData(bboxes=found['boxes'].clamp(min=0).minimum(limits), scores=found['scores'],
                              labels=found['labels'])
        if 'masks' not in found:
            if rescale:
                result.bboxes /= result.bboxes.new_tensor(meta['scale_factor']).repeat(2)
            return result
        head = self.roi_head.mask_head
        head = head[-1] if isinstance(head, nn.ModuleList) else head  # of a cascade the last
        head.class_agnostic = True  # the file gives the mask of the box's own class
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', UserWarning)  # mmdet copies the masks with new_tensor
            return head.predict_by_feat((found['masks'][:, None], ), [result], [meta], self.roi_head.test_cfg,
                                        rescale=rescale, activate_map=True)[0]


class _Queries:
    """Part of mmdet's Mask2Former: it runs a file, whose queries the config's fusion head makes into predictions."""
    exported = None

    def predict(self, batch_inputs: Tensor, batch_data_samples: Sequence[Any], rescale: bool = True) -> Sequence[Any]:
        found = self.exported.run_normalised(batch_inputs)
        results = self.panoptic_fusion_head.predict(found['class_logits'], found['mask_logits'], batch_data_samples,
                                                    rescale=rescale)
        return self.add_pred_to_datasample(batch_data_samples, results)


_PARTS = dict(segmentation=_Segmentor, detection=_Detector, panoptic=_Queries)
