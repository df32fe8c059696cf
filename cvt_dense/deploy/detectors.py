"""mmdet's detectors as networks of tensors: predictions of one image, as mmdet computes them and as they are exported.

Exported are mmdet's own prediction methods, see :mod:`.tracing`, except for what a region proposal network does after
its layers and the sampling of regions, whose graph depends on the values in tensors.
"""
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from . import formats, operators, tracing


class Sample(SimpleNamespace):
    """What predictions read of a ``DetDataSample``, which copies its entries and so cannot hold symbols of a tracer."""

    def __contains__(self, name: str) -> bool:
        return False  # no annotations


class Detector(nn.Module):
    """Boxes, scores, labels and, with a mask head, masks of one image, see :mod:`cvt_dense.deploy`.

    Args:
        model: a model of MMDetection.
        pad_divisor, pad_value: settings of its data preprocessor.

    Raises:
        UserError: its masks are not those of Mask R-CNN or Cascade Mask R-CNN.
    """

    def __init__(self, model: nn.Module, pad_divisor: int = 1, pad_value: float = 0.):
        super().__init__()
        self.model, self.pad_divisor, self.pad_value = model, pad_divisor, pad_value
        self.opset = formats.OPSET if self.roi_head is None else operators.OPSET
        masks = getattr(self.roi_head, 'with_mask', False) or hasattr(model, 'mask_head')
        if masks and type(self.roi_head).__name__ not in ('StandardRoIHead', 'CascadeRoIHead'):
            raise _unsupported(model, f'its masks come from {type(self.roi_head or model.mask_head).__name__}')
        self.names = ['boxes', 'scores', 'labels', *(['masks'] if masks else [])]
        self.mask_thr = float(self.roi_head.test_cfg.mask_thr_binary) if masks else None

    @property
    def roi_head(self) -> nn.Module | None:
        """Return the head of two stages, which is the model's, not a part of this module."""
        return getattr(self.model, 'roi_head', None)

    def pad(self, image: Tensor) -> Tensor:
        """Return an image (1, C, H, W) padded at the bottom and right to multiples of ``pad_divisor``."""
        height, width = image.shape[2:]
        return F.pad(image, (0, -width % self.pad_divisor, 0, -height % self.pad_divisor), value=self.pad_value)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs by ``names`` for a normalised image (1, 3, H, W)."""
        shape, image = tuple(image.shape[2:]), self.pad(image)
        padded = tuple(image.shape[2:])
        meta = dict(img_shape=shape, ori_shape=shape, pad_shape=padded, batch_input_shape=padded,
                    scale_factor=(1., 1.))
        sample = Sample(metainfo=meta, **meta)
        if self.roi_head is None:
            found = self.model.predict(image, [sample], rescale=False)[0].pred_instances
            return found.bboxes, found.scores, found.labels
        maps = self.model.extract_feat(image)
        found, = self.roi_head.predict_bbox(maps, [meta], [self.propose(maps, sample)], self.roi_head.test_cfg)
        results = found.bboxes, found.scores, found.labels
        return results if self.mask_thr is None else (*results, self._masks(maps, *results))

    def propose(self, maps: tuple[Tensor, ...], sample: Sample) -> Any:
        """Return the region proposals, ``bboxes`` (N, 4)."""
        return self.model.rpn_head.predict(maps, [sample], rescale=False)[0]

    def _masks(self, maps: tuple[Tensor, ...], boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        """Return probabilities (N, h, w) inside the boxes; of a cascade the mean of its heads."""
        head, rois = self.roi_head, F.pad(boxes, (1, 0))
        stages = [(i, ) for i in range(getattr(head, 'num_stages', 0))] or [()]
        masks = sum(head._mask_forward(*stage, maps, rois)['mask_preds'].sigmoid() for stage in stages) / len(stages)
        labels = labels * (masks.shape[1] > 1)  # or one mask for all classes
        return masks.gather(1, labels[:, None, None, None].expand(-1, 1, *masks.shape[2:]))[:, 0]


class TraceableDetector(Detector):
    """The same for exporters. It changes the model's settings, so give it a copy.

    Raises:
        UserError: a head suppresses boxes otherwise than by NMS.
    """

    def __init__(self, model: nn.Module, *args: Any):
        super().__init__(model, *args)
        suppressing = [part for part in model.modules() if 'nms' in (getattr(part, 'test_cfg', None) or {})]
        for cfg in {id(part.test_cfg): part.test_cfg for part in suppressing}.values():
            if cfg.nms.get('type') != 'nms':
                raise _unsupported(model, f"test_cfg.nms.type={cfg.nms.get('type')!r} is not 'nms'")
            cfg.nms.update(type=partial(tracing.suppress, min_size=cfg.pop('min_bbox_size', None)),
                           max_num=cfg.get('max_per_img', -1), split_thr=tracing.UNLIMITED)
        for name in ('bbox_roi_extractor', 'mask_roi_extractor'):
            extractor = getattr(self.roi_head, name, None)
            if isinstance(extractor, nn.ModuleList):
                setattr(self.roi_head, name, nn.ModuleList(map(Regions, extractor)))
            elif extractor is not None:
                setattr(self.roi_head, name, Regions(extractor))

    def propose(self, maps: tuple[Tensor, ...], sample: Sample) -> Any:
        from mmcv.ops import batched_nms
        head, found = self.model.rpn_head, []
        outputs = [[y[0].permute(1, 2, 0) for y in level] for level in zip(*head(maps))]
        priors = head.prior_generator.grid_priors([y[0].shape[:2] for y in outputs], maps[0].dtype, maps[0].device)
        for level, ((logits, deltas), boxes) in enumerate(zip(outputs, priors)):
            logits = logits.reshape(-1, head.cls_out_channels)
            scores = logits.sigmoid() if head.use_sigmoid_cls else logits.softmax(-1)[:, :-1]
            scores, _, _, chosen = tracing.best_scores(scores, 0., head.test_cfg.get('nms_pre', -1),
                                                       [boxes, deltas.reshape(-1, 4)])
            boxes = head.bbox_coder.decode(*chosen, max_shape=sample.img_shape)
            found.append((boxes, scores, torch.full_like(scores, level)))
        boxes, _ = batched_nms(*map(torch.cat, zip(*found)), head.test_cfg.nms)
        torch._check(boxes.shape[0] > 0)
        torch._check(boxes.shape[0] < 2**20)  # so that mmcv suppresses all classes in one step
        return tracing.Results(bboxes=boxes[:, :4])


class Regions(nn.Module):
    """Computes mmdet's ``SingleRoIExtractor``: regions (N, C, h, w) of boxes, each from the map of its level."""

    def __init__(self, extractor: nn.Module):
        super().__init__()
        if type(extractor).__name__ != 'SingleRoIExtractor':
            raise _unsupported(extractor, 'it is not a SingleRoIExtractor')
        self.extractor, self.num_inputs = extractor, extractor.num_inputs

    def forward(self, maps: tuple[Tensor, ...], rois: Tensor, roi_scale_factor: float | None = None) -> Tensor:
        levels = self.extractor.map_roi_levels(rois, len(maps))
        regions, places = [], []
        for level, (layer, x) in enumerate(zip(self.extractor.roi_layers, maps)):
            place = (levels == level).nonzero()[:, 0]
            torch._check(place.shape[0] < 2**31)  # the exporter adds these limits up, in int64
            regions.append(operators.roi_align(x, rois[place, 1:], *layer.output_size, layer.spatial_scale,
                                               layer.sampling_ratio, layer.aligned))
            places.append(place)
        return torch.cat(regions)[torch.cat(places).argsort()]


def _unsupported(model: nn.Module, reason: str) -> UserError:
    return UserError(f'{type(model).__name__} cannot be exported as a whole: {reason}. Export its backbone with --part '
                     'backbone; the rest then runs in PyTorch.')
