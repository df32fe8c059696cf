"""Predict images with a model that :func:`.model.load` has loaded."""
import math
import os
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mmengine.dataset import default_collate, pseudo_collate
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from ..errors import UserError, checked
from ..images import OVERLAP, check_slice
from .model import DENSE, Model
from .slices import as_loaded, predict_slices, slice_starts

if TYPE_CHECKING:
    from supervision import Detections

BATCH = 8  # most images that are predicted together
SAME_OBJECT = 0.65  # IoU of boxes; detectors suppress those of one class from 0.5 to 0.65, so these stay as they are


@checked
def predict(model: Model, images: Any, slice: int | None = None, overlap: float = OVERLAP, score_thr: float = 0.,
            by_class: bool = False) -> Any:
    """Predict one image, or a list of images.

    Several threads may call it at once with one model. Memory holds the predictions of a list and at most eight images.

    Args:
        model: what :func:`.model.load` returned.
        images: a path, an array as OpenCV and :meth:`Model.read` return it, (H, W, 3), uint8, BGR, a PIL image, the
            bytes of an image file, or a list of these. Images that have one size after the test pipeline and follow
            each other are predicted together.
        slice: side in pixels of the slices that larger images are cut into. The config's test pipeline resizes a
            slice as it resizes an image. None: no slices.
        overlap: fraction of their side by which neighbouring slices overlap.
        score_thr: objects with a lower score are left out. With a threshold from 0.1 the pieces of an object in several
            slices are merged; with a lower one the piece with the highest score is kept.
        by_class: return a detector's boxes as it suppresses them, class by class, as for scores. By default an object
            has one label: of boxes whose IoU is above 0.65, that with the highest score is kept.

    Returns:
        The prediction for the one image, or a list with one for each image.

        - detection: ``supervision.Detections`` in the image's pixels, with class names in ``data['class_name']``. If
          the image was sliced, ``mask`` is a ``supervision.CompactMask``.
        - segmentation: an array (H, W) with the class number of each pixel, int64, or uint8 if the image was sliced.
        - classification: pairs of class name and probability, the most probable first.

    Raises:
        UserError: an image is of another type, cannot be read, or has less than 2 pixels a side; or a setting is not
            allowed, or has no effect on this model.
        ValueError, RuntimeError: the network cannot take an image, for example one that is too small.
    """
    if os.getpid() != model.process:  # in a process that forks from the one that loaded it, threads wait for ever
        torch.set_num_threads(1)
    if not isinstance(images, (list, tuple)):
        return predict(model, [images], slice, overlap, score_thr, by_class)[0]
    check_settings(model, slice, overlap, score_thr, by_class)
    for image in images:
        _check_type(model, image)
    if slice is not None:
        return [_predict_large(model, image, slice, overlap, score_thr, by_class) for image in images]
    collate = pseudo_collate if model.task in DENSE else default_collate
    convert = dict(detection=partial(_detections, score_thr=score_thr, by_class=by_class),
                   segmentation=_label_map, classification=_probabilities)[model.task]
    samples, predictions = (_prepare(model, _read(model, image)) for image in images), []
    for _, same in groupby(samples, lambda sample: sample['inputs'].shape):
        while batch := list(islice(same, BATCH)):
            predictions += [convert(model, output) for output in model.run(collate(batch))]
    return predictions


def check_settings(model: Model, slice: int | None, overlap: float, score_thr: float, by_class: bool = False) -> None:
    """Raise ``UserError`` if settings of :func:`predict` are not allowed, or have no effect on this model."""
    if not 0 <= score_thr <= 1:
        raise UserError(f'score_thr={score_thr}: allowed is a number from 0 to 1.')
    check_slice(slice, overlap)
    if slice is not None and model.task not in DENSE:
        raise UserError(f'slice={slice}: allowed for detection and segmentation, this model does {model.task}.')
    if model.task != 'detection' and (score_thr or by_class):
        raise UserError(f'score_thr={score_thr}, by_class={by_class}: these are for detection, and this model does '
                        f'{model.task}: leave them out.')


