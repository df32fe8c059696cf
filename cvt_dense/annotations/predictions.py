"""Write predictions as annotated data while they come, so that a run of thousands of images may end at any time."""
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import convert

SECONDS = 60  # between two files of the objects so far


class PredictionWriter:
    """A folder that takes one image after the other with its predicted objects or its label map.

    Args:
        folder: where to write.
        target: format, one of ``convert.TARGETS``.
        classes: names of the classes.
        images: all images that may come.

    Raises:
        ValueError: see :func:`convert.check_target`.
    """

    def __init__(self, folder: Path, target: str, classes: Sequence[str], images: Sequence[Path]):
        self.folder, self.target, self.due = folder, target, time.monotonic() + SECONDS
        convert.check_target(convert.Data([*classes], [convert.Sample(path) for path in images]), folder, target)
        self.data = convert.Data([*classes])

    def add(self, path: Path, shape: Sequence[int], prediction: Any) -> None:
        """Write an image with what was predicted.

        Args:
            path: the image.
            shape: shape of its array, (H, W, ...).
            prediction: label map (H, W) of the data's numbers, or ``supervision.Detections``.
        """
        sample = convert.Sample(path, height=shape[0], width=shape[1])
        if isinstance(prediction, np.ndarray):
            sample.label_map = prediction
        else:
            sample.add_detections(prediction)
        convert.write_sample(self.data, sample, self.folder, self.target)
        sample.label_map = None
        self.data.samples.append(sample)
        if time.monotonic() > self.due:
            self.write()

    def write(self) -> None:
        """Write the file of all objects so far, or of the names of the classes, if an image has come."""
        if self.data.samples:
            convert.write_annotations(self.data, self.folder, self.target)
        self.due = time.monotonic() + SECONDS
