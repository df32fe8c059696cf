"""Compare a network with a checkpoint: tensors that are loaded, new, unused, or do not fit."""
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..errors import CheckpointError, listed
from .formats import OPTIONS, StateDict

ADVICE = ("Set arch, attn_cfg, with_cls_token and the like as the file was trained; init_cfg takes prefix='...' and "
          "in_channels='adapt'.")


@dataclass(frozen=True)
class Comparison:
    """Names of the tensors of a network and of a checkpoint that fits it.

    Attributes:
        loaded: in both.
        new: of the network, which keep their initial values.
        unused: of the checkpoint, which the network does not use.
    """
    loaded: list[str]
    new: list[str]
    unused: list[str]

    def __str__(self) -> str:
        return f'{len(self.loaded)} tensors loaded, {_summary(self.new, "new")}, {_summary(self.unused, "unused")}'


def _summary(names: Sequence[str], kind: str) -> str:
    modules = sorted({name.removesuffix('.weight').removesuffix('.bias') for name in names})
    return f'{len(names)} {kind} ({listed(modules, 4)})' if modules else f'0 {kind}'


def compare(wanted: StateDict, tensors: StateDict, source: str, new: Collection[str] = (), unused: Collection[str] = (),
            advice: str = 'Give weights of the same network.') -> Comparison:
    """Compare a network with a checkpoint of the same naming: names, shapes, types and values.

    Args:
        wanted: the network's tensors.
        tensors: the checkpoint's tensors.
        source: where the checkpoint comes from, for the error.
        new: names of the network's tensors that keep their initial values.
        unused: names of the checkpoint's tensors that the network need not have.
        advice: a sentence of the error.

    Raises:
        CheckpointError: other tensors are missing, unexpected or of another shape, or a tensor is not of the
            network's kind of number, or holds NaN or infinite values.
    """
    both = [name for name in wanted if name in tensors and name not in new]
    missing = [name for name in wanted if name not in tensors and name not in new]
    unexpected = [name for name in tensors if name not in wanted and name not in unused]
    mismatched = [name for name in both if wanted[name].shape != tensors[name].shape]
    shapes = [f'{name} {tuple(tensors[name].shape)} for {tuple(wanted[name].shape)}' for name in mismatched]
    wrong = {'missing in the file': missing, 'unknown to the network': unexpected, 'of another shape': shapes}
    if any(wrong.values()):
        reasons = '; '.join(f'{len(names)} tensors {what}: {listed(names, 3)}'
                            for what, names in wrong.items() if names)
        raise CheckpointError(f'{source} does not fit the network. {advice} ({reasons}.)')
    for name in both:
        if not _is_usable(wanted[name], tensors[name]):
            raise CheckpointError(f'{source} holds no usable weights: {name} ({tensors[name].dtype}) has NaN or '
                                  f'infinite values, or is no plain tensor of {wanted[name].dtype}.')
    return Comparison(both, new=[name for name in wanted if name in new],
                      unused=[name for name in tensors if name in unused and (name not in wanted or name in new)])


def _is_usable(wanted: Tensor, tensor: Tensor) -> bool:
    """Return whether ``tensor`` is a plain tensor with finite values of the kind of number that ``wanted`` has."""
    kinds = [(value.is_complex(), value.is_floating_point(), value.is_meta, value.is_quantized, value.layout)
             for value in (tensor, wanted)]
    if kinds[0] != kinds[1]:
        return False
    return tensor.is_meta or not tensor.is_floating_point() or bool(tensor.float().isfinite().all())


def compare_cvt(wanted: StateDict, tensors: StateDict, source: str, unused: Iterable[str] = ()) -> Comparison:
    """Compare a CvT with a checkpoint, both in the ``microsoft`` naming, by :func:`compare`.

    These differences are allowed:

    - the tensors of options that the file was trained without (LayerScale, positions, another type of attention) are
      new, except a LayerScale that does not start at 1, which would make the file's weights almost ineffective;
    - a dense network's per-level norms (``norm0``...) are new, the final ``norm`` is unused;
    - a backbone does not use the ``head``; a classifier gets a new one where the number of classes
      differs (both are then named: the file's is unused, the network's new);
    - stages after the last one built, and the CLS token of a network without one, are unused.

    Args:
        wanted: the network's tensors.
        tensors: the checkpoint's tensors.
        source: where the checkpoint comes from, for the error.
        unused: names of the checkpoint's that are unused in any case (a neck's).
    """
    stages = {match[0] for name in wanted if (match := re.match(r'stage\d+\.', name))}
    other_head = {name for name in wanted if name.startswith('head.') and name in tensors}
    if all(wanted[name].shape == tensors[name].shape for name in other_head):
        other_head = set()
    no_use = [r'stage\d+\.cls_token$']
    if 'head.weight' not in wanted:
        no_use.append(r'head\.')
    if any(re.match(r'norm\d+\.', name) for name in wanted):
        no_use.append(r'norm\d*\.')

    def may_be_new(name: str) -> bool:
        if OPTIONS.match(name):
            return not name.endswith('.gamma') or bool((wanted[name] == 1).all())
        return bool(re.match(r'norm\d+\.', name))

    def may_be_unused(name: str) -> bool:
        stage = re.match(r'stage\d+\.', name)
        return bool(stage and stage[0] not in stages or re.match('|'.join(no_use), name))

    new = {name for name in wanted if name not in tensors and may_be_new(name)}
    left = {name for name in tensors if name not in wanted and may_be_unused(name)}
    prefixes = [name.split('stage0.')[0] for name in tensors if '.stage0.patch_embed.' in name]
    advice = f"CvT's tensors are under prefix={prefixes[0]!r} there: give it to init_cfg." if prefixes else ADVICE
    return compare(wanted, tensors, source, new | other_head, left | other_head | set(unused), advice)
