"""Estimates the cost of a config's training without running it.

    python benchmarks/plan.py configs/cvt13_in1k.py --gpus 8 --flops 989e12 --utilisation 0.35

A step costs 3 times the forward pass (backward computes gradients of inputs and of weights), and the backbone's once
more with ``with_cp=True``; a teacher runs forward only; a multiplication and an addition are 2 FLOPs. So::

    GPU-hours = images * 2 * (3 * MACs + recomputed MACs + teacher's MACs) / (flops * utilisation) / 3600
    days = GPU-hours / gpus / 24

``--images-per-second`` takes what one GPU was measured to train (``tools/benchmark.py model CONFIG --mode train``, or
the end of a run's log) instead. Evaluation is not counted. The total batch is the recipe's, whatever ``--gpus`` is.
Memory is ``--gib-per-image`` times the images a GPU, and 8 bytes a parameter for AdamW (4 more with averaged weights).
"""
import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tools')]

import timm
import torch
from get_flops import count, count_parts
from mmengine.config import Config
from mmengine.logging import MMLogger

from cvt_dense.cli.random_batch import build_model, parse_size
from cvt_dense.config.nodes import dicts, type_name
from cvt_dense.launch import command_line

# Training images by the last part of data_root; of COCO those with objects, which MMDetection keeps.
TRAINING_IMAGES = dict(imagenet=1_281_167, imagenet22k=14_197_122, coco=117_266, ADEChallengeData2016=20_210,
                       cityscapes=2_975, cifar10=50_000, cifar100=50_000, flowers=2_040, pets=3_680)

H100 = 989e12  # dense bf16 operations per second


class Plan(NamedTuple):
    """Cost of a training.

    Attributes:
        images: number in all, repetitions counted.
        flops_per_image: operations of a training step on one image.
        images_per_second: images that one GPU trains on in a second.
        gpu_hours, days: length of the whole training, on all GPUs.
        images_per_gpu: images that a GPU gets in a step, before accumulation.
    """
    images: int
    flops_per_image: float
    images_per_second: float
    gpu_hours: float
    days: float
    images_per_gpu: float


def plan(images: int, macs: float, gpus: int, total_batch: int, *, recomputed: float = 0., teacher: float = 0.,
         flops: float = 989e12, utilisation: float = 0.35, images_per_second: float | None = None) -> Plan:
    """Compute the cost of a training.

    Args:
        images: number of images to train on in all.
        macs: multiplications with addition of an image's forward pass.
        gpus: number of GPUs.
        total_batch: images of a step.
        recomputed: MACs that ``with_cp`` computes twice.
        teacher: MACs of a teacher's forward pass.
        flops: a GPU's peak per second.
        utilisation: fraction of that peak that training reaches.
        images_per_second: measured speed of one GPU, instead of ``flops`` and ``utilisation``.
    """
    per_image = 2 * (3 * macs + recomputed + teacher)
    rate = images_per_second or flops * utilisation / per_image
    hours = images / rate / 3600
    return Plan(images, per_image, rate, hours, hours / gpus / 24, total_batch / gpus)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('--gpus', type=int, default=8, help='number of GPUs (8)')
    parser.add_argument('--flops', type=float, default=H100,
                        help="a GPU's peak per second (989e12: an H100's dense bf16)")
    parser.add_argument('--utilisation', type=float, default=0.35,
                        help='fraction of the peak that training reaches (0.35)')
    parser.add_argument('--images-per-second', type=float, metavar='N', help="one GPU's measured speed, not estimated")
    parser.add_argument('--size', type=parse_size, metavar='HxW',
                        help="training image (the config's crop; needed where images keep their own shape)")
    parser.add_argument('--images', type=int, metavar='N',
                        help='images of an epoch (known: ' + ', '.join(TRAINING_IMAGES) + ')')
    parser.add_argument('--gib-per-image', type=float, metavar='GIB',
                        help='memory of one image in training (docs/results/speed.md): what a GPU needs')
    return parser


def training_images(cfg: Config, of_an_epoch: int | None) -> tuple[int, int]:
    """Return (images in all, images of a step) that a config trains on.

    Raises:
        ValueError: it counts epochs of an unknown data set, or does not set its total batch.
    """
    batch = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if not batch:
        raise ValueError(f'{cfg.filename}: auto_scale_lr.base_batch_size, the images of a step, is not set.')
    if not cfg.train_cfg.get('max_epochs'):
        return cfg.train_cfg.max_iters * batch, batch
    root = next((node['data_root'] for node in dicts(cfg.train_dataloader) if node.get('data_root')), '')
    images = of_an_epoch or TRAINING_IMAGES.get(Path(root).name)
    if images is None:
        raise ValueError(f'{cfg.filename} trains epochs of {root or "a data set"!r}: give its number of training '
                         'images by --images.')
    return cfg.train_cfg.max_epochs * images, batch


