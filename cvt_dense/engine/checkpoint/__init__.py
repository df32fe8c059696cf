"""Save, stop and resume a training by three hooks; :class:`SafeCheckpointHook` adds the other two to a run."""
from .files import PREEMPTED, find_checkpoint
from .save import SafeCheckpointHook

__all__ = ['PREEMPTED', 'SafeCheckpointHook', 'find_checkpoint']
