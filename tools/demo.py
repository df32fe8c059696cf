"""Run the whole pipeline on drawn data: pretrain a tiny CvT, then detect and segment with its weights.

    python tools/demo.py

Draws pictures of shapes, pretrains a classifier on them, and trains Mask R-CNN and UperNet twice each for the same
number of iterations: from the pretrained weights and from scratch, side by side. Prints one table and leaves training
curves and predictions as pictures. Every step is a command of this project, printed as it runs; the same command
continues an interrupted demo.
"""
import argparse
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
from _pictures import grid, save
from _shapes import generate
from _study import Run, interruptible, last_checkpoint, read_result, remember, run_together, train
from PIL import Image
from study import STUDIES, Member, read_study

from cvt_dense.curves import Curves, draw_line, new_figure, save_figure
from cvt_dense.errors import UserError

PRETRAINING, *DENSE = MEMBERS = read_study(str(STUDIES / 'shapes.py'))
STAGES = [('Pretraining: CvT on class folders', [PRETRAINING]),
          ('Detection: Mask R-CNN on COCO files', DENSE[:2]),
          ('Segmentation: UperNet on label maps', DENSE[2:])]
VAL_IMAGES = dict(classification='classification/val', detection='detection/val',
                  segmentation='segmentation/images/validation')
NUM_PICTURES = 6  # of each task
ROWS = 2  # of them in one picture


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--work-dir', default='work_dirs/demo', metavar='DIR',
                        help='folder of everything that the demo writes (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='seed of data and training (default: %(default)s)')
    sizes = [('--train', 400, 'training scenes'), ('--val', 100, 'validation scenes'),
             ('--train-per-class', 400, 'training images of a class for pretraining'),
             ('--val-per-class', 50, 'validation images of a class for pretraining'),
             ('--epochs', None, "epochs of pretraining instead of the config's"),
             ('--iterations', None, "iterations of detector and segmentor instead of the configs'")]
    for flag, default, what in sizes:
        parser.add_argument(flag, type=int, default=default, metavar='N', help=f'{what} (default: %(default)s)')
    return parser


def parse_args() -> argparse.Namespace:
    """Return the checked arguments of the command line."""
    parser = build_parser()
    args = parser.parse_args()
    for name, value in vars(args).items():
        if name not in ('work_dir', 'seed') and value is not None and value < 1:
            parser.error(f'--{name.replace("_", "-")} {value}: must be 1 or more')
    return args


def run_of(member: Member, work_dir: Path, args: argparse.Namespace) -> Run:
    """Return a training of the study with the demo's data, seed and length.

    Args:
        member: of the study.
        work_dir: folder of the demo.
        args: command line, for seed and length.
    """
    options = [*member.options, *([f'randomness.seed={args.seed}'] if args.seed else [])]
    length, unit = (args.epochs, 'epochs') if member is PRETRAINING else (args.iterations, 'iters')
    if length is not None:
        options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
    return Run(member.name, str(Path(member.config).relative_to(ROOT)), options, f'{work_dir}/data/{member.data}',
               member.weights)


def check(failed: dict[str, str]) -> None:
    """Raise UserError with the reasons of all failed runs, if there are any."""
    if failed:
        raise UserError('\n'.join(failed.values()))


# -- results ---------------------------------------------------------------------------------------


def print_table(work_dir: Path) -> None:
    """Print the metrics of all runs."""
    results = {member.name: read_result(work_dir / member.name) for member in MEMBERS}
    rows = [('Mask R-CNN, box mAP', 'maskrcnn', 'coco/bbox_mAP', 100.),
            ('Mask R-CNN, mask mAP', 'maskrcnn', 'coco/segm_mAP', 100.),
            ('UperNet, mIoU', 'upernet', 'mIoU', 1.)]
    line = '-' * 62
    top1 = results['pretraining']
    print(f'\n{"validation, %":<28}{"raw weights":>16}{"averaged (EMA)":>18}\n{line}')
    print(f'{"CvT classifier, top-1":<28}{top1["raw/top1"]:>16.1f}{top1["accuracy/top1"]:>18.1f}')
    print(f'{line}\n{"":<28}{"pretrained":>16}{"from scratch":>18}\n{line}')
    for title, name, key, factor in rows:
        values = [results[f'{name}_{start}'][key] * factor for start in ('pretrained', 'scratch')]
        print(f'{title:<28}{values[0]:>16.1f}{values[1]:>18.1f}')
    print(line)


