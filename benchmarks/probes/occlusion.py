"""Measure accuracy while patches of the image are hidden: random, the most and the least attended ones first.

Naseer et al. 2021, "Intriguing properties of vision transformers" (arXiv 2105.10497), random and salient PatchDrop.
Hidden patches get the mean colour of the data. As there, the attention of one network, the first CvT, chooses the
hidden patches for all networks.
"""
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cvt_dense.report.attention import attention_map, find_cvt, record_attention, recordable_blocks

from .subject import BATCH, Finding, Subject

SHARES = (10, 30, 50, 70, 90)  # percent
GRID = 8  # patches of a side


def hide(images: Tensor, order: Tensor, share: float, colour: Tensor) -> Tensor:
    """Hide the first patches of each image.

    Args:
        images: (N, 3, H, W).
        order: (N, GRID * GRID), each image's patches, row by row, the first to be hidden first.
        share: percent of the patches that are hidden.
        colour: (3, 1, 1), of hidden patches.
    """
    number = round(order.shape[1] * share / 100)
    mask = torch.zeros(order.shape).scatter_(1, order[:, :number], 1.).unflatten(1, (GRID, GRID))
    mask = F.interpolate(mask[:, None], images.shape[2:], mode='nearest') > 0
    return torch.where(mask, colour.to(images.dtype), images)


@torch.no_grad()
def patch_attention(subject: Subject, images: Tensor) -> Tensor | None:
    """Return how much the last stage attends to each patch, (N, GRID * GRID); None where that cannot be recorded.

    Of a network with a CLS token it is that token's attention, else the mean over all tokens.
    """
    try:
        backbone = find_cvt(subject.network)
    except ValueError:
        return None
    last = f'stage{len(backbone.depths) - 1}.'
    blocks = [name for name in recordable_blocks(backbone) if name.startswith(last)]
    found = []
    for batch in images.split(BATCH) if blocks else ():
        with record_attention(subject.network, blocks, ['cls', 'all']) as records:
            subject.forward(batch)
        chosen = [record.select('cls' if record.num_cls else 'all') for record in records.values()]
        heat = torch.stack([attention_map(record).mean(dim=(1, 2)) for record in chosen]).mean(dim=0)[:, None]
        found.append(F.interpolate(heat, (GRID, GRID), mode='bilinear').flatten(1).cpu())
    return torch.cat(found) if found else None


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure accuracy over the fraction of hidden patches."""
    subject.classifier_only()
    orders = dict(random=torch.rand(len(subject.images), GRID * GRID,
                                    generator=torch.Generator().manual_seed(0)).argsort(dim=1))
    maps = (patch_attention(network, network.images) for network in (subject, *others))
    attention = next((found for found in maps if found is not None), None)
    if attention is not None:
        orders.update(most=attention.argsort(dim=1, descending=True), least=attention.argsort(dim=1))
    clean = subject.accuracy(subject.images)
    colour = subject.network.data_preprocessor.mean.cpu()
    values = {name: {'0': clean, **{str(share): subject.accuracy(hide(subject.images, order, share, colour))
                                    for share in SHARES}} for name, order in orders.items()}
    left = values['random']['50']
    sentence = f'With half of the patches hidden at random, top-1 falls from {clean:.1f} to {left:.1f} %'
    if attention is not None:
        sentence += (f'; with the most attended half hidden to {values["most"]["50"]:.1f}, with the least attended '
                     f'half to {values["least"]["50"]:.1f}')
    else:
        sentence += '; no network whose attention can be recorded takes part'
    return Finding(f'{sentence}.', values,
                   {name: ([0, *SHARES], list(line.values())) for name, line in values.items()},
                   ('patches hidden (%)', 'top-1 (%)'))
