"""``benchmark.py data``: the input pipeline beside the training step."""
import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial

import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ...config.options import OptionsAction
from ...launch import command_line
from ...launch.build import load_datasets
from ...launch.flags import TrainFlags, read_training
from ...launch.machine import adapt_to_machine
from .measure import seconds

HELP = 'the input pipeline beside the training step, in images/s'


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to a parser."""
    parser.add_argument('config', help='config file')
    parser.add_argument('--data-root', metavar='DIR', help='as for tools/train.py')
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE',
                        help='as for tools/train.py')
    parser.add_argument('--workers', type=lambda text: [int(part) for part in text.split(',')], metavar='N,...',
                        help="numbers of worker processes to try (the config's)")
    parser.add_argument('--steps', type=int, default=20, help='timed batches, of the data three times (20)')
    parser.add_argument('--device', choices=('cpu', 'cuda'),
                        default='cuda' if torch.cuda.is_available() else 'cpu')


def loading_rate(batches: Iterator, loader: DataLoader, steps: int) -> float:
    """Return the images per second of a data loader, without the batches that its workers prepared in advance.

    Args:
        batches: iterator over the loader.
        loader: the loader.
        steps: timed batches.
    """
    for _ in range(2 * loader.num_workers + 3):
        next(batches)
    start = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return steps * loader.batch_size / (time.perf_counter() - start)


def run(args: argparse.Namespace) -> None:
    """Print how fast a config's training data is loaded, and how fast its model trains on a batch of it."""
    with command_line.report_errors(ValueError):
        command_line.check_value('--steps', args.steps, 1)
        cfg = read_training(TrainFlags.of(args))
        adapt_to_machine(cfg, 'none')
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        cfg.train_dataloader.dataset = load_datasets(cfg, ['train'])['train']
        model = revert_sync_batchnorm(MODELS.build(cfg.model)).to(args.device).train()
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    print(f'{"":24} {"images/s":>9}')
    rates = {}
    for workers in args.workers or [cfg.train_dataloader.get('num_workers', 0)]:
        loader = Runner.build_dataloader(
            dict(cfg.train_dataloader, num_workers=workers, persistent_workers=workers > 0), seed=0)
        if len(loader) == 0:
            raise SystemExit(f'{len(cfg.train_dataloader.dataset)} training images do not fill one batch of '
                             f'train_dataloader.batch_size={loader.batch_size}; set it with --cfg-options.')
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        rates[workers] = statistics.median(loading_rate(batches, loader, args.steps) for _ in range(3))
        print(f'{f"data, {workers} workers":24} {rates[workers]:9.1f}', flush=True)
        batch = next(batches)
        del batches, loader
    step = partial(model.train_step, batch, optim_wrapper)
    step()  # the first one is slower
    spent = statistics.median(seconds(step, args.device) for _ in range(args.steps))
    print(f'{"training step, " + args.device:24} {len(batch["inputs"]) / spent:9.1f}')
    limit = 'model' if max(rates.values()) > len(batch['inputs']) / spent else 'data'
    print(f'The {limit} limits the speed of one training process.')
