"""Resume a run at the batch, and at the point of its schedules, where the saved one was."""
import copy
import warnings
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...registry import HOOKS
from .loaders import SkippingBatchSampler, copy_loader

EVALUATED = 'last_evaluation'  # entry of checkpoints: the epoch or iteration whose evaluation was the last to end


@HOOKS.register_module()
class ResumeHook(Hook):
    """Continue a resumed run as if it had not been interrupted, or with other numbers of processes or images.

    - It continues with the next batch of the same epoch. Batches are neither repeated nor left out, since the samplers
      depend on seed and epoch alone; only samplers that ignore the seed would (:class:`SeedHook` names them). The log
      numbers the rest of that epoch's batches from 1.
    - It repeats an evaluation that was due with its checkpoint, unless the checkpoint has the result.
    - With other numbers of processes or images the epoch continues at the same fraction of the data, schedules are
      moved to the same epoch, and the log reports it. The learning rate is scaled to the new total batch where
      ``auto_scale_lr`` is enabled.
    - Schedules of another length, such as those of a longer training, continue as if the run had begun with them, and
      the log reports it.
    """

    priority = 'VERY_LOW'

    def __init__(self):
        self.saved_meta: dict[str, Any] = {}
        self.configured_lr = 0.  # the config's, in whose place the checkpoint's is loaded
        self.configured_ends: list[int] = []  # of the config's schedules, likewise

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = dict(checkpoint.get('meta', {}))
        if not isinstance(runner.optim_wrapper, dict | None):  # built: the run will train
            move_to_same_data(runner, checkpoint.get('meta', {}))
            self.configured_lr, self.configured_ends = base_lr(runner), schedule_ends(runner)

    def before_train(self, runner: Runner) -> None:
        if runner.iter == 0:
            return
        skip_seen_batches(runner)
        adapt_schedules(runner, self.saved_meta, self.configured_ends)
        if self.configured_lr and abs(base_lr(runner) / self.configured_lr - 1) > 1e-6:
            runner.logger.warning(f'The learning rate is {base_lr(runner):g}, as in the checkpoint; the config has '
                                  f'{self.configured_lr:g}, which needs a new run, with load_from=CHECKPOINT.')
        if misses_evaluation(runner):
            runner.logger.info('The checkpoint lacks the result of the evaluation that was due with it. This '
                               'evaluation runs now.')
            runner.val_loop.run()


def note_evaluation(runner: Runner) -> None:
    """Record in all later checkpoints that they contain the result of this evaluation."""
    by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
    runner.message_hub.update_info(EVALUATED, runner.epoch if by_epoch else runner.iter)


def misses_evaluation(runner: Runner) -> bool:
    """Return whether a resumed run must begin with an evaluation, whose result its checkpoint does not contain.

    Without that evaluation the best score would differ from that of an uninterrupted run.
    """
    loop, step, end = runner.train_loop, runner.iter, runner.max_iters
    if isinstance(loop, EpochBasedTrainLoop):
        step, end = runner.epoch, runner.max_epochs
        if runner.iter != step * len(loop.dataloader):
            return False  # inside an epoch
    if runner.val_loop is None:
        return False
    due = step >= loop.val_begin and (step % loop.val_interval == 0 or step == end)
    return due and runner.message_hub.runtime_info.get(EVALUATED) != step


def data_shape(runner: Runner) -> dict[str, int]:
    """Return the numbers that determine the images of an iteration, as a checkpoint's ``meta`` records them."""
    loader = runner.train_dataloader
    return dict(
        world_size=runner.world_size,
        batch_size=loader.batch_sampler.batch_size,
        accumulative_counts=(runner.cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1),
        batches_per_epoch=len(loader))


def move_to_same_data(runner: Runner, meta: dict[str, Any]) -> None:
    """Change the iteration in a checkpoint's ``meta`` to the same fraction of the epoch's images in this run.

    Args:
        runner: is about to resume; its :func:`data_shape` may be another one than the saved run's.
        meta: the checkpoint's ``meta``; MMEngine's Runner continues from its ``iter``. Without a data shape, as
            MMEngine itself saves it, and for loops that count iterations only, nothing is changed.
    """
    if 'world_size' not in meta or not isinstance(runner.train_loop, EpochBasedTrainLoop):
        return
    new = data_shape(runner)
    images = (meta['iter'] - meta['epoch'] * meta['batches_per_epoch']) * meta['world_size'] * meta['batch_size']
    batches = images // (new['world_size'] * new['batch_size'])
    meta['iter'] = meta['epoch'] * new['batches_per_epoch'] + batches


