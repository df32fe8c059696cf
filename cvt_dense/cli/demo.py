"""Run the whole pipeline on drawn data: train a classifier from this package's weights, then detect and segment.

    python tools/demo.py

Draws pictures of shapes, trains a classifier on them from the weights in this package, and then Mask R-CNN and UperNet,
side by side, from the classifier's. Prints one table and leaves training curves and predictions as pictures, with those
of the package's own classifier for a few photographs. Every step is a command of this project, printed as it runs; the
same command continues an interrupted demo.
"""
import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..atomic import write_atomically
from ..engine.checkpoint import PREEMPTED, find_checkpoint
from ..engine.curves import Curves, draw, table
from ..errors import UserError
from ..launch import command_line
from ..recipes import folder as project_folder
from ..recipes.shapes import generate
from ..report.pictures import grid, save

ROOT = project_folder()  # of configs/ and tools/
CONFIGS = dict(pretraining='configs/cvt_nano_shapes.py', maskrcnn='configs/maskrcnn_cvt_nano_shapes.py',
               upernet='configs/upernet_cvt_nano_shapes.py')
DATA = dict(pretraining='classification', maskrcnn='detection', upernet='segmentation')
PHOTOGRAPHS = dict(cat='chelsea', coffee='coffee')  # of scikit-image's wheel, all CC0
PACKAGED = 'cvt_dense://cvt-nano'
VAL_IMAGES = dict(classification='classification/val', detection='detection/val',
                  segmentation='segmentation/images/validation')
SCORE_THR = 0.65  # of detections that are drawn: about the score of the best F1, which tools/diagnose.py computes
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


def record_settings(path: Path, settings: dict[str, int | None]) -> None:
    """Write settings into a work dir, unless they are there already.

    Args:
        path: file in the work dir, which is made if it does not exist.
        settings: by name.

    Raises:
        UserError: the folder holds something else, or other settings.
    """
    text = json.dumps(settings, indent=1)
    used = path.parent.exists() and any(path.parent.iterdir())
    if used and (not path.exists() or path.read_text() != text):
        raise UserError(f'{path.parent} is not empty and has no {path.name} with these settings: give another '
                        '--work-dir, or delete this one.')
    write_atomically(path, text)


def arguments_of(name: str, weights: str | Path, work_dir: Path, args: argparse.Namespace) -> list[str]:
    """Return the arguments of tools/train.py with the demo's data, seed and length.

    Args:
        name: a key of ``CONFIGS``.
        weights: checkpoint that the backbone starts from.
        work_dir: folder of the demo.
        args: command line, for seed and length.
    """
    options = ['model.backbone.init_cfg.type=Pretrained', f'model.backbone.init_cfg.checkpoint={weights}',
               f'randomness.seed={args.seed}']
    length, unit = (args.epochs, 'epochs') if name == 'pretraining' else (args.iterations, 'iters')
    if length is not None:
        options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
    return [CONFIGS[name], '--data-root', f'{work_dir}/data/{DATA[name]}', '--cfg-options', *options]


# -- commands --------------------------------------------------------------------------------------


