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
import re
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
from ..config.options import format_option
from ..engine.curves import Curves, draw
from ..errors import UserError
from ..launch import command_line
from ..recipes import folder
from ..recipes.shapes import generate
from ..report.pictures import grid, save

ROOT = folder()
CONFIGS = dict(pretraining='configs/cvt_nano_shapes.py', maskrcnn='configs/maskrcnn_cvt_nano_shapes.py',
               upernet='configs/upernet_cvt_nano_shapes.py')
DATA = dict(pretraining='classification', maskrcnn='detection', upernet='segmentation')
PROGRESS = re.compile(r'(Epoch|Iter)\(train\) +(\[[^]]*\](?:\[[^]]*\])?).*? loss: ([\d.]+)')
TASKS = ['Classification: CvT on class folders', 'Detection: Mask R-CNN', 'Segmentation: UperNet']
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


def record_settings(path: Path, settings: dict) -> None:
    """Write the settings of a demo into its work dir.

    Raises:
        UserError: the folder holds something else, or a demo with other settings.
    """
    if path.exists():
        before = json.loads(path.read_text())
        changed = [key for key in settings if before.get(key) != settings[key]]
        if changed:
            raise UserError(f'{path.parent} holds a demo with other settings ({", ".join(changed)}; see {path}): give '
                            'another --work-dir, or delete this one.')
    elif path.parent.exists() and any(path.parent.iterdir()):
        raise UserError(f'{path.parent} is not empty and holds no demo: give another --work-dir.')
    write_atomically(path, json.dumps(settings, indent=1))


# -- commands --------------------------------------------------------------------------------------


def run_together(commands: dict[str, list[str]], logs: dict[str, Path]) -> None:
    """Run commands at the same time, with an equal part of the CPU's cores each, and show their progress.

    The process ends with the end of the log of each command that fails, after all have ended.

    Args:
        commands: by name, what follows ``python``.
        logs: by name, the file that takes a command's output.
    """
    cores = int(os.environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0)))
    threads = str(max(1, cores // len(commands)))
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, PYTHONWARNINGS='ignore')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the commands end too
    start = shown = time.time()
    processes: dict[str, subprocess.Popen] = {}
    try:
        for name, command in commands.items():
            print('  $ python ' + shlex.join(command), flush=True)
            with logs[name].open('w') as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.2)
            if time.time() - shown > 10:
                shown = time.time()
                print('  |  '.join([f'    {shown - start:.0f} s', *filter(None, map(progress, logs.values()))]),
                      flush=True)
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: run the same command again to continue')
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    failed = [f'{name} failed with exit code {process.returncode}; the end of its log {logs[name]}:\n'
              + '\n'.join(logs[name].read_text(errors='replace').splitlines()[-15:])
              for name, process in processes.items() if process.returncode]
    print(f'    {"failed" if failed else "done"} in {time.time() - start:.0f} s', flush=True)
    if failed:
        sys.exit('\n'.join(failed))


def progress(log: Path) -> str:
    """Return the last training line of a log in short, or '' where there is none."""
    lines = PROGRESS.findall(log.read_text(errors='replace'))
    return f'{log.stem}: {lines[-1][0].lower()} {lines[-1][1]}, loss {lines[-1][2]}' if lines else ''


def last_checkpoint(run: Path) -> Path:
    """Return the checkpoint that a run wrote last."""
    return Path((run / 'last_checkpoint').read_text().strip())


def read_result(run: Path) -> dict[str, float]:
    """Return the metrics of a finished run's last evaluation."""
    return [point.values for point in Curves(run).points if point.evaluation][-1]


