"""Shows the errors of a trained network: a page with tables, figures and pictures, and the same as JSON.

    python tools/diagnose.py CONFIG CHECKPOINT --data-root DIR
    python tools/diagnose.py CONFIG CHECKPOINT --compare OTHER_CHECKPOINT [--config OTHER_CONFIG]

The network is tested once; an exported file may take the checkpoint's place. Everything is in ``report/report.html``.
"""
import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvt_dense.config.read import check_exists
from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument, check_report_folder


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description='Shows the errors of a trained network, in one page.')
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('--split', choices=('train', 'val', 'test'), default='val', help='data to test (default: val)')
    parser.add_argument('--out-dir', type=Path, default=Path('report'), help='folder of the report (default: report)')
    parser.add_argument('--compare', metavar='CHECKPOINT', help='a second network, tested on the same images')
    parser.add_argument('--config', dest='other_config', metavar='CONFIG', help="the second network's config, if it "
                        'has another')
    command_line.add_arguments(parser)
    command_line.add_inference_arguments(parser)
    add_force_argument(parser)
    return parser


def test(args: argparse.Namespace, config: str, checkpoint: str):
    """Test a network and return what was collected of it.

    Args:
        args: the tool's flags.
        config, checkpoint: the network's files.
    """
    from torch.utils.data import Subset

    from cvt_dense.launch.flags import TestFlags
    from cvt_dense.launch.start import start_test
    from cvt_dense.report.collect import CollectHook
    runner = start_test(TestFlags.of(args, config=config, checkpoint=checkpoint), partial(test_on, split=args.split))
    hook = CollectHook(runner.test_dataloader.dataset)
    if hook.unreadable:
        readable = Subset(hook.data_set, hook.readable)
        runner.test_loop.dataloader = runner.build_dataloader(dict(runner.cfg.test_dataloader, dataset=readable))
    runner.register_hook(hook)
    runner.test()
    return hook


def test_on(cfg: Any, split: str) -> None:
    """Make a split the test data of a config, without metrics.

    Raises:
        UserError: the config has no such split, or its training data is several data sets.
    """
    loader = cfg.get(f'{split}_dataloader')
    if loader is None:
        raise UserError(f'--split {split}: {cfg.filename} has no {split}_dataloader.')
    testing = cfg.get('test_dataloader') or cfg.get('val_dataloader')
    if split == 'train':  # its images, as they are tested
        data_set = loader.dataset
        while 'dataset' in data_set:  # such as RepeatDataset
            data_set = data_set.dataset
        if 'datasets' in data_set:
            raise UserError(f'--split train: {cfg.filename} joins several data sets. Name one in val_dataloader.')
        data_set = dict(data_set, test_mode=True) if 'pipeline' in data_set else dict(data_set)
        data_set.update({key: testing.dataset[key] for key in ('pipeline', 'transform') if key in testing.dataset})
        data_set.pop('filter_cfg', None)
        loader = dict(testing, dataset=data_set)
    cfg.test_dataloader = loader
    cfg.test_evaluator = []
    cfg.test_cfg = dict(type='TestLoop')
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if 'RawWeightsHook' not in str(hook['type'])]


def main(argv: Sequence[str] | None = None) -> None:
    """Write a report of the mistakes of the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors():
        check_report_folder(args)
        for checkpoint in (args.checkpoint, *([args.compare] if args.compare else [])):
            check_exists(checkpoint)
        from cvt_dense.report.compare import compare
        from cvt_dense.report.page import Report
        tested = test(args, args.config, args.checkpoint)
        second = f' (first network) and {args.compare} (second network)' if args.compare is not None else ''
        report = Report(f'{args.checkpoint}{second} on {args.split}')
        other = None
        if args.compare is not None:
            other = test(args, args.other_config or args.config, args.compare)
            seen = [([record['path'] for record in hook.records], hook.classes) for hook in (tested, other)]
            if seen[0] != seen[1]:
                raise UserError(f'--compare {args.compare}: both networks need the same images and classes.')
        found = tested.diagnose(report, other)
        if other is not None:
            of_second = Report('')
            compare(report, tested.task, found, other.diagnose(of_second), tested.classes)
            for image, of_other in zip(report.images, of_second.images):
                image['note'] += f'; second network: {of_other["note"]}'
        page = report.write(args.out_dir)
    for sentence in report.summary:
        print(sentence)
    print(f'The report is {page}.')


if __name__ == '__main__':
    main()
