"""Trains what a config describes: classifier, detector or segmentor.

    python tools/train.py configs/cvt13_in1k.py --data-root /data/imagenet

The learning rate of classification recipes and of templates is scaled to the images of all processes. A user's
mistake ends with one line on stderr and exit code 2, before a checkpoint is written.
"""
import argparse
from collections.abc import Sequence

from ..launch import command_line
from ..launch.distributed import destroy_process_group_at_exit
from ..launch.start import start_training


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    command_line.add_work_dir_argument(parser)
    command_line.add_arguments(parser)
    command_line.add_launcher_argument(parser)
    known = parser.add_mutually_exclusive_group()
    known.add_argument('--resume', nargs='?', const='auto', metavar='CHECKPOINT',
                       help='continue a run: from CHECKPOINT, or from the last one in the work dir')
    known.add_argument('--overwrite', action='store_true',
                       help='if the work dir holds another run, move that one aside, to WORK_DIR.old1 and so on')
    parser.add_argument('--amp', nargs='?', const='default', choices=('bf16', 'fp16', 'default'), metavar='{bf16,fp16}',
                        help='mixed precision; without a value, fp16 for detectors and float16 configs, else bf16')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help='scale the learning rate to the number of images per step (some configs do so anyway)')
    parser.add_argument('--val-loss', action='store_true', help='compute the loss of the validation images too, at '
                        'each evaluation')
    return parser


@destroy_process_group_at_exit
def main(argv: Sequence[str] | None = None) -> None:
    """Train the network of the config that the command line names."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(ImportError):  # of a tracker's package, or one that the config names
        start_training(args).train()
