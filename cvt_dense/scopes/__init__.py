"""The classes of MMDetection and MMSegmentation that this package treats in their own way, a module for each.

Only these two modules import the packages, and only :func:`loaded` imports these two.
"""
import sys
from importlib import import_module
from typing import Any


def loaded(package: str) -> Any:
    """Return the module of 'mmdet' or 'mmseg', or None if the package is not imported: then nothing is of its classes.

    It is imported where a type of a config is looked up or built.
    """
    return import_module(f'.{package}', __name__) if package in sys.modules else None


def kinds(name: str) -> tuple[type, ...]:
    """Return the classes under a name, 'READERS' or 'PACKING', of those of the two packages that are imported."""
    return tuple(kind for scope in (loaded('mmdet'), loaded('mmseg')) if scope for kind in getattr(scope, name))


def is_coco_metric(kind: type) -> bool:
    """Return whether a class is MMDetection's ``CocoMetric`` or a subclass."""
    mmdet = loaded('mmdet')
    return mmdet is not None and issubclass(kind, mmdet.CocoMetric)


def is_iou_metric(kind: type) -> bool:
    """Return whether a class is MMSegmentation's ``IoUMetric`` or a subclass."""
    mmseg = loaded('mmseg')
    return mmseg is not None and issubclass(kind, mmseg.IoUMetric)
