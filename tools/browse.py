"""Shows what a network is fed before it is trained: augmented samples, statistics, learning rates, suspect annotations.

    python tools/browse.py CONFIG --data-root DIR [--split train] [--number 16] [--out-dir browse]

Nothing is trained. The samples of the training split are those of the first iterations with the config's seed.
"""
import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description='Shows what a network is fed before it is trained, in one page.')
    parser.add_argument('config', help='config file')
    parser.add_argument('--split', choices=('train', 'val', 'test'), default='train',
                        help='data whose samples are drawn (default: train)')
    parser.add_argument('--number', type=int, default=16, help='samples to draw (default: 16)')
    parser.add_argument('--out-dir', type=Path, default=Path('browse'), help='folder of the report (default: browse)')
    command_line.add_arguments(parser)
    add_force_argument(parser)
    return parser


def first_batches(args: argparse.Namespace, folder: Path):
    """Start the training that a command line asks for, and return its Runner and the hook that ended it.

    Args:
        args: the tool's flags.
        folder: for what the training writes.
    """
    from mmengine.config import Config

    from cvt_dense.launch.read import read_config
    from cvt_dense.launch.start import start
    from cvt_dense.report.browse import FirstBatchesHook
    cfg = read_config(args)
    if cfg.get('train_dataloader') is None or cfg.get(f'{args.split}_dataloader') is None:
        raise UserError(f'--split {args.split}: {args.config} has no {args.split}_dataloader to train or test with.')
    if args.split != 'train':
        cfg.train_dataloader = dict(cfg[f'{args.split}_dataloader'], batch_size=cfg.train_dataloader.batch_size)
        cfg.train_dataloader.dataset.pop('test_mode', None)
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    cfg.load_from = None
    if cfg.model.get('backbone'):
        cfg.model.backbone.init_cfg = None  # weights are not looked at
    cfg.model.pop('distillation', None)
    file = folder / Path(args.config).name
    Config(cfg.to_dict()).dump(file)
    args = argparse.Namespace(**{
        **vars(args), 'config': str(file), 'cfg_options': None, 'data_root': None, 'work_dir': str(folder / 'run'),
        'resume': None, 'overwrite': False, 'amp': None, 'auto_scale_lr': False, 'vis_backend': None})
    runner = start(args, ['train', 'val'])
    hook = FirstBatchesHook(args.number)
    runner.register_hook(hook, priority='LOWEST')
    try:
        runner.train()
    except FirstBatchesHook.Finished:
        pass
    return runner, hook


def add_data(report, cfg, splits: dict) -> None:
    """Add the statistics of each split's data set, classes that only some splits have, and duplicates to a report."""
    from cvt_dense.report import browse
    files, occurring = {}, {}
    for split, data_set in splits.items():
        classes = (getattr(data_set, 'metainfo', None) or {}).get('classes') or ()
        infos = [data_set.get_data_info(i) for i in range(len(data_set))]
        files[split] = [info['img_path'] for info in infos if 'offset' not in info]  # not those in tar files
        if 'label' in infos[0]:
            labels = [info['label'] for info in infos]
            browse.add_class_statistics(report, split, labels, classes)
            occurring[split] = {classes[label] for label in set(labels) if 0 <= label < len(classes)}
        elif 'instances' in infos[0]:
            steps = (cfg.get('val_dataloader') or cfg.train_dataloader)['dataset'].get('pipeline', ())
            scale = next((step['scale'] for step in steps if 'Resize' in str(step['type']) and 'scale' in step), None)
            browse.add_detection_statistics(report, split, data_set, scale)
            occurring[split] = {classes[one['bbox_label']] for info in infos for one in info['instances']}
        elif 'seg_map_path' in infos[0]:
            browse.add_pixel_statistics(report, split, data_set)
    browse.add_missing_classes(report, occurring)
    browse.add_duplicates(report, files)


def main() -> None:
    args = build_parser().parse_args()
    with command_line.report_errors(*command_line.SETUP_ERRORS):
        if args.number < 1:
            raise UserError(f'--number {args.number}: allowed are numbers from 1.')
        if args.out_dir.exists() and not args.force:
            raise UserError(f'The folder {args.out_dir} exists already. Give another one as --out-dir, or --force to '
                            'replace it.')
        from cvt_dense.report import browse
        from cvt_dense.report.collect import read_image
        from cvt_dense.report.page import Report, side_by_side
        with tempfile.TemporaryDirectory() as folder:
            runner, first = first_batches(args, Path(folder))
            report = Report(f'{args.config}: what the network is fed')
            splits = {'train': runner.train_dataloader.dataset}
            if runner.val_loop is not None:
                splits['val'] = runner.val_dataloader.dataset
            classes = (getattr(splits['train'], 'metainfo', None) or {}).get('classes') or ()
            pictures = browse.add_samples(report, first.samples, classes)
            add_data(report, runner.cfg, splits)
            browse.add_schedule(report, first.curves)
            if args.force and args.out_dir.exists():
                shutil.rmtree(args.out_dir)
            page = report.write(args.out_dir, lambda number: pictures.get(number) or side_by_side(
                read_image(report.images[number]['name'])))
    for sentence in report.summary:
        print(sentence)
    print(f'The report is {page}.')


if __name__ == '__main__':
    main()
