"""Shows the data of a training: augmented samples and statistics.

    python tools/browse.py CONFIG --data-root DIR [--number 16] [--out-dir browse]

Nothing is trained. The samples are those of the first iterations with the config's seed.
"""
import argparse
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..classes import Classes
from ..config import leaf_datasets
from ..errors import UserError
from ..launch.runs import TrainRun
from ..published import read_config
from . import command_line
from .outputs import add_force_argument, check_report_folder


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description='Shows the data of a training before it starts, in one page.')
    parser.add_argument('config', help='config file')
    parser.add_argument('--number', type=int, default=16, help='samples to draw (default: 16)')
    parser.add_argument('--out-dir', type=Path, default=Path('browse'), help='folder of the report (default: browse)')
    command_line.add_settings(parser, TrainRun, 'data_root', 'options', 'check')
    add_force_argument(parser)
    return parser


def without_weights(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a training that starts without the weights that its config names.

    Raises:
        UserError: the config has no training data.
    """
    cfg = read_config(args.config, args.options)
    if cfg.get('train_dataloader') is None:
        raise UserError(f'{args.config} has no train_dataloader. Give the config of a training.')
    options = {'load_from': None, 'default_hooks.unreadable_images.max_share': 1.}
    options |= {'model.backbone.init_cfg': None} if cfg.model.get('backbone') else {}
    return {**args.options, **options}


def add_data(report: Any, splits: dict[str, Any], pipeline: list[dict[str, Any]]) -> None:
    """Add statistics to a report.

    Args:
        report: gets the sections.
        splits: the data set of each split.
        pipeline: the steps of an evaluation.
    """
    from ..engine.data_sets import leaves, transforms_of
    from ..report import browse
    from ..report.collect import read_infos
    for split, data_set in splits.items():
        classes = Classes.of_data(data_set, split).names
        infos = read_infos(data_set)
        if 'label' in infos[0]:
            browse.add_class_statistics(report, split, infos, classes)
        elif 'instances' in infos[0]:
            scale = next((step['scale'] for step in pipeline if 'Resize' in str(step['type']) and 'scale' in step),
                         None)
            browse.add_detection_statistics(report, split, infos, classes, scale)
        elif 'seg_map_path' in infos[0]:
            leaf = leaves(data_set)[0]
            browse.add_pixel_statistics(
                report, split, infos, classes, transforms_of(leaf), getattr(leaf, 'ignore_index', 255))


def main(argv: Sequence[str] | None = None) -> None:
    """Write a report of the data of the config that the command line names."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(OSError):
        if args.number < 1:
            raise UserError(f'--number {args.number}: allowed is a number from 1.')
        check_report_folder(args)
        from ..launch.start import start_training
        from ..report import browse
        from ..report.page import Report
        with tempfile.TemporaryDirectory() as folder:
            args.options, args.work_dir = without_weights(args), folder
            runner = start_training(command_line.settings_of(TrainRun, args))
            report = Report(f'{args.config}: data')
            splits = {'train': runner.train_dataloader.dataset}
            if runner.val_loop is not None:
                splits['val'] = runner.val_dataloader.dataset
            evaluation = next(leaf_datasets((runner.cfg.get('val_dataloader') or runner.cfg.train_dataloader).dataset))
            add_data(report, splits, evaluation.get('pipeline', ()))
            hook = browse.SamplesHook(args.number)
            runner.register_hook(hook, priority='LOWEST')
            runner.logger.setLevel('WARNING')  # not where a training would save checkpoints
            with suppress(hook.Finished):
                runner.train()
            browse.add_samples(report, hook.samples, splits['train'])
            report.sections.insert(0, report.sections.pop())
            page = report.write(args.out_dir)
    print(*report.summary, f'The report is {page}.', sep='\n')
