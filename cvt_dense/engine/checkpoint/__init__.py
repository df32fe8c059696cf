"""Saving, stopping and resuming a training; :class:`SafeCheckpointHook` puts the parts together."""
from .files import AtomicLocalBackend, find_checkpoint
from .hook import SafeCheckpointHook

__all__ = ['AtomicLocalBackend', 'SafeCheckpointHook', 'find_checkpoint']
