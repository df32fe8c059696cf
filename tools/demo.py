"""The whole way on a generated data set: pretrain a tiny CvT, then detect and segment with its weights.

    python tools/demo.py

Draws pictures of shapes (tools/_shapes.py), pretrains a classifier on them, and trains
Mask R-CNN and UperNet twice each for the same number of iterations: from the pretrained weights and from
scratch, side by side. Prints one table and leaves training curves and predictions as pictures. Every
step is a command of this project, printed as it runs; interrupted, the demo goes on where it was.
"""
import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
from _pictures import overview, thumbnail
from _shapes import generate
from _study import Run, last_checkpoint, read_result, remember, run_together, train
from PIL import Image
from study import STUDIES, read_study

from cvt_dense.curves import Curves, draw_line
from cvt_dense.errors import UserError

PRETRAINING, *DENSE = MEMBERS = read_study(str(STUDIES / 'shapes.py'))
STAGES = [('Pretraining: CvT on class folders', [PRETRAINING]),
          ('Detection: Mask R-CNN on COCO files', DENSE[:2]),
          ('Segmentation: UperNet on label maps', DENSE[2:])]
VAL_IMAGES = dict(classification='classification/val', detection='detection/val',
                  segmentation='segmentation/images/validation')
NUM_PICTURES = 6  # of each task
SHEET_ROWS = 2  # of them in one picture


class StepError(Exception):
    """A command of the demo failed; the message says which and shows the end of its log."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Pretrain a tiny CvT on generated pictures, then train Mask R-CNN and UperNet with and '
        'without its weights; prints one table.')
    parser.add_argument('--work-dir', default='work_dirs/demo', metavar='DIR',
                        help='folder of everything that the demo writes (default: %(default)s)')
    parser.add_argument('--train',
                        type=int,
                        default=400,
                        metavar='N',
                        help='training scenes (default: %(default)s)')
    parser.add_argument('--val',
                        type=int,
                        default=100,
                        metavar='N',
                        help='validation scenes (default: %(default)s)')
    parser.add_argument('--train-per-class', type=int, default=400, metavar='N',
                        help='training images of a class for pretraining (default: %(default)s)')
    parser.add_argument('--val-per-class', type=int, default=50, metavar='N',
                        help='validation images of a class for pretraining (default: %(default)s)')
    parser.add_argument('--epochs',
                        type=int,
                        metavar='N',
                        help="pretrain for N epochs instead of the config's")
    parser.add_argument('--iterations', type=int, metavar='N',
                        help="train detector and segmentor for N iterations instead of the configs'")
    parser.add_argument('--seed', type=int, default=0, help='of data and training (default: %(default)s)')
    return parser.parse_args()


def run_of(member: dict[str, Any], work_dir: Path, args: argparse.Namespace) -> Run:
    """A training of the study with the demo's data, seed and length."""
    options = [*member['options'], *([f'randomness.seed={args.seed}'] if args.seed else [])]
    length, unit = (args.epochs, 'epochs') if member is PRETRAINING else (args.iterations, 'iters')
    if length is not None:
        options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
    return Run(member['name'], str(Path(member['config']).relative_to(ROOT)), tuple(options),
               f'{work_dir}/data/{member["data"]}', member['weights'])


def check(failed: dict[str, str]) -> None:
    if failed:
        raise StepError('\n'.join(failed.values()))


# -- results ---------------------------------------------------------------------------------------


def print_table(work_dir: Path) -> None:
    results = {member['name']: read_result(work_dir / member['name']) for member in MEMBERS}
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
    """Loss (above) and validation metric (below) of the three tasks, a line for each training."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 6.5), layout='constrained')
    metrics = [('accuracy/top1', 'top-1, %'), ('coco/bbox_mAP', 'box mAP'), ('mIoU', 'mIoU, %')]
    for column, (title, members) in enumerate(STAGES):
        loss_axis, metric_axis = axes[:, column]
        key, label = metrics[column]
        for member in members:
            scratch = member['name'].endswith('scratch')
            name = 'averaged weights' if member is PRETRAINING else 'from scratch' if scratch else 'pretrained'
            style = dict(label=name, color='tab:orange' if scratch else 'tab:blue')
            curves = Curves(work_dir / member['name'])
            draw_line(loss_axis, curves, 'loss', **style)
            draw_line(metric_axis, curves, key, 'epochs', **style)
            if member is PRETRAINING:
                draw_line(metric_axis, curves, 'raw/top1', 'epochs', label='raw weights', color='tab:gray')
        loss_axis.set(title=title, ylabel='training loss')
        metric_axis.set(ylabel=label, ylim=(0, None))
        metric_axis.legend()
    figure.savefig(out, dpi=110)
    plt.close(figure)


def draw_predictions(work_dir: Path, out: Path) -> None:
    """A column of predictions for each task, drawn by tools/predict.py, in one picture."""
    commands, logs, folders = {}, {}, {}
    for member in (members[0] for _, members in STAGES):
        data = member['data']
        images = sorted((work_dir / 'data' / VAL_IMAGES[data]).rglob('*.png'))
        images = images[::max(1, len(images) // NUM_PICTURES)][:NUM_PICTURES]
        folders[data] = folder = work_dir / 'predictions' / data
        if folder.exists():
            shutil.rmtree(folder)
        commands[data] = ['tools/predict.py', member['config'], str(last_checkpoint(work_dir / member['name'])),
                          *map(str, images), '--out-dir', str(folder), '--device', 'cpu']
        logs[data] = work_dir / f'predict_{data}.log'
    check(run_together(commands, logs))
    pictures = [sorted(set(folder.glob('*.png')) - {folder / 'overview.png'}, key=lambda path: path.stat().st_mtime)
                for folder in folders.values()]
    sheet = [(task, thumbnail(np.asarray(Image.open(path)), len(folders)))
             for row in list(zip(*pictures))[:SHEET_ROWS] for task, path in zip(folders, row)]
    overview(sheet, len(folders)).save(out)


def main() -> None:
    args = parse_args()
    start = time.time()
    work_dir = Path(args.work_dir)
    if Path.cwd() != ROOT:  # the commands run there
        work_dir = work_dir.resolve()
    curves, predictions = work_dir / 'curves.png', work_dir / 'predictions.png'
    try:
        for name, value in vars(args).items():
            if name not in ('work_dir', 'seed') and value is not None and value < 1:
                raise ValueError(f'--{name.replace("_", "-")}={value}: it must be a whole number, 1 or more.')
        settings = {key: value for key, value in vars(args).items() if key != 'work_dir'}
        remember(work_dir, 'demo.json', settings, 'demo')
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
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: the same command goes on from here')
    except (StepError, UserError, ValueError, OSError) as error:
        sys.exit(f'error: {error}')
    print(f'training curves: {curves}\npredictions: {predictions}')
    print(f'took {(time.time() - start) / 60:.1f} minutes')


if __name__ == '__main__':
    main()
