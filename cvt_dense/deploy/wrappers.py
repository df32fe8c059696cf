"""Wrap networks for export: their inputs are normalised or raw images, their outputs are plain tensors.

They recognise a network by its attributes (``encode_decode``, ``roi_head``), not by its class.
"""
import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.cvt import CvT
from .detectors import Detector, TraceableDetector
from .fuse import fuse


def task_of(model: nn.Module) -> str | None:
    """Return 'classification', 'segmentation' or 'detection' by the model's attributes, or None."""
    if hasattr(model, 'encode_decode'):
        return 'segmentation'
    if hasattr(model, 'roi_head') or hasattr(model, 'bbox_head') or hasattr(model, 'rpn_head'):
        return 'detection'
    return 'classification' if hasattr(model, 'head') and hasattr(model, 'num_classes') else None


class Normalise(nn.Module):
    """Converts raw RGB images to the input of a network.

    Args:
        mean, std: one for each channel as the network takes them, in units of 0 to 255.
        flip: the network takes BGR.
        layout: layout of the images, 'NHWC' or 'NCHW'.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], flip: bool = False, layout: str = 'NCHW'):
        super().__init__()
        self.flip, self.layout = flip, layout
        self.register_buffer('mean', torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer('std', torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Normalise uint8 (B, H, W, 3) or (B, 3, H, W) to float32 (B, 3, H, W)."""
        if self.layout == 'NHWC':
            image = image.permute(0, 3, 1, 2)
        image = image.flip(1) if self.flip else image
        return (image.float() - self.mean) / self.std


class Exported(nn.Module):
    """The program in a file: normalisation, the network in its precision, and float32 outputs.

    Args:
        network: float (B, 3, H, W) to a tuple of tensors.
        normalise: module that normalises raw images; None: the image comes normalised.
        dtype: the network's; None: as it is.
    """

    def __init__(self, network: nn.Module, normalise: nn.Module | None = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.normalise = normalise
        self.network = network if dtype is None else network.to(dtype)
        self.dtype = dtype or torch.float32

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        if self.normalise is not None:
            image = self.normalise(image)
        return tuple(out.float() if out.is_floating_point() else out for out in self.network(image.to(self.dtype)))


class Backbone(nn.Module):
    """Returns a backbone's maps, or a classifier's vector."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.backbone(image))

    @property
    def names(self) -> list[str]:
        """Return the names of the outputs, one for each map."""
        return [f'feat{i}' for i in range(len(self.backbone.out_channels))]


class Classifier(nn.Module):
    """Returns logits (B, classes)."""
    names = ['logits']

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor]:
        return (self.model(image, mode='tensor'), )


class Segmentor(nn.Module):
    """Returns logits (B, classes, H, W) at the image's size, or its label map (B, H, W).

    Args:
        model: segmentor with ``encode_decode`` and ``decode_head``, as mmseg's.
        argmax: the label map. A head with one output separates two classes by its ``threshold``.
    """

    def __init__(self, model: nn.Module, argmax: bool = False):
        super().__init__()
        self.model, self.argmax = model, argmax
        self.names = ['labels' if argmax else 'logits']

    def forward(self, image: Tensor) -> tuple[Tensor]:
        shapes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), tuple(image.shape[2:]))
        logits = self.model.encode_decode(image, [shapes])  # heads read the first image's only
        if not self.argmax:
            return (logits, )
        if logits.shape[1] == 1:
            return ((logits.sigmoid() > self.model.decode_head.threshold)[:, 0].long(), )
        return (logits.argmax(dim=1), )


class AnySizePool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` as two matrix products, which exporters can write for images of any size.

    Args:
        output_size: (rows, columns).
    """

    def __init__(self, output_size: tuple[int, int]):
        super().__init__()
        self.output_size = output_size

    @staticmethod
    def _fractions(length: int, bins: int, like: Tensor) -> Tensor:
        """Return (bins, length): the weight of each place in each bin's mean; bins overlap as PyTorch's do."""
        place = torch.arange(length, device=like.device)[None]
        index = torch.arange(bins, device=like.device)[:, None]
        inside = (place >= index * length // bins) & (place < ((index + 1) * length + bins - 1) // bins)
        inside = inside.to(like.dtype)
        return inside / inside.sum(dim=1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.output_size
        return self._fractions(x.shape[2], rows, x) @ x @ self._fractions(x.shape[3], columns, x).T


def _make_exportable(model: nn.Module) -> nn.Module:
    """Return a fused copy in eval mode that exporters can process."""
    from mmcv.cnn import fuse_conv_bn
    model = copy.deepcopy(model).eval()
    if hasattr(model, 'auxiliary_head'):
        model.auxiliary_head = None  # for training only
    if any(isinstance(module, CvT) for module in model.modules()):
        fuse(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.AdaptiveAvgPool2d):
                size = child.output_size
                setattr(module, name, AnySizePool((size, size) if isinstance(size, int) else tuple(size)))
    return fuse_conv_bn(model)  # of necks and heads; exporters would, too, and lose the layers' names


def wrap(model: nn.Module, part: str, argmax: bool = False, exportable: bool = True) -> nn.Module:
    """Wrap a model, or its backbone, as a network of normalised images to tensors.

    Args:
        model: classifier, segmentor or detector, see :func:`task_of`.
        part: 'model' or 'backbone'.
        argmax: a segmentor gives its label map instead of logits.
        exportable: wrap a fused copy for exporters; False: wrap the model itself, with which files are compared.

    Raises:
        UserError: there is no way to export this model, or this part of it.
    """
    task = task_of(model)
    if argmax and (task != 'segmentation' or part != 'model'):
        raise UserError(f'--argmax turns the logits of a whole segmentor into its label map; this is '
                        f'the {part} of a model for {task or "another task"}: leave it out.')
    if part == 'model' and task is None:
        raise UserError(f'a {type(model).__name__} is no classifier, segmentor or detector that could be exported as a '
                        'whole: export its backbone with --part backbone.')
    preprocessor = getattr(model, 'data_preprocessor', None)
    if part == 'backbone':
        model = model.backbone
    if exportable:
        model = _make_exportable(model)
    if part == 'backbone':
        return Backbone(model)
    if task == 'detection':
        return (TraceableDetector if exportable else Detector)(
            model, getattr(preprocessor, 'pad_size_divisor', 1), float(getattr(preprocessor, 'pad_value', 0)))
    return Segmentor(model, argmax) if task == 'segmentation' else Classifier(model)
