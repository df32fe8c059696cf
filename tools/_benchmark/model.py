"""``benchmark.py model``: time and memory of a backbone beside other networks, or of a config's whole model.

Of an architecture (cvt-13) the backbone alone is measured: forward, and with ``--mode train`` also
backward. Of a config it is the classifier, detector or segmentor with random weights: its outputs before
post-processing, or with ``--mode train`` the loss on random ground truth (8 objects or classes an image)
and backward. Input are random images, loading is not measured.
Memory is the peak of weights, activations and gradients, without an optimizer: on the CPU the growth of
a fresh process for each network, on CUDA PyTorch's own count. ``peak`` is the fraction of the speed of a
large matrix product of the same precision, by the fastest library that PyTorch has, measured in the same
rounds, by the network's own count of multiplications and additions.
"""
import argparse
from pathlib import Path

import torch
from _random_batch import parse_size

from cvt_dense.launch import command_line
from cvt_dense.models import CvT

from .measure import DTYPES, measure
from .networks import VARIANTS, build, check_name, split_name
from .report import print_peaks, print_table, save_plot, write_json

HELP = 'time and memory of a backbone or a whole model'
ARCHS = ', '.join(CvT.arch_zoo)


def parse_windows(text: str) -> list[int | None | list[int | None]]:
    """Parse '28,28,14/14/none' as [28, 28, [14, 14, None]]."""

    def number(value: str) -> int | None:
        return None if value == 'none' else int(value)

    return [list(map(number, value.split('/'))) if '/' in value else number(value) for value in text.split(',')]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to a parser."""
    parser.add_argument('model', metavar='CONFIG|ARCH',
                        help=f'config file (its whole model), or one of {ARCHS} (the backbone alone)')
    parser.add_argument('--size', type=parse_size, metavar='HxW', default=(224, 224), help='image (224x224)')
    parser.add_argument('--sizes', type=lambda text: [parse_size(part) for part in text.split(',')],
                        metavar='HxW,...', help='several images instead, e.g. 224,448,800x1344')
    parser.add_argument('--batch', type=int, default=8, help='images a step (8)')
    parser.add_argument('--mode', choices=('infer', 'train'), default='infer')
    parser.add_argument('--amp', choices=tuple(DTYPES), default='none', help='autocast (none: float32)')
    parser.add_argument('--compare', type=lambda text: text.split(','), default=[], metavar='NAME,...',
                        help="'transformers' (Hugging Face's Cvt), a timm network (its features), or this CvT "
                        f"{', '.join(VARIANTS)}; a '+' combines: windowed+fused+compiled")
    parser.add_argument('--compile', action='store_true',
                        help="compare with 'fused+compiled', in training with 'compiled'")
    parser.add_argument('--window-size', type=parse_windows, default=[28, 28, None], metavar='N,...',
                        help="of 'windowed', per stage (28,28,none), or of a stage's blocks: 28,28,14/14/none/...")
    parser.add_argument('--rounds', type=int, default=11, help='timed rounds; medians are reported (11)')
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write every number there')
    parser.add_argument('--plot', type=Path, metavar='FILE', help='draw time and memory over the size there')


def check(args: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are not allowed, and add the columns of ``--compile``."""
    if args.model not in CvT.arch_zoo and not Path(args.model).is_file():
        raise ValueError(f'{args.model}: neither a config file nor one of {ARCHS}')
    if args.batch < 1 or args.rounds < 1:
        raise ValueError(f'--batch {args.batch} --rounds {args.rounds}: both must be at least 1')
    if args.device == 'cuda' and not torch.cuda.is_available():
        raise ValueError('--device cuda: this PyTorch sees no CUDA device')
    if args.compile:
        args.compare += ['fused+compiled'] if args.mode == 'infer' else ['compiled']
    for name in args.compare:
        check_name(name, args)


def run(args: argparse.Namespace) -> None:
    """Measure the networks and print the tables."""
    if args.device == 'cuda':
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
        torch.backends.cudnn.allow_tf32 = False
    names = ['eager', *args.compare]
    with command_line.report_errors(ValueError), torch.device('meta'):
        for name in names:
            network, _ = split_name(name)
            if network is None:
                build(name, args, args.size)
    rows = []
    with command_line.report_errors(ValueError):  # of files for runtimes
        for size in args.sizes or [args.size]:
            rows += measure(names, args, size)
    print_table(rows)
    print_peaks(rows, args.device)
    write_json(args, rows, args.device)
    if args.plot:
        save_plot(rows, args)
