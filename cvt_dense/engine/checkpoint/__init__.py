"""Save, stop and resume a training by three hooks."""
from .files import find_checkpoint
from .resume import ResumeHook
from .save import SafeCheckpointHook
from .stop import StopHook, Stopped

__all__ = ['ResumeHook', 'SafeCheckpointHook', 'StopHook', 'Stopped', 'find_checkpoint']
