"""Exported files in the place of a backbone, or of a whole classifier, segmentor or detector."""
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.config import Config, ConfigDict
from mmengine.logging import print_log
from mmengine.model import BaseModel, BaseModule
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData
from torch import Tensor, nn

from ..errors import UserError
from ..nodes import dicts, type_name
from ..registry import MODELS
from .runtime import Exported, open_exported

# An exported file has one set of weights, which was chosen when it was exported.
WEIGHT_HOOKS = ('EMAHook', 'RawWeightsHook')


class _InferenceOnly(BaseModule):
    """Holds a file in place of weights: nothing is loaded into it, and it is not trained."""

    def __init__(self, exported: Exported, init_cfg: Any = None):
        super().__init__(init_cfg)
        self.exported = exported
        self.register_load_state_dict_pre_hook(_drop_weights)
        self.eval()

    def train(self, mode: bool = True) -> '_InferenceOnly':
        if mode:
            raise UserError(f'{self.exported.file} is an exported file, which cannot be trained: train with the '
                            "network that it was exported from (model.backbone.type='cvt_dense.CvT').")
        return super().train(mode)

    def init_weights(self) -> None:
        """Do nothing: the file holds the weights."""


def _drop_weights(module: nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Remove this part's weights from a whole model's checkpoint, because the file contains them."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        del state_dict[name]


@MODELS.register_module()
class ExportedBackbone(_InferenceOnly):
    """A backbone that was exported with ``tools/export.py --part backbone``, for inference in any mm-config.

    ``model.backbone = dict(type='cvt_dense.ExportedBackbone', file='cvt13.onnx')``: neck and heads load the whole
    model's checkpoint as before. It runs on the CPU, wherever the rest is.

    Args:
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        runtime: 'onnxruntime', 'openvino' or 'torch'. Default: by the file's suffix, in this order.
        init_cfg: as in any MMEngine module; there is nothing to initialise.

    Attributes:
        out_channels: tuple of each output's channels.
        out_strides: tuple of each output's stride (maps only).

    Raises:
        UserError: no such file, a whole model, or a runtime that is not installed; when it runs: images of another
            size than the file was made for; when it is to be trained.

    Shapes:
        Input (B, 3, H, W), normalised, also of a file with the normalisation inside. Always returns a tuple of
        contiguous float32 maps (B, C_i, H_i, W_i), or of a classifier's backbone one (B, C).
    """

    def __init__(self, file: str, runtime: str | None = None, init_cfg: dict[str, Any] | None = None):
        exported = open_exported(file, runtime)
        if exported.metadata['part'] != 'backbone':
            raise UserError(f'{file} is a whole model, not a backbone: give it to tools/test.py in place of the '
                            'checkpoint, or export with --part backbone.')
        super().__init__(exported, init_cfg)
        self.out_channels = tuple(exported.metadata['out_channels'])
        self.out_strides = tuple(exported.metadata['out_strides'] or ())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = self.exported.run_normalised(x)
        return tuple(outputs[f'feat{i}'].contiguous() for i in range(len(outputs)))


@MODELS.register_module(name='ExportedModel')
def exported_model(file: str, replaces: str | type, runtime: str | None = None, **model: Any) -> BaseModel:
    """Build a config's model whose networks are replaced by a file that was exported from the whole.

    What comes before and after the networks stays the config's: data preprocessor, sliding windows, resizing to the
    original image, masks on it. Test loops, metrics and mm's inference functions therefore work unchanged.

    Args:
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        replaces: the config's ``model.type``.
        runtime: runtime that opens the file, see :class:`ExportedBackbone`.
        model: the rest of the config's ``model``.

    Raises:
        UserError: no such file, a backbone, or one whose task, classes or normalisation are not the config's.
    """
    exported = open_exported(file, runtime)
    meta = exported.metadata
    if meta['part'] != 'model':
        raise UserError(f'{file} is a backbone; evaluate it in its model with tools/test.py CONFIG CHECKPOINT '
                        f'--backbone {file}.')
    check_classes(exported, model)
    network = ROOT_MODELS.build(dict(model, type=replaces))
    check_normalisation(exported, network.data_preprocessor)
    method, replace = _TASKS[meta['task']]
    if not hasattr(network, method):
        raise UserError(f"{file} was exported for {meta['task']}, which model.type={type_name(dict(type=replaces))!r} "
                        f"does not do: use the config that it was exported with ({meta['config']}).")
    for name, part in list(network.named_children()):
        if part is not network.data_preprocessor:
            delattr(network, name)
            vars(network)[name] = part.to('meta')  # post-processing reads its settings; the weights are removed
    network.exported = _InferenceOnly(exported)
    network.register_parameter('none', nn.Parameter(torch.zeros(1)))  # several processes: DDP needs at least one
    replace(network, exported)
    return network


# -- in a config ------------------------------------------------------------------------------------------------


def use_exported_model(cfg: Config, file: str, runtime: str | None = None) -> None:
    """Replace the model of ``cfg`` by a whole model that was exported; see :func:`exported_model`.

    Args:
        cfg: changed in place; it loads no checkpoint.
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        runtime: runtime that opens the file, see :class:`ExportedBackbone`.

    Raises:
        UserError: the file cannot be opened, or has other classes.
    """
    cfg.load_from = None
    check_classes(_open_for_test(cfg, file, runtime), cfg.model)  # a data set's error would name another reason
    cfg.model.update(type='cvt_dense.ExportedModel', replaces=cfg.model.type, file=file, runtime=runtime)


def use_exported_backbone(cfg: Config, file: str, runtime: str | None = None) -> None:
    """Replace the backbone of ``cfg`` by an exported one.

    Args:
        cfg: changed in place.
        file: ``.onnx``, ``.xml`` or ``.pt2``.
        runtime: runtime that opens the file, see :class:`ExportedBackbone`.

    Raises:
        UserError: the file cannot be opened, or its normalisation or channels are not the config's.
    """
    exported = _open_for_test(cfg, file, runtime)
    if cfg.model.get('data_preprocessor'):
        check_normalisation(exported, ROOT_MODELS.build(cfg.model.data_preprocessor))
    wanted = getattr(ROOT_MODELS.build(cfg.model.backbone), 'out_channels', None)
    given = tuple(exported.metadata['out_channels'])
    if exported.metadata['part'] == 'backbone' and wanted is not None and tuple(wanted) != given:
        raise UserError(f"--backbone {file} gives maps of {given} channels, model.backbone of {tuple(wanted)}: use the "
                        f"config that the file was exported with ({exported.metadata['config']}).")
    cfg.model.backbone = ConfigDict(type='cvt_dense.ExportedBackbone', file=file, runtime=runtime)


def _open_for_test(cfg: Config, file: str, runtime: str | None) -> Exported:
    """Open a file and remove hooks for a second set of weights, which the file does not have."""
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if type_name(hook) not in WEIGHT_HOOKS]
    exported = open_exported(file, runtime)
    print_log(f"{file}: {exported.metadata['precision']}, exported from {exported.metadata['config']}, run by "
              f'{exported.runtime} on the CPU', logger='current')
    return exported


