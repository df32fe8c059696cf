"""What the options of a stage that are off by default may be, and with what; see :class:`StageArch`."""
from typing import Any

ALLOWED = dict(mixing=(None, 'hybrid'), attention=('softmax', 'linear'), rel_pos=(None, 'cpb', 'rope'))


def check_variants(arch: Any) -> None:
    """Raises ValueError if an option of a :class:`StageArch` is not allowed, or not beside another."""
    i = arch.index
    for name, allowed in ALLOWED.items():
        if getattr(arch, name) not in allowed:
            raise ValueError(f'{name}={getattr(arch, name)!r} in stage {i}: allowed are '
                             f'{", ".join(map(repr, allowed))}, one for all stages or a list with one per stage.')
    scale, side = arch.layer_scale_init_value, arch.pos_embed
    if scale is not None and (not isinstance(scale, (int, float)) or isinstance(scale, bool) or scale <= 0):
        raise ValueError(f'layer_scale_init_value={scale!r} in stage {i}: must be a number above 0 (1 with published '
                         'weights, 1e-6 for deep networks from scratch), or None for no LayerScale.')
    if side is not None and (not isinstance(side, int) or isinstance(side, bool) or side < 1):
        raise ValueError(f'pos_embed={side!r} in stage {i}: must be the side of the learned grid in tokens (56, 28, 14 '
                         'in the stages at 224x224), or None for no positional embedding.')

    same_grid = arch.qkv_proj_method == 'linear' or (
        arch.qkv_proj_method == 'dw_bn' and 2 * arch.padding_kv + 1 == arch.kernel_qkv)
    if arch.mixing and (arch.qkv_proj_method != 'dw_bn' or not same_grid):
        raise ValueError(f"mixing={arch.mixing!r} in stage {i} needs qkv_proj_method='dw_bn' and padding_kv "
                         f'(kernel_qkv - 1) / 2; it is {arch.qkv_proj_method!r} with kernel_qkv={arch.kernel_qkv}, '
                         f'padding_kv={arch.padding_kv}.')
    if (arch.rel_pos or arch.attention == 'linear') and not same_grid:
        raise ValueError(f'rel_pos={arch.rel_pos!r}, attention={arch.attention!r} in stage {i} with qkv_proj_method='
                         f'{arch.qkv_proj_method!r}, kernel_qkv={arch.kernel_qkv}, padding_kv={arch.padding_kv}: both '
                         "need a k/v map that is exactly stride_kv times smaller: 'linear', or 'dw_bn' with padding_kv "
                         '(kernel_qkv - 1) / 2.')
    if arch.rel_pos == 'rope' and (arch.head_dims or arch.embed_dims // arch.block_heads[0]) % 2:
        raise ValueError(f"rel_pos='rope' in stage {i} turns pairs of channels: embed_dims={arch.embed_dims} over "
                         f'num_heads={arch.num_heads} must be even.')
    if arch.prunes and (arch.rel_pos or arch.attention == 'linear'):
        raise ValueError(f'token_pruning.keep={arch.keep!r} with rel_pos={arch.rel_pos!r}, attention='
                         f'{arch.attention!r} in stage {i}: both need every token of the map; set keep '
                         'to None in this stage.')
    if arch.attention == 'linear':
        beside = dict(window_size=arch.window_size, attn_drop_rate=arch.attn_drop_rates or None,
                      rel_pos=arch.rel_pos if arch.rel_pos == 'cpb' else None)
        for name, value in beside.items():
            if value is not None and value != [None] * arch.depths:
                raise ValueError(f"{name}={value!r} with attention='linear' in stage {i}: linear attention has no "
                                 f'weights between two tokens; leave {name} out of this stage.')
