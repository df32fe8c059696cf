"""Detects objects in photographs by this package's detector, then trains a classifier, a detector and a segmentor.

    python tools/demo.py

Draws the detections in three photographs of scikit-image. Then draws pictures of shapes, trains a classifier on them
from the weights in this package, and Mask R-CNN and UperNet from the classifier's. Prints one table and leaves training
curves and predictions as pictures. All of this happens in one process, and the command of each step is printed.
"""
import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..recipes import folder as project_folder
from . import command_line, predict
from .outputs import check_folder

ROOT = project_folder()  # of configs/ and tools/
CONFIGS = dict(classification='configs/cvt_nano_shapes.py', detection='configs/maskrcnn_cvt_nano_shapes.py',
               segmentation='configs/upernet_cvt_nano_shapes.py')
WEIGHTS, DETECTOR = 'cvt_dense://cvt-nano', 'cvt_dense://cvt-nano-voc'
PHOTOGRAPHS = 'astronaut.png', 'chelsea.png', 'motorcycle_left.png'  # of scikit-image
IMAGES = dict(classification='val/*/*.png', detection='val/*.png', segmentation='images/validation/*.png')
SCORE_THR = 0.65  # of detections that are drawn: about the score of the best F1, which tools/diagnose.py computes
ROWS = 2  # of predictions.png
DATA = dict(train=400, val=100, train_per_class=400, val_per_class=50)  # scenes, and images of a class


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), metavar='DIR',
                        help='new folder of everything that the demo writes (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='seed of data and training (default: %(default)s)')
    parser.add_argument('--epochs', type=int, metavar='N', help="epochs of pretraining instead of the config's")
    parser.add_argument('--iterations', type=int, metavar='N',
                        help="iterations of detector and segmentor instead of the configs'")
    return parser


def say(*command: str | Path) -> None:
    """Print the command of one of the tools that does the next step."""
    print(f'  $ python {shlex.join(map(str, command))}', flush=True)


def train_task(task: str, weights: str | Path, work_dir: Path, args: argparse.Namespace) -> Path:
    """Train the network of a task, and return its last checkpoint.

    Args:
        task: a key of ``CONFIGS``.
        weights: checkpoint that the backbone starts from.
        work_dir: absolute folder of the demo.
        args: command line, for seed and length.

    Raises:
        UserError: the training refuses a setting or the data.
    """
    from ..launch.start import train
    options = {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': str(weights),
               'randomness.seed': args.seed}
    length, unit = (args.epochs, 'epochs') if task == 'classification' else (args.iterations, 'iters')
    if length is not None:
        options |= {f'train_cfg.max_{unit}': length, 'train_cfg.val_interval': length}
    say('tools/train.py', CONFIGS[task], '--data-root', f'{work_dir}/data/{task}', '--work-dir', f'{work_dir}/{task}',
        '--cfg-options', *(f'{name}={value}' for name, value in options.items()))
    trained = train(ROOT / CONFIGS[task], data_root=work_dir / 'data' / task, work_dir=work_dir / task, options=options)
    if trained.stopped:
        sys.exit('The demo was interrupted.')
    return trained.last


def draw_predictions(work_dir: Path, checkpoints: dict[str, Path], out: Path) -> None:
    """Draw a column of predictions for each network.

    Args:
        work_dir: folder of the demo.
        checkpoints: by task.
        out: picture to write.
    """
    from .. import inference
    from ..report.pictures import draw, grid, save
    pictures = []
    for task, checkpoint in checkpoints.items():
        model = inference.load(ROOT / CONFIGS[task], checkpoint, device='cpu')
        files = sorted((work_dir / 'data' / task).glob(IMAGES[task]))
        images = [model.read(file) for file in files[::max(1, len(files) // ROWS)][:ROWS]]
        pictures.append([(task, draw(model, image, inference.predict(model, image), SCORE_THR)[0]) for image in images])
    save(grid([panel for row in zip(*pictures) for panel in row], len(checkpoints)), out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = build_parser().parse_args(argv)
    start, work_dir = time.time(), args.work_dir.resolve()
    with command_line.report_errors(OSError):
        check_folder(work_dir)
        import skimage.data
        photographs = [Path(skimage.data.__file__).with_name(name) for name in PHOTOGRAPHS]
        say('tools/predict.py', DETECTOR, *photographs, '--out-dir', work_dir / 'photographs')
        predict.main([DETECTOR, *map(str, photographs), '--out-dir', f'{work_dir}/photographs'])
        from ..curves import Curves, draw_curves, table
        from ..shapes import generate
        print(f'Data: drawing shapes in {work_dir}/data', flush=True)
        generate(work_dir / 'data', args.seed, **DATA)
        checkpoints = dict(classification=train_task('classification', WEIGHTS, work_dir, args))
        for task in ('detection', 'segmentation'):
            checkpoints[task] = train_task(task, checkpoints['classification'], work_dir, args)
        runs = {task: Curves(work_dir / task) for task in CONFIGS}
        draw_curves(runs, work_dir / 'curves.png')
        draw_predictions(work_dir, checkpoints, work_dir / 'predictions.png')
        print(table(runs))
    print(f'photographs: {work_dir}/photographs/overview.png\ntraining curves: {work_dir}/curves.png\n'
          f'predictions: {work_dir}/predictions.png')
    print(f'took {(time.time() - start) / 60:.1f} minutes; the next step: docs/get_started/own_photographs.md')
