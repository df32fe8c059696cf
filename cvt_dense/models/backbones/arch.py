"""From the ``arch`` of a config to one checked :class:`StageArch` per stage."""
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch

from ..layers import StageArch

PRUNING = ('refresh', 'score')  # of token_pruning, besides keep
VARIANTS = ('layer_scale_init_value', 'mixing', 'attention', 'pos_embed', 'rel_pos')
OTHERS = ('index', 'window_size', 'keep', *PRUNING, 'dist_token', *VARIANTS)  # not of arch
KEYS = [field.name for field in fields(StageArch) if field.name not in OTHERS]
REQUIRED = ('embed_dims', 'depths', 'num_heads')


def resolve_arch(arch: str | Mapping[str, Any],
                 arch_zoo: Mapping[str, Mapping[str, Any]],
                 with_cls_token: bool | None = None,
                 drop_rate: Any = None,
                 attn_drop_rate: Any = None,
                 drop_path_rate: Any = None,
                 window_size: Any = None,
                 token_pruning: Mapping[str, Any] | None = None,
                 **variants: Any) -> list[StageArch]:
    """One :class:`StageArch` per stage.

    Args:
        arch_zoo: ``arch`` by name.
        further arguments: of :class:`CvT`.

    Raises:
        ValueError: as :class:`CvT`.
    """
    if isinstance(arch, str):
        if arch.lower() not in arch_zoo:
            raise ValueError(f'arch={arch!r} is unknown: allowed are {sorted(arch_zoo)} or a dict '
                             f'with {", ".join(REQUIRED)}.')
        arch = arch_zoo[arch.lower()]
    missing = [key for key in REQUIRED if key not in arch]
    if missing:
        raise ValueError(f'arch={dict(arch)!r} lacks {missing}: a dict needs {list(REQUIRED)}.')
    unknown = sorted(set(arch) - set(KEYS))
    if unknown:
        raise ValueError(f'arch has unknown keys {unknown}: allowed are {KEYS}.')

    rest = len(arch['embed_dims']) - 1
    first_or_last = dict(patch_sizes=[7] + [3] * rest, patch_strides=[4] + [2] * rest, patch_paddings=[2] + [1] * rest,
                         cls_token=[False] * rest + [True])
    columns = {key: _per_stage(f'arch.{key}', value, rest + 1) for key, value in {**first_or_last, **arch}.items()}
    stages = [StageArch(index=i, **dict(zip(columns, row))) for i, row in enumerate(zip(*columns.values()))]

    overrides: dict[str, list[Any]] = dict(window_size=_per_stage('window_size', window_size, rest + 1))
    if token_pruning is not None:
        overrides.update(_pruning(token_pruning, rest + 1))
    overrides.update({name: _per_stage(name, value, rest + 1) for name, value in variants.items()})
    if with_cls_token is False:
        overrides['cls_token'] = [False] * (rest + 1)
    for name, value in dict(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate, drop_path_rate=drop_path_rate).items():
        if name == 'drop_path_rate' and isinstance(value, (int, float)):  # grows through the whole network
            depths = [stage.depths for stage in stages]
            value = [rates.tolist() for rates in torch.linspace(0, value, sum(depths), device='cpu').split(depths)]
        if value is not None:
            overrides[f'{name}s'] = _per_stage(name, value, rest + 1)
    return [replace(stage, **dict(zip(overrides, row))) for stage, row in zip(stages, zip(*overrides.values()))]


def _pruning(given: Any, num_stages: int) -> dict[str, list[Any]]:
    if not isinstance(given, Mapping) or 'keep' not in given or set(given) - {'keep', *PRUNING}:
        raise ValueError(f'token_pruning={given!r}: must be None or a dict with keep, one share or one a stage, and '
                         f'as you like {" and ".join(PRUNING)}.')
    return {key: _per_stage(f'token_pruning.{key}', value, num_stages) for key, value in given.items()}


def _per_stage(name: str, value: Any, num_stages: int) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) != num_stages:
            raise ValueError(f'{name}={value!r} has {len(value)} values, but arch has '
                             f'{num_stages} stages: give one value per stage.')
        return list(value)
    return [value] * num_stages
