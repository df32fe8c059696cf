"""The whole way on a generated data set: pretrain a tiny CvT, then detect and segment with its weights.

    python tools/demo.py

Draws pictures of shapes (cvt_dense/datasets/synthetic.py), pretrains a classifier on them, and trains
Mask R-CNN and UperNet twice each for the same number of iterations: from the pretrained weights and from
scratch, side by side. Prints one table and leaves training curves and predictions as pictures. Every
step is a command of this project, printed as it runs; interrupted, the demo goes on where it was.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
from _pictures import overview, thumbnail
from PIL import Image

from cvt_dense.curves import Curves, draw_line
from cvt_dense.datasets.synthetic import generate

PROGRESS = re.compile(r'(Epoch|Iter)\(train\) +(\[[^]]*\](?:\[[^]]*\])?).*? loss: ([\d.]+)')


class StepError(Exception):
    """A command of the demo failed; the message says which and shows the end of its log."""


class Training(NamedTuple):
    """A run of tools/train.py.

    Attributes:
        name: its folder in the work dir.
        config: its file in configs/.
        data: its part of the generated data.
        initial: the training whose weights the backbone starts from; None: from scratch.
    """
    name: str
    config: str
    data: str
    initial: str | None = None


PRETRAINING = Training('pretraining', 'cvt_nano_shapes.py', 'classification')
DETECTION = [Training('maskrcnn_pretrained', 'maskrcnn_cvt_nano_shapes.py', 'detection', 'pretraining'),
             Training('maskrcnn_scratch', 'maskrcnn_cvt_nano_shapes.py', 'detection')]
SEGMENTATION = [Training('upernet_pretrained', 'upernet_cvt_nano_shapes.py', 'segmentation', 'pretraining'),
                Training('upernet_scratch', 'upernet_cvt_nano_shapes.py', 'segmentation')]
STAGES = [('Pretraining: CvT on class folders', [PRETRAINING]),
          ('Detection: Mask R-CNN on COCO files', DETECTION),
          ('Segmentation: UperNet on label maps', SEGMENTATION)]
VAL_IMAGES = dict(classification='classification/val', detection='detection/val',
                  segmentation='segmentation/images/validation')
NUM_PICTURES = 6  # of each task
SHEET_ROWS = 2  # of them in one picture


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


# -- commands --------------------------------------------------------------------------------------


def run_together(commands: dict[str, list[str]], logs: dict[str, Path]) -> None:
    """Runs commands at the same time, an equal share of the CPU's cores each, and shows their progress.

    Args:
        commands: by name, what follows ``python``.
        logs: by name, the file that takes a command's output.

    Raises:
        StepError: a command failed; the others have been stopped.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    threads = str(max(1, cores // len(commands)))
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, PYTHONWARNINGS='ignore')
    start = shown = time.time()
    interval = 2 if sys.stdout.isatty() else 20
    processes: dict[str, subprocess.Popen] = {}
    try:
        for name, command in commands.items():
            print('  $ python ' + shlex.join(command), flush=True)
            with logs[name].open('w') as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        while True:
            codes = {name: process.poll() for name, process in processes.items()}
            failed = [name for name, code in codes.items() if code]
            if failed or None not in codes.values():
                break
            time.sleep(0.2)
            if time.time() - shown > interval:
                shown = time.time()
                show_progress(f'{shown - start:.0f} s', [progress(name, logs[name]) for name in commands])
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    if failed:
        name = failed[0]
        tail = '\n'.join('    ' + line for line in logs[name].read_text(errors='replace').splitlines()[-15:])
        raise StepError(
            f'{name} failed with exit code {codes[name]}; the end of its log {logs[name]}:\n{tail}')
    show_progress(f'done in {time.time() - start:.0f} s', [])
    if sys.stdout.isatty():
        print()


def show_progress(time_taken: str, parts: list[str]) -> None:
    """One line; on a terminal it replaces the one before."""
    line = '    ' + '  |  '.join([time_taken, *filter(None, parts)])
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print('\r' + line[:width].ljust(width), end='', flush=True)
    else:
        print(line, flush=True)


def progress(name: str, log: Path) -> str:
    """The last training line of a log in short; nothing where there is none."""
    found = PROGRESS.findall(log.read_text(errors='replace'))
    if not found:
        return ''
    unit, position, loss = found[-1]
    return f'{name}: {unit.lower()} {position}, loss {loss}'


# -- training and what it logged -------------------------------------------------------------------


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in a training's folder."""
    found = sorted(folder.glob('*_*.pth'), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def read_result(folder: Path) -> dict[str, float] | None:
    """The metrics of the last checkpoint; None if there is none, or it has not been evaluated."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        return None
    step = int(checkpoint.stem.rsplit('_', 1)[1])
    results = [point.values for point in Curves(folder).points if point.evaluation and point.values['step'] == step]
    return results[-1] if results else None


def train(trainings: Sequence[Training], work_dir: Path, args: argparse.Namespace) -> None:
    """Runs trainings side by side, each from where it was; skips those that are finished."""
    commands = {}
    for training in trainings:
        folder = work_dir / training.name
        if (folder / 'finished').exists():
            print(f'  {training.name}: finished before')
            continue
        command = ['tools/train.py', f'configs/{training.config}', '--work-dir', str(folder),
                   '--data-root', f'{work_dir}/data/{training.data}']
        if folder.exists():
            command.append('--resume')
        options = [f'randomness.seed={args.seed}'] if args.seed else []
        if training.initial is not None:
            options += ['model.backbone.init_cfg.type=Pretrained',
                        f'model.backbone.init_cfg.checkpoint={last_checkpoint(work_dir / training.initial)}']
        length, unit = (args.epochs, 'epochs') if training is PRETRAINING else (args.iterations, 'iters')
        if length is not None:
            options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
        commands[training.name] = command + (['--cfg-options', *options] if options else [])
    if not commands:
        return
    run_together(commands, {name: work_dir / f'{name}.log' for name in commands})
    for name in commands:
        if read_result(work_dir / name) is None:
            raise StepError(f'{name} logged no evaluation of its last checkpoint; see {work_dir}/{name}.log')
        (work_dir / name / 'finished').touch()


# -- results ---------------------------------------------------------------------------------------


def print_table(work_dir: Path) -> None:
    results = {training.name: read_result(work_dir / training.name)
               for _, trainings in STAGES for training in trainings}
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
    for column, (title, trainings) in enumerate(STAGES):
        loss_axis, metric_axis = axes[:, column]
        key, label = metrics[column]
        for training in trainings:
            scratch = training in DETECTION[1:] + SEGMENTATION[1:]
            name = 'from scratch' if scratch else 'pretrained'
            name = 'averaged weights' if training is PRETRAINING else name
            style = dict(label=name, color='tab:orange' if scratch else 'tab:blue')
            curves = Curves(work_dir / training.name)
            draw_line(loss_axis, curves, 'loss', **style)
            draw_line(metric_axis, curves, key, 'epochs', **style)
            if training is PRETRAINING:
                draw_line(metric_axis, curves, 'raw/top1', 'epochs', label='raw weights', color='tab:gray')
        loss_axis.set(title=title, ylabel='training loss')
        metric_axis.set(ylabel=label, ylim=(0, None))
        metric_axis.legend()
    figure.savefig(out, dpi=110)
    plt.close(figure)


def draw_predictions(work_dir: Path, out: Path) -> None:
    """A column of predictions for each task, drawn by tools/predict.py, in one picture."""
    commands, logs, folders = {}, {}, {}
    for training in (PRETRAINING, DETECTION[0], SEGMENTATION[0]):
        images = sorted((work_dir / 'data' / VAL_IMAGES[training.data]).rglob('*.png'))
        images = images[::max(1, len(images) // NUM_PICTURES)][:NUM_PICTURES]
        folders[training.data] = folder = work_dir / 'predictions' / training.data
        if folder.exists():
            shutil.rmtree(folder)
        commands[training.data] = ['tools/predict.py', f'configs/{training.config}',
                                   str(last_checkpoint(work_dir / training.name)), *map(str, images),
                                   '--out-dir', str(folder), '--device', 'cpu']
        logs[training.data] = work_dir / f'predict_{training.data}.log'
    run_together(commands, logs)
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
        check_settings(work_dir, args)
        print(f'Data: drawing shapes in {work_dir}/data', flush=True)
        generate(work_dir / 'data', args.seed, train=args.train, val=args.val,
                 train_per_class=args.train_per_class, val_per_class=args.val_per_class)
        for title, trainings in STAGES:
            print(title, flush=True)
            train(trainings, work_dir, args)
        print('Pictures', flush=True)
        plot_curves(work_dir, curves)
        if not predictions.exists():
            draw_predictions(work_dir, predictions)
        print_table(work_dir)
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: the same command goes on from here')
    except (StepError, ValueError, OSError) as error:
        sys.exit(f'error: {error}')
    print(f'training curves: {curves}\npredictions: {predictions}')
    print(f'took {(time.time() - start) / 60:.1f} minutes')


def check_settings(work_dir: Path, args: argparse.Namespace) -> None:
    """Remembers the settings in the work dir, making it if it is new.

    Raises:
        ValueError: the work dir holds a demo with others, whose results must not be mixed with these.
    """
    settings = {key: value for key, value in vars(args).items() if key != 'work_dir'}
    file = work_dir / 'demo.json'
    if file.exists():
        before = json.loads(file.read_text())
        if before != settings:
            raise ValueError(
                f'{work_dir} holds a demo with other settings ({before}): name another --work-dir, or '
                'delete this one.')
    elif work_dir.exists() and any(work_dir.iterdir()):
        raise ValueError(f'{work_dir} is not empty and holds no demo: name another --work-dir.')
    else:
        work_dir.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))


if __name__ == '__main__':
    main()