def train(names: list[str], work_dir: Path, args: argparse.Namespace) -> None:
    """Train those of the named networks that are not finished, side by side, each from its last checkpoint.

    Args:
        names: keys of :data:`CONFIGS`.
        work_dir: folder of the demo.
        args: command line, for seed and length.
    """
    commands = {}
    for name in names:
        run, weights = work_dir / name, PACKAGED
        if (run / 'finished').exists():
            print(f'  {name}: finished before')
            continue
        if name != 'pretraining':
            weights = str(last_checkpoint(work_dir / 'pretraining'))
        options = ['model.backbone.init_cfg.type=Pretrained',
                   format_option('model.backbone.init_cfg.checkpoint', weights)]
        options += [f'randomness.seed={args.seed}'] if args.seed else []
        length, unit = (args.epochs, 'epochs') if name == 'pretraining' else (args.iterations, 'iters')
        if length is not None:
            options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
        commands[name] = ['tools/train.py', CONFIGS[name], '--work-dir', str(run), '--data-root',
                          f'{work_dir}/data/{DATA[name]}', *(['--resume'] if run.exists() else []),
                          '--cfg-options', *options]
    if commands:
        run_together(commands, {name: work_dir / f'{name}.log' for name in commands})
    for name in commands:
        if last_checkpoint(work_dir / name).name == 'preempted.pth':
            sys.exit(f'{name} was stopped by a signal; the same command continues it')
        write_atomically(work_dir / name / 'finished', json.dumps(read_result(work_dir / name), indent=1) + '\n')


# -- results ---------------------------------------------------------------------------------------


def print_table(work_dir: Path) -> None:
    """Print the metrics of all runs."""
    results = {name: json.loads((work_dir / name / 'finished').read_text()) for name in CONFIGS}
    rows = [('classifier, top-1, raw weights', 'pretraining', 'raw/top1', 1.),
            ('classifier, top-1, averaged weights', 'pretraining', 'accuracy/top1', 1.),
            ('Mask R-CNN, box mAP', 'maskrcnn', 'coco/bbox_mAP', 100.),
            ('Mask R-CNN, mask mAP', 'maskrcnn', 'coco/segm_mAP', 100.),
            ('UperNet, mIoU', 'upernet', 'mIoU', 1.)]
    line = '-' * 50
    print(f'\n{"validation":<40}{"%":>10}\n{line}')
    for title, name, key, factor in rows:
        print(f'{title:<40}{results[name][key] * factor:>10.1f}')
    print(line)


def write_photographs(target: Path) -> list[Path]:
    """Write scikit-image's photographs as files, unless they are there, and return their paths."""
    from skimage import data
    target.mkdir(parents=True, exist_ok=True)
    files = [target / f'{name}.png' for name in PHOTOGRAPHS]
    for file, photograph in zip(files, PHOTOGRAPHS.values()):
        if not file.exists():
            save(getattr(data, photograph)(), file)
    return files


def draw_predictions(work_dir: Path, out: Path) -> None:
    """Draw a column of predictions for each network, made by tools/predict.py, in one picture."""
    networks = {f'photographs: {PACKAGED}': ('photographs', 'configs/cvt_nano_tiny_imagenet_whole.py', PACKAGED,
                                             write_photographs(work_dir / 'photographs'))}
    for name, config in CONFIGS.items():
        images = sorted((work_dir / 'data' / VAL_IMAGES[DATA[name]]).rglob('*.png'))
        images = images[::max(1, len(images) // NUM_PICTURES)][:NUM_PICTURES]
        networks[DATA[name]] = DATA[name], config, last_checkpoint(work_dir / name), images
    commands, logs, columns = {}, {}, {}
    for title, (name, config, checkpoint, images) in networks.items():
        pictures = work_dir / 'predictions' / name
        shutil.rmtree(pictures, ignore_errors=True)
        commands[name] = ['tools/predict.py', config, str(checkpoint), *map(str, images), '--out-dir',
                          str(pictures), '--device', 'cpu', '--score-thr', str(SCORE_THR)]
        logs[name] = work_dir / f'predict_{name}.log'
        columns[title] = pictures
    run_together(commands, logs)
    drawn = [sorted(set(path.glob('*.png')) - {path / 'overview.png'})[:ROWS] for path in columns.values()]
    save(grid([(title, np.asarray(Image.open(path))) for row in zip(*drawn) for title, path in zip(columns, row)],
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
        for title, names in ((TASKS[0], ['pretraining']), (' and '.join(TASKS[1:]), ['maskrcnn', 'upernet'])):
            print(title, flush=True)
            train(names, work_dir, args)
        print('Pictures', flush=True)
        draw({name: Curves(work_dir / name) for name in CONFIGS}, curves)
        if not predictions.exists():
            draw_predictions(work_dir, predictions)
        print_table(work_dir)
    print(f'training curves: {curves}\npredictions: {predictions}')
    print(f'took {(time.time() - start) / 60:.1f} minutes; the next step: docs/get_started/own_photographs.md')
