"""Detects objects in photographs by this package's detector, then trains a classifier, a detector and a segmentor.

    python tools/demo.py

Draws the detections in three photographs of scikit-image. Then draws pictures of shapes, trains a classifier on them
from the weights in this package, and Mask R-CNN and UperNet from the classifier's, and draws predictions of each
network. All of this happens in one process, and the command of each step is printed.
"""
import argparse
import shlex
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ..recipes import recipe
from .command_line import report_errors
from .outputs import check_folder

CONFIGS = dict(classification='cvt_nano_shapes.py', detection='maskrcnn_cvt_nano_shapes.py',
               segmentation='upernet_cvt_nano_shapes.py')
WEIGHTS, DETECTOR = 'cvt_dense://cvt-nano', 'cvt_dense://cvt-nano-coco'
PHOTOGRAPHS = 'astronaut.png', 'chelsea.png', 'motorcycle_left.png'  # of scikit-image
IMAGES = dict(classification='val/*/00000.png', detection='val/0000*.png', segmentation='images/validation/0000*.png')
SCORE_THR = 0.65  # of detections that are drawn: about the score of the best F1, which tools/diagnose.py computes
DATA = dict(train=400, val=100, train_per_class=400, val_per_class=50)  # scenes, and images of a class


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), metavar='DIR',
                        help='new folder of everything that the demo writes (default: %(default)s)')
    return parser


def run(tool: str, *words: str | Path) -> None:
    """Print the command of a tool, and run it in this process."""
    print(f'  $ python tools/{tool}.py {shlex.join(map(str, words))}', flush=True)
    import_module(f'cvt_dense.cli.{tool}').main([*map(str, words)])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    args = build_parser().parse_args(argv)
    start, out = time.time(), args.work_dir.resolve()
    with report_errors(OSError):
        check_folder(out)
    import skimage.data

    from ..engine.checkpoint import find_checkpoint
    from ..shapes import generate
    photographs = [Path(skimage.data.__file__).with_name(name) for name in PHOTOGRAPHS]
    run('predict', DETECTOR, *photographs, '--out-dir', out / 'photographs')
    print(f'Data: drawing shapes in {out}/data', flush=True)
    generate(out / 'data', **DATA)
    weights = WEIGHTS
    for task, config in CONFIGS.items():
        run('train', recipe(config), '--data-root', out / 'data' / task, '--work-dir', out / task, '--cfg-options',
            'model.backbone.init_cfg.type=Pretrained', f'model.backbone.init_cfg.checkpoint={weights}')
        checkpoint = find_checkpoint(out / task)
        run('predict', recipe(config), checkpoint, *sorted((out / 'data' / task).glob(IMAGES[task])), '--out-dir',
            out / 'predictions' / task, *(('--score-thr', SCORE_THR) if task == 'detection' else ()))
        weights = checkpoint if task == 'classification' else weights
    print(f'pictures: {out}/photographs, {out}/predictions\ntook {(time.time() - start) / 60:.1f} minutes; the next '
          'step: docs/get_started/own_photographs.md')
