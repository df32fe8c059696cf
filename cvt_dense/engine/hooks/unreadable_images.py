"""Skip images that cannot be read, and name and count them."""
from typing import Any

from mmengine.dist import all_gather_object
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import UserError
from ...registry import HOOKS
from ..data_sets import skip_unreadable_images


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
