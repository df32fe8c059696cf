"""Predict images with a model that :func:`.model.load` has loaded."""
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mmengine.dataset import default_collate, pseudo_collate
from torch import Tensor
from tqdm import tqdm

from ..config.settings import type_name
from ..errors import UserError
from .model import DENSE, Model, test_pipeline
from .slices import as_loaded, check_slice, predict_slices, slice_starts

if TYPE_CHECKING:
    from supervision import Detections


def predict(model: Model, images: Any, slice: int | None = None, overlap: float = 0.2, score_thr: float = 0.) -> Any:
    """Predict one image, or a list of images.

    Args:
        model: what :func:`.model.load` returned.
        images: a path, an array as OpenCV and :meth:`Model.read` return it, (H, W, 3), uint8, BGR, or a list of
            these. Images that have one size after the test pipeline are predicted together.
        slice: side in pixels of the slices that larger images are cut into. The config's test pipeline resizes a
            slice as it resizes an image. None: no slices.
        overlap: fraction of their side by which neighbouring slices overlap.
        score_thr: objects with a lower score are left out. With a threshold from 0.1 the pieces of an object in several
            slices are merged; with a lower one the piece with the highest score is kept.

    Returns:
        The prediction for the one image, or a list with one for each image.

        - detection: ``supervision.Detections`` in the image's pixels, with class names in ``data['class_name']``. If
          the image was sliced, ``mask`` is a ``supervision.CompactMask``.
        - segmentation: an array (H, W) with the class number of each pixel, int64, or uint8 if the image was sliced.
        - classification: pairs of class name and probability, the most probable first.

    Raises:
        UserError: a file cannot be read, or ``slice`` or ``overlap`` is not allowed.
        ValueError, RuntimeError: the network cannot take an image, for example one that is too small.
    """
    if not isinstance(images, (list, tuple)):
        return predict(model, [images], slice, overlap, score_thr)[0]
    if not 0 <= score_thr <= 1:
        raise UserError(f'score_thr={score_thr}: allowed is a number from 0 to 1.')
    for image in images:
        if isinstance(image, np.ndarray):
            _check_array(model, image)
    if slice is not None:
        check_slice(slice, overlap)
        if model.task not in DENSE:
            raise UserError(f'slice={slice}: allowed for detection and segmentation, this model does {model.task}.')
        return [_predict_large(model, image, slice, overlap, score_thr) for image in images]
    arrays = [image if isinstance(image, np.ndarray) else model.read(image) for image in images]
    samples = [model.pipeline(as_loaded(image)) for image in arrays]
    batches = [[sample] for sample in samples]
    if len({sample['inputs'].shape for sample in samples}) == 1:
        batches = [samples]
    collate = pseudo_collate if model.task in DENSE else default_collate
    with torch.no_grad():
        outputs = [output for batch in batches for output in model.network.test_step(collate(batch))]
    convert = dict(detection=partial(_detections, score_thr=score_thr), segmentation=_label_map,
                   classification=_probabilities)
    return [convert[model.task](model, output) for output in outputs]


def _predict_large(model: Model, image: Any, size: int, overlap: float, score_thr: float) -> 'Detections | np.ndarray':
    """Predict one image in slices, unless it fits into one."""
    image = image if hasattr(image, 'shape') else model.read(image, by_window=True)
    if max(image.shape[:2]) <= size:
        return predict(model, image[:, :], score_thr=score_thr)  # which reads one that is read by window

    def predict_slice(window: np.ndarray) -> Any:
        bar.update()
        return model.network.test_step(pseudo_collate([model.pipeline(as_loaded(window))]))[0]

    number = math.prod(len(slice_starts(side, size, overlap)) for side in image.shape[:2])
    with torch.no_grad(), tqdm(total=number, desc='slices', delay=1, leave=False, disable=None) as bar:
        prediction = predict_slices(model.network, predict_slice, image, size, overlap, score_thr)
    return prediction if isinstance(prediction, np.ndarray) else _name_classes(model, prediction)


def _check_array(model: Model, image: np.ndarray) -> None:
    """Raise ``UserError`` if an array is not what the usual first step of a test pipeline loads."""
    loader = test_pipeline(model.cfg)[0] if model.task in DENSE else {}
    usual = type_name(loader) in ('', 'LoadImageFromFile') and set(loader) <= {'type', 'backend_args'}
    if usual and (image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8):
        raise UserError(f'an array of shape {image.shape} and type {image.dtype} is not an image of this model: '
                        'allowed is (H, W, 3), uint8, BGR.')


def _detections(model: Model, sample: Any, score_thr: float) -> 'Detections':
    from supervision import Detections
    objects = Detections.from_mmdetection(sample)
    return _name_classes(model, objects[objects.confidence >= score_thr])


def _name_classes(model: Model, objects: 'Detections') -> 'Detections':
    objects.data['class_name'] = np.array([model.name(number) for number in objects.class_id], str)
    return objects


def _label_map(model: Model, sample: Any) -> np.ndarray:
    return sample.pred_sem_seg.data[0].long().cpu().numpy()  # those of a single output are floats


def _probabilities(model: Model, output: dict[str, Tensor]) -> list[tuple[str, float]]:
    values, numbers = output['logits'].float().softmax(0).sort(descending=True)
    return [(model.name(number), value) for number, value in zip(numbers.tolist(), values.tolist())]
