"""Pretrain without labels by reconstructing hidden parts of images (SimMIM, Xie et al. 2022)."""
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from ..errors import UserError
from ..models.cvt import to_map
from ..registry import MODELS
from ..weights import StrictLoading


@MODELS.register_module()
class MaskedImageModel(StrictLoading, BaseModel):
    """A CvT on images with hidden squares, and one 1x1 convolution that reconstructs them from its last map.

    SimMIM keeps the map dense, as CvT's convolutions need it: hidden squares are grey in the image, so that the
    overlapping first embedding does not get their pixels, and after that embedding a learned token replaces them. The
    loss is the mean absolute error (L1) over the hidden pixels, which are normalised; visible pixels do not count.

    A checkpoint's ``backbone`` is like a classifier's without CLS token: set ``with_cls_token=False`` in the network
    that loads it. BatchNorm's running statistics include hidden squares; ``cvt_dense.BatchNormStatisticsHook``
    recomputes them.

    Args:
        backbone: config of a :class:`CvT`; its ``out_type`` and ``with_cls_token`` are set here.
        mask_ratio: fraction of the squares that are hidden, between 0 and 1.
        mask_unit: side of a square in pixels, a multiple of the backbone's last stride.
        data_preprocessor: config; default a ``ClassificationPreprocessor``.
        init_cfg: as in any MMEngine module.

    Raises:
        UserError: a value is not allowed; when it runs: sides of an image are no multiples of ``mask_unit``.
    """

    def __init__(self, backbone: dict[str, Any], mask_ratio: float = 0.6, mask_unit: int = 32,
                 data_preprocessor: dict[str, Any] | None = None,
                 init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None):
        super().__init__(dict(data_preprocessor or dict(type='cvt_dense.ClassificationPreprocessor')), init_cfg)
        self.backbone = MODELS.build(dict(backbone, out_type='avg_featmap', with_cls_token=False))
        self.stride = self.backbone.out_strides[-1]
        if not 0 < mask_ratio < 1 or mask_unit % self.stride:
            raise UserError(f'model.mask_ratio={mask_ratio!r}, model.mask_unit={mask_unit!r}: allowed are a fraction '
                            f"between 0 and 1, and multiples of {self.stride}, the stride of the backbone's last map.")
        self.mask_ratio = mask_ratio
        self.mask_unit = mask_unit
        self.mask_token = nn.Parameter(torch.zeros(self.backbone.stage0.patch_embed.norm.weight.shape[0]))
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        self.decoder = nn.Conv2d(self.backbone.out_channels[-1], self.stride**2 * self.backbone.in_channels, 1)

    def forward(self, inputs: Tensor, labels: Tensor | None = None, paths: Sequence[str] | None = None,
                mode: str = 'tensor') -> Tensor | dict[str, Tensor]:
        """Run one batch.

        Args:
            inputs: (B, C, H, W), preprocessed.
            labels, paths: not used.
            mode: what to return.

        Returns:
            ``'tensor'``: the reconstruction of whole images, (B, C, H, W). ``'loss'``: a dict with ``loss``, for
            squares drawn at random.
        """
        if mode == 'tensor':
            return self.reconstruct(inputs)
        mask = self.hide(inputs)
        return dict(loss=masked_l1(self.reconstruct(inputs, mask).float(), inputs, self._pixels(mask)))

    def hide(self, inputs: Tensor) -> Tensor:
        """Draw which squares are hidden, bool (B, H / mask_unit, W / mask_unit), equally many in each image."""
        height, width = (side // self.mask_unit for side in inputs.shape[2:])
        units = height * width
        if any(side % self.mask_unit for side in inputs.shape[2:]) or units < 2:
            raise UserError(f'the sides of images, {tuple(inputs.shape[2:])}, must be multiples of model.mask_unit='
                            f"{self.mask_unit}, with two squares or more. Set the data's input_size, or mask_unit.")
        number = min(max(round(self.mask_ratio * units), 1), units - 1)
        # On the CPU, so that a seed hides the same squares on any device.
        order = torch.rand(len(inputs), units, device='cpu').argsort(dim=1)
        return (order < number).view(-1, height, width).to(inputs.device)

    def reconstruct(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the reconstruction (B, C, H, W) of images whose squares in ``mask`` (see :meth:`hide`) are hidden."""
        if mask is not None:
            inputs = inputs.masked_fill(self._pixels(mask), 0.)
        for i, stage in enumerate(self.backbone.stages):
            tokens, hw_shape = stage.patch_embed(inputs)
            if i == 0 and mask is not None:
                hidden = F.interpolate(mask[:, None].to(tokens.dtype), hw_shape).flatten(2).transpose(1, 2)
                tokens = torch.lerp(tokens, self.mask_token.to(tokens.dtype).expand_as(tokens), hidden)
            tokens, _, hw_shape = stage.encode(tokens, hw_shape)
            inputs = to_map(tokens, hw_shape)
        reconstruction = self.decoder(to_map(self.backbone.norm(tokens), hw_shape))
        return F.pixel_shuffle(reconstruction, self.stride)

    def _pixels(self, mask: Tensor) -> Tensor:
        """Return a mask of squares as a mask of pixels, (B, 1, H, W)."""
        return mask.repeat_interleave(self.mask_unit, 1).repeat_interleave(self.mask_unit, 2)[:, None]


def masked_l1(reconstruction: Tensor, target: Tensor, hidden: Tensor) -> Tensor:
    """Return the mean absolute error over hidden pixels and channels, a scalar.

    Args:
        reconstruction, target: (B, C, H, W).
        hidden: (B, 1, H, W), True or 1 where a pixel was hidden.
    """
    return ((reconstruction - target).abs() * hidden).sum() / (hidden.sum() * target.shape[1])
