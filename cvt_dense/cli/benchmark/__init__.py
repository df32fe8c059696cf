"""Measures time and memory of networks beside each other, how fast a config's data is loaded, and more.

    python tools/benchmark.py model cvt-13 --compare fused,fused+compiled,transformers
    python tools/benchmark.py model cvt-13 --size 800x1344 --batch 1 \\
        --compare windowed,swin_tiny_patch4_window7_224 --json benchmarks/detection.json
    python tools/benchmark.py model cvt-13 --sizes 224,448,896 --batch 1 --compare windowed
    python tools/benchmark.py model configs/maskrcnn_cvt13_coco.py --size 800x1280 --batch 1 --mode train
    python tools/benchmark.py data configs/cvt13_in1k.py --data-root /data/imagenet --workers 4,8,16
    python tools/benchmark.py parts configs/maskrcnn_cvt13_coco.py mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py
"""
import argparse
from collections.abc import Sequence

from . import data, model, parts

# Each has HELP, add_flags(parser) and run(args).
COMMANDS = dict(model=model, data=data, parts=parts)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with a subcommand for each module of this package."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    for name, command in COMMANDS.items():
        command.add_flags(commands.add_parser(name, help=command.HELP, epilog=command.__doc__.partition('\n\n')[2]))
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the chosen subcommand."""
    args = build_parser().parse_args(argv)
    COMMANDS[args.command].run(args)
