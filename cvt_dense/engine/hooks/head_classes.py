"""Fine-tune from a checkpoint of other classes: keep the outputs of classes with equal names."""
from collections.abc import Iterable, Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn

from ...registry import HOOKS

# Of ImageClassifier: one row a class, and a row for each output without a name.
HEAD = ('head.weight', 'head.bias', 'head_dist.weight', 'head_dist.bias')
# Layers of MMDetection and MMSegmentation whose first axis is of classes.
ONE_ROW = ('conv_logits', 'conv_seg', 'cls_branches', 'label_embedding', 'fc_cls', 'cls_embed')  # maybe a background
FOUR_ROWS = ('fc_reg', )
ONE_ROW_AN_ANCHOR = ('retina_cls', )  # those of the first anchor, then those of the second
# Attribute of a head whose layer is shared by all classes.
SHARED = dict(fc_reg='reg_class_agnostic', conv_logits='class_agnostic')


def _by_class(name: str, tensor: Tensor, classes: int) -> Tensor | None:
    """Return a model's tensor as (anchors, classes, rows of a class, ...), or None if its first axis is another."""
    rows = len(tensor) if tensor.ndim else 0
    layer = next((part for part in reversed(name.split('.')[:-1]) if not part.isdigit()), '')
    if name in HEAD or layer in ONE_ROW and rows in (classes, classes + 1):
        shape = 1, rows, 1
    elif layer in FOUR_ROWS and rows == 4 * classes:
        shape = 1, classes, 4
    elif layer in ONE_ROW_AN_ANCHOR and rows % classes == 0:
        shape = rows // classes, classes, 1
    else:
        return None
    return tensor.reshape(*shape, *tensor.shape[1:])


def _is_shared(name: str, model: nn.Module) -> bool:
    head, _, layer = name.rpartition('.')[0].rpartition('.')
    return layer in SHARED and getattr(model.get_submodule(head), SHARED[layer], False)


def rows_by_name(name: str, own: Tensor, given: Tensor, old: Sequence[str], new: Sequence[str]) -> Tensor | None:
    """Return ``own`` with the rows that ``given`` has for the same classes and for the background.

    Args:
        name: name of both tensors.
        own: the model's, of the classes ``new``.
        given: the checkpoint's, of the classes ``old``.

    Returns:
        A new tensor of ``own``'s shape; None for tensors that do not belong to classes, or not alike.
    """
    ours, theirs = _by_class(name, own, len(new)), _by_class(name, given, len(old))
    if ours is None or theirs is None or (len(ours), ours.shape[2:]) != (len(theirs), theirs.shape[2:]):
        return None
    ours = ours.detach().cpu().clone()
    place = {one: i for i, one in enumerate(old)}
    kept = [i for i, one in enumerate(new) if one in place]
    ours[:, kept] = theirs[:, [place[new[i]] for i in kept]].to(ours)
    if name not in HEAD and ours.shape[1] > len(new) and theirs.shape[1] > len(old):
        ours[:, -1] = theirs[:, -1]
    return ours.reshape(own.shape)


@HOOKS.register_module()
class HeadClassesHook(Hook):
    """Compare a checkpoint's class names with the training set's where a training starts from its weights.

    Equal names in equal order keep the heads. Otherwise each class that both have keeps its rows at its new position,
    and the rows of other classes are initialised. The log lists both. This works for ``ImageClassifier``, for the heads
    of Mask R-CNN and related detectors, RetinaNet, DINO, Mask2Former and MMSegmentation's ``conv_seg``. Other heads are
    loaded unchanged, with a warning if the names differ.

    Does nothing when a run is resumed or tested, or where names are not known on both sides.
    """

    priority = 'HIGHEST'  # before EMAHook copies the weights

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if getattr(runner, 'resuming', False) or isinstance(runner.optim_wrapper, dict | None):  # not built: a test
            return
        old, new = ((meta or {}).get('classes') for meta in (
            (checkpoint.get('meta') or {}).get('dataset_meta'),
            getattr(runner.train_dataloader.dataset, 'metainfo', None)))
        if not old or not new:
            return
        old, new = list(old), list(new)
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        own, given = model.state_dict(), checkpoint.get('state_dict', {})
        rows = {key: rows_by_name(key, own[key], given[key], old, new) for key in own
                if key in given and not _is_shared(key, model)}
        rows = {key: tensor for key, tensor in rows.items() if tensor is not None}
        if not rows:
            if old != new:
                print_log(f"The checkpoint's {len(old)} classes ({_list(old)}) are not the training set's {len(new)} "
                          f'({_list(new)}): a head of equal shape is loaded as it is.', logger='current', level=30)
            return
        given.update({key: tensor for key, tensor in rows.items()
                      if old != new or tensor.shape != given[key].shape})
        known = set(old)
        kept, added = [name for name in new if name in known], [name for name in new if name not in known]
        print_log(f'head: {len(kept)} of {len(new)} classes kept by name ({_list(kept)}), {len(added)} new '
                  f"({_list(added)}), {len(known - set(new))} of the checkpoint's {len(old)} left out.",
                  logger='current')


def _list(names: Iterable[str]) -> str:
    names = list(map(str, names))
    return ', '.join(names[:5]) + (', ...' if len(names) > 5 else '') or 'none'
