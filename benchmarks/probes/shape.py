"""Measure accuracy on images that keep shape or texture only, relative to clean ones.

Shuffled patches keep texture (Naseer et al. 2021, arXiv 2105.10497); edges and silhouettes keep shape, and images whose
shape and texture are of two classes show which one the network follows (Geirhos et al. 2019, arXiv 1811.12231).
Silhouettes are made by Otsu's threshold, because a data set of photographs has no masks; both filters are Gaussian.
"""
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .subject import Finding, Subject, percent

GRIDS = (2, 4, 8)
CUE_CONFLICT = 'cue-conflict'  # folder of Geirhos et al.: <shape>/<shape><number>-<texture><number>.png


def shuffle(images: Tensor, grid: int, seed: int = 0) -> Tensor:
    """Return images whose patches are shuffled, each image's in its own order.

    Rows and columns of pixels that are left over stay where they are.

    Args:
        images: (N, 3, H, W).
        grid: patches along each side.
        seed: seed of the order.
    """
    number, (height, width) = len(images), (side // grid for side in images.shape[2:])
    inside = images[..., :height * grid, :width * grid]
    patches = inside.unflatten(3, (grid, width)).unflatten(2, (grid, height)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(number, grid * grid, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    patches = patches[torch.arange(number)[:, None], order].unflatten(1, (grid, grid))
    shuffled = images.clone()
    shuffled[..., :height * grid, :width * grid] = patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
    return shuffled


def each(images: Tensor, change: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Apply a function of uint8 arrays (H, W, 3) to each image; it may return (H, W)."""
    changed = [change(np.ascontiguousarray(image.permute(1, 2, 0).numpy())) for image in images]
    return torch.stack([torch.from_numpy(np.atleast_3d(array)).permute(2, 0, 1).expand(3, -1, -1) for array in changed])


def edges(image: np.ndarray) -> np.ndarray:
    """Return black lines on white, by Canny's method."""
    return 255 - cv2.Canny(image, 100, 200)


def silhouette(image: np.ndarray) -> np.ndarray:
    """Return black and white, divided by Otsu's threshold."""
    return cv2.threshold(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), 0, 255, cv2.THRESH_OTSU)[1]


def low_pass(image: np.ndarray) -> np.ndarray:
    """Blur with a standard deviation of 1/32 of the image's side."""
    return cv2.GaussianBlur(image, (0, 0), len(image) / 32)


def high_pass(image: np.ndarray) -> np.ndarray:
    """Return what :func:`low_pass` takes away, around mid-grey."""
    return np.clip(image.astype(np.float32) - low_pass(image) + 127.5, 0, 255).astype(np.uint8)


def shape_bias(subject: Subject, folder: Path) -> dict[str, float]:
    """Return the percentage of images that follow shape, among those that follow shape or texture.

    The network decides among the classes that have folders; networks whose classes have other names cannot.
    """
    names = [path.name for path in sorted(folder.iterdir()) if path.name in subject.classes]
    numbers = [list(subject.classes).index(name) for name in names]
    shapes, textures, images = [], [], []
    for i, name in enumerate(names):
        for path in sorted((folder / name).glob('*.png')):
            texture = path.stem.rpartition('-')[2].rstrip('0123456789')
            if texture in names and texture != name:
                picture = torch.from_numpy(np.array(Image.open(path).convert('RGB'))).permute(2, 0, 1)[None].float()
                images.append(F.interpolate(picture, subject.images.shape[2:], mode='bilinear', antialias=True))
                shapes.append(i)
                textures.append(names.index(texture))
    if not images:
        return {}
    found = subject.run(torch.cat(images))[0][:, numbers].argmax(1)
    shape, texture = found == torch.tensor(shapes), found == torch.tensor(textures)
    return {'shape bias': percent(shape[shape | texture]), 'images of conflicting cues': len(images)}


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure accuracy on every kind of changed images."""
    subject.classifier_only()
    clean = subject.accuracy(subject.images)
    changed = {f'shuffled {grid}x{grid}': shuffle(subject.images, grid) for grid in GRIDS}
    changed.update({name: each(subject.images, change) for name, change in (
        ('edges', edges), ('silhouettes', silhouette), ('low pass', low_pass), ('high pass', high_pass))})
    values = dict(clean=clean, **{name: subject.accuracy(images) for name, images in changed.items()})
    relative = {name: round(values[name] / clean, 4) if clean else None for name in changed}
    values['relative'] = relative
    folder = Path(subject.data_root) / CUE_CONFLICT
    values.update(shape_bias(subject, folder) if folder.is_dir() else {})
    kept = {name: 100 * (share or 0) for name, share in relative.items()}
    sentence = (f'Of the clean top-1 of {clean:.1f} %, {kept["shuffled 4x4"]:.0f} % remains with 4x4 shuffled patches, '
                f'{kept["edges"]:.0f} % on edges, {kept["silhouettes"]:.0f} % on silhouettes')
    if 'shape bias' in values:
        sentence += f'; {values["shape bias"]:.0f} % of conflicting cues are decided by shape'
    return Finding(f'{sentence}.', values, {'': (list(kept), list(kept.values()))}, ('', 'of clean top-1 (%)'))
