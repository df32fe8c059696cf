"""Export mmdet's RetinaNet, Faster and Mask R-CNN as one program of standard operators.

mmdet's post-processing makes lists and objects of data-dependent length, which no exporter follows. Here it is written
again with two operators that ONNX has and PyTorch has not, NonMaxSuppression and RoiAlign: they are declared without a
kernel, so they exist in exported files only. The result is mmdet's, box by box.
"""
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from . import formats

OPSET = 20  # of two stages: ONNX Runtime has no kernel for the RoiAlign of opset 22

library = torch.library.Library('cvt_dense', 'FRAGMENT')
library.define('nms(Tensor boxes, Tensor scores, float iou_threshold, float score_threshold, int max_boxes) -> Tensor')
library.define('roi_align(Tensor maps, Tensor boxes, int height, int width, float scale, int sampling_ratio, '
               'bool aligned) -> Tensor')


@torch.library.register_fake('cvt_dense::nms', lib=library)
def _(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, max_boxes: int) -> Tensor:
    return scores.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)


@torch.library.register_fake('cvt_dense::roi_align', lib=library)
def _(maps: Tensor, boxes: Tensor, height: int, width: int, scale: float, sampling_ratio: int,
      aligned: bool) -> Tensor:
    return maps.new_empty(boxes.shape[0], maps.shape[1], height, width)


def translations(opset: int) -> dict[Any, Any]:
    """Return the two operators in ONNX, for ``torch.onnx.export``."""
    import onnxscript
    op = getattr(onnxscript, f'opset{opset}')

    def nms(boxes, scores, iou_threshold: float, score_threshold: float, max_boxes: int):
        zero, one = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
        chosen = op.NonMaxSuppression(
            op.Unsqueeze(boxes, zero), op.Unsqueeze(scores, op.Constant(value_ints=[0, 1])),
            op.Constant(value_ints=[max_boxes]), op.Constant(value_floats=[iou_threshold]),
            op.Constant(value_floats=[score_threshold]))  # (chosen, 3): image, class, box; by falling score
        return op.Squeeze(op.Slice(chosen, op.Constant(value_ints=[2]), op.Constant(value_ints=[3]), one), one)

    def roi_align(maps, boxes, height: int, width: int, scale: float, sampling_ratio: int, aligned: bool):
        count = op.Slice(op.Shape(boxes), op.Constant(value_ints=[0]), op.Constant(value_ints=[1]))
        first = op.Expand(op.Constant(value_ints=[0]), count)  # the one image
        mode = 'half_pixel' if aligned else 'output_half_pixel'
        return op.RoiAlign(maps, boxes, first, coordinate_transformation_mode=mode, mode='avg', output_height=height,
                           output_width=width, sampling_ratio=sampling_ratio, spatial_scale=scale)

    return {torch.ops.cvt_dense.nms.default: nms, torch.ops.cvt_dense.roi_align.default: roi_align}


def _name(thing: Any) -> str:
    return type(thing).__name__


def check_supported(model: nn.Module) -> None:
    """Raise a UserError unless this module implements every part of a detector."""
    roi_head = getattr(model, 'roi_head', None)
    first = getattr(model, 'bbox_head' if roi_head is None else 'rpn_head', None)
    parts = [(first, ('RetinaHead', ) if roi_head is None else ('RPNHead', ))]
    if roi_head is not None:
        parts.append((roi_head, ('StandardRoIHead', )))
    nms = []
    if all(_name(part) in allowed for part, allowed in parts):
        parts += [(first.prior_generator, ('AnchorGenerator', )), (first.bbox_coder, ('DeltaXYWHBBoxCoder', ))]
        nms.append(first.test_cfg.nms)
        if roi_head is not None:
            parts += [(roi_head.bbox_head.bbox_coder, ('DeltaXYWHBBoxCoder', )),
                      (roi_head.bbox_roi_extractor, ('SingleRoIExtractor', )),
                      (getattr(roi_head, 'mask_head', None), ('FCNMaskHead', 'NoneType'))]
            nms.append(roi_head.test_cfg.nms)
    odd = [f'{_name(part)} instead of {" or ".join(allowed)}' for part, allowed in parts if _name(part) not in allowed]
    odd += [f'test_cfg.nms.type={cfg.get("type")!r} instead of "nms"' for cfg in nms if cfg.get('type') != 'nms']
    if odd:
        raise UserError(f'{_name(model)} cannot be exported as a whole: it has {"; ".join(odd)}. RetinaNet, Faster '
                        'and Mask R-CNN can. Export its backbone with --part backbone; the rest then runs in PyTorch.')


