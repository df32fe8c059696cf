"""Write predictions as annotated data while they come, so that a run of thousands of images may end at any time."""
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import supervision as sv

from . import convert

SECONDS = 60  # between two files of the objects so far


class PredictionWriter:
    """A folder that takes one image after the other with its predicted objects or its label map.

    Args:
        folder: where to write.
        target: 'coco' for objects, 'masks' for label maps.
        classes: names of the classes.
        images: all images that may come.

    Raises:
        ValueError: see :func:`convert.check_target`.
    """

    def __init__(self, folder: Path, target: str, classes: Sequence[str], images: Sequence[Path]):
        self.folder, self.target, self.due = folder, target, time.monotonic() + SECONDS
        convert.check_target(convert.Data([*classes], [convert.Sample(path) for path in images]), target)
        self.data = convert.Data([*classes])

    def add(self, path: Path, shape: Sequence[int], prediction: np.ndarray | sv.Detections) -> None:
        """Write an image with what was predicted.

        Args:
            path: the image.
            shape: shape of its array, (H, W, ...).
            prediction: label map (H, W) of the data's numbers, or objects.
        """
        sample = convert.Sample(path, height=shape[0], width=shape[1])
        if isinstance(prediction, np.ndarray):
            convert.write_sample(sample, self.folder, prediction)
        else:
            add_detections(sample, prediction)
            convert.write_sample(sample, self.folder)
        self.data.samples.append(sample)
        if time.monotonic() > self.due:
            self.write()

    def write(self) -> None:
        """Write the file of all objects so far, or of the names of the classes, if an image has come."""
        if self.data.samples:
            convert.write_annotations(self.data, self.folder, self.target)
        self.due = time.monotonic() + SECONDS


def add_detections(sample: convert.Sample, detections: sv.Detections) -> None:
    """Add predicted objects to an image, without those that lie outside of it or have an empty mask."""
    boxes = sv.xyxy_to_xywh(detections.xyxy.clip(0, [sample.width, sample.height] * 2))
    areas = boxes[:, 2:].prod(1) if detections.mask is None else detections.area
    for i in np.flatnonzero((boxes[:, 2:] > 0).all(1) & (areas > 0)):
        entry = dict(bbox=boxes[i].tolist(), area=float(areas[i]), iscrowd=0, category_id=int(detections.class_id[i]))
        if detections.mask is not None:
            counts = sv.mask_to_rle(detections.mask[i], compressed=True)
            entry['segmentation'] = dict(size=[sample.height, sample.width], counts=counts)
        sample.objects.append(entry)