# -- does the file fit the config? ------------------------------------------------------------------------------


def check_classes(exported: Exported, model: dict[str, Any]) -> None:
    """Check that a file has as many classes as a config's model.

    Raises:
        UserError: it has another number.
    """
    numbers = {node['num_classes'] for node in dicts(model) if isinstance(node.get('num_classes'), int)}
    names = exported.metadata['classes']
    if names and numbers and len(names) not in numbers:
        raise UserError(f"{exported.file} has {len(names)} classes ({', '.join(map(str, names[:5]))}"
                        f"{', ...' if len(names) > 5 else ''}), the config's model has "
                        f"{' or '.join(map(str, sorted(numbers)))}: use the config that the file was exported with "
                        f"({exported.metadata['config']}), or export again from this one.")


def check_normalisation(exported: Exported, preprocessor: nn.Module) -> None:
    """Check that a data preprocessor normalises as a file expects; one that leaves it to the pipeline passes.

    Raises:
        UserError: mean or deviation differ.
    """
    for key in ('mean', 'std'):
        wanted, given = exported.metadata[key], getattr(preprocessor, key, None)
        if given is None:
            continue
        given = given.flatten().tolist()
        if len(given) != len(wanted) or not torch.allclose(
                torch.tensor(given).float(), torch.tensor(wanted).float(), atol=1e-3):
            raise UserError(f'{exported.file} was exported for images with {key} {wanted}, the config has '
                            f"model.data_preprocessor.{key}={given}: use the config that the file was exported with "
                            f"({exported.metadata['config']}), or export again from this one.")


# -- the three tasks ----------------------------------------------------------------------------------------------


