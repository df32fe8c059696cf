"""Compare a network with a checkpoint: tensors that are loaded, new, unused, or do not fit."""
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from .formats import OPTIONS, StateDict, measure_arch

HEADS = ('head.', 'head_dist.')  # of labels, and of a teacher


@dataclass(frozen=True)
class Comparison:
    """Names of the tensors of a network and of a checkpoint, by the result of the comparison.

    Attributes:
        loaded: in both, of the same shape.
        new: only in the network, which is allowed: they keep their initial values.
        unused: only in the checkpoint, which is allowed.
        missing, unexpected, mismatched: differences that are not allowed.
    """
    loaded: list[str]
    new: list[str]
    unused: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]

    def __str__(self) -> str:
        return (f'{len(self.loaded)} tensors loaded, {len(self.new)} new{_modules(self.new, self.loaded)}, '
                f'{len(self.unused)} unused{_modules(self.unused, self.loaded)}')


def _modules(names: Iterable[str], loaded: Iterable[str]) -> str:
    """Return `` (a, b, …)``: the modules of which no tensor is loaded, and the tensors of other modules."""
    partly = {part for name in loaded for part in itertools.accumulate(name.split('.')[:-1], '{}.{}'.format)}
    modules = sorted({module if module and module not in partly and not name.endswith('_token') else name
                      for name in names for module in [name.rpartition('.')[0]]})
    return f' ({", ".join(modules[:4])}{", …" if len(modules) > 4 else ""})' if modules else ''


def check(own: StateDict,
          given: StateDict,
          source: str,
          new: Collection[str] = (),
          unused: Collection[str] = (),
          reason: Callable[[Comparison], str] = lambda result: 'Give weights of the same network.') -> Comparison:
    """Compare a network with a checkpoint of the same naming: names, shapes, types and values.

    Args:
        own: the network's tensors.
        given: the checkpoint's tensors.
        source: where the checkpoint comes from, for the error.
        new: names of the network's tensors that keep their initial values.
        unused: names of the checkpoint's tensors that the network need not have.
        reason: explains from the comparison why it may not fit, for the error.

    Raises:
        CheckpointError: other tensors are missing, unexpected or of another shape, or a tensor is not of the
            network's kind of number, or holds NaN or infinite values.
    """
    both = [name for name in own if name in given and name not in new]
    result = Comparison(
        loaded=[name for name in both if own[name].shape == given[name].shape],
        new=[name for name in own if name in new],
        unused=[name for name in given if name in unused and (name not in own or name in new)],
        missing=[name for name in own if name not in given and name not in new],
        unexpected=[name for name in given if name not in own and name not in unused],
        mismatched=[name for name in both if own[name].shape != given[name].shape])
    wrong = {
        'missing in the file': result.missing,
        'unknown to the network': result.unexpected,
        'of another shape': [f'{name} {tuple(given[name].shape)} for {tuple(own[name].shape)}'
                             for name in result.mismatched],
    }
    if any(wrong.values()):
        listed = '; '.join(f'{len(names)} tensors {what}: {", ".join(names[:3])}{", …" if len(names) > 3 else ""}'
                           for what, names in wrong.items() if names)
        raise CheckpointError(f'{source} does not fit the network. {reason(result)} ({listed}.)')
    for name in result.loaded:
        problem = _problem(own[name], given[name])
        if problem:
            raise CheckpointError(f'{source} holds no usable weights: {name} {problem}.')
    return result


def _problem(own: Tensor, given: Tensor) -> str | None:
    if given.is_complex() or given.is_floating_point() != own.is_floating_point():
        return f'is of {given.dtype}, the network of {own.dtype}'
    if given.is_meta != own.is_meta or given.layout != torch.strided or given.is_quantized:
        return 'is no plain tensor with values'
    if not given.is_meta and given.is_floating_point() and not given.float().isfinite().all():
        return 'has values that are NaN or infinite'
    return None


def check_cvt(own: StateDict, given: StateDict, source: str, unused: Iterable[str] = ()) -> Comparison:
    """Compare a CvT with a checkpoint, both in the ``microsoft`` naming, by :func:`check`.

    These differences are allowed:

    - the tensors of options that the file was trained without (LayerScale, positions, hybrid and linear attention) are
      new, except a LayerScale that does not start at 1, which would make the file's weights almost ineffective;
    - a dense network's per-level norms (``norm0``...) are new, the final ``norm`` is unused;
    - a backbone does not use the ``head``; a classifier gets a new one where the number of classes
      differs (both are then named: the file's is unused, the network's new);
    - stages after the last one built, and the CLS token of a network without one, are unused;
    - a distillation token and the head on it are new, or unused, where only one side has them.

    Args:
        own: the network's tensors.
        given: the checkpoint's tensors.
        source: where the checkpoint comes from, for the error.
        unused: names of the checkpoint's that are unused in any case (a neck's).
    """
    stages = len(measure_arch(own)['depths'])
    dense = any(re.match(r'norm\d+\.', name) for name in own)
    heads = [name for name in own if name.startswith(HEADS)]
    other_head = {name for name in heads if name in given}
    if all(own[name].shape == given[name].shape for name in other_head):
        other_head = set()

    def may_be_new(name: str) -> bool:
        if OPTIONS.match(name):
            return not name.endswith('.gamma') or bool((own[name] == 1).all())
        return bool(re.match(r'norm\d+\.|head_dist\.|stage\d+\.dist_token$', name))

    def may_be_unused(name: str) -> bool:
        stage = re.match(r'stage(\d+)\.', name)
        if stage:
            return int(stage[1]) >= stages or name.endswith(('.cls_token', '.dist_token'))
        if name.startswith(HEADS):
            return not heads or name.startswith('head_dist.')
        return dense and bool(re.match(r'norm\d*\.', name))

    return check(
        own, given, source,
        new=other_head | {name for name in own if name not in given and may_be_new(name)},
        unused=other_head | {name for name in given if name not in own and may_be_unused(name)} | set(unused),
        reason=lambda result: _reason(own, given, result))


def _reason(own: StateDict, given: StateDict, result: Comparison) -> str:
    """Return the likely reason why a CvT's checkpoint does not fit."""
    own_arch, given_arch = measure_arch(own), measure_arch(given)
    if not own_arch['depths']:
        return 'Give weights of the same network.'
    if not given_arch['depths']:
        found = (re.match(r'(.+\.)stage\d+\.(patch_embed|blocks)\.', name) for name in given)
        prefix = next((match[1] for match in found if match), None)
        return (f"CvT's tensors are under {prefix!r} there: load them by the backbone's init_cfg=dict("
                f"type='Pretrained', prefix={prefix!r}, ...)." if prefix else
                'It holds no tensor of a CvT: the file or the prefix is wrong.')
    built = len(own_arch['depths'])
    if any(own_arch[key] != given_arch[key][:built] for key in own_arch):
        return f"The arch differs: the file's has {_describe(given_arch)}, the network's {_describe(own_arch)}."
    if 'stage0.patch_embed.proj.weight' in result.mismatched:
        return ("It was trained with another in_channels: init_cfg=dict(type='Pretrained', checkpoint=..., "
                "in_channels='adapt') makes it fit.")
    if any(re.match(r'norm\d+\.', name) for name in given) and any(re.match(r'(norm|head)\.', name)
                                                                  for name in result.missing):
        return "It is a detector's or segmentor's checkpoint, which has no classifier's norm or head."
    return 'Set arch, attn_cfg, with_cls_token and the like as the file was trained, or rename its keys.'


def _describe(arch: dict[str, Any]) -> str:
    return ', '.join(f'{key} {value}' for key, value in arch.items())
