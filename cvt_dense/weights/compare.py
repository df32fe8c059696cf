"""What a CvT network takes from a checkpoint, what is new, what is left over, and what is wrong."""
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError
from .formats import OPTIONS, StateDict, measure_arch

HEADS = ('head.', 'head_dist.')  # of labels, and of a teacher


@dataclass(frozen=True)
class Comparison:
    """Names of tensors, in the ``microsoft`` naming.

    Attributes:
        loaded: in both, of the same shape.
        new: only the network's, as it may be: they keep their initial values.
        left_over: only the checkpoint's, as it may be.
        missing, unexpected, mismatched: differences that must not be.
    """
    loaded: list[str]
    new: list[str]
    left_over: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]

    def __str__(self) -> str:
        return (f'{len(self.loaded)} tensors loaded, {len(self.new)} new{_modules(self.new)}, '
                f'{len(self.left_over)} left over{_modules(self.left_over)}')


def _modules(names: Iterable[str]) -> str:
    """`` (a, b, …)``: the first modules that the tensors belong to."""
    modules = list(dict.fromkeys(
        name if name.endswith('_token') else name.rpartition('.')[0] for name in names))
    return f' ({", ".join(modules[:4])}{", …" if len(modules) > 4 else ""})' if modules else ''


def compare(own: StateDict, given: StateDict, left_over: Iterable[str] = ()) -> Comparison:
    """Compares a network with a checkpoint, both in the ``microsoft`` naming.

    These differences are allowed, everything else is not:

    - the tensors of options that the file was trained without (LayerScale, positions, hybrid and linear attention) are
      new, but for a LayerScale that does not start at 1, with which the file's weights would hardly count;
    - a dense network's per-level norms (``norm0``...) are new, the final ``norm`` is left over;
    - a backbone leaves the ``head`` over; a classifier gets a new one where the number of classes
      differs (both are then named: the file's is left over, the network's new);
    - stages after the last one built, and the CLS token of a network without one, are left over;
    - a distillation token and the head on it are new, or left over, where only one side has them.

    Args:
        own: the network's tensors.
        given: the checkpoint's tensors.
        left_over: names of the checkpoint's that are left over whatever they are (a neck's).
    """
    dense = any(re.match(r'norm\d+\.', key) for key in own)
    stages = len(measure_arch(own)['depths'])
    head = {key for key in own if key.startswith(HEADS)}
    new_head = {key for key in head if key in given}
    if not any(own[key].shape != given[key].shape for key in new_head):
        new_head = set()

    def may_be_left_over(key: str) -> bool:
        if key.startswith('head_dist.') and key not in own or key.endswith('.dist_token'):
            return True
        if key.startswith(HEADS):
            return not head or key in new_head
        if re.match(r'norm\d*\.', key):
            return dense
        found = re.match(r'stage(\d+)\.', key)
        return bool(found) and (int(found[1]) >= stages or key.endswith('.cls_token'))

    both = [key for key in own if key in given and key not in new_head]
    only_own = [key for key in own if key not in given or key in new_head]
    only_given = [key for key in given if key not in own or key in new_head]
    may_be_new = re.compile(r'norm\d+\.|head_dist\.|stage\d+\.dist_token$')
    new = [key for key in only_own if key in new_head or may_be_new.match(key)
           or (OPTIONS.match(key) and (not key.endswith('.gamma') or bool((own[key] == 1).all())))]
    return Comparison(
        loaded=[key for key in both if own[key].shape == given[key].shape],
        new=new,
        left_over=[key for key in only_given if may_be_left_over(key)] + list(left_over),
        missing=[key for key in only_own if key not in new],
        unexpected=[key for key in only_given if not may_be_left_over(key)],
        mismatched=[key for key in both if own[key].shape != given[key].shape])


