"""The input of a probe, and its result."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cvt_dense.models.cvt import CvT, to_map

BATCH = 100


class NotApplicable(Exception):
    """A probe does not apply to this network; the message names the reason."""


@dataclass
class Finding:
    """The result of a probe for one network.

    Attributes:
        sentence: the result in words.
        values: numbers, as JSON stores them.
        curves: by name, positions and values of a line.
        labels: labels of the curves' axes.
        pictures: by title, arrays (H, W) of any range, or (H, W, 3) from 0 to 1.
    """
    sentence: str
    values: dict[str, Any]
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    labels: tuple[str, str] = ('', '')
    pictures: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Subject:
    """A trained network and the images that it is probed on.

    Attributes:
        name: name of the network.
        network: in eval mode.
        task: 'classification', 'detection' or 'segmentation'.
        classes: names by number.
        images: uint8 (N, 3, H, W), RGB, as the test data set gives them. Of detectors and segmentors float, a few of
            one size, as they enter the backbone.
        labels: (N, ); empty of detectors and segmentors.
        train: images and labels of the training set, prepared like the others.
        untrained: builds the network with random weights.
        arrays: for detectors and segmentors, the images (H, W, 3) as files hold them, BGR.
        predict: takes one of ``arrays``; returns what :func:`cvt_dense.inference.predict` does.
        data_root: folder of the data set.
        progress: called with the number of images after each batch.
    """
    name: str
    network: nn.Module
    task: str = 'classification'
    classes: Sequence[str] = ()
    images: Tensor = field(default_factory=lambda: torch.empty(0))
    labels: Tensor = field(default_factory=lambda: torch.empty(0))
    train: tuple[Tensor, Tensor] | None = None
    untrained: Callable[[], nn.Module] | None = None
    arrays: Sequence[np.ndarray] = ()
    predict: Callable[[np.ndarray], Any] | None = None
    data_root: str = ''
    progress: Callable[[int], Any] = lambda number: None

    def classifier_only(self) -> None:
        """Raise :class:`NotApplicable` unless the network is a classifier."""
        if self.task != 'classification':
            raise NotApplicable(f'needs one label for each image; this network does {self.task}.')

    def normalise(self, images: Tensor) -> Tensor:
        """Return images as they enter the backbone; pixels are 0 to 255, of any type."""
        return self.network.data_preprocessor(dict(inputs=images))['inputs'] if len(self.labels) else images

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of one batch, through which gradients reach the pixels."""
        self.progress(len(images))
        return self.network(self.normalise(images))

    @torch.no_grad()
    def run(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (N, classes) and the backbone's features (N, C)."""
        features: list[Tensor] = []
        handle = self.network.backbone.register_forward_hook(lambda _, args, out: features.append(out[0].cpu()))
        try:
            logits = torch.cat([self.forward(batch).cpu() for batch in images.split(BATCH)])
        finally:
            handle.remove()
        return logits, torch.cat(features)

    def accuracy(self, images: Tensor) -> float:
        """Return the percentage of images whose label is predicted."""
        return percent(self.run(images)[0].argmax(1) == self.labels)


def percent(hits: Tensor) -> float:
    """Return the percentage of true entries."""
    return round(100 * hits.double().mean().item(), 2)


def stage_maps(backbone: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the map (B, C, H, W) that each stage gives; of a ViT that of each block.

    Raises:
        NotApplicable: the backbone gives no maps.
    """
    if isinstance(backbone, CvT):
        maps: list[Tensor] = []
        handles = [stage.register_forward_hook(lambda _, args, out: maps.append(to_map(out[0], out[2])))
                   for stage in backbone.stages]
        try:
            backbone(x)
        finally:
            for handle in handles:
                handle.remove()
        return maps
    if getattr(backbone, 'out_type', '') == 'pooled' and hasattr(backbone.network, 'forward_intermediates'):
        return backbone.network.forward_intermediates(x, intermediates_only=True)
    maps = [out for out in backbone(x) if out.ndim == 4]
    if not maps:
        raise NotApplicable(f'{type(backbone).__name__} returns no maps of its stages.')
    return maps
