"""Resume a run at the batch, and at the point of its schedules, where the saved one was."""
from bisect import bisect
from typing import Any

from mmengine.config import Config
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...config import dicts, values
from ...errors import UserError, listed
from ...registry import HOOKS
from ..schedules import NEVER, advance, data_shape
from .loaders import SkippingBatchSampler, copy_loader

EVALUATED = 'last_evaluation'  # entry of checkpoints: the epoch or iteration whose evaluation was the last to end
PLACES = 'work_dir', 'load_from', 'resume', 'launcher'  # settings that say where a run is, not what it does
RATES = 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'train_cfg'  # settings that learning rates follow from


@HOOKS.register_module()
class ResumeHook(Hook):
    """Continue a resumed run as if it had not been interrupted, or with other settings, processes or images.

    - It continues with the next batch of the same epoch. Batches are neither repeated nor left out, since the samplers
      depend on seed and epoch alone; only samplers that ignore the seed would (:class:`SeedHook` names them). The log
      numbers the rest of that epoch's batches from 1.
    - It repeats an evaluation that was due with its checkpoint, unless the checkpoint has the result.
    - With other numbers of processes or images the epoch continues at the same fraction of the data.
    - The config decides about everything that the checkpoint does not hold: the log lists where it differs from the
      config in the checkpoint. With another learning rate, schedule, length or batch the rates are those of a run
      that began with this config, and further settings of the optimizer are the config's, too.
    - An optimizer that the saved state is not for is an error (:func:`check_state`).
    """

    priority = 'VERY_LOW'

    def __init__(self):
        self.saved_meta: dict[str, Any] = {}
        self.groups: list[dict[str, Any]] = []  # of the optimizer, as the config makes them
        self.schedules: list[dict[str, Any]] = []  # likewise

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = dict(checkpoint.get('meta', {}))
        if isinstance(runner.optim_wrapper, dict | None):  # not built: the run will not train
            return
        if getattr(runner, 'resuming', False):
            check_state(runner, checkpoint)
        move_to_same_data(runner, checkpoint.get('meta', {}))
        # The checkpoint's values are about to take the place of these.
        self.groups = [{key: value for key, value in group.items() if key != 'params'}
                       for group in runner.optim_wrapper.param_groups]
        self.schedules = [dict(schedule.state_dict()) for schedule in runner.param_schedulers or ()]

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        sampler = runner.train_dataloader.batch_sampler.sampler
        checkpoint['meta'].update(settings=settings(runner.cfg), sampler_seed=getattr(sampler, 'seed', None))
        for state in dicts(checkpoint.get('param_schedulers')):
            state.pop('anneal_func', None)  # OneCycleLR's function, which only an unrestricted unpickler reads

    def before_train(self, runner: Runner) -> None:
        if runner.iter == 0 and not getattr(runner, 'resuming', False):
            return
        skip_seen_batches(runner, self.saved_meta.get('sampler_seed', runner.seed))
        self.follow_config(runner)
        if misses_evaluation(runner):
            runner.logger.info('The checkpoint lacks the result of the evaluation that was due with it. This '
                               'evaluation runs now.')
            runner.val_loop.run()

    def follow_config(self, runner: Runner) -> None:
        """Move optimizer and schedules to where a run with this config would be, if another one was saved."""
        saved, new = self.saved_meta, data_shape(runner)
        changed = differences(saved.get('settings', {}), settings(runner.cfg))
        if changed:
            runner.logger.warning('This config differs from the one in the checkpoint, and decides from here on: '
                                  f'{listed(changed.values(), 10)}')
        other_data = 'world_size' in saved and any(saved[key] != value for key, value in new.items())
        if other_data:
            shapes = ['{world_size} x {batch_size} x {accumulative_counts} images, {batches_per_epoch} batches an '
                      'epoch'.format(**shape) for shape in (new, saved)]
            runner.logger.warning(
                f'Continued with {shapes[0]} (processes x images x accumulated steps), saved with {shapes[1]}. '
                f'Iteration {saved["iter"]} became {runner.iter} of {runner.max_iters}. --auto-scale-lr scales the '
                'learning rate to the total batch; the momentum of EMAHook is still per step.')
        if not other_data and not any(path.startswith(RATES) for path in changed) or any(
                getattr(schedule, 'need_val_args', False) for schedule in runner.param_schedulers or ()):
            return  # the metrics that ReduceOnPlateau has seen are in its saved state alone
        for group, fresh in zip(runner.optim_wrapper.param_groups, self.groups):
            group.update(fresh)
        for schedule, fresh in zip(runner.param_schedulers or (), self.schedules):
            schedule.load_state_dict(fresh)
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        # The loop has yet to end an epoch whose last iteration is done.
        advance(runner.param_schedulers or (), runner.optim_wrapper.param_groups[0], runner.iter,
                *(new['batches_per_epoch'], runner.epoch) if by_epoch else (NEVER, ))


