"""Renames CvT weights between this project's, the authors' and Hugging Face's formats, bit for bit.

    python tools/convert_checkpoint.py CvT-13-224x224-IN-1k.pth cvt13.pth --to cvt_dense
    python tools/convert_checkpoint.py work_dirs/cvt13_in1k/epoch_300.pth cvt13.safetensors --to huggingface

DST ending in .safetensors is written in that format. A user's mistake ends with one line on stderr and exit
code 2.
"""
import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from ..atomic import atomic_path
from .command_line import report_errors
from .outputs import add_force_argument, check_outputs

FORMATS = ('cvt_dense', 'microsoft', 'huggingface')  # of cvt_dense.weights, which takes seconds to import


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('src', help='checkpoint in any of the formats, or folder from the Hugging Face hub')
    parser.add_argument('dst', type=Path, help='file to write')
    parser.add_argument('--to', required=True, choices=FORMATS, help='naming to write')
    parser.add_argument('--weights', choices=('ema', 'raw'), default='ema',
                        help="weights of this project's checkpoint: averaged (default), or as the optimizer left them")
    add_force_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Convert the checkpoint that the command line names."""
    args = build_parser().parse_args(argv)
    import safetensors.torch
    import torch

    from .. import weights
    with report_errors(ValueError, OSError):
        if not args.dst.suffix:
            raise ValueError(f'{args.dst} has no suffix: give the name of a file, such as {args.dst}.safetensors.')
        content = weights.read_checkpoint(args.src)
        state_dict = weights.select_weights(content, args.weights, args.src)
        names = dict(weights.dataset_meta(content))  # by which a test numbers its class folders
        authors = weights.convert(state_dict, 'microsoft')
        others = [key for key in authors if not re.match(r'(stage|norm)\d*\.|head\.', key)]
        if others and args.to != 'cvt_dense':
            raise ValueError(f'{args.to} has no name for {others[0]} of {args.src}: use --to cvt_dense.')
        converted = weights.convert(state_dict, args.to)
        check_outputs([args.dst], args.force, inputs=[args.src, *Path(args.src).glob('*')])
        with atomic_path(args.dst) as partial:
            if args.dst.suffix == '.safetensors':
                converted = {key: value.contiguous() for key, value in converted.items()}
                about = dict(dataset_meta=json.dumps(names)) if names else {}
                safetensors.torch.save_file(converted, partial, metadata=dict(about, format='pt'))
                partial.chmod(0o644)  # safetensors lets no one else read it
            else:
                meta = dict(dataset_meta=names) if names else {}
                torch.save(dict(state_dict=converted, meta=meta) if args.to == 'cvt_dense' else converted, partial)
    print(f'{len(converted)} of {len(state_dict)} tensors from {args.src} to {args.dst} ({args.to})')
    if names.get('classes') and args.to != 'cvt_dense' and args.dst.suffix != '.safetensors':
        print(f'{args.dst} has no class names, unlike a .safetensors file: tests number class folders in sorted order.')
    if args.to == 'huggingface':
        print('transformers runs CvT with the exact GELU; this project and the authors with QuickGELU: logits differ.')