def run_together(commands: dict[str, list[str]], work_dir: Path) -> None:
    """Run commands at the same time, with an equal part of the CPU's cores each, and end the process if some fail.

    Args:
        commands: by name, what follows ``python``.
        work_dir: folder of the logs ``<name>.log``.
    """
    cores = int(os.environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0)))
    threads = str(max(1, cores // len(commands)))
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, PYTHONWARNINGS='ignore')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the commands end too
    start = time.time()
    logs = {name: work_dir / f'{name}.log' for name in commands}
    processes: dict[str, subprocess.Popen] = {}
    try:
        for name, command in commands.items():
            print(f'  $ python {shlex.join(command)}\n    (log: {logs[name]})', flush=True)
            with logs[name].open('w') as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        for process in processes.values():
            process.wait()
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: run the same command again to continue')
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    failed = [f'{name} failed; the end of its log {logs[name]}:\n{_end_of(logs[name])}'
              for name, process in processes.items() if process.returncode]
    if failed:
        sys.exit('\n'.join(failed))
    print(f'    done in {time.time() - start:.0f} s', flush=True)


def _end_of(log: Path) -> str:
    return '\n'.join(log.read_text(errors='replace').splitlines()[-15:])


def train(runs: dict[str, list[str]], work_dir: Path) -> None:
    """Train the runs that are not finished, each from its last checkpoint.

    A finished run's folder gets an empty file ``finished``. The process ends if a run fails or is stopped.

    Args:
        runs: by the name of the run's folder in ``work_dir``, arguments of tools/train.py.
        work_dir: folder of all runs.
    """
    commands = {}
    for name, arguments in runs.items():
        folder = work_dir / name
        if (folder / 'finished').exists():
            print(f'  {name}: finished before')
        else:
            resume = ['--resume'] if folder.exists() else []
            commands[name] = ['tools/train.py', *arguments, '--work-dir', str(folder), *resume]
    if commands:
        run_together(commands, work_dir)
    for name in commands:
        if Path(find_checkpoint(work_dir / name)).name == PREEMPTED:
            sys.exit(f'{name} was stopped by a signal; the same command continues it')
        (work_dir / name / 'finished').touch()


# -- results ---------------------------------------------------------------------------------------


def write_photographs(folder: Path) -> list[Path]:
    """Write scikit-image's photographs as files, unless they are there, and return their paths."""
    from skimage import data
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f'{name}.png' for name in PHOTOGRAPHS]
    for file, photograph in zip(files, PHOTOGRAPHS.values()):
        if not file.exists():
            save(getattr(data, photograph)(), file)
    return files


def draw_predictions(work_dir: Path, out: Path) -> None:
    """Draw a column of predictions for each network, made by tools/predict.py, in one picture."""
    networks = {f'photographs: {PACKAGED}': ('photographs', 'configs/cvt_nano_tiny_imagenet_whole.py', PACKAGED,
                                             write_photographs(work_dir / 'photographs'))}
    for name, config in CONFIGS.items():
        task = DATA[name]
        images = sorted((work_dir / 'data' / VAL_IMAGES[task]).rglob('*.png'))
        images = images[::max(1, len(images) // NUM_PICTURES)][:NUM_PICTURES]
        networks[task] = task, config, find_checkpoint(work_dir / name), images
    commands, columns = {}, {}
    for title, (name, config, checkpoint, images) in networks.items():
        columns[title] = folder = work_dir / 'predictions' / name
        shutil.rmtree(folder, ignore_errors=True)
        commands[f'predict_{name}'] = [
            'tools/predict.py', str(config), str(checkpoint), *map(str, images), '--out-dir', str(folder), '--device',
            'cpu', '--score-thr', str(SCORE_THR)]
    run_together(commands, work_dir)
    pictures = [sorted(set(folder.glob('*.png')) - {folder / 'overview.png'})[:ROWS] for folder in columns.values()]
    save(grid([(title, np.asarray(Image.open(path))) for row in zip(*pictures) for title, path in zip(columns, row)],
              len(columns)), out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = build_parser().parse_args(argv)
    start = time.time()
    work_dir = Path(args.work_dir)
    if Path.cwd() != ROOT:  # the commands run there
        work_dir = work_dir.resolve()
    curves, predictions = work_dir / 'curves.png', work_dir / 'predictions.png'
    with command_line.report_errors(OSError):
        settings = {key: value for key, value in vars(args).items() if key != 'work_dir'}
        record_settings(work_dir / 'demo.json', settings)
        print(f'Data: drawing shapes in {work_dir}/data', flush=True)
        generate(work_dir / 'data', args.seed, train=args.train, val=args.val,
                 train_per_class=args.train_per_class, val_per_class=args.val_per_class)
        print('Classification: CvT on class folders', flush=True)
        train(dict(pretraining=arguments_of('pretraining', PACKAGED, work_dir, args)), work_dir)
        print('Detection: Mask R-CNN and Segmentation: UperNet', flush=True)
        weights = find_checkpoint(work_dir / 'pretraining')
        train({name: arguments_of(name, weights, work_dir, args) for name in ('maskrcnn', 'upernet')}, work_dir)
        print('Pictures', flush=True)
        runs = {name: Curves(work_dir / name) for name in CONFIGS}
        draw(runs, curves)
        if not predictions.exists():
            draw_predictions(work_dir, predictions)
        print(table(runs))
    print(f'training curves: {curves}\npredictions: {predictions}')
    print(f'took {(time.time() - start) / 60:.1f} minutes; the next step: docs/get_started/own_photographs.md')