def check(own: StateDict,
          given: StateDict,
          source: str,
          arch_zoo: Mapping[str, Mapping[str, Any]],
          left_over: Iterable[str] = ()) -> Comparison:
    """:func:`compare`, with an error where a difference must not be.

    Args:
        source: where the checkpoint comes from, for the error.
        arch_zoo: known networks, ``embed_dims`` and ``depths`` by name, for the error.

    Raises:
        CheckpointError: lists the first keys of each kind and the likely reason.
    """
    result = compare(own, given, left_over)
    wrong = {
        'missing in the file': result.missing,
        'unknown to the network': result.unexpected,
        'of another shape': [
            f'{key} {tuple(given[key].shape)} for {tuple(own[key].shape)}' for key in result.mismatched
        ],
    }
    if not any(wrong.values()):
        return result
    listed = '; '.join(f'{len(keys)} tensors {what}: {", ".join(keys[:3])}{", …" if len(keys) > 3 else ""}'
                       for what, keys in wrong.items() if keys)
    raise CheckpointError(f'{source} does not fit the network. {_reason(own, given, result, arch_zoo)} ({listed}.)')


def _describe(state_dict: StateDict, arch_zoo: Mapping[str, Mapping[str, Any]]) -> str:
    arch = measure_arch(state_dict)
    for name, known in arch_zoo.items():
        if all(tuple(known[key]) == value for key, value in arch.items()):
            return name
    return f'a CvT with embed_dims {arch["embed_dims"]} and depths {arch["depths"]}'


def _reason(own: StateDict, given: StateDict, result: Comparison,
            arch_zoo: Mapping[str, Mapping[str, Any]]) -> str:
    if not measure_arch(given)['depths']:
        prefix = find_prefix(given)
        if prefix:
            return (f"Likely reason: wrong prefix, CvT's tensors are under {prefix!r} there; load them through the "
                    f"backbone's init_cfg=dict(type='Pretrained', prefix={prefix!r}, ...).")
        return 'Likely reason: wrong file or prefix, it has no tensor of a CvT there.'
    own_arch, given_arch = measure_arch(own), measure_arch(given)
    built = len(own_arch['depths'])
    if any(own_arch[key] != given_arch[key][:built] for key in own_arch):
        return (f'Likely reason: wrong arch, the file holds {_describe(given, arch_zoo)}, the network is '
                f'{_describe(own, arch_zoo)}; change arch or the checkpoint.')
    if result.mismatched and all('.attn.proj' in key for key in result.mismatched):
        return ('Likely reason: heads were pruned; give the arch that tools/prune_heads.py wrote down beside its '
                'checkpoint.')
    others = sorted({key.split('.')[0] for key in given if not re.match(r'(stage|norm)\d*\.|head(_dist)?\.', key)})
    if others or any(re.match(r'norm\d+\.', key) for key in given):
        beside = f' (it also has {", ".join(others[:4])})' if others else ''
        if all(re.match(r'norm\.|head\.', key) for key in result.missing) and result.missing:
            return ("Likely reason: a detector's or segmentor's checkpoint, which has no classifier's norm or "
                    f'head{beside}; give one of a classifier, or use it for the backbone of a dense network.')
    if any(key.endswith('.gamma') for key in result.missing):
        return ('Likely reason: the file was trained without LayerScale, and with a factor other than 1 its weights '
                'would be another function; set layer_scale_init_value=1.')
    if any(OPTIONS.match(key) for key in result.unexpected + result.mismatched):
        return ('Likely reason: other options of the backbone; set attn_cfg, layer_scale_init_value and pos_embed as '
                'the file was trained.')
    if any('.conv_proj_' in key for key in result.missing + result.unexpected):
        return "Likely reason: other projections; set arch's qkv_proj_method as the file was trained."
    if 'stage0.patch_embed.proj.weight' in result.mismatched:
        return ('Likely reason: the file was trained with another in_channels. '
                "init_cfg=dict(type='Pretrained', checkpoint=..., in_channels='adapt') makes it fit.")
    if any(key.endswith('cls_token') for key in result.missing):
        return 'Likely reason: the file was trained without a CLS token; set with_cls_token=False.'
    return ("Likely reason: renamed keys or an incomplete export; use the authors' or Hugging Face's file as "
            'published, or rename its keys.')


def find_prefix(state_dict: StateDict) -> str | None:
    """What stands before ``stage0.`` in a state dict with an unknown prefix."""
    found = (re.match(r'(.+\.)stage\d+\.(patch_embed|blocks)\.', key) for key in state_dict)
    return next((match[1] for match in found if match), None)
