"""Find the data sets inside of wrappers and their transforms, and change what these read."""
from contextlib import suppress
from typing import Any

import numpy as np
from mmcv.transforms import LoadAnnotations, LoadImageFromFile
from mmengine.dataset import Compose
from mmengine.logging import print_log
from torch import Tensor

from .. import scopes
from ..images import read_header


def leaves(data_set: Any) -> list[Any]:
    """Return the data sets that a wrapper such as ConcatDataset joins, or the data set itself."""
    inner = getattr(data_set, 'datasets', None) or ([data_set.dataset] if hasattr(data_set, 'dataset') else [])
    return [leaf for child in inner for leaf in leaves(child)] or [
        getattr(data_set, '_dataset', data_set)]  # MMEngine's, inside of num_batch_per_epoch


def transforms_of(leaf: Any) -> list[Any]:
    """Return the transforms of a data set of MMEngine's, or an empty list."""
    return getattr(getattr(leaf, 'pipeline', None), 'transforms', [])


def find_transform(leaf: Any, kind: type | tuple[type, ...]) -> Any:
    """Return the first transform of a data set that is of a class, or None."""
    return next((step for step in transforms_of(leaf) if isinstance(step, kind)), None)


def is_reader(step: Any) -> bool:
    """Return whether a transform loads an image: mmcv's ``LoadImageFromFile``, or one of the packages' own."""
    return isinstance(step, (LoadImageFromFile, *scopes.kinds('READERS')))


def find_reader(leaf: Any) -> Any:
    """Return the transform of a data set that loads an image, or None."""
    return next(filter(is_reader, transforms_of(leaf)), None)


def load_whole_images(dataset: Any) -> list[Any]:
    """Let a data set load whole images; return the first pipeline's other transforms, which prepare a slice."""
    steps = [step for step in transforms_of(leaves(dataset)[0])[1:] if not isinstance(step, LoadAnnotations)]
    for leaf in leaves(dataset):
        first, *others = transforms_of(leaf)
        leaf.pipeline.transforms = [
            first, *(step for step in others if isinstance(step, (LoadAnnotations, *scopes.kinds('PACKING'))))]
    return steps


def skip_unreadable_images(dataset: Any, channels: int = 3) -> None:
    """Let the pipelines of MMDetection and MMSegmentation skip images that cannot be read.

    Args:
        dataset: changed in place.
        channels: of an image.
    """
    for leaf in leaves(dataset):
        if find_reader(leaf) is not None and not isinstance(leaf.pipeline, SkippingPipeline):
            ignored = getattr(leaf, 'ignore_index', 255)
            leaf.pipeline = SkippingPipeline(leaf.pipeline, leaf.test_mode, channels, ignored)


class SkippingPipeline(Compose):
    """Skip images that a pipeline of MMDetection or MMSegmentation cannot read, as :class:`ImageDataset` does.

    In training the data set draws another image instead. In evaluation a black image takes its place, whose label map
    is ignored; the objects of a detector count as missed.

    Args:
        pipeline: transforms.
        test_mode: whether an evaluation reads the images.
        channels: of a black image.
        ignore_index: value of an ignored label map.
    """

    def __init__(self, pipeline: Compose, test_mode: bool, channels: int = 3, ignore_index: int = 255):
        super().__init__(pipeline.transforms)
        self.test_mode, self.channels, self.ignore_index = test_mode, channels, ignore_index
        self.unreadable: list[str] = []

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """Return the sample, or None in training if its files cannot be read."""
        readable = True
        for step in self.transforms:
            key = 'img_path' if is_reader(step) else 'seg_map_path' if isinstance(step, LoadAnnotations) else ''
            loads_file = isinstance(data.get(key), str)
            try:
                data = step(data)
            except Exception as error:  # each decoder raises its own
                if not loads_file:
                    raise
                reason = f'{type(error).__name__}: {error}'.replace('\n', ' ')
                self.unreadable.append(f'{data[key]}\t{reason}')
                if not self.test_mode:
                    return None
                readable = False
                self._replace(data, key)
            if data is None:
                return None
        inputs, samples = data.get('inputs'), data.get('data_samples')
        text, self.unreadable = '\n'.join(self.unreadable), []
        if isinstance(inputs, Tensor | list):  # packed for MMDetection's and MMSegmentation's preprocessors
            data['unreadable'] = [text] * len(inputs) if isinstance(inputs, list) else text
        elif text:  # MultiImageMixDataset packs the sample later, without it
            print_log(f'skipped images that cannot be read: {text}', logger='current', level=30)
        if not readable:
            for sample in samples if isinstance(samples, list) else [samples]:
                if 'gt_sem_seg' in sample:
                    sample.gt_sem_seg.data.fill_(self.ignore_index)
        return data

    def _replace(self, data: dict[str, Any], key: str) -> None:
        """Put a black image or label map where a file cannot be read."""
        shape = data.get('ori_shape') or (data.get('height', 256), data.get('width', 256))
        if key == 'img_path':
            with suppress(Exception):  # there is no label map, or it cannot be read either
                shape = read_header(data['seg_map_path']).shape[:2]
            data.update(img=np.zeros((*shape, self.channels), np.uint8), img_shape=shape, ori_shape=shape)
        else:
            data['gt_seg_map'] = np.zeros(shape, np.uint8)
            data.setdefault('seg_fields', []).append('gt_seg_map')
