"""``benchmark.py model``: time and memory of a backbone beside other networks, or of a config's whole model.

Of an architecture (cvt-13) the backbone alone is measured: forward, and with ``--mode train`` also
backward. Of a config it is the classifier, detector or segmentor with random weights: its outputs before
post-processing, or with ``--mode train`` the loss on random ground truth (8 objects or classes an image)
and backward. Input are random images, loading is not measured.
Memory is the peak of weights, activations and gradients, without an optimizer: on the CPU the growth of
a fresh process for each network, on CUDA PyTorch's own count.
"""
import argparse
from pathlib import Path

import torch

from ...launch import command_line
from ...models import CvT
from ..random_batch import parse_size
from .measure import DTYPES, measure
from .networks import VARIANTS, check_name
from .report import print_table, write_json

HELP = 'time and memory of a backbone or a whole model'
ARCHS = ', '.join(CvT.arch_zoo)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to a parser."""
    parser.add_argument('model', metavar='CONFIG|ARCH',
                        help=f'config file (its whole model), or one of {ARCHS} (the backbone alone)')
    parser.add_argument('--sizes', '--size', type=lambda text: [parse_size(part) for part in text.split(',')],
                        metavar='HxW,...', default=[(224, 224)], help='images (224x224), e.g. 224,448,800x1344')
    parser.add_argument('--batch', type=int, default=8, help='images a step (8)')
    parser.add_argument('--mode', choices=('infer', 'train'), default='infer')
    parser.add_argument('--amp', choices=tuple(DTYPES), default='none', help='autocast (none: float32)')
    parser.add_argument('--compare', type=lambda text: text.split(','), default=[], metavar='NAME,...',
                        help="'transformers' (Hugging Face's Cvt), a timm network (its features), or this CvT "
                        f"{', '.join(VARIANTS)}; a '+' combines: windowed+fused+compiled")
    parser.add_argument('--rounds', type=int, default=11, help='timed rounds; medians are reported (11)')
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write every number there')


def run(args: argparse.Namespace) -> None:
    """Measure the networks and print the table."""
    rows = []
    with command_line.report_errors(ValueError):
        command_line.check_value('--batch', args.batch, 1)
        command_line.check_value('--rounds', args.rounds, 1)
        if args.model not in CvT.arch_zoo and not Path(args.model).is_file():
            raise ValueError(f'{args.model}: neither a config file nor one of {ARCHS}')
        for name in args.compare:
            check_name(name, args)
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
        torch.backends.cudnn.allow_tf32 = False
        for size in args.sizes:
            rows += measure(['eager', *args.compare], args, size)
    print_table(rows)
    write_json(args, rows, args.device)
