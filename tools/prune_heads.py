"""Removes the least important attention heads of a trained network, and writes a smaller network.

    python tools/prune_heads.py configs/maskrcnn_cvt13_coco.py epoch_12.pth pruned.pth --keep 0.7
    python tools/test.py pruned.py pruned.pth
    python tools/train.py pruned.py                  # fine-tunes it: load_from is pruned.pth

Importance is measured on calibration images of the config's training data. The tool writes a config beside OUT.pth,
OUT.py, whose arch has the number of heads of each block.
"""
import argparse
import io
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from mmengine.config import Config
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from torch import Tensor

from cvt_dense.analysis import choose_heads, find_cvt, head_importance, prune_heads
from cvt_dense.analysis.heads import IMPORTANCES
from cvt_dense.config.class_folders import set_classes
from cvt_dense.config.read import read_config
from cvt_dense.errors import UserError
from cvt_dense.fileio import atomic_path, write_atomically
from cvt_dense.inference.model import check_checkpoint
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument, check_outputs
from cvt_dense.models import CvT
from cvt_dense.nodes import type_name
from cvt_dense.weights import register_safe_loading, select_weights


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('dst', type=Path, metavar='OUT.pth',
                        help='checkpoint to write; its config is written beside it, OUT.py')
    parser.add_argument('--keep', type=float, required=True, metavar='FRACTION',
                        help='fraction of all heads to keep, above 0 and up to 1; each block keeps at least one')
    parser.add_argument('--importance', choices=IMPORTANCES, default='entropy',
                        help="entropy: the loss's gradient on the head's gate times its attention's entropy; gradient: "
                        'that alone (default: %(default)s)')
    parser.add_argument('--images', type=int, default=64, metavar='N',
                        help='calibration images (default: %(default)s)')
    parser.add_argument('--data-root', metavar='DIR', help="folder of the data instead of the config's data_root")
    parser.add_argument('--seed', type=int, default=0,
                        help='seed of the images, and of random importance (default: %(default)s)')
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='where to run (default here: %(default)s)')
    add_force_argument(parser)
    command_line.add_config_arguments(parser)
    return parser


def check(args: argparse.Namespace) -> None:
    """Raise a UserError if flags have values that are not allowed, before anything is read."""
    if not 0 < args.keep <= 1 or args.images < 1:
        raise UserError(f'--keep {args.keep:g} --images {args.images}: allowed are a fraction up to 1, and a '
                        'number of images from 1.')
    if args.dst.suffix != '.pth':
        raise UserError(f'{args.dst}: the checkpoint to write needs the suffix .pth.')
    check_outputs([args.dst, args.dst.with_suffix('.py')], args.force, [args.config, args.checkpoint])


def losses(model: BaseModel, cfg: Config, args: argparse.Namespace) -> Iterator[Callable[[], Tensor]]:
    """Yield a function for each calibration image that returns its loss.

    Args:
        model: the trained model.
        cfg: config of the network, for the training data.
        args: command line, for the number of images and the seed.
    """
    loader = dict(cfg.train_dataloader, batch_size=1, num_workers=0, persistent_workers=False)
    loader.pop('batch_sampler', None)  # such samplers group images of similar shape, and each batch has one image
    # A classifier would mix images; mmdet and mmseg pad masks and label maps in training only.
    training = type_name(cfg.model) != 'ImageClassifier'

    def loss(batch: Any) -> Tensor:
        return model.parse_losses(model(**model.data_preprocessor(batch, training), mode='loss'))[0]

    batches = Runner.build_dataloader(loader, seed=args.seed)
    for batch in itertools.islice(batches, args.images):
        yield lambda batch=batch: loss(batch)


def main(argv: Sequence[str] | None = None) -> None:
    """Remove the least important attention heads of a checkpoint."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(ValueError):  # find_cvt raises it
        check(args)
        cfg = read_config(args.config, args.cfg_options, args.data_root)
        set_classes(cfg, args.checkpoint)
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        register_safe_loading()
        model = revert_sync_batchnorm(MODELS.build(cfg.model))
        checkpoint = check_checkpoint(model, args.checkpoint, strict=True)
        model.load_state_dict(select_weights(checkpoint))
        before = find_cvt(model)
        model.to(args.device).eval()
        torch.manual_seed(args.seed)
        importance = head_importance(model, losses(model, cfg, args))
        kept = choose_heads({name: found[args.importance] for name, found in importance.items()}, args.keep)
        arch = cfg.model.backbone.get('arch', 'cvt-13')
        arch = CvT.arch_zoo[arch.lower()] if isinstance(arch, str) else arch.to_dict()
        state_dict, arch = prune_heads(model.cpu().state_dict(), model, kept, arch)
        cfg.model.backbone.arch = arch
        cfg.model.backbone.init_cfg = None
        cfg.load_from = str(args.dst.resolve())
        cfg.pop('work_dir', None)  # that of the original run, which training OUT.py must not touch
        smaller = MODELS.build(cfg.model)
        smaller.load_state_dict(state_dict)  # it loads with the arch that is written down
        meta = dict(checkpoint.get('meta', {}), cfg=cfg.pretty_text, arch=arch, heads=kept)
        weights = io.BytesIO()
        torch.save(dict(state_dict=state_dict, meta=meta), weights)
        with atomic_path(args.dst.with_suffix('.py')) as partial:
            cfg.dump(partial)
            write_atomically(args.dst, weights.getbuffer())
    for name, heads in kept.items():
        values = ', '.join(f'{value:.2f}' for value in importance[name][args.importance].tolist())
        print(f'{name}: keeps {heads} of {len(importance[name][args.importance])} heads; importance {values}')
    counts = [sum(p.numel() for p in network.parameters()) for network in (before, find_cvt(smaller))]
    heads = [sum(map(len, found)) for found in ([found['random'] for found in importance.values()], kept.values())]
    print(f"{heads[1]} of {heads[0]} heads and {counts[1]:,} of the backbone's {counts[0]:,} parameters -> {args.dst}, "
          f'{args.dst.with_suffix(".py")}')


if __name__ == '__main__':
    main()
