"""The task of a model."""
from torch import nn


def task_of(model: nn.Module | type[nn.Module]) -> str | None:
    """Return the task of a model or of its class, or None if it is none of these.

    'segmentation' and 'detection' are recognised by a method of MMSegmentation's and MMDetection's models, and
    'classification' by the attribute ``task`` of this package's classifier.
    """
    marks = dict(encode_decode='segmentation', add_pred_to_datasample='detection')
    return next((task for name, task in marks.items() if hasattr(model, name)), getattr(model, 'task', None))
