"""Measure the region of the image on which the centre of each stage's map depends, trained and untrained.

Luo et al. 2016, "Understanding the effective receptive field in deep convolutional neural networks" (arXiv
1701.04128): the gradient of the map's centre, summed over channels, with respect to the image. As in Ding et al. 2022
(arXiv 2203.06717), its size is the side of the square around its centre that holds a fraction of it.
"""
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .subject import Finding, Subject, stage_maps

IMAGES = 50
SHARES = (0.5, 0.9, 0.99)


def fields(backbone: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the mean absolute gradient (H, W) of each stage's centre on images that are normalised already."""
    device = next(backbone.parameters()).device
    x = images.to(device).detach().requires_grad_()
    found = []
    maps = stage_maps(backbone, x)
    for feature_map in maps:
        centre = feature_map[:, :, feature_map.shape[2] // 2, feature_map.shape[3] // 2].sum()
        gradient, = torch.autograd.grad(centre, x, retain_graph=True)
        found.append(gradient.abs().mean(dim=(0, 1)).cpu())
    return found


def square(field: Tensor, share: float) -> int:
    """Return the side, in pixels, of the smallest square around the field's centre that holds a fraction of it."""
    y, x = (torch.arange(side) for side in field.shape)
    total = field.sum()
    centre_y, centre_x = (field.sum(1) @ y.to(field) / total).round(), (field.sum(0) @ x.to(field) / total).round()
    distance = torch.maximum((y - centre_y).abs()[:, None], (x - centre_x).abs()[None])
    held = [field[distance <= radius].sum() / total for radius in range(max(field.shape))]
    return 2 * sum(bool(value < share) for value in held) + 1


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure and draw the fields of every stage."""
    images = subject.normalise(subject.images[:IMAGES])
    networks = dict(trained=subject.network.backbone)
    if subject.untrained is not None:
        networks['untrained'] = subject.untrained().eval().backbone.to(images.device)
    values, pictures = {}, {}
    for name, backbone in networks.items():
        found = fields(backbone, images)
        subject.progress(len(images))
        values[name] = [{f'{share:.0%}': square(field, share) for share in SHARES} for field in found]
        pictures.update({f'{name}, stage {i + 1}': (field / field.max())**0.3 for i, field in enumerate(found)})
    values['image'] = list(images.shape[2:])
    sides = {name: ', '.join(str(stage['50%']) for stage in values[name]) for name in networks}
    sentence = f'Half of the gradient of each stage lies in squares of {sides["trained"]} pixels'
    if 'untrained' in sides:
        sentence += f', untrained {sides["untrained"]}'
    return Finding(f'{sentence}; the images have {images.shape[2]}x{images.shape[3]}.', values,
                   pictures={title: picture.numpy() for title, picture in pictures.items()})
