"""Plans trainings before they run: images/s of the GPU and of the loader, hours and memory, one line for each config.

    python benchmarks/plan.py configs/maskrcnn_cvt21_coco.py --gpus 16 --auto-scale-lr --size 800x1280

Images/s of a GPU are estimated by ``roofline.py``, whose docstring says how well, or were measured
(``--images-per-second``: ``data_time`` and ``time`` in a run's log). Images/s of the
loader are the CPU time that one image took on a core of an AMD EPYC (Zen 4), times the cores of a GPU: as many as the
config has workers, or ``--cores``. The slower of the two decides. Left out are evaluation, the all-reduce of the
gradients, DINO's denoising queries, RoIAlign, and what depends on values: targets, sampling, losses of detectors, NMS.
"""
import argparse
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.logging import MMLogger
from roofline import GPUS, trace
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cvt_dense.cli.get_flops import build_model, parse_size
from cvt_dense.config.walk import dicts, type_name
from cvt_dense.launch import command_line
from cvt_dense.pretraining import ImageClassifier

# Training images by the last part of data_root; of COCO those with objects, which MMDetection keeps.
TRAINING_IMAGES = dict(imagenet=1_281_167, imagenet22k=14_197_122, coco=117_266, ADEChallengeData2016=20_210,
                       cityscapes=2_975, cifar10=50_000, cifar100=50_000, flowers=2_040, pets=3_680)
# Images a second and core: of ImageNet with RandAugment, of ADE20K, and in DETECTION of COCO with masks.
LOADED, DETECTION = dict(ImageClassifier=290, EncoderDecoder=110), 65


def outputs(model: nn.Module, images: Tensor) -> Any:
    """Return what a model's losses are computed from, of images (N, C, H, W)."""
    if isinstance(model, ImageClassifier):
        return model(images)
    maps, n = model.extract_feat(images), len(images)
    if hasattr(model, 'encode_decode'):
        from mmseg.structures import SegDataSample
        samples = [SegDataSample(metainfo=dict(img_shape=images.shape[2:])) for _ in range(n)]
        if not hasattr(model.decode_head, 'conv_seg') or model.decode_head.conv_seg is None:
            return model.decode_head(maps, samples)
        heads = [model.decode_head, *([model.auxiliary_head] if model.with_auxiliary_head else [])]
        labels = torch.zeros(n, *images.shape[2:], dtype=torch.long)
        return [F.cross_entropy(F.interpolate(head(maps), images.shape[2:], mode='bilinear').float(), labels)
                for head in heads]
    if not hasattr(model, 'roi_head') and not hasattr(model, 'rpn_head') and hasattr(model, 'encoder'):
        from mmdet.structures import DetDataSample
        shapes = dict.fromkeys(('img_shape', 'batch_input_shape'), tuple(images.shape[2:]))
        model.training = False  # of this module alone: no denoising queries, whose number depends on values
        return model.bbox_head(**model.forward_transformer(maps, [DetDataSample(metainfo=shapes) for _ in range(n)]))
    if not hasattr(model, 'roi_head'):
        return model.bbox_head(maps)
    channels, roi, zero = maps[0].shape[1], model.roi_head, 0 * maps[0][0, 0, 0, 0]  # for gradients of the crops
    boxes, masks = ([*part] if isinstance(part, nn.ModuleList) else [part]
                    for part in (roi.bbox_head, getattr(roi, 'mask_head', None)))
    return [model.rpn_head(maps), [head(torch.randn(512 * n, channels, 7, 7) + zero) for head in boxes],
            [head(torch.randn(128 * n, channels, 14, 14) + zero) for head in masks if head is not None]]


def step(model: nn.Module, batch: int, size: tuple[int, int], teacher: nn.Module | None = None) -> Tensor:
    """Return a number that depends on all outputs of the model, of random images (batch, C, *size)."""
    images = torch.randn(batch, getattr(model.backbone, 'in_channels', 3), *size)
    if teacher is not None:
        with torch.no_grad():
            teacher.to_empty(device='cpu')(images)
    return sum(leaf.float().mean() for leaf in tree_leaves(outputs(model, images)) if isinstance(leaf, Tensor))


def teacher_of(cfg: Config) -> nn.Module | None:
    """Return the network of the teacher that a config distils, on 'meta'."""
    teacher = (cfg.model.get('distillation') or {}).get('teacher')
    with torch.device('meta'):
        return teacher and (build_model(teacher['config']) if teacher.get('config')
                            else timm.create_model(teacher['model_name'])).eval()


def training_images(cfg: Config, step_images: int, of_an_epoch: int | None) -> int:
    """Return the number of images that a config trains on in all.

    Raises:
        ValueError: it counts epochs of an unknown data set.
    """
    if not cfg.train_cfg.get('max_epochs'):
        return cfg.train_cfg.max_iters * step_images
    root = next((node['data_root'] for node in dicts(cfg.train_dataloader) if node.get('data_root')), '')
    images = of_an_epoch or TRAINING_IMAGES.get(Path(root).name)
    if images is None:
        raise ValueError(f'{cfg.filename} trains epochs of {root or "a data set"!r}: give its number of training '
                         'images by --images.')
    return cfg.train_cfg.max_epochs * images