def training_size(cfg: Config) -> tuple[int, int]:
    """Return (H, W) of the images that a config trains on.

    Raises:
        ValueError: they keep their own shape.
    """
    if type_name(cfg.model) in ('ImageClassifier', 'MaskedImageModel'):
        return _height_and_width(cfg.train_dataloader.dataset.transform['input_size'])
    crop = next((node['crop_size'] for node in dicts(cfg.train_dataloader) if node.get('crop_size')), None)
    if type_name(cfg.model) != 'EncoderDecoder' or crop is None:
        raise ValueError(f'{cfg.filename}: images keep their own shape; give one by --size, e.g. 800x1280 for COCO.')
    return tuple(crop)


def _height_and_width(side: int | Sequence[int]) -> tuple[int, int]:
    return (side, side) if isinstance(side, int) else tuple(side[-2:])


def teacher_macs(cfg: Config, size: tuple[int, int]) -> float:
    """Return the MACs of the teacher's forward pass on an image of ``size`` or of its own size, or 0."""
    teacher = (cfg.model.get('distillation') or {}).get('teacher')
    if not teacher:
        return 0.
    side = teacher.get('input_size')
    if teacher.get('config'):
        path = teacher['config']
        own = Config.fromfile(path).get('test_dataloader') or {}
        network = build_model(path)
        side = side or ((own.get('dataset') or {}).get('transform') or {}).get('input_size')
    else:
        with torch.device('meta'):
            network = timm.create_model(teacher['model_name'])
        side = side or network.pretrained_cfg['input_size']
    size = size if side is None else _height_and_width(side)
    network = network.to('meta').eval()
    return sum(count({'teacher': network}, partial(network, torch.empty(1, 3, *size, device='meta')))[0].values())


def main() -> None:
    """Print the plan of the training that the command line names."""
    args = build_parser().parse_args()
    MMLogger.get_current_instance().setLevel('WARNING')  # mmdet logs every parameter that it initialises
    with command_line.report_errors(ValueError):
        cfg = Config.fromfile(args.config)
        images, batch = training_images(cfg, args.images)
        size = args.size or training_size(cfg)
        torch.manual_seed(0)
        parts = count_parts(build_model(args.config), size)
        teacher = teacher_macs(cfg, size)
    parameters, macs = (sum(values) for values in zip(*parts.values()))
    again = sum(macs for name, (_, macs) in parts.items() if name.startswith('backbone.'))
    found = plan(images, macs, args.gpus, batch, recomputed=again if cfg.model.backbone.get('with_cp') else 0.,
                 teacher=teacher, flops=args.flops, utilisation=args.utilisation,
                 images_per_second=args.images_per_second)
    print_plan(args, cfg, size, found, parameters, macs, teacher)


def print_plan(args: argparse.Namespace, cfg: Config, size: tuple[int, int], found: Plan, parameters: int,
               macs: float, teacher: float) -> None:
    """Print the table of a plan.

    Args:
        args: command line.
        cfg: config of the training.
        size: (H, W) of a training image in pixels.
        found: the plan.
        parameters: number of the model's parameters.
        macs: multiply-accumulate operations of an image's forward pass.
        teacher: the same for a distillation teacher, or 0.
    """
    gpu = ', an H100 in bf16' if args.flops == H100 else ''
    speed = 'as measured' if args.images_per_second else f'{args.utilisation:.0%} of {args.flops:.3g} FLOP/s{gpu}'
    averaged = any('EMA' in type_name(hook) for hook in cfg.get('custom_hooks') or ())
    rows = [
        ('images', f'{found.images:,}', f'{found.images_per_gpu:g} a GPU and step'),
        ('forward', f'{macs / 1e9:,.2f} GMACs', f'an image of {size[0]}x{size[1]}'),
        *([('teacher', f'{teacher / 1e9:,.2f} GMACs', 'an image')] if teacher else []),
        ('training', f'{found.flops_per_image / 1e9:,.1f} GFLOPs', 'an image'),
        ('speed', f'{found.images_per_second:,.1f} images/s', f'a GPU, {speed}'),
        ('cost', f'{found.gpu_hours:,.1f} GPU-hours', '' if args.images_per_second else 'an estimate'),
        (f'on {args.gpus} GPUs', f'{24 * found.days:,.1f} hours', f'{found.days:,.2f} days'),
        ('checkpoint', f'{parameters * (12 + 4 * averaged) / 1e9:,.2f} GB', 'weights and optimizer'
         + (', averaged weights' if averaged else ''))]
    if args.gib_per_image:
        states = parameters * (8 + 4 * averaged) / 2**30  # weights and gradients are in the measured figure
        rows.append(('memory', f'{args.gib_per_image * found.images_per_gpu + states:,.1f} GiB',
                     'a GPU, without accumulation'))
    else:
        rows.append(('memory', '-', 'give --gib-per-image, the memory that one image needs'))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print(args.config)
    for name, value, remark in rows:
        print(f'{name:<{widths[0]}}  {value:>{widths[1]}}  {remark}'.rstrip())


if __name__ == '__main__':
    main()
