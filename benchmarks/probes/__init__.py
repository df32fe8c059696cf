"""Experiments of the literature on a trained network, one module each, which names its source.

Each module has ``probe(subject, others) -> Finding``; ``benchmarks/probe.py`` runs them. To add a probe, add a module
and its name in :data:`PROBES`.
"""
from collections.abc import Callable, Sequence
from importlib import import_module

from .subject import Finding, NotApplicable, Subject, stage_maps

PROBES = ('shift', 'occlusion', 'attribution', 'receptive', 'shape', 'attack', 'features', 'calibration')


def get_probe(name: str) -> Callable[[Subject, Sequence[Subject]], Finding]:
    """Return the function of a probe, one of :data:`PROBES`."""
    return import_module(f'{__name__}.{name}').probe


__all__ = ['PROBES', 'Finding', 'NotApplicable', 'Subject', 'get_probe', 'stage_maps']
