"""Run the whole pipeline on drawn data: train a classifier from this package's weights, then detect and segment.

    python tools/demo.py

Draws pictures of shapes, trains a classifier on them from the weights in this package, and then Mask R-CNN and UperNet
from the classifier's. Prints one table and leaves training curves and predictions as pictures, with those of the
package's own classifier for two photographs. Every training is a command of this project, printed as it runs.
"""
import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..launch import command_line
from ..launch.outputs import check_folder
from ..recipes import folder as project_folder

ROOT = project_folder()  # of configs/ and tools/
CONFIGS = dict(classification='configs/cvt_nano_shapes.py', detection='configs/maskrcnn_cvt_nano_shapes.py',
               segmentation='configs/upernet_cvt_nano_shapes.py')
PACKAGED = 'cvt_dense://cvt-nano'
IMAGES = dict(classification='val/*/*.png', detection='val/*.png', segmentation='images/validation/*.png')
SCORE_THR = 0.65  # of detections that are drawn: about the score of the best F1, which tools/diagnose.py computes
ROWS = 2  # of predictions.png


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), metavar='DIR',
                        help='new folder of everything that the demo writes (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='seed of data and training (default: %(default)s)')
    sizes = [('--train', 400, 'training scenes'), ('--val', 100, 'validation scenes'),
             ('--train-per-class', 400, 'training images of a class for pretraining'),
             ('--val-per-class', 50, 'validation images of a class for pretraining'),
             ('--epochs', None, "epochs of pretraining instead of the config's"),
             ('--iterations', None, "iterations of detector and segmentor instead of the configs'")]
    for flag, default, what in sizes:
        parser.add_argument(flag, type=int, default=default, metavar='N', help=f'{what} (default: %(default)s)')
    return parser


def train(task: str, weights: str, work_dir: Path, args: argparse.Namespace) -> str:
    """Train the network of a task by tools/train.py, and return its last checkpoint.

    Args:
        task: a key of ``CONFIGS``.
        weights: checkpoint that the backbone starts from.
        work_dir: absolute folder of the demo.
        args: command line, for seed and length.

    Raises:
        subprocess.CalledProcessError: the training failed; it has printed why.
    """
    from ..engine.checkpoint import find_checkpoint
    options = ['model.backbone.init_cfg.type=Pretrained', f'model.backbone.init_cfg.checkpoint={weights}',
               f'randomness.seed={args.seed}']
    length, unit = (args.epochs, 'epochs') if task == 'classification' else (args.iterations, 'iters')
    if length is not None:
        options += [f'train_cfg.max_{unit}={length}', f'train_cfg.val_interval={length}']
    command = ['tools/train.py', CONFIGS[task], '--data-root', f'{work_dir}/data/{task}', '--work-dir',
               f'{work_dir}/{task}', '--cfg-options', *options]
    print(f'  $ python {shlex.join(command)}', flush=True)
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    return find_checkpoint(work_dir / task)


def draw_predictions(work_dir: Path, checkpoints: dict[str, str], out: Path) -> None:
    """Draw a column of predictions for each network, and for the package's classifier on photographs of scikit-image.

    Args:
        work_dir: folder of the demo.
        checkpoints: by task.
        out: picture to write.
    """
    from skimage import data

    from ..inference import load, predict
    from ..report.pictures import draw, grid, save
    networks = {f'photographs: {PACKAGED}': ('configs/cvt_nano_tiny_imagenet_whole.py', PACKAGED,
                                             [data.chelsea()[..., ::-1], data.coffee()[..., ::-1]])}
    for task, checkpoint in checkpoints.items():
        images = sorted((work_dir / 'data' / task).glob(IMAGES[task]))
        networks[task] = CONFIGS[task], checkpoint, images[::max(1, len(images) // ROWS)][:ROWS]
    pictures = []
    for title, (config, checkpoint, images) in networks.items():
        model = load(ROOT / config, checkpoint, device='cpu')
        images = [model.read(image) if isinstance(image, Path) else image for image in images]
        pictures.append([(title, draw(model, image, predict(model, image), SCORE_THR)[0]) for image in images])
    save(grid([panel for row in zip(*pictures) for panel in row], len(networks)), out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = build_parser().parse_args(argv)
    start, work_dir = time.time(), args.work_dir.resolve()
    with command_line.report_errors(OSError, subprocess.CalledProcessError):
        check_folder(work_dir, force=False)
        from ..curves import Curves, draw_curves, table
        from ..shapes import generate
        print(f'Data: drawing shapes in {work_dir}/data', flush=True)
        generate(work_dir / 'data', args.seed, train=args.train, val=args.val,
                 train_per_class=args.train_per_class, val_per_class=args.val_per_class)
        checkpoints = dict(classification=train('classification', PACKAGED, work_dir, args))
        for task in ('detection', 'segmentation'):
            checkpoints[task] = train(task, checkpoints['classification'], work_dir, args)
        runs = {task: Curves(work_dir / task) for task in CONFIGS}
        draw_curves(runs, work_dir / 'curves.png')
        draw_predictions(work_dir, checkpoints, work_dir / 'predictions.png')
        print(table(runs))
    print(f'training curves: {work_dir}/curves.png\npredictions: {work_dir}/predictions.png')
    print(f'took {(time.time() - start) / 60:.1f} minutes; the next step: docs/get_started/own_photographs.md')


if __name__ == '__main__':
    raise SystemExit(main())
