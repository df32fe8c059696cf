"""Networks of tensors: what a file computes for an image, by the prediction methods of mmdet and mmseg.

Networks are recognised by their attributes (``encode_decode``, ``roi_head``), not by their classes. Exporters get a
copy of the model, see :func:`make_exportable`; the model itself gives what files are compared with.
"""
import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import BatchNormAct2d, Mlp
from torch import Tensor, nn

from ..errors import UserError
from ..models.attention import QuickGELU
from ..models.task import task_of
from . import operators, tracing


def normaliser(mean: Sequence[float], std: Sequence[float], flip: bool) -> Callable[[Tensor], Tensor]:
    """Return a function that converts raw RGB images, uint8 (B, 3, H, W), to the input of a network, float32.

    Args:
        mean, std: one for each channel as the network takes them, in units of 0 to 255.
        flip: the network takes BGR.
    """
    mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (mean, std))
    return lambda image: ((image.flip(1) if flip else image).float() - mean) / std


class Network(nn.Module):
    """The program in a file: an image to a tuple of outputs.

    Args:
        model: classifier, segmentor or detector.
        part: 'model' or 'backbone'.
        normalise: function that normalises raw images (B, 3, H, W); None: the image comes normalised.

    Attributes:
        names: names of the outputs.

    Raises:
        UserError: there is no way to export this model, or this part of it.
    """

    def __init__(self, model: nn.Module, part: str = 'model',
                 normalise: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        self.model, self.normalise = model, normalise
        task = 'backbone' if part == 'backbone' else task_of(model)
        if task is None:
            raise unsupported(model, 'it is no classifier, segmentor or detector')
        for module in model.modules() if task != 'backbone' else ():  # such as DINO and Mask2FormerHead
            if hasattr(module, 'num_queries') or hasattr(module, 'panoptic_fusion_head'):
                raise unsupported(model, f'{type(module).__name__} predicts by queries or by a panoptic head')
        self.names = ['logits']
        self.run = dict(backbone=lambda image: model.backbone(image),  # maps, of a classifier a vector
                        classification=lambda image: (model(image, mode='tensor'), ), segmentation=self.segment,
                        detection=self.detect)[task]
        if task == 'backbone':
            self.names = [f'feat{i}' for i in range(len(model.backbone.out_channels))]
        if task == 'detection':
            self.names = ['boxes', 'scores', 'labels', *(['masks'] if has_masks(model) else [])]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs by ``names``."""
        return tuple(self.run(image if self.normalise is None else self.normalise(image.permute(0, 3, 1, 2))))

    @torch.no_grad()
    def by_name(self, image: Tensor) -> dict[str, Tensor]:
        """Return the outputs in a dict."""
        return dict(zip(self.names, self(image)))

    def segment(self, image: Tensor) -> tuple[Tensor]:
        """Return logits (B, classes, H, W) at the image's size."""
        shape = dict(img_shape=tuple(image.shape[2:]))
        return (self.model.encode_decode(image, [shape]), )  # heads read the shape of the first image alone

    def detect(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return boxes, scores, labels and, with a mask head, masks of one image, as an exported file does."""
        (height, width), model, preprocessor = image.shape[2:], self.model, self.model.data_preprocessor
        divisor = getattr(preprocessor, 'pad_size_divisor', 1)
        image = F.pad(image, (0, -width % divisor, 0, -height % divisor),
                      value=float(getattr(preprocessor, 'pad_value', 0)))
        meta = dict(img_shape=(height, width), scale_factor=(1., 1.))
        sample = tracing.Results(metainfo=meta)
        if not hasattr(model, 'roi_head'):
            results = model.predict(image, [sample], rescale=False)[0].pred_instances
            return results.bboxes, results.scores, results.labels
        maps, head = model.extract_feat(image), model.roi_head
        if isinstance(model.rpn_head, Proposals):
            outputs = detect_regions(head, maps, model.rpn_head(maps, (height, width)), meta)
        else:
            proposals = model.rpn_head.predict(maps, [sample], rescale=False)
            results, = head.predict_bbox(maps, [meta], proposals, head.test_cfg)
            outputs = results.bboxes, results.scores, results.labels
        return (*outputs, mask_regions(head, maps, *outputs)) if head.with_mask else outputs


def has_masks(model: nn.Module) -> bool:
    """Return whether a detector has the mask head of (Cascade) Mask R-CNN.

    Raises:
        UserError: it has another one.
    """
    head = getattr(model, 'roi_head', None)
    masks = hasattr(model, 'mask_head') or head is not None and head.with_mask
    if masks and type(head).__name__ not in ('StandardRoIHead', 'CascadeRoIHead'):
        raise unsupported(model, f'its masks come from {type(head or model.mask_head).__name__}')
    return masks


def stages_of(head: nn.Module) -> list[tuple[int, ...]]:
    """Return for each stage of a RoI head the arguments that choose it: of a cascade its number."""
    return [(i, ) for i in range(getattr(head, 'num_stages', 0))] or [()]


def detect_regions(head: nn.Module, maps: tuple[Tensor, ...], boxes: Tensor,
                   meta: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``predict_bbox`` of mmdet's RoI heads for the proposals (N, 4) of one image: boxes, scores, labels."""
    from mmcv.ops import batched_nms
    logits, stages = [], stages_of(head)
    for stage in stages:
        part = head.bbox_head[stage[0]] if stage else head.bbox_head
        output = head._bbox_forward(*stage, maps, F.pad(boxes, (1, 0)))
        logits.append(output['cls_score'])
        if stage != stages[-1]:
            boxes = part.regress_by_class(boxes, logits[-1][:, :-1].argmax(dim=1), output['bbox_pred'], meta)
    logits, deltas = sum(logits) / len(stages), output['bbox_pred'].reshape(-1, part.bbox_coder.encode_size)
    scores = part.loss_cls.get_activation(logits) if part.custom_cls_channels else logits.softmax(dim=-1)
    scores, classes = scores[:, :-1], scores.shape[1] - 1  # without the background
    each = 1 if part.reg_class_agnostic else classes  # boxes of a proposal
    boxes = part.bbox_coder.decode(boxes.repeat_interleave(each, dim=0), deltas, max_shape=meta['img_shape'])
    labels = torch.arange(classes, device=boxes.device).expand(scores.shape[0], classes).reshape(-1)
    boxes = boxes.view(scores.shape[0], each, 4).expand(scores.shape[0], classes, 4).reshape(-1, 4)
    boxes, keep = batched_nms(boxes, scores.reshape(-1), labels,
                              dict(head.test_cfg.nms, score_threshold=head.test_cfg.score_thr))
    return boxes[:, :4], boxes[:, 4], labels[keep]


def mask_regions(head: nn.Module, maps: tuple[Tensor, ...], boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Return probabilities (N, h, w) inside the boxes; of a cascade the mean of its heads.

    One more region is computed and left out: ONNX Runtime's convolutions in blocks of channels fail without regions.
    """
    rois, stages = F.pad(boxes, (1, 0, 0, 1)), stages_of(head)
    masks = sum(head._mask_forward(*stage, maps, rois)['mask_preds'].sigmoid() for stage in stages) / len(stages)
    labels = F.pad(labels, (0, 1)) * (masks.shape[1] > 1)  # or one mask for all classes
    return masks.gather(1, labels[:, None, None, None].expand(-1, 1, *masks.shape[2:]))[:-1, 0]


def unsupported(model: nn.Module, reason: str) -> UserError:
    """Return an error that says why a model cannot be exported, and what can."""
    return UserError(f'{type(model).__name__} cannot be exported as a whole: {reason}. Export its backbone with --part '
                     'backbone.')


# -- modules that exporters can process -------------------------------------------------------------------------


def make_exportable(model: nn.Module, part: str = 'model') -> nn.Module:
    """Return a copy in eval mode, with folded BatchNorm, that exporters can process.

    Raises:
        UserError: a head suppresses boxes otherwise than by NMS.
    """
    from mmcv.cnn import fuse_conv_bn
    model = copy.deepcopy(model).eval()
    for name, child in list(model.named_children()):
        if name == 'auxiliary_head' or part == 'backbone' and name != 'backbone':  # not in the file
            delattr(model, name)
    convolutions, activations = set(), []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.AdaptiveAvgPool2d):
                setattr(module, name, AnySizePool(child.output_size))
            elif child in convolutions:  # RTMDet's levels share them, each with a BatchNorm of its own to be folded
                setattr(module, name, copy.deepcopy(child))
            elif isinstance(child, nn.Conv2d):
                convolutions.add(child)
            elif isinstance(child, BatchNormAct2d):
                activations.append((module, name, nn.Sequential(child.drop, child.act)))
            elif hasattr(child, 'map_roi_levels'):
                setattr(module, name, Regions(child))
            elif isinstance(child, Mlp) and isinstance(child.act, QuickGELU):
                fold_factor(child)
    settings = {id(part.test_cfg): part.test_cfg for part in model.modules()
                if 'nms' in (getattr(part, 'test_cfg', None) or {})}
    for cfg in settings.values():
        if cfg.nms.get('type') != 'nms':
            raise unsupported(model, f"test_cfg.nms.type={cfg.nms.get('type')!r} is not 'nms'")
        cfg.nms.update(type=partial(tracing.suppress, min_size=cfg.pop('min_bbox_size', None)),
                       max_num=cfg.get('max_per_img', -1), split_thr=tracing.UNLIMITED)
    if hasattr(model, 'roi_head'):
        model.rpn_head = Proposals(model.rpn_head)
    fuse_conv_bn(model)  # exporters would, too, and lose the layers' names
    for module, name, activation in activations:
        if isinstance(getattr(module, name), nn.Identity):  # in place of a norm that contained its activation
            setattr(module, name, activation)
    return model


@torch.no_grad()
def fold_factor(mlp: Mlp) -> None:
    """Turn QuickGELU into SiLU by scaling the linear layers, without which ONNX Runtime takes half as long again."""
    mlp.fc1.weight.mul_(QuickGELU.factor)
    mlp.fc1.bias.mul_(QuickGELU.factor)
    mlp.fc2.weight.div_(QuickGELU.factor)
    mlp.act = nn.SiLU()


class AnySizePool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` as two matrix products, which exporters can write for images of any size.

    Args:
        output_size: (rows, columns), or one number for both.
    """

    def __init__(self, output_size: int | tuple[int, int]):
        super().__init__()
        self.output_size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)

    @staticmethod
    def _fractions(length: int, bins: int, like: Tensor) -> Tensor:
        """Return (bins, length): the weight of each place in each bin's mean; bins overlap as PyTorch's do."""
        position = torch.arange(length, device=like.device)[None]
        index = torch.arange(bins, device=like.device)[:, None]
        inside = (position >= index * length // bins) & (position < ((index + 1) * length + bins - 1) // bins)
        inside = inside.to(like.dtype)
        return inside / inside.sum(dim=1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.output_size
        return self._fractions(x.shape[2], rows, x) @ x @ self._fractions(x.shape[3], columns, x).T


class Proposals(nn.Module):
    """mmdet's ``RPNHead`` for one image; it always keeps the ``nms_pre`` best boxes, not those above a threshold."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, maps: Sequence[Tensor], shape: tuple[int, int]) -> Tensor:
        """Return the region proposals (N, 4) of an image of the shape (H, W)."""
        from mmcv.ops import batched_nms
        head, candidates = self.head, []
        outputs = [[y[0].permute(1, 2, 0) for y in level] for level in zip(*head(maps))]
        priors = head.prior_generator.grid_priors([y[0].shape[:2] for y in outputs], maps[0].dtype, maps[0].device)
        for level, ((logits, deltas), boxes) in enumerate(zip(outputs, priors)):
            logits = logits.reshape(-1, head.cls_out_channels)
            scores = logits.sigmoid() if head.use_sigmoid_cls else logits.softmax(-1)[:, :-1]
            scores, _, _, chosen = tracing.best_scores(scores, 0., head.test_cfg.get('nms_pre', -1),
                                                       dict(boxes=boxes, deltas=deltas.reshape(-1, 4)))
            boxes = head.bbox_coder.decode(*chosen.values(), max_shape=shape)
            candidates.append((boxes, scores, torch.full_like(scores, level)))
        boxes, _ = batched_nms(*map(torch.cat, zip(*candidates)), head.test_cfg.nms)
        torch._check(boxes.shape[0] > 0)
        torch._check(boxes.shape[0] < 2**20)  # so that mmcv suppresses all classes in one step
        return boxes[:, :4]


class Regions(nn.Module):
    """Computes mmdet's ``SingleRoIExtractor``: regions (N, C, h, w) of boxes, each from the map of its level."""

    def __init__(self, extractor: nn.Module):
        super().__init__()
        self.extractor, self.num_inputs = extractor, extractor.num_inputs

    def forward(self, maps: tuple[Tensor, ...], rois: Tensor, roi_scale_factor: Any = None) -> Tensor:
        levels = self.extractor.map_roi_levels(rois, len(maps))
        regions, order = [], []
        for level, (layer, x) in enumerate(zip(self.extractor.roi_layers, maps)):
            indices = (levels == level).nonzero()[:, 0]
            torch._check(indices.shape[0] < 2**31)  # the exporter adds these limits up, in int64
            regions.append(operators.roi_align(x, rois[indices, 1:], *layer.output_size, layer.spatial_scale,
                                               layer.sampling_ratio, layer.aligned))
            order.append(indices)
        regions = torch.cat(regions)[torch.cat(order).argsort()]
        torch._check(regions.shape[0] > 0)
        return regions
