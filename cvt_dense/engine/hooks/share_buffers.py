"""Gives every process the first one's BatchNorm statistics."""
from mmengine.dist import broadcast
from mmengine.hooks import EMAHook
from mmengine.runner import Runner


def share_buffers(runner: Runner) -> None:
    """Gives every process the first one's buffers, of the model and of its averages.

    Each process gathers BatchNorm's statistics on its own. Called by all before an evaluation and before a
    checkpoint: what is evaluated is what is saved, and what a resumed run has.
    """
    if runner.world_size > 1:
        averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        for model in (runner.model, *averages):
            for buffer in model.buffers():
                broadcast(buffer)