def check_state(runner: Runner, checkpoint: dict[str, Any]) -> None:
    """Check that a run can continue with the optimizer and the averages of a checkpoint.

    Raises:
        UserError: the checkpoint is of another optimizer, of one with other parameters, or has averages that no hook
            of this run continues.
    """
    changed = differences(checkpoint['meta'].get('settings', {}), settings(runner.cfg))
    saved, built = ([len(group['params']) for group in optimizer.get('param_groups', ())] for optimizer in (
        checkpoint.get('optimizer', {}), vars(runner.optim_wrapper.optimizer)))
    if 'optimizer' not in checkpoint:
        held = 'weights alone, as the best one of a run,'
    elif saved != built or 'optim_wrapper.optimizer.type' in changed:
        held = 'the state of another optimizer, or of other parameters,'
    elif 'ema_state_dict' in checkpoint and not any(isinstance(hook, EMAHook) for hook in runner.hooks):
        held = 'averaged weights'
    else:
        return
    named = [text for path, text in changed.items() if path.startswith(('model', 'optim_wrapper', 'custom_hooks'))]
    raise UserError(f'--resume: the checkpoint holds {held} which this run cannot continue. Restore its settings '
                    f'({listed(named)}), or start a new run from its weights: --cfg-options load_from=CHECKPOINT.')


def differences(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """Return a text for each of two configs' :func:`settings` that differs, by its path, without :data:`PLACES`.

    There is none where one has no settings, as in checkpoints that were saved without :class:`ResumeHook`.
    """
    return {path: f'{path}={new.get(path, "not set")} (saved: {old.get(path, "not set")})' for path in {**new, **old}
            if new.get(path) != old.get(path) and not path.startswith(PLACES)} if old and new else {}


def settings(cfg: Config) -> dict[str, str]:
    """Return the value of each setting of a config by its dotted path, as text."""
    return {path: repr(value) for path, value in values(cfg.to_dict()) if not isinstance(value, (dict, list, tuple))}


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
    # The loop takes up the interval of its place after its next iteration or epoch.
    interval = loop.dynamic_intervals[bisect(loop.dynamic_milestones, step + 1) - 1]
    due = step >= loop.val_begin and (step % interval == 0 or step == end)
    return due and runner.message_hub.runtime_info.get(EVALUATED) != step


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
    seen = meta['iter'] - meta['epoch'] * meta['batches_per_epoch']
    batches = seen * new['batches_per_epoch'] // meta['batches_per_epoch']
    meta['iter'] = meta['epoch'] * new['batches_per_epoch'] + batches


def skip_seen_batches(runner: Runner, seed: int | None) -> None:
    """Skip the batches of a resumed run's first epoch that were trained on before; call this before that epoch.

    MMEngine's iteration-based loop does so without this function.

    Args:
        runner: has loaded the checkpoint.
        seed: the saved run's seed of the sampler, which has drawn a new one if the config has none.
    """
    loop, loader = runner.train_loop, runner.train_dataloader
    sampler = loader.batch_sampler.sampler
    if hasattr(sampler, 'seed') and seed is not None:
        sampler.seed = seed
    if not isinstance(loop, EpochBasedTrainLoop):
        return
    seen = runner.iter - runner.epoch * len(loader)
    if seen > 0:
        loop.dataloader = copy_loader(loader, SkippingBatchSampler(loader.batch_sampler, seen))
