"""Shows the data and schedules of a training: augmented samples, statistics, learning rates, suspect annotations.

    python tools/browse.py CONFIG --data-root DIR [--split train] [--number 16] [--out-dir browse]

Nothing is trained. The samples of the training split are those of the first iterations with the config's seed.
"""
import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvt_dense.config.data_sets import leaf_datasets
from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument, check_report_folder


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description='Shows the data and schedules of a training before it starts, in one page.')
    parser.add_argument('config', help='config file')
    parser.add_argument('--split', choices=('train', 'val', 'test'), default='train',
                        help='data whose samples are drawn (default: train)')
    parser.add_argument('--number', type=int, default=16, help='samples to draw (default: 16)')
    parser.add_argument('--out-dir', type=Path, default=Path('browse'), help='folder of the report (default: browse)')
    command_line.add_arguments(parser)
    add_force_argument(parser)
    return parser


def start_training(args: argparse.Namespace, folder: Path) -> Any:
    """Return the Runner of a command line's training, without the weights that it starts from.

    Args:
        args: the tool's flags.
        folder: folder for the files that the training writes.
    """
    from cvt_dense.launch.flags import TrainFlags
    from cvt_dense.launch.start import start_training

    def leave_out_weights(cfg: Any) -> None:
        if cfg.get('train_dataloader') is None or cfg.get(f'{args.split}_dataloader') is None:
            raise UserError(f'--split {args.split}: {args.config} has no train_dataloader or no '
                            f'{args.split}_dataloader.')
        cfg.load_from = None
        if cfg.model.get('backbone'):
            cfg.model.backbone.init_cfg = None
        cfg.model.pop('distillation', None)

    return start_training(TrainFlags.of(args, work_dir=str(folder)), leave_out_weights,
                          ['train', 'val', *(['test'] if args.split == 'test' else [])], summary=False)


def add_data(report: Any, splits: dict[str, Any], pipeline: list[dict[str, Any]]) -> list[str]:
    """Add statistics, classes that only some splits have, and duplicates to a report; return unreadable images.

    Args:
        report: gets the sections.
        splits: the data set of each split.
        pipeline: the steps of an evaluation.
    """
    from cvt_dense.report import browse
    from cvt_dense.report.collect import leaves, read_infos
    files, occurring, classes = {}, {}, ()
    for split, data_set in splits.items():
        classes = (getattr(data_set, 'metainfo', None) or {}).get('classes') or ()
        infos = read_infos(data_set)
        files[split] = infos
        if 'label' in infos[0]:
            labels = [info['label'] for info in infos]
            browse.add_class_statistics(report, split, labels, classes)
            occurring[split] = {classes[label] for label in set(labels) if 0 <= label < len(classes)}
        elif 'instances' in infos[0]:
            scale = next((step['scale'] for step in pipeline if 'Resize' in str(step['type']) and 'scale' in step),
                         None)
            browse.add_detection_statistics(report, split, infos, classes, scale)
            occurring[split] = {classes[one['bbox_label']] for info in infos for one in info['instances']}
        elif 'seg_map_path' in infos[0]:
            steps = getattr(getattr(leaves(data_set)[0], 'pipeline', None), 'transforms', ())
            occurring[split] = browse.add_pixel_statistics(report, split, infos, classes, steps)
    browse.add_missing_classes(report, occurring, classes)
    return browse.add_duplicates(report, files)


def main(argv: Sequence[str] | None = None) -> None:
    """Write a report of the data and schedules of the config that the command line names."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors():
        command_line.check_value('--number', args.number, 1)
        check_report_folder(args)
        from cvt_dense.report import browse
        from cvt_dense.report.collect import read_infos
        from cvt_dense.report.page import Report
        with tempfile.TemporaryDirectory() as folder:
            runner = start_training(args, Path(folder))
            report = Report(f'{args.config}: data and schedules')
            splits = {'train': runner.train_dataloader.dataset}
            if runner.val_loop is not None:
                splits['val'] = runner.val_dataloader.dataset
            evaluation = next(leaf_datasets((runner.cfg.get('val_dataloader') or runner.cfg.train_dataloader).dataset))
            unreadable = add_data(report, splits, evaluation.get('pipeline', ()))
            hook = browse.SamplesHook(args.number, args.split)
            runner.register_hook(hook, priority='LOWEST')
            try:
                runner.train()
            except hook.Finished:
                loader = runner.cfg[f'{args.split}_dataloader']
                data_set = next(leaf_datasets(loader.dataset))
                steps = [str(step['type']) for step in data_set.get('pipeline', ())]
                late = 'Resize' in steps and 'LoadAnnotations' in steps[steps.index('Resize'):]
                classes = (getattr(splits['train'], 'metainfo', None) or {}).get('classes') or ()
                infos = read_infos(getattr(runner, f'{args.split}_dataloader').dataset)
                browse.add_samples(report, hook.samples, infos, classes, late)
                report.sections.insert(0, report.sections.pop())
                browse.add_schedule(report, hook.milestones, hook.curves)
            except Exception as error:
                if not unreadable:
                    raise
                report.summary.append('Samples and learning rate are not shown, because one of these images is among '
                                      f'the first ones: {str(error).splitlines()[-1]}')
            page = report.write(args.out_dir)
    for sentence in report.summary:
        print(sentence)
    print(f'The report is {page}.')


if __name__ == '__main__':
    main()