def adapt_schedules(runner: Runner, saved: dict[str, Any], ends: list[int]) -> None:
    """Move schedules to the epoch of a resumed run, and scale its learning rates to another total batch.

    Learning rates are scaled where ``auto_scale_lr`` is enabled. The log lists the changes.

    Args:
        runner: has loaded its checkpoint; called before its first iteration.
        saved: the checkpoint's ``meta`` as it was saved.
        ends: :func:`schedule_ends` of the config. The checkpoint's schedules, if they end elsewhere, are replaced.
    """
    new, saved_ends, ratio = data_shape(runner), schedule_ends(runner), 1.
    other_data = 'world_size' in saved and any(saved[key] != value for key, value in new.items())
    if other_data and (runner.auto_scale_lr or {}).get('enable', False):
        ratio = _images_of_a_step(new) / _images_of_a_step(saved)
    if ratio != 1 or saved_ends != ends or other_data and runner.iter != saved['iter']:
        _replay_schedules(runner, ratio)
    if saved_ends != ends:
        runner.logger.warning(f'Schedules end at {ends}, as in the config, instead of {saved_ends}, as saved.')
    if other_data:
        shapes = ['{world_size} x {batch_size} x {accumulative_counts}'.format(**shape) for shape in (new, saved)]
        runner.logger.warning(
            f'Continued with {shapes[0]} images (processes x images x accumulated steps), saved with {shapes[1]}. '
            f'Iteration {saved["iter"]} became {runner.iter} of {runner.max_iters}; learning rates were multiplied by '
            f'{ratio:g} (--auto-scale-lr scales them to the total batch). The momentum of EMAHook is still per step.')


def base_lr(runner: Runner) -> float:
    """Return the learning rate without schedules, of the group of parameters where it is largest."""
    return max(group.get('initial_lr', group['lr']) for group in runner.optim_wrapper.optimizer.param_groups)


def schedule_ends(runner: Runner) -> list[int]:
    """Return the epoch or iteration at which each schedule ends."""
    return [scheduler.end for scheduler in runner.param_schedulers or ()]


def _images_of_a_step(shape: dict[str, int]) -> int:
    return shape['world_size'] * shape['batch_size'] * shape['accumulative_counts']


def _replay_schedules(runner: Runner, lr_ratio: float) -> None:
    """Build the schedules again, whose saved state counts the old iterations, and step them to now."""
    for group in runner.optim_wrapper.param_groups:
        group['initial_lr'] = group.get('initial_lr', group['lr']) * lr_ratio
        for key in [key for key in group if key.startswith('initial_')]:
            group[key[len('initial_'):]] = group[key]
    if not runner.param_schedulers:
        return
    runner.param_schedulers = runner.build_param_scheduler(copy.deepcopy(runner.cfg.param_scheduler))
    batches_per_epoch = len(runner.train_dataloader)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # no optimizer step comes before these
        for iteration in range(1, runner.iter + 1):
            for scheduler in runner.param_schedulers:
                if not scheduler.by_epoch or iteration % batches_per_epoch == 0:
                    scheduler.step()


def skip_seen_batches(runner: Runner) -> None:
    """Skip the batches of a resumed run's first epoch that were trained on before; call this before that epoch.

    MMEngine's iteration-based loop does so without this function.
    """
    loop, loader = runner.train_loop, runner.train_dataloader
    sampler = loader.batch_sampler.sampler
    if getattr(sampler, 'seed', runner.seed) != runner.seed:
        sampler.seed = runner.seed  # without a seed in the config, the sampler has drawn a new one
    if not isinstance(loop, EpochBasedTrainLoop):
        return
    seen = runner.iter - runner.epoch * len(loader)
    if seen > 0:
        loop.dataloader = copy_loader(loader, SkippingBatchSampler(loader.batch_sampler, seen))
