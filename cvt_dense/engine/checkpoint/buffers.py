"""Copy the first process's BatchNorm statistics to all processes."""
from mmengine.dist import broadcast
from mmengine.hooks import EMAHook
from mmengine.runner import Runner


def share_buffers(runner: Runner) -> None:
    """Copy the buffers of the model and of its averages (EMA) from the first process to all others.

    Each process gathers BatchNorm's statistics on its own. All processes call this before an evaluation and before
    a checkpoint, so that what is evaluated is what is saved, and what a resumed run has.
    """
    if runner.world_size > 1:
        averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        for model in (runner.model, *averages):
            for buffer in model.buffers():
                broadcast(buffer)
