"""Fine-tune from a checkpoint of other classes: keep the outputs of classes with equal names."""
import re
from collections.abc import Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from ...classes import Classes
from ...errors import listed
from ...models.wrappers import unwrap
from ...registry import HOOKS

# Number of rows of each class in layers whose first axis is the classes: those of ImageClassifier, then of MMDetection
# and MMSegmentation. A background or outputs without a name may follow.
ROWS = dict(head=1, conv_logits=1, conv_seg=1, cls_branches=1, label_embedding=1, fc_cls=1, cls_embed=1,
            gfl_cls=1, fc_reg=4)


WORDNET = re.compile(r'n\d{8}')


def _by_class(name: str, tensor: Tensor, classes: int) -> Tensor | None:
    """Return a model's tensor as (anchors, classes, rows of a class, ...), or None if its first axis is another."""
    layer = next((part for part in reversed(name.split('.')[:-1]) if not part.isdigit()), '')
    if layer == 'retina_cls' and len(tensor) % classes == 0:  # the classes of the first anchor, then of the second
        return tensor.reshape(-1, classes, 1, *tensor.shape[1:])
    if layer in ROWS and len(tensor) // ROWS[layer] >= classes:  # fewer where all classes share a layer
        return tensor.reshape(1, -1, ROWS[layer], *tensor.shape[1:])
    return None


def rows_by_name(name: str, current: Tensor, saved: Tensor, old: Sequence[str], new: Sequence[str]) -> Tensor | None:
    """Return ``current`` with the rows that ``saved`` has for the same classes and for the background.

    Args:
        name: name of both tensors.
        current: the model's, of the classes ``new``.
        saved: the checkpoint's, of the classes ``old``.

    Returns:
        A new tensor of ``current``'s shape; None for tensors that do not belong to classes, or not alike.
    """
    ours, theirs = _by_class(name, current, len(new)), _by_class(name, saved, len(old))
    if ours is None or theirs is None or (len(ours), ours.shape[2:]) != (len(theirs), theirs.shape[2:]):
        return None
    ours = ours.detach().cpu().clone()
    rows_of_old = {name: i for i, name in enumerate(old)}
    kept = [i for i, name in enumerate(new) if name in rows_of_old]
    ours[:, kept] = theirs[:, [rows_of_old[new[i]] for i in kept]].to(ours)
    if ours.shape[1] > len(new) and theirs.shape[1] > len(old):
        ours[:, -1] = theirs[:, -1]
    return ours.reshape(current.shape)


@HOOKS.register_module()
class HeadClassesHook(Hook):
    """Keep the head's outputs of classes that a checkpoint and the training set share, when its weights are loaded.

    Equal names in equal order keep the heads. Otherwise each class that both have keeps its rows at its new position,
    and the rows of other classes are initialised. The log lists both. This works for ``ImageClassifier``, for the heads
    of Mask R-CNN and related detectors, RetinaNet, GFL, DINO, Mask2Former and MMSegmentation's ``conv_seg``. Other
    heads are loaded unchanged, with a warning.

    Does nothing when a run is resumed or tested, or where names are not known on both sides.
    """

    priority = 'HIGHEST'  # before EMAHook copies the weights

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if getattr(runner, 'resuming', False) or isinstance(runner.optim_wrapper, dict | None):  # not built: a test
            return
        new = Classes.of_data(runner.train_dataloader.dataset, 'train').spelled
        old = Classes.of_file(checkpoint, 'the checkpoint').spelled
        if not old or not new or old == new or len(old) == len(new) and all(map(WORDNET.fullmatch, new)) and not any(
                map(WORDNET.fullmatch, old)):  # the Hub has ImageNet's classes in words, folders have their numbers
            return
        model = unwrap(runner.model)
        current, saved = model.state_dict(), checkpoint['state_dict']
        rows = {key: rows_by_name(key, current[key], saved[key], old, new) for key in current if key in saved}
        rows = {key: tensor for key, tensor in rows.items() if tensor is not None}
        saved.update(rows)
        known = set(old)
        kept, added = [name for name in new if name in known], [name for name in new if name not in known]
        runner.logger.warning(
            f'head: {len(kept)} of {len(new)} classes kept by name ({listed(kept)}), {len(added)} new '
            f"({listed(added)}), {len(old) - len(kept)} of the checkpoint's {len(old)} left out." if rows else
            f"The checkpoint's {len(old)} classes ({listed(old)}) are not the training set's {len(new)} "
            f'({listed(new)}): a head of equal shape is loaded as it is.')