def _read(model: Model, image: Any) -> np.ndarray:
    """Return an image as an array; raise ``UserError`` if it has less than 2 pixels a side."""
    array = image if isinstance(image, np.ndarray) else model.read(image)
    if min(array.shape[:2]) < 2:
        raise UserError(f'an image of {array.shape[1]}x{array.shape[0]} pixels (width x height): allowed are 2 or more '
                        'a side.')
    return array


def _prepare(model: Model, array: np.ndarray) -> dict[str, Any]:
    """Return what the test pipeline makes of an array."""
    try:
        return model.pipeline(as_loaded(array))
    except Exception as error:  # cv2.error of an image so narrow that nothing is left of a side
        raise UserError(f'the test pipeline cannot prepare an image of {array.shape[1]}x{array.shape[0]} pixels (width '
                        f'x height; {type(error).__name__}: {error}).') from error


def _predict_large(model: Model, image: Any, size: int, overlap: float, score_thr: float,
                   by_class: bool) -> 'Detections | np.ndarray':
    """Predict one image in slices, unless it fits into one."""
    image = _read(model, image)
    if max(image.shape[:2]) <= size:
        return predict(model, image, score_thr=score_thr, by_class=by_class)

    def predict_slice(window: np.ndarray) -> Any:
        bar.update()
        return model.run(pseudo_collate([_prepare(model, window)]))[0]

    number = math.prod(len(slice_starts(side, size, overlap)) for side in image.shape[:2])
    with tqdm(total=number, desc='slices', delay=1, leave=False, disable=None) as bar:
        prediction = predict_slices(model.network, predict_slice, image, size, overlap, score_thr)
    return prediction if isinstance(prediction, np.ndarray) else _finish(model, prediction, by_class)


def _check_type(model: Model, image: Any) -> None:
    """Raise ``UserError`` if an image is of another type, or an array that the usual first step does not load."""
    if not isinstance(image, (str, os.PathLike, np.ndarray, Image.Image, bytes)):
        raise UserError(f'an image of type {type(image).__name__}: allowed are a path, an array (H, W, 3), uint8, BGR, '
                        'a PIL image, the bytes of an image file, or a list of these.')
    if isinstance(image, Image.Image) and not model.reads_rgb:
        raise UserError('a PIL image: this model reads image files in another way than as RGB. Give a path, or the '
                        'bytes of a file.')
    if isinstance(image, np.ndarray) and model.reads_rgb and (image.shape[2:] != (3, ) or image.dtype != np.uint8):
        raise UserError(f'an array of shape {image.shape} and type {image.dtype} is not an image of this model: '
                        'allowed is (H, W, 3), uint8, BGR.')


def _detections(model: Model, sample: Any, score_thr: float, by_class: bool) -> 'Detections':
    from supervision import Detections
    objects = Detections.from_mmdetection(sample)
    return _finish(model, objects[objects.confidence >= score_thr], by_class)


def _finish(model: Model, objects: 'Detections', by_class: bool) -> 'Detections':
    """Return objects with their class names, one label for each object unless ``by_class``."""
    if not by_class:
        from mmcv.ops import nms
        _, kept = nms(objects.xyxy.astype(np.float32), objects.confidence.astype(np.float32), SAME_OBJECT)
        objects = objects[np.sort(kept)]
    objects.data['class_name'] = np.array([model.name(number) for number in objects.class_id], str)
    return objects


def _label_map(model: Model, sample: Any) -> np.ndarray:
    return sample.pred_sem_seg.data[0].long().cpu().numpy()  # those of a single output are floats


def _probabilities(model: Model, output: dict[str, Tensor]) -> list[tuple[str, float]]:
    values, numbers = output['logits'].float().softmax(0).sort(descending=True)
    return [(model.name(number), value) for number, value in zip(numbers.tolist(), values.tolist())]