class _Logits(nn.Module):
    """Replaces a classifier's backbone; its vector is the logits."""

    def __init__(self, run: Callable[[Tensor], Tensor]):
        super().__init__()
        self.run = run

    def forward(self, inputs: Tensor) -> tuple[Tensor]:
        return (self.run(inputs), )


def _checked_outputs(exported: Exported, number: int) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return ``exported.run_normalised`` that compares the number of outputs with that of the config's head."""

    def run(inputs: Tensor) -> dict[str, Tensor]:
        outputs = exported.run_normalised(inputs)
        if 'logits' in outputs and outputs['logits'].shape[1] != number:
            raise UserError(f"{exported.file} has {outputs['logits'].shape[1]} outputs, the config's head {number}: "
                            f"use the config that the file was exported with ({exported.metadata['config']}).")
        return outputs

    return run


def _classify(network: BaseModel, exported: Exported) -> None:
    run = _checked_outputs(exported, network.num_classes)
    network.backbone, network.head = _Logits(lambda inputs: run(inputs)['logits']), nn.Identity()
    network.head_dist = None  # its mean with the other head is in the file


def _segment(network: BaseModel, exported: Exported) -> None:
    run = _checked_outputs(exported, network.out_channels)

    def encode_decode(inputs: Tensor, batch_img_metas: Any) -> Tensor:
        outputs = run(inputs)
        if 'logits' in outputs:
            return outputs['logits']
        return F.one_hot(outputs['labels'], network.num_classes).permute(0, 3, 1, 2).float()

    network.encode_decode = encode_decode


def _detect(network: BaseModel, exported: Exported) -> None:
    fixed = exported.metadata['input_size']
    divisor = getattr(network.data_preprocessor, 'pad_size_divisor', 1)
    reported = False

    def pad(image: Tensor) -> Tensor:
        """Pad an image to the file's size, and warn where that is more than the data preprocessor pads."""
        nonlocal reported
        height, width = image.shape[2:]
        if fixed is None or height > fixed[0] or width > fixed[1]:
            return image
        usual = [-(-side // divisor) * divisor for side in (height, width)]
        if not reported and (fixed[0] > usual[0] or fixed[1] > usual[1]):
            reported = True
            print_log(f'{exported.file} pads images of {height}x{width} pixels to {fixed[0]}x{fixed[1]}, where the '
                      f'checkpoint sees {usual[0]}x{usual[1]}. Global attention sees the padding, so metrics may '
                      'differ: export for free sizes (--dynamic).', logger='current', level=logging.WARNING)
        return F.pad(image, (0, fixed[1] - width, 0, fixed[0] - height))

    def predict(inputs: Tensor, data_samples: Sequence[Any], rescale: bool = True) -> Sequence[Any]:
        results = []
        for image, sample in zip(inputs, data_samples):
            height, width = sample.metainfo['img_shape'][:2]
            found = exported.run_normalised(pad(image[None, :, :height, :width]))  # without the batch's padding
            results.append(_on_original(network, found, sample.metainfo, rescale))
        return network.add_pred_to_datasample(data_samples, results)

    network.predict = predict


def _on_original(network: BaseModel, found: dict[str, Tensor], meta: dict[str, Any], rescale: bool) -> InstanceData:
    """Return a detector's outputs for one image, in the pixels of the image before it was resized."""
    height, width = meta['img_shape'][:2]
    boxes = found['boxes'].clone()
    boxes[:, 0::2].clamp_(0, width)  # a file for one size pads smaller images
    boxes[:, 1::2].clamp_(0, height)
    result = InstanceData(bboxes=boxes, scores=found['scores'], labels=found['labels'])
    if 'masks' not in found:
        if rescale:
            result.bboxes = boxes / boxes.new_tensor(meta['scale_factor']).repeat(2)
        return result
    head = network.roi_head.mask_head
    head = head[-1] if isinstance(head, nn.ModuleList) else head  # of a cascade the last
    head.class_agnostic = True  # the file gives the mask of the box's own class
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)  # mmdet copies the masks with new_tensor
        return head.predict_by_feat((found['masks'][:, None], ), [result], [meta], network.roi_head.test_cfg,
                                    rescale=rescale, activate_map=True)[0]


# task: a method that only such models have, and what puts the file into one
_TASKS = dict(classification=('num_classes', _classify), segmentation=('encode_decode', _segment),
              detection=('add_pred_to_datasample', _detect))
