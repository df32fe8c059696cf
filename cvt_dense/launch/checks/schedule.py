"""Check that a training's epochs end, that it saves what is meant, and that its learning rate follows its schedules."""

from mmengine.dataset import InfiniteSampler
from mmengine.hooks import CheckpointHook
from mmengine.logging import print_log
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from ...config import class_of
from ...engine.checkpoint import SafeCheckpointHook
from ...engine.schedules import Curve, train_loop
from ...errors import UserError
from ..built import Built

NOTHING = 1e-6  # of the highest learning rate, by which nothing is learnt


def check_schedule(built: Built) -> None:
    """Compare the schedules of a training with its length; a warning tells of a difference.

    Raises:
        UserError: an epoch never ends, a schedule never moves, nothing is saved before the end, nothing is learnt after
            the end of the schedules, or the best checkpoint may be that of one class.
    """
    if built.stage != 'train':
        return
    cfg, sampler, loop = built.cfg, built.loaders['train'].batch_sampler.sampler, train_loop(built.cfg)
    if issubclass(loop, EpochBasedTrainLoop) and isinstance(sampler, InfiniteSampler):
        raise UserError(f'train_dataloader.sampler: {type(sampler).__name__} is endless, and train_cfg counts epochs: '
                        "the first would never end. Set sampler=dict(_delete_=True, type='DefaultSampler', "
                        "shuffle=True), or count iterations with train_cfg.type='IterBasedTrainLoop' and max_iters.")
    hooks = [hook for hook in [*(cfg.get('default_hooks') or {}).values(), *(cfg.get('custom_hooks') or ())]
             if isinstance(hook, dict) and 'type' in hook]
    saving = [hook for hook in hooks
              if issubclass(class_of(hook, cfg, HOOKS) or object, (CheckpointHook, SafeCheckpointHook))]
    if issubclass(loop, IterBasedTrainLoop) and any(
            hook.get('by_epoch', True) and hook.get('interval', -1) > 0 for hook in saving):
        raise UserError('default_hooks.checkpoint counts epochs, and train_cfg iterations: nothing would be saved '
                        'before the end. Set default_hooks.checkpoint.by_epoch=False, and interval in iterations.')
    if any(hook.get('save_best') == 'auto' and class_of(hook, cfg, HOOKS) is CheckpointHook for hook in saving):
        raise UserError("save_best='auto' of MMEngine's CheckpointHook is the first metric, such as that of a class. "
                        "Name it, such as 'coco/bbox_mAP', or set type='cvt_dense.SafeCheckpointHook'.")
    if warning := built.rates and find_mismatch(built.rates):
        print_log(warning, logger='current', level=30)


def find_mismatch(curve: Curve) -> str:
    """Return what is wrong with the learning rates of a run, or an empty text.

    Raises:
        UserError: as :func:`check_schedule`.
    """
    if curve.idle:
        raise UserError(f'param_scheduler.{curve.idle[0]} counts epochs, and train_cfg iterations: it would never '
                        'move. Give it by_epoch=False, with its begin, end and milestones in iterations.')
    rates = [rate for _, rate in curve.points]
    settled, last = curve.points[-1]
    highest = max(rates)
    if curve.beyond is not None:
        after = f'goes on to {curve.beyond[1]:.3g} at {curve.place(curve.beyond[0])}'
    elif last < highest and (curve.end < curve.length or settled < curve.length / 2):
        after = f'changes nothing after {curve.place(settled)}'
    elif last > 1.05 * min(rates[rates.index(highest):]):
        after = f'rises again: {curve}'
    else:
        return ''
    text = (f'The training ends at {curve.place(curve.length)} with a learning rate of {last:.3g}, and param_scheduler '
            f'{after}. Set its end to the length of the training, in a template by max_iters.')
    if curve.end < curve.length and last < NOTHING * highest:
        raise UserError(text)
    return text
