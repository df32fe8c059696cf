"""Takes a resumed run to the batch, and to the point of its schedules, where the saved one was."""
import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

from mmengine.hooks import EMAHook
from mmengine.runner import EpochBasedTrainLoop, Runner


def data_shape(runner: Runner) -> dict[str, int]:
    """What decides which images belong to an iteration, as a checkpoint's ``meta`` records it."""
    loader = runner.train_dataloader
    return dict(
        world_size=runner.world_size,
        batch_size=loader.batch_size or getattr(loader.batch_sampler, 'batch_size', 1),
        accumulative_counts=runner.cfg.optim_wrapper.get('accumulative_counts', 1),
        batches_per_epoch=len(loader))


def resume(runner: Runner, saved: dict[str, Any]) -> None:
    """Moves a resumed run that has another :func:`data_shape` to the same share of the data.

    The epoch goes on at the same share of its images, schedules are moved to the same epoch, and the learning
    rate is scaled to the new total batch where ``auto_scale_lr`` is enabled. The log says so.

    Args:
        runner: has loaded its checkpoint; called before its first iteration.
        saved: the checkpoint's ``meta``. Without a data shape, as MMEngine itself saves it, nothing is moved.
    """
    loader = runner.train_dataloader
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    if getattr(sampler, 'seed', runner.seed) != runner.seed:
        sampler.seed = runner.seed  # without a seed in the config, the sampler has drawn a new one
    new = data_shape(runner)
    if 'world_size' not in saved or all(saved[key] == value for key, value in new.items()):
        return
    totals = [shape['world_size'] * shape['batch_size'] for shape in (saved, new)]
    loop, iteration = runner.train_loop, runner.iter
    if isinstance(loop, EpochBasedTrainLoop):
        images = (iteration - runner.epoch * saved['batches_per_epoch']) * totals[0]
        loop._iter = runner.epoch * new['batches_per_epoch'] + images // totals[1]
        runner.message_hub.update_info('iter', loop._iter)
        runner.optim_wrapper.initialize_count_status(runner.model, loop.iter, loop.max_iters)
    growth = (totals[1] * new['accumulative_counts']) / (totals[0] * saved['accumulative_counts'])
    ratio = growth if (runner.auto_scale_lr or {}).get('enable', False) else 1.
    if ratio != 1 or runner.iter != iteration:
        _replay_schedules(runner, ratio)
    runner.logger.warning(
        'Continued with {world_size} x {batch_size} images per iteration x {accumulative_counts} '
        'accumulated; the checkpoint was saved with '.format(**new) +
        '{world_size} x {batch_size} x {accumulative_counts}. '.format(**saved) +
        f'Iteration {iteration} became {runner.iter} of {runner.max_iters}; learning rates were '
        f'multiplied by {ratio:g}'
        f'{"" if ratio != 1 else " (--auto-scale-lr scales them to the total batch)"}.')
    if growth != 1 and any(isinstance(hook, EMAHook) for hook in runner.hooks):
        runner.logger.warning(
            f'A step of the optimizer now has {growth:g} times as many images: averaged weights (EMA) keep their '
            f'momentum for each step, so from here on they average over {growth:g} times as many images. To average '
            f'over as many as before, multiply the momentum of the EMAHook in custom_hooks by {growth:g}.')


def _replay_schedules(runner: Runner, lr_ratio: float) -> None:
    """Rebuilds the schedules, whose saved state counts the old iterations, and steps them to now."""
    for group in runner.optim_wrapper.param_groups:
        group['initial_lr'] *= lr_ratio
        for key in [key for key in group if key.startswith('initial_')]:
            group[key[len('initial_'):]] = group[key]
    runner.param_schedulers = runner.build_param_scheduler(copy.deepcopy(runner.cfg.param_scheduler))
    batches_per_epoch = len(runner.train_dataloader)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # no optimizer step comes before these
        for iteration in range(1, runner.iter + 1):
            for scheduler in runner.param_schedulers:
                if not scheduler.by_epoch or iteration % batches_per_epoch == 0:
                    scheduler.step()


def skip_seen_batches(runner: Runner) -> None:
    """Before an epoch: leaves out the batches of it that the run has seen before it was resumed."""
    if not isinstance(runner.train_loop, EpochBasedTrainLoop):
        return  # MMEngine's iteration-based loop skips by itself
    loader = runner.train_dataloader
    seen = runner.iter - runner.epoch * len(loader)
    if seen > 0 and loader.batch_sampler is None:
        runner.logger.warning(
            f'{seen} batches of epoch {runner.epoch + 1} are seen again: the data set is a stream.')
        runner.train_loop._iter -= seen
    elif seen > 0:
        # DataLoader refuses a plain assignment, because for a running iterator it would come too late.
        object.__setattr__(loader, 'batch_sampler', _SkipOnce(loader.batch_sampler, seen))


class _SkipOnce:
    """A batch sampler whose next pass leaves out its first ``num_batches``; their data is not loaded."""

    def __init__(self, batch_sampler: Any, num_batches: int):
        self.batch_sampler = batch_sampler
        self.num_batches = num_batches

    def __iter__(self) -> Iterator[list[Any]]:
        # A generator, because DataLoader makes an iterator that it drops before the one that it uses.
        start, self.num_batches = self.num_batches, 0
        yield from itertools.islice(iter(self.batch_sampler), start, None)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch_sampler, name)
