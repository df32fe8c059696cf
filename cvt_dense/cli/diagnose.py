"""Shows the errors of a trained network: a page with tables and pictures, and the same as JSON.

    python tools/diagnose.py CONFIG CHECKPOINT --data-root DIR

The network is tested once; an exported file may take the checkpoint's place. Everything is in ``report/report.html``.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from ..config import check_exists
from ..launch.runs import TestRun
from ..published import is_published
from . import command_line
from .outputs import add_force_argument, check_report_folder


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description='Shows the errors of a trained network, in one page.')
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('--split', choices=('val', 'test'), help='data to test (default: val, or test for a '
                        'published model, which has no val)')
    parser.add_argument('--out-dir', type=Path, default=Path('report'), help='folder of the report (default: report)')
    command_line.add_settings(parser, TestRun, 'work_dir', 'data_root', 'options', 'check', 'runtime', 'amp')
    add_force_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write a report of the mistakes of the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    args.split = args.split or ('test' if is_published(args.config) else 'val')
    with command_line.report_errors(OSError):
        check_report_folder(args)
        check_exists(args.checkpoint)
        from ..launch.start import start_test
        from ..report.collect import CollectHook
        runner = start_test(command_line.settings_of(TestRun, args))
        runner.test_loop.evaluator.metrics.clear()  # the report measures by itself
        hook = CollectHook(runner.test_dataloader.dataset)
        runner.register_hook(hook)
        runner.test()
        report = hook.diagnose(f'Mistakes of {args.config} on {args.split} images')
        report.summary.append(f'The weights are those of {args.checkpoint}.')
        page = report.write(args.out_dir)
    print(*report.summary, f'The report is {page}.', sep='\n')
