"""Settings of the templates, see :mod:`cvt_dense.recipes.templates`; copies of templates of 0.3 import this name."""
from .recipes.templates import (
    augmented,
    balanced,
    classifier,
    coco,
    network,
    one_stage,
    optimizer,
    resized,
    run,
    scale,
    train_transform,
    two_stage,
    upernet,
)

__all__ = ['augmented', 'balanced', 'classifier', 'coco', 'network', 'one_stage', 'optimizer', 'resized', 'run',
           'scale', 'train_transform', 'two_stage', 'upernet']