def training_size(cfg: Config) -> tuple[int, int]:
    """Return (H, W) of the images that a config trains on.

    Raises:
        ValueError: they keep their own shape.
    """
    if type_name(cfg.model) == 'ImageClassifier':
        side = cfg.train_dataloader.dataset.transform['input_size']
        return (side, side) if isinstance(side, int) else tuple(side[-2:])
    crop = next((node['crop_size'] for node in dicts(cfg.train_dataloader) if node.get('crop_size')), None)
    if type_name(cfg.model) != 'EncoderDecoder' or crop is None:
        raise ValueError(f'{cfg.filename}: images keep their own shape; give one by --size, e.g. 800x1280 for COCO.')
    return tuple(crop)


def plan(path: str, args: argparse.Namespace) -> dict[str, str]:
    """Return the cells of a config's line.

    Raises:
        ValueError: the config does not tell the number of training images, or their size.
    """
    cfg = Config.fromfile(path)
    batch, scale = cfg.train_dataloader.batch_size, cfg.get('auto_scale_lr') or {}
    accumulated = cfg.optim_wrapper.get('accumulative_counts', 1)
    step_images = args.gpus * batch * accumulated
    factor = step_images / scale.get('base_batch_size', step_images)
    scaled = args.auto_scale_lr or scale.get('enable')
    images = training_images(cfg, args.gpus * batch, args.images)
    size = args.size or training_size(cfg)
    with torch.device('meta'):
        model = build_model(path, **({} if args.with_cp is None else dict(with_cp=args.with_cp)))
    teacher = teacher_of(cfg)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    dtype = cfg.optim_wrapper.get('dtype') if cfg.optim_wrapper.get('type') == 'AmpOptimWrapper' else 'float32'
    found = trace(model, partial(step, batch=batch, size=size, teacher=teacher), GPUS[args.gpu], getattr(torch, dtype))
    averaged = any('EMA' in type_name(hook) for hook in cfg.get('custom_hooks') or ())
    device = args.images_per_second or batch / found.seconds
    cores = args.cores or cfg.train_dataloader.num_workers
    loader = cores * LOADED.get(type_name(cfg.model), DETECTION)
    hours = images / min(device, loader) / 3600
    return {
        'config': Path(path).stem,
        'images a step': f'{args.gpus} x {batch}' + f' x {accumulated}' * (accumulated > 1),
        'learning rate': f'{cfg.optim_wrapper.optimizer.lr * (factor if scaled else 1):.2g}'
        + ('' if factor == 1 or scaled else f', --auto-scale-lr: x {factor:g}'),
        'images (M)': f'{images / 1e6:.3g}',
        'GFLOPs an image': f'{found.flops / batch / 1e9:.3g}',
        'GPU, images/s': f'{device:,.3g}' if device < 1000 else f'{device:,.0f}',
        'loader, images/s': f'{loader:,.0f} ({cores} cores)',
        'decides': 'loader' if loader < device else 'GPU',
        'GPU-hours': f'{hours:,.3g}',
        f'hours on {args.gpus}': f'{hours / args.gpus:,.3g}',
        # besides what was traced: AdamW's two averages, DDP's buckets of gradients, averaged weights
        'GiB a GPU': f'{(found.peak + parameters * (12 + 4 * averaged)) / 2**30:.1f}',
        'checkpoint, GB': f'{parameters * (12 + 4 * averaged) / 1e9:.2f}'}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('configs', nargs='+', metavar='CONFIG', help='config file')
    parser.add_argument('--gpus', type=int, default=8, help='number of GPUs (8)')
    parser.add_argument('--gpu', choices=GPUS, default='h100', help='which GPU (h100)')
    parser.add_argument('--cores', type=int, help="CPU cores of a GPU (the config's workers)")
    parser.add_argument('--auto-scale-lr', action='store_true', help='as in tools/train.py')
    parser.add_argument('--images-per-second', type=float, metavar='N', help="one GPU's measured speed, not estimated")
    parser.add_argument('--size', type=parse_size, metavar='HxW',
                        help="training image (the config's crop; needed where images keep their own shape)")
    parser.add_argument('--images', type=int, metavar='N',
                        help='images of an epoch (known: ' + ', '.join(TRAINING_IMAGES) + ')')
    parser.add_argument('--with-cp', action=argparse.BooleanOptionalAction, help="not the config's with_cp")
    return parser


def main() -> None:
    """Print the plans of the trainings that the command line names."""
    args = build_parser().parse_args()
    MMLogger.get_current_instance().setLevel('WARNING')  # mmdet logs every parameter that it initialises
    for number, path in enumerate(args.configs):
        with command_line.report_errors(ValueError, FileNotFoundError):
            cells = plan(path, args)
        if not number:
            print(f'| {" | ".join(cells)} |\n{"|---" * len(cells)}|')
        print(f'| {" | ".join(cells.values())} |', flush=True)


if __name__ == '__main__':
    main()
