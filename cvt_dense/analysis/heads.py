"""Rank attention heads by importance, and build a network without the least important ones."""
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .observe import block_names, find_cvt
from .record import record_entropy

IMPORTANCES = ('entropy', 'gradient', 'random')


def head_importance(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Measure the importance of each head on calibration images.

    'gradient' is ``E|dL/dg|`` of a gate ``g = 1`` on the head's input to the projection (Michel et al. 2019, arXiv
    1905.10650), which is ``|sum(z * dL/dz)|`` over the head's outputs ``z``. 'entropy' is that times the mean entropy
    of the head's attention over the log of the number of keys. 'random' is for comparison. Each is divided by
    its norm over the block, as they do, since gradients grow towards the loss.

    Args:
        model: contains the CvT; in evaluation mode, so that its statistics do not change.
        losses: functions that run the model on one image and return its loss.

    Returns:
        By block's name, by importance's name: (heads, ), 0 and more.
    """
    backbone = find_cvt(model)
    gradients: dict[str, list[Tensor]] = {}
    entropies: dict[str, list[Tensor]] = {}

    def gate(name: str, heads: int) -> Callable:
        def before(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
            z = args[0] if args[0].requires_grad else args[0].detach().requires_grad_()  # of frozen stages
            z.register_hook(lambda grad: gradients.setdefault(name, []).append(
                (z.detach() * grad).unflatten(2, (heads, -1)).double().sum(dim=(1, 3)).abs().mean(dim=0)))
            return (z, )
        return before

    handles = [attention.proj.register_forward_pre_hook(gate(name, attention.num_heads))
               for name, attention in _attentions(backbone)]
    try:
        for loss in losses:
            with torch.enable_grad(), record_entropy(model) as recorded:
                loss().backward()
            for name, values in recorded.items():
                entropies.setdefault(name, []).append(values.double().mean(dim=(0, 2)))
            model.zero_grad(set_to_none=True)
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for name, values in entropies.items():
        gradient = torch.stack(gradients[name]).mean(dim=0)
        raw = dict(entropy=gradient * torch.stack(values).mean(dim=0), gradient=gradient,
                   random=torch.rand_like(gradient))
        found[name] = {key: value / value.norm().clamp(min=1e-300) for key, value in raw.items()}
    return found


def choose_heads(importance: Mapping[str, Tensor], keep: float) -> dict[str, list[int]]:
    """Return the heads to keep: a fraction of all, the most important ones of the whole network, at least one a block.

    Args:
        importance: (heads, ) by block.
        keep: fraction, above 0 and up to 1.

    Returns:
        Ascending numbers by block.
    """
    total = round(keep * sum(map(len, importance.values())))
    kept = {name: [int(values.argmax())] for name, values in importance.items()}
    others = sorted(((float(value), name, head) for name, values in importance.items()
                     for head, value in enumerate(values) if head not in kept[name]), reverse=True)
    for _, name, head in others[:max(0, total - len(kept))]:
        kept[name].append(head)
    return {name: sorted(heads) for name, heads in kept.items()}


def prune_heads(state_dict: Mapping[str, Tensor], model: nn.Module, kept: Mapping[str, list[int]],
                arch: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the arch of a network with fewer heads; the kept heads compute the same as before.

    Args:
        state_dict: state dict of ``model``.
        model: contains the CvT.
        kept: numbers of heads by block, as of :func:`choose_heads`.
        arch: the CvT's, a dict.

    Returns:
        ``state_dict`` without the rows of q, k and v and the columns of the projection that belong to other heads;
        ``arch`` with ``head_dims``, and ``num_heads`` with one number per block.
    """
    backbone = find_cvt(model)
    prefix = next(f'{name}.' if name else '' for name, module in model.named_modules() if module is backbone)
    state_dict = dict(state_dict)
    stages = [[block.attn for block in stage.blocks] for stage in backbone.stages]
    num_heads = [[attention.num_heads for attention in blocks] for blocks in stages]
    head_dims = [blocks[0].proj.in_features // blocks[0].num_heads for blocks in stages]
    for name, attention in _attentions(backbone):
        stage, block = int(name.split('.')[0].removeprefix('stage')), int(name.split('.')[2])
        rows = torch.arange(attention.proj.in_features).view(attention.num_heads, -1)[kept[name]].flatten()
        for part in ('proj_q.weight', 'proj_q.bias', 'proj_k.weight', 'proj_k.bias', 'proj_v.weight', 'proj_v.bias',
                     'proj.weight'):
            key = f'{prefix}{name}.attn.{part}'
            if key in state_dict:
                state_dict[key] = state_dict[key].index_select(int(part == 'proj.weight'), rows)
        num_heads[stage][block] = len(kept[name])
    return state_dict, dict(arch, num_heads=num_heads, head_dims=head_dims)


def _attentions(backbone: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, backbone.get_submodule(name).attn) for name in block_names(backbone)]
