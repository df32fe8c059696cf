"""Fine-tuning from a checkpoint of other classes: the classifier's head follows the classes' names."""
from collections.abc import Iterable
from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.runner import BaseLoop, Runner
from torch import Tensor

from ...registry import HOOKS

HEAD = ('head.weight', 'head.bias')  # of ImageClassifier: one row a class


def rows_by_name(own: Tensor, given: Tensor, old: list[str], new: list[str]) -> Tensor:
    """``own``, (outputs, ...), with the rows that ``given``, (outputs, ...), has for the same names.

    Args:
        own: the model's. Row i is of the class ``new[i]``; there may be more rows than names.
        given: the checkpoint's, the same for ``old``.
    """
    result = own.detach().cpu().clone()
    for row, name in enumerate(new):
        if name in old:
            result[row] = given[old.index(name)]
    return result


@HOOKS.register_module()
class HeadClassesHook(Hook):
    """Compares a checkpoint's class names with the training set's where a training starts from its weights.

    For ``ImageClassifier``: equal names in equal order keep the head. Otherwise each class that both have keeps
    its row of the head, wherever it stands, and the others are new. The log says which. Heads of detectors and
    segmentors are loaded as they are, with a warning where the names differ.

    Does nothing when a run is resumed or tested, or where names are not known on both sides.
    """

    priority = 'HIGHEST'  # before EMAHook copies the weights

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if runner._resume or not isinstance(runner._train_loop, BaseLoop):
            return
        old, new = ((meta or {}).get('classes') for meta in (
            (checkpoint.get('meta') or {}).get('dataset_meta'),
            getattr(runner.train_dataloader.dataset, 'metainfo', None)))
        if not old or not new:
            return
        old, new = list(old), list(new)
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        own, given = model.state_dict(), checkpoint.get('state_dict', {})
        if not all(key in own and key in given and own[key].shape[1:] == given[key].shape[1:] for key in HEAD):
            if old != new:
                print_log(f"The checkpoint's {len(old)} classes ({_list(old)}) are not the training set's {len(new)} "
                          f'({_list(new)}): a head of equal shape is loaded as it is.', logger='current', level=30)
            return
        if old != new or own[HEAD[0]].shape != given[HEAD[0]].shape:
            for key in HEAD:
                given[key] = rows_by_name(own[key], given[key], old, new)
        kept, added = [name for name in new if name in old], [name for name in new if name not in old]
        print_log(f'head: {len(kept)} of {len(new)} classes kept by name ({_list(kept)}), {len(added)} new '
                  f"({_list(added)}), {len(set(old) - set(new))} of the checkpoint's {len(old)} left out.",
                  logger='current')


def _list(names: Iterable[str]) -> str:
    names = list(map(str, names))
    return ', '.join(names[:5]) + (', ...' if len(names) > 5 else '') or 'none'