def _decode(priors: Tensor, deltas: Tensor, coder: Any, shape: tuple[int, int]) -> Tensor:
    """Decode as DeltaXYWHBBoxCoder: (N, 4) priors and (N, 4) deltas to boxes inside an image of ``shape``."""
    deltas = deltas * deltas.new_tensor(coder.stds) + deltas.new_tensor(coder.means)
    sides, limit = priors[:, 2:] - priors[:, :2], abs(math.log(16 / 1000))
    shift, growth = sides * deltas[:, :2], deltas[:, 2:]
    if coder.add_ctr_clamp:
        shift, growth = shift.clamp(-coder.ctr_clamp, coder.ctr_clamp), growth.clamp(max=limit)
    else:
        growth = growth.clamp(-limit, limit)
    centre, half = (priors[:, :2] + priors[:, 2:]) * 0.5 + shift, sides * growth.exp() * 0.5
    boxes = torch.cat([centre - half, centre + half], dim=1)
    if coder.clip_border:
        height, width = shape
        limits = torch.stack([torch.scalar_tensor(side, device=boxes.device) for side in (width, height) * 2])
        boxes = torch.minimum(boxes.clamp(min=0), limits.to(boxes.dtype))
    return boxes


def _suppress(boxes: Tensor, scores: Tensor, groups: Tensor, cfg: Any, nms: Any) -> Tensor:
    """Return the indices of the boxes that remain, by falling score; groups do not suppress each other."""
    if nms.get('class_agnostic', False):
        apart = boxes
    else:
        apart = boxes + (groups.to(boxes.dtype) * (boxes.max() + 1))[:, None]
    limit = cfg.get('max_per_img', -1)
    return torch.ops.cvt_dense.nms(apart, scores, nms['iou_threshold'], cfg.get('score_thr', 0.),
                                   limit if limit > 0 else len(scores))


