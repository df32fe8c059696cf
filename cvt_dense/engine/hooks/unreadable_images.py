"""Names every image that :class:`ImageDataset` skipped, counts them, and stops at too many."""
from collections.abc import Iterable
from typing import Any

from mmengine.dist import all_gather_object
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import UserError
from ...registry import HOOKS


@HOOKS.register_module()
class UnreadableImagesHook(Hook):
    """Names every image that :class:`ImageDataset` skipped, counts them, and stops at too many.

    Args:
        max_share: the run stops when more than this share of a data set's images cannot be read.

    Raises:
        UserError: the run stops.
    """

    def __init__(self, max_share: float = 0.05):
        if not 0. <= max_share <= 1.:
            raise ValueError(f'UnreadableImagesHook: max_share={max_share}: allowed is 0 to 1.')
        self.max_share = max_share
        self.found: dict[str, set[str]] = dict(train=set(), val=set(), test=set())

    def _add(self, runner: Runner, stage: str, names: Iterable[str]) -> None:
        found = self.found[stage]
        for name in names:
            if name not in found:
                found.add(name)
                runner.logger.warning(f'skipped an image that cannot be read: {name}')
        total = len(getattr(runner, f'{stage}_dataloader').dataset)
        if len(found) > self.max_share * total:
            raise UserError(
                f'{len(found)} of the {total} images for {stage} cannot be read, which is more than the '
                f'allowed share of {self.max_share:g} (the last: {name}). Repair or remove the files named '
                'in the warnings above, or raise max_share of UnreadableImagesHook in the config.')

    def _add_batch(self, runner: Runner, stage: str, data_batch: Any) -> None:
        if isinstance(data_batch, dict) and any(data_batch.get('unreadable', ())):
            self._add(runner, stage, '\n'.join(filter(None, data_batch['unreadable'])).split('\n'))

    def _add_other_ranks(self, runner: Runner, stage: str) -> None:
        names = set().union(*all_gather_object(sorted(self.found[stage])))
        if names:
            self._add(runner, stage, sorted(names))
            runner.logger.warning(f'{len(names)} images for {stage} could not be read so far and were '
                                  'skipped.')

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'train', data_batch)

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'val', data_batch)

    def before_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'test', data_batch)

    def after_train_epoch(self, runner: Runner) -> None:
        self._add_other_ranks(runner, 'train')

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self._add_other_ranks(runner, 'val')

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self._add_other_ranks(runner, 'test')
