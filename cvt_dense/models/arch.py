"""The published sizes of CvT, and the options of each stage of a network."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

ARCH_ZOO: dict[str, dict[str, Any]] = {
    'cvt-13':
    dict(embed_dims=(64, 192, 384), depths=(1, 2, 10), num_heads=(1, 3, 6), drop_path_rates=(0., 0., 0.1)),
    'cvt-21':
    dict(embed_dims=(64, 192, 384), depths=(1, 4, 16), num_heads=(1, 3, 6), drop_path_rates=(0., 0., 0.1)),
    'cvt-w24':
    dict(embed_dims=(192, 768, 1024), depths=(2, 2, 20), num_heads=(3, 12, 16), drop_path_rates=(0., 0., 0.3)),
    # This project's own small network, not one of the paper's: see docs/model_card_cvt_nano.md.
    'cvt-nano':
    dict(embed_dims=(32, 64, 128), depths=(1, 2, 6), num_heads=(1, 2, 4), cls_token=False),
}
REQUIRED = ('embed_dims', 'depths', 'num_heads')
ARGUMENTS = ('attn_cfg', 'layer_scale_init_value', 'pos_embed', 'dist_token')  # of CvT, no keys of arch


@dataclass(frozen=True, kw_only=True)
class StageArch:
    """Options of one stage: the keys of :class:`~cvt_dense.models.CvT`'s ``arch``, then :data:`ARGUMENTS` of CvT.

    ``num_heads``, ``drop_path_rates`` and ``attn_cfg`` may be lists with one value per block.
    """

    embed_dims: int
    depths: int
    num_heads: int | Sequence[int]
    patch_sizes: int
    patch_strides: int
    patch_paddings: int
    mlp_ratios: float = 4.
    qkv_bias: bool = True
    qkv_proj_method: str = 'dw_bn'
    kernel_qkv: int = 3
    stride_q: int = 1
    padding_q: int = 1
    stride_kv: int = 2
    padding_kv: int = 1
    head_dims: int | None = None
    cls_token: bool = False
    drop_rates: float = 0.
    attn_drop_rates: float = 0.
    drop_path_rates: float | Sequence[float] = 0.
    attn_cfg: Mapping[str, Any] | None | Sequence[Mapping[str, Any] | None] = None
    layer_scale_init_value: float | None = None
    pos_embed: int | None = None
    dist_token: bool = False

    @property
    def block_heads(self) -> list[int]:
        """Return ``num_heads`` of each block."""
        heads = spread('num_heads of a stage', self.num_heads, self.depths, 'blocks')
        if self.head_dims is None and any(self.embed_dims % number for number in heads):
            raise ValueError(f'embed_dims={self.embed_dims} is not divisible by num_heads={self.num_heads}; give '
                             'head_dims, the channels of a head, if heads were pruned.')
        return heads

    @property
    def block_attn_cfgs(self) -> list[Mapping[str, Any]]:
        """Return ``attn_cfg`` of each block, with its type."""
        cfgs = spread('attn_cfg of a stage', self.attn_cfg, self.depths, 'blocks')
        return [{'type': 'cvt_dense.ConvAttention', **(cfg or {})} for cfg in cfgs]

    @property
    def block_drop_paths(self) -> list[float]:
        """Return the drop path rate of each block: one value grows linearly from 0 at the first block."""
        rates = self.drop_path_rates
        if not isinstance(rates, (list, tuple)):
            rates = torch.linspace(0, rates, self.depths, device='cpu').tolist()
        return list(rates)


def resolve_arch(arch: str | Mapping[str, Any],
                 with_cls_token: bool | None = None,
                 with_dist_token: bool = False,
                 drop_rate: float | Sequence[float] | None = None,
                 attn_drop_rate: float | Sequence[float] | None = None,
                 drop_path_rate: float | Sequence[float] | None = None,
                 **arguments: Any) -> list[StageArch]:
    """Return the options of each stage.

    Args:
        arch: a name in :data:`ARCH_ZOO`, or a dict.
        arguments: further arguments of :class:`~cvt_dense.models.CvT`, each one value or a list with one per stage.

    Raises:
        ValueError: ``arch`` is unknown, lacks a key or has an unknown one; a list is not one value per stage.
    """
    if isinstance(arch, str):
        if arch.lower() not in ARCH_ZOO:
            raise ValueError(f'arch={arch!r}: allowed are {", ".join(ARCH_ZOO)}, or a dict with {", ".join(REQUIRED)}.')
        arch = ARCH_ZOO[arch.lower()]
    allowed = [field.name for field in fields(StageArch) if field.name not in ARGUMENTS]
    missing, unknown = [key for key in REQUIRED if key not in arch], [key for key in arch if key not in allowed]
    if missing or unknown:
        raise ValueError(f'arch lacks {missing} and has unknown keys {unknown}; allowed are {allowed}.')

    number = len(arch['embed_dims'])
    rest = number - 1
    columns = dict(patch_sizes=[7] + [3] * rest, patch_strides=[4] + [2] * rest, patch_paddings=[2] + [1] * rest,
                   cls_token=[False] * rest + [True])
    columns.update(arch)
    if with_cls_token is not None:
        tokens = spread('arch.cls_token', columns['cls_token'], number)
        columns['cls_token'] = [*tokens[:-1], True] if with_cls_token else [False] * number
    columns['dist_token'] = [False] * rest + [with_dist_token]
    if isinstance(drop_path_rate, (int, float)):  # grows through the whole network
        depths = spread('arch.depths', arch['depths'], number)
        rates = torch.linspace(0, drop_path_rate, sum(depths), device='cpu')
        drop_path_rate = [part.tolist() for part in rates.split(depths)]
    rates = dict(drop_rates=drop_rate, attn_drop_rates=attn_drop_rate, drop_path_rates=drop_path_rate)
    columns.update({name: value for name, value in rates.items() if value is not None})
    columns.update(arguments)
    columns = {name: spread(name, value, number) for name, value in columns.items()}
    return [StageArch(**dict(zip(columns, row))) for row in zip(*columns.values())]


def spread(name: str, value: Any, number: int, what: str = 'stages') -> list[Any]:
    """Return a list of ``number`` values.

    Args:
        name: name of the setting, for the message.
        value: one value, which is repeated, or a list.
        number: the number of values.
        what: what there are ``number`` of, for the message.

    Raises:
        ValueError: a list has another length.
    """
    if not isinstance(value, (list, tuple)):
        return [value] * number
    if len(value) != number:
        raise ValueError(f'{name}={value!r} has {len(value)} values for {number} {what}: give one value, or a list '
                         f'with one for each.')
    return list(value)