class Detector(nn.Module):
    """Boxes, scores, labels and, with a mask head, masks of one image, see :mod:`cvt_dense.deploy`.

    Args:
        model: a model of MMDetection, see :func:`check_supported`.
        pad_divisor, pad_value: settings of its data preprocessor.
    """

    def __init__(self, model: nn.Module, pad_divisor: int = 1, pad_value: float = 0.):
        super().__init__()
        check_supported(model)
        self.model, self.pad_divisor, self.pad_value = model, pad_divisor, pad_value
        masks = hasattr(model, 'roi_head') and model.roi_head.with_mask
        self.names = ['boxes', 'scores', 'labels', *(['masks'] if masks else [])]
        self.opset = OPSET if hasattr(model, 'roi_head') else formats.OPSET
        self.mask_thr = float(model.roi_head.test_cfg.mask_thr_binary) if masks else None

    def pad(self, image: Tensor) -> Tensor:
        """Return an image (1, C, H, W) padded at the bottom and right to multiples of ``pad_divisor``."""
        height, width = image.shape[2:]
        return F.pad(image, (0, -width % self.pad_divisor, 0, -height % self.pad_divisor), value=self.pad_value)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        shape = image.shape[2], image.shape[3]
        maps = tuple(x.float() for x in self.model.extract_feat(self.pad(image)))
        if not hasattr(self.model, 'roi_head'):
            head = self.model.bbox_head
            boxes, scores, labels, _ = self._candidates(head, maps, shape)
            keep = _suppress(boxes, scores, labels, head.test_cfg, head.test_cfg.nms)
            return boxes[keep], scores[keep], labels[keep]
        head = self.model.rpn_head
        boxes, scores, _, levels = self._candidates(head, maps, shape)
        proposals = boxes[_suppress(boxes, scores, levels, head.test_cfg, head.test_cfg.nms)]
        boxes, scores, labels = self._classify(maps, proposals, shape)
        if 'masks' not in self.names:
            return boxes, scores, labels
        return boxes, scores, labels, self._masks(maps, boxes, labels)

    def dense(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the first head, before post-processing."""
        head = self.model.rpn_head if hasattr(self.model, 'roi_head') else self.model.bbox_head
        return tuple(y for outputs in head(self.model.extract_feat(self.pad(image))) for y in outputs)

    @staticmethod
    def _candidates(head: nn.Module, maps: tuple[Tensor, ...], shape: tuple[int, int]) -> tuple[Tensor, ...]:
        """Return a dense head's best boxes of each level, their scores, labels and levels."""
        cfg, found = head.test_cfg, []
        outputs = [[y[0].permute(1, 2, 0) for y in level] for level in zip(*head(maps))]
        priors = head.prior_generator.grid_priors([y[0].shape[:2] for y in outputs], maps[0].dtype, maps[0].device)
        for level, ((logits, deltas), boxes) in enumerate(zip(outputs, priors)):
            logits, deltas = logits.reshape(-1, head.cls_out_channels), deltas.reshape(-1, 4)
            scores = logits.sigmoid() if head.use_sigmoid_cls else logits.softmax(-1)[:, :-1]
            classes, limit = scores.shape[1], cfg.get('nms_pre', -1)
            scores = scores.flatten()
            count = torch.sym_min(limit, scores.shape[0]) if limit > 0 else scores.shape[0]
            scores, best = scores.topk(count)
            place = best // classes
            boxes = _decode(boxes[place], deltas[place], head.bbox_coder, shape)
            if cfg.get('min_bbox_size', -1) >= 0:
                scores = scores.where((boxes[:, 2:] - boxes[:, :2] > cfg.min_bbox_size).all(dim=1), -1.)
            found.append((boxes, scores, best % classes, torch.full_like(best, level)))
        return tuple(map(torch.cat, zip(*found)))

    def _classify(self, maps: tuple[Tensor, ...], proposals: Tensor, shape: tuple[int, int]) -> tuple[Tensor, ...]:
        roi_head, head = self.model.roi_head, self.model.roi_head.bbox_head
        logits, deltas = head(self._regions(roi_head.bbox_roi_extractor, maps, proposals))
        scores = logits.softmax(dim=-1)[:, :-1]
        classes = scores.shape[1]
        each = 1 if head.reg_class_agnostic else classes
        boxes = proposals[:, None].expand(-1, each, 4).reshape(-1, 4)
        boxes = _decode(boxes, deltas.reshape(-1, 4), head.bbox_coder, shape)
        boxes = boxes.view(-1, each, 4).expand(-1, classes, 4).reshape(-1, 4)
        labels = torch.arange(classes, device=boxes.device)[None].expand_as(scores).reshape(-1)
        scores = scores.reshape(-1)
        keep = _suppress(boxes, scores, labels, roi_head.test_cfg, roi_head.test_cfg.nms)
        return boxes[keep], scores[keep], labels[keep]

    def _masks(self, maps: tuple[Tensor, ...], boxes: Tensor, labels: Tensor) -> Tensor:
        roi_head = self.model.roi_head
        masks = roi_head.mask_head(self._regions(roi_head.mask_roi_extractor, maps, boxes)).sigmoid()
        if roi_head.mask_head.class_agnostic:
            return masks[:, 0]
        return masks.gather(1, labels[:, None, None, None].expand(-1, 1, *masks.shape[2:]))[:, 0]

    @staticmethod
    def _regions(extractor: nn.Module, maps: tuple[Tensor, ...], boxes: Tensor) -> Tensor:
        """Return each box's part of the map of its level, in the boxes' order."""
        maps = maps[:extractor.num_inputs]
        levels = extractor.map_roi_levels(F.pad(boxes, (1, 0)), len(maps))
        regions, places = [], []
        for level, (layer, x) in enumerate(zip(extractor.roi_layers, maps)):
            place = (levels == level).nonzero()[:, 0]
            torch._check(place.shape[0] < 2**31)  # the exporter adds these limits up, in int64
            regions.append(torch.ops.cvt_dense.roi_align(
                x, boxes[place], *layer.output_size, layer.spatial_scale, layer.sampling_ratio, layer.aligned))
            places.append(place)
        return torch.cat(regions)[torch.cat(places).argsort()]


def reference(detector: Detector, model: nn.Module, image: Tensor) -> tuple[Tensor, ...]:
    """Return mmdet's own predictions of a normalised image, with which exported detectors are compared.

    Args:
        detector: the exported form, for its padding and the names of its outputs.
        model: mmdet's detector.
        image: (1, 3, H, W).

    Returns:
        The outputs of :class:`Detector`: boxes (N, 4) in pixels, scores (N, ), labels (N, ) and, with masks,
        probabilities (N, h, w) inside the boxes.
    """
    shape = tuple(image.shape[2:])
    padded = detector.pad(image)
    meta = dict(img_shape=shape, ori_shape=shape, pad_shape=tuple(padded.shape[2:]), scale_factor=(1., 1.),
                batch_input_shape=tuple(padded.shape[2:]))
    samples, maps = [SimpleNamespace(metainfo=meta)], model.extract_feat(padded)
    if not hasattr(model, 'roi_head'):
        found = model.bbox_head.predict(maps, samples, rescale=False)[0]
        return found.bboxes, found.scores, found.labels
    roi_head = model.roi_head
    proposals = model.rpn_head.predict(maps, samples, rescale=False)
    found = roi_head.predict_bbox(maps, [meta], proposals, roi_head.test_cfg, rescale=False)[0]
    results = found.bboxes, found.scores, found.labels
    if 'masks' not in detector.names:
        return results
    extractor = roi_head.mask_roi_extractor
    masks = roi_head.mask_head(extractor(maps[:extractor.num_inputs], F.pad(found.bboxes, (1, 0)))).sigmoid()
    chosen = found.labels * (0 if roi_head.mask_head.class_agnostic else 1)
    return *results, masks[torch.arange(len(masks)), chosen]