def plot_curves(work_dir: Path, out: Path) -> None:
    """Draw loss (above) and validation metric (below) of the three tasks, a line for each training."""
    figure, axes = new_figure(2, 3)
    metrics = [('accuracy/top1', 'top-1, %'), ('coco/bbox_mAP', 'box mAP'), ('mIoU', 'mIoU, %')]
    for (title, members), (key, label), (upper, lower) in zip(STAGES, metrics, axes.T):
        for member in members:
            scratch = member.name.endswith('scratch')
            name = 'averaged weights' if member is PRETRAINING else 'from scratch' if scratch else 'pretrained'
            style = dict(label=name, color='tab:orange' if scratch else 'tab:blue')
            curves = Curves(work_dir / member.name)
            draw_line(upper, curves, 'loss', **style)
            draw_line(lower, curves, key, 'epochs', **style)
            if member is PRETRAINING:
                draw_line(lower, curves, 'raw/top1', 'epochs', label='raw weights', color='tab:gray')
        upper.set(title=title, ylabel='training loss')
        lower.set(ylabel=label, ylim=(0, None))
        lower.legend()
    save_figure(figure, out)


def draw_predictions(work_dir: Path, out: Path) -> None:
    """Draw a column of predictions for each task, made by tools/predict.py, in one picture."""
    commands, logs, pictures = {}, {}, {}
    for member in (members[0] for _, members in STAGES):
        images = sorted((work_dir / 'data' / VAL_IMAGES[member.data]).rglob('*.png'))
        images = images[::max(1, len(images) // NUM_PICTURES)][:NUM_PICTURES]
        folder = work_dir / 'predictions' / member.data
        shutil.rmtree(folder, ignore_errors=True)
        commands[member.data] = ['tools/predict.py', member.config, str(last_checkpoint(work_dir / member.name)),
                                 *map(str, images), '--out-dir', str(folder), '--device', 'cpu']
        logs[member.data] = work_dir / f'predict_{member.data}.log'
        pictures[member.data] = folder
    check(run_together(commands, logs))
    columns = [sorted(set(folder.glob('*.png')) - {folder / 'overview.png'})[:ROWS] for folder in pictures.values()]
    save(grid([(task, np.asarray(Image.open(path))) for row in zip(*columns) for task, path in zip(pictures, row)],
              len(pictures)), out)


def main() -> None:
    """Run the demo."""
    args = parse_args()
    start = time.time()
    work_dir = Path(args.work_dir)
    if Path.cwd() != ROOT:  # the commands run there
        work_dir = work_dir.resolve()
    curves, predictions = work_dir / 'curves.png', work_dir / 'predictions.png'
    try:
        remember(work_dir, 'demo.json', {key: value for key, value in vars(args).items() if key != 'work_dir'}, 'demo')
        print(f'Data: drawing shapes in {work_dir}/data', flush=True)
        generate(work_dir / 'data', args.seed, train=args.train, val=args.val,
                 train_per_class=args.train_per_class, val_per_class=args.val_per_class)
        for title, members in STAGES:
            print(title, flush=True)
            check(train([run_of(member, work_dir, args) for member in members], work_dir))
        print('Pictures', flush=True)
        plot_curves(work_dir, curves)
        if not predictions.exists():
            draw_predictions(work_dir, predictions)
        print_table(work_dir)
    except (UserError, ValueError, OSError) as error:
        sys.exit(f'error: {error}')
    print(f'training curves: {curves}\npredictions: {predictions}')
    print(f'took {(time.time() - start) / 60:.1f} minutes')


if __name__ == '__main__':
    with interruptible():
        main()
