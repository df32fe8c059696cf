"""Skip images that cannot be read, and name and count them."""
from contextlib import suppress
from typing import Any

import numpy as np
from mmcv.transforms import LoadAnnotations
from mmengine.dataset import Compose
from mmengine.dist import all_gather_object
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from torch import Tensor

from ...errors import UserError
from ...images import read_header
from ...registry import HOOKS
from ..samplers import find_reader, is_reader, leaves


@HOOKS.register_module()
class UnreadableImagesHook(Hook):
    """Name every image that could not be read, count them, and stop at too many.

    A sample of :class:`ImageDataset` or of a :class:`SkippingPipeline` has ``unreadable``, a line ``path<tab>reason``
    for each image that was skipped before it.

    Args:
        max_share: the run stops when more than this fraction of a data set's images cannot be read.

    Raises:
        UserError: the run stops.
    """

    priority = 'LOW'  # after mmdet's PipelineSwitchHook

    def __init__(self, max_share: float = 0.05):
        self.max_share = max_share
        self.reasons: dict[str, dict[str, str]] = dict(train={}, val={}, test={})  # by stage and file

    def _add(self, runner: Runner, stage: str, reasons: dict[str, str]) -> None:
        """Add files with the reason why each cannot be read, which may differ from time to time."""
        known = self.reasons[stage]
        for name, reason in reasons.items():
            if name not in known:
                known[name] = reason
                runner.logger.warning(f'skipped an image that cannot be read: {name} ({reason})')
        total = len(getattr(runner, f'{stage}_dataloader').dataset)
        if len(known) > self.max_share * total:
            raise UserError(
                f'{len(known)} of the {total} images for {stage} cannot be read. Repair or remove the files named in '
                f'the warnings above, or raise default_hooks.unreadable_images.max_share={self.max_share:g}.')

    def before_train_epoch(self, runner: Runner) -> None:
        skip_unreadable_images(runner.train_dataloader.dataset)

    def _before_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, mode: str = 'train') -> None:
        texts = (data_batch.get('unreadable') if isinstance(data_batch, dict) else None) or ['']
        texts = texts if isinstance(texts[0], str) else texts[0]  # the same for each view of test-time augmentation
        if any(texts):
            lines = '\n'.join(filter(None, texts)).split('\n')
            self._add(runner, mode, dict(line.split('\t', 1) for line in lines))

    def _after_epoch(self, runner: Runner, mode: str = 'train') -> None:
        for reasons in all_gather_object(self.reasons[mode]):
            self._add(runner, mode, reasons)
        if self.reasons[mode]:
            runner.logger.warning(f'Images for {mode} that could not be read so far and were skipped: '
                                  f'{len(self.reasons[mode])}')


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
