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
    """Return the classes under a name of these modules, such as 'READERS', of those packages that are imported."""
    modules = [scope for scope in (loaded('mmdet'), loaded('mmseg')) if scope]
    return tuple(kind for scope in modules for kind in getattr(scope, name, ()))
