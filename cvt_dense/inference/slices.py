"""Predict large images in overlapping slices.

Supervision's ``InferenceSlicer`` cuts images and merges boxes and masks. Label maps are the classes of the mean scores
where slices overlap, as in MMSegmentation's sliding windows.
"""
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mmengine.dataset import Compose, pseudo_collate
from mmengine.model import BaseModel, BaseTTAModel
from mmengine.structures import InstanceData, PixelData
from pycocotools import mask as coco_mask
from torch import Tensor

from ..registry import MODELS

if TYPE_CHECKING:
    from supervision import Detections

MERGED_SCORE = 0.1  # sahi's rule: pieces below are suppressed, because merging with them would enlarge good boxes


def as_loaded(image: np.ndarray) -> dict[str, Any]:
    """Return the result of LoadImageFromFile for an image."""
    return dict(img=image, img_shape=image.shape[:2], ori_shape=image.shape[:2], img_path='', img_id=0)


def predict_slices(network: BaseModel, predict: Callable[[np.ndarray], Any], image: np.ndarray, size: int,
                   overlap: float, score_thr: float = 0.) -> 'Detections | np.ndarray':
    """Return ``supervision.Detections`` of a detector, or the label map (H, W) of a segmentor.

    Args:
        network: detector or segmentor of MMDetection or MMSegmentation.
        predict: returns the network's data sample of an array, in the array's pixels.
        image: array (H, W, C).
        size: side of the slices in pixels.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.
        score_thr: objects below are left out.
    """
    if not hasattr(network, 'encode_decode'):
        return slice_detections(predict, image, size, overlap, score_thr)
    threshold = network.decode_head.threshold if network.out_channels == 1 else None
    return slice_label_map(lambda window: predict(window).seg_logits.data, image, size, overlap, network.out_channels,
                           threshold)


def slice_detections(predict: Callable[[np.ndarray], Any], image: np.ndarray, size: int, overlap: float,
                     score_thr: float = 0.) -> 'Detections':
    """Predict boxes, and masks if there are, in slices, and merge objects that were found twice.

    With a threshold of scores from 0.1, objects of one class are merged where their intersection is half of the smaller
    one or more: then the pieces of an object that slices cut become one. Below, the object with the higher score
    is kept where the intersection over union of two boxes is above a half.

    Args:
        predict: returns MMDetection's data sample of an array.
        image: array (H, W, C).
        size: side of the slices in pixels.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.
        score_thr: objects below are left out.
    """
    from mmcv.ops import batched_nms
    from supervision import Detections, InferenceSlicer, OverlapFilter, OverlapMetric

    def found_in(window: np.ndarray) -> Detections:
        objects = Detections.from_mmdetection(predict(window))
        return objects[objects.confidence >= score_thr]

    merge = score_thr >= MERGED_SCORE
    slicer = InferenceSlicer(
        found_in, slice_wh=size, overlap_wh=max(round(size * overlap), 1), compact_masks=True,
        overlap_filter=OverlapFilter.NON_MAX_MERGE if merge else OverlapFilter.NONE, overlap_metric=OverlapMetric.IOS)
    objects = slicer(image)
    if merge or not len(objects):
        return objects
    # supervision's suppression compares all pairs at once: 3 GiB for 28,000 boxes, and minutes
    boxes, scores = (torch.as_tensor(values).float() for values in (objects.xyxy, objects.confidence))
    _, kept = batched_nms(boxes, scores, torch.as_tensor(objects.class_id), dict(type='nms', iou_threshold=0.5))
    return objects[kept.numpy()]


def slice_label_map(predict: Callable[[np.ndarray], Tensor], image: np.ndarray, size: int, overlap: float,
                    classes: int, threshold: float | None = None) -> np.ndarray:
    """Predict a label map in slices; where they overlap, scores are averaged.

    Beside the label map, memory holds the scores of one row of slices.

    Args:
        predict: returns the scores (classes, H, W) of an array (H, W, C).
        image: array (H, W, C).
        size: side of the slices in pixels.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.
        classes: number of scores of each pixel.
        threshold: threshold of a single class's score, which takes the place of the highest score.

    Returns:
        Class numbers (H, W), uint8, or int64 of more than 256 classes.
    """
    height, width = image.shape[:2]
    labels = np.empty((height, width), np.uint8 if classes <= 256 else np.int64)
    scores = torch.zeros(classes, min(size, height), width)
    counts = torch.zeros_like(scores[:1])
    tops = slice_starts(height, size, overlap)
    for top, following in zip(tops, [*tops[1:], height]):
        for left in slice_starts(width, size, overlap):
            logits = predict(image[top:top + size, left:left + size]).float().cpu()
            columns = ..., slice(left, left + logits.shape[2])
            scores[columns] += logits
            counts[columns] += 1
        done = following - top  # rows that no further slice reaches
        mean = scores[:, :done] / counts[:, :done]
        labels[top:following] = mean.argmax(0) if threshold is None else mean[0] > threshold
        for kept in (scores, counts):
            kept[:, :-done] = kept[:, done:].clone()
            kept[:, -done:] = 0
    return labels


def slice_starts(length: int, size: int, overlap: float) -> list[int]:
    """Return where slices begin, as MMSegmentation places them: the last one ends with the image.

    Args:
        length: side of the image in pixels.
        size: side of a slice in pixels.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.
    """
    stride, last = size - round(size * overlap), max(length - size, 0)
    return [min(start, last) for start in range(0, last + stride, stride)]


@MODELS.register_module()
class SlicedModel(BaseTTAModel):
    """Tests a detector or segmentor on slices of each image, for ``tools/test.py --slice``.

    Args:
        module: the model or its config.
        size: side of the slices in pixels.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.
        pipeline: transforms of a slice, from its array to MMDetection's or MMSegmentation's inputs.
    """

    def __init__(self, module: Any, size: int, overlap: float, pipeline: Sequence[dict[str, Any]]):
        super().__init__(module)
        self.size, self.overlap, self.pipeline = size, overlap, Compose(pipeline)

    def merge_preds(self, data_samples_list: list[Any]) -> list[Any]:
        """Return the argument: slices are merged before."""
        return data_samples_list

    @torch.no_grad()
    def test_step(self, data: dict[str, list[Any]]) -> list[Any]:
        """Return the data samples of images in their own size, with predictions."""
        for inputs, sample in zip(data['inputs'], data['data_samples']):
            image = inputs.permute(1, 2, 0).cpu().numpy()
            if max(image.shape[:2]) <= self.size:
                prediction = self._predict(image)
                names = {'pred_instances', 'pred_sem_seg'}.intersection(prediction.all_keys())
                sample.set_data({name: prediction.get(name) for name in names})
                continue
            prediction = predict_slices(self.module, self._predict, image, self.size, self.overlap)
            if isinstance(prediction, np.ndarray):
                sample.pred_sem_seg = PixelData(data=torch.from_numpy(prediction.astype(np.int64))[None])
                continue
            sample.pred_instances = InstanceData(
                bboxes=torch.as_tensor(prediction.xyxy), scores=torch.as_tensor(prediction.confidence),
                labels=torch.as_tensor(prediction.class_id))
            if prediction.mask is not None:
                sample.pred_instances.masks = [coco_mask.encode(np.asfortranarray(mask)) for mask in prediction.mask]
        return data['data_samples']

    def _predict(self, window: np.ndarray) -> Any:
        return self.module.test_step(pseudo_collate([self.pipeline(as_loaded(window))]))[0]
