"""Prepare a batch on the device: normalise, erase, mix, and smooth the labels."""
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseDataPreprocessor
from timm.data import Mixup
from timm.data.mixup import mixup_target
from timm.data.random_erasing import RandomErasing
from torch import Tensor

from ..registry import MODELS


@MODELS.register_module()
class ClassificationPreprocessor(BaseDataPreprocessor):
    """Moves a batch to the device, normalises it and, in training, erases, mixes and smooths.

    The order is the authors': normalise, erase, mix.

    Args:
        mean: mean of each channel, in units of 0 to 255.
        std: standard deviation of each channel, in units of 0 to 255.
        num_classes: length of a soft label. :class:`ImageClassifier` fills it in.
        random_erasing: arguments of timm's ``RandomErasing``, e.g. ``dict(probability=0.25,
            mode='pixel')``. None: no erasing.
        mixup: arguments of timm's ``Mixup``, e.g. ``dict(mixup_alpha=0.8, cutmix_alpha=1., prob=1.,
            switch_prob=0.5, mode='batch')``. None: no mixing.
        label_smoothing: fraction of a label that is spread over all classes.
        non_blocking: whether images in pinned memory are copied while the device computes.
        image_size: side in pixels that training images are resized to on the device; None: they stay as they come.
            ``ProgressiveSizeHook`` changes it from epoch to epoch.
    """

    def __init__(self, mean: Sequence[float] = (123.675, 116.28, 103.53),
                 std: Sequence[float] = (58.395, 57.12, 57.375), num_classes: int = 1000,
                 random_erasing: dict[str, Any] | None = None, mixup: dict[str, Any] | None = None,
                 label_smoothing: float = 0., non_blocking: bool = True, image_size: int | None = None):
        super().__init__(non_blocking)
        self.num_classes = num_classes
        self.image_size = image_size
        self.label_smoothing = label_smoothing
        # Not in the state dict: a checkpoint holds weights, a config the preprocessing.
        self.register_buffer('mean', torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer('std', torch.tensor(std).view(-1, 1, 1), persistent=False)
        self.random_erasing = RandomErasing(**random_erasing) if random_erasing else None
        options = dict(label_smoothing=label_smoothing, num_classes=num_classes)
        self.mixup = Mixup(**mixup, **options) if mixup else None

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """Normalise a batch and, in training, erase, mix and smooth it.

        Args:
            data: a collated batch: ``inputs``, uint8 (B, C, H, W), and optionally ``labels``, int64
                (B, ); further entries are dropped except ``paths``.
            training: erase, mix and smooth.

        Returns:
            dict with ``inputs``, float32 (B, C, H, W); ``labels`` as given, or soft, float32
            (B, num_classes), when training mixes or smooths; ``paths`` as given.
        """
        data = self.cast_data({key: data[key] for key in ('inputs', 'labels', 'paths') if key in data})
        inputs = data['inputs'].float()
        if training and self.image_size is not None:
            inputs = F.interpolate(inputs, (self.image_size, self.image_size), mode='bilinear', antialias=True)
        inputs = (inputs - self.mean) / self.std
        if training:
            if self.random_erasing is not None:
                self.random_erasing.device = inputs.device
                inputs = self.random_erasing(inputs)
            if self.mixup is not None or self.label_smoothing:
                data['labels'] = self._mix(inputs, data['labels'])
        data['inputs'] = inputs
        return data

    def _mix(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Mix ``inputs`` in place; return the soft labels (B, num_classes)."""
        soft = mixup_target(labels, self.num_classes, smoothing=self.label_smoothing)
        # Image i is mixed with image -i, so the last one of an odd batch stays as it is.
        pairs = len(inputs) // 2 * 2
        if self.mixup is not None and pairs:
            _, soft[:pairs] = self.mixup(inputs[:pairs], labels[:pairs])
        return soft
