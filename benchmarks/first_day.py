"""The first day on one's own data, with nothing but a template's head edited.

    python benchmarks/first_day.py OUT                          every template, on generated shapes, a few iterations
    python benchmarks/first_day.py OUT upernet_cvt13_custom     one of them
    python benchmarks/first_day.py OUT --data DIR               with the templates' schedules, on coco_tiny/ (also
                                                                without its masks), camvid_small/ and cifar10_small/
    python benchmarks/first_day.py OUT --data DIR --max-iters 20    a try of that

Each template is copied into OUT, its head edited, and then: trained for half of its length, resumed to the end, tested,
tested with test-time augmentation, plotted, and its best checkpoint predicts. Every command is printed with the CPU
time that it took; a command that fails ends the script with its output.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests'), str(ROOT / 'tools')]

from _shapes import CLASSES, generate
from mmengine.config import Config
from run_folder import unexplained
from templates_edited import edit_head

BOXES = ('fasterrcnn_cvt13_custom', 'retinanet_cvt13_custom')
COCO = ('maskrcnn_cvt13_custom', *BOXES)
CAMVID = ('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
          'Bicyclist')


def without_masks(annotations: Path, out: Path) -> None:
    """Write a copy of a COCO file with boxes only."""
    content = json.loads(annotations.read_text())
    for annotation in content['annotations']:
        annotation.pop('segmentation')
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content))


def on_shapes(out: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """Return the lines at the top of each template for generated shapes, and an image to predict."""
    data = generate(out / 'data', size=64, train=8, val=4, train_per_class=4, val_per_class=1)
    small = dict(arch='nano', image_size=64, batch_size=2, max_iters=4)
    for split in ('train', 'val'):
        without_masks(data / f'detection/annotations/instances_{split}.json', out / f'boxes/{split}.json')
    cases: dict[str, tuple[dict[str, Any], Path]] = {}
    for name in COCO:
        files = out.resolve() / 'boxes/{}.json' if name in BOXES else 'annotations/instances_{}.json'
        cases[name] = dict(
            small, classes=CLASSES, data_root=f'{data.resolve()}/detection/',
            train_ann__train_images=(str(files).format('train'), 'train/'),
            val_ann__val_images=(str(files).format('val'), 'val/')), data / 'detection/val/00000.png'
    cases['upernet_cvt13_custom'] = dict(
        small, classes=('background', *CLASSES), data_root=f'{data.resolve()}/segmentation',
        train_ann__train_images=('annotations/training', 'images/training'),
        val_ann__val_images=('annotations/validation', 'images/validation'),
        img_suffix__seg_map_suffix=('.png', '.png')), data / 'segmentation/images/validation/00000.png'
    cases['cvt13_custom'] = dict(
        small, data_root=f'{data.resolve()}/classification'), data / 'classification/val/star/00000.png'
    return cases


def on_photos(out: Path, data: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """Return the same for excerpts of COCO (one class), CamVid and CIFAR-10 (three classes), at full length."""
    for split in ('train', 'val'):
        without_masks(data / f'coco_tiny/annotations/instances_{split}2017.json', out / f'boxes/{split}.json')
        for name in ('cat', 'frog', 'truck'):
            (out / f'three/{split}').mkdir(parents=True, exist_ok=True)
            link = out / f'three/{split}/{name}'
            link.unlink(missing_ok=True)
            link.symlink_to(data.resolve() / f'cifar10_small/{split}/{name}')
    cases: dict[str, tuple[dict[str, Any], Path]] = {}
    for name in COCO:
        files = out.resolve() / 'boxes/{}.json' if name in BOXES else 'annotations/instances_{}2017.json'
        cases[name] = dict(
            arch='nano', classes=('person', ), data_root=f'{data.resolve()}/coco_tiny/',
            train_ann__train_images=(str(files).format('train'), 'train2017/'),
            val_ann__val_images=(str(files).format('val'), 'val2017/')), min((data / 'coco_tiny/val2017').iterdir())
    cases['upernet_cvt13_custom'] = dict(
        arch='nano', classes=CAMVID, ignore_index=11, data_root=f'{data.resolve()}/camvid_small',
        train_ann__train_images=('annotations/train', 'images/train'),
        val_ann__val_images=('annotations/val', 'images/val'),
        img_suffix__seg_map_suffix=('.png', '.png')), min((data / 'camvid_small/images/val').iterdir())
    cases['cvt13_custom'] = dict(
        arch='nano', data_root=str(out.resolve() / 'three')), min((out / 'three/val/frog').iterdir())
    return cases


def call(*args: Any) -> str:
    """Run a tool, print the command, its CPU time and, of a test, its metrics; return its output."""
    command = ['python', *map(str, args)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=dict(os.environ, MPLBACKEND='Agg'))
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f'{seconds:7.1f} s  {" ".join(command)}', flush=True)
    if result.returncode:
        raise SystemExit(f'exit code {result.returncode}:\n{result.stdout[-6000:]}')
    return result.stdout


def metrics(work_dir: Path) -> dict[str, float]:
    """Return the metrics of the last test of a run."""
    file = max(work_dir.rglob('*.json'), key=lambda path: path.stat().st_mtime)
    return {key: value for key, value in json.loads(file.read_text().splitlines()[-1]).items()
            if re.search(r'mAP$|mIoU$|top1$', key)}


def first_day(template: str, lines: dict[str, Any], image: Path, out: Path) -> dict[str, dict[str, float]]:
    """Run every command of a template's guide in ``out``; return the metrics, without and with ``--tta``."""
    config, run = out / f'{template}.py', out / 'runs' / template
    config.write_text(edit_head(template, **lines))
    length = Config.fromfile(config).max_iters
    console = call('tools/train.py', config, '--work-dir', run, '--cfg-options',
                   f'train_cfg.max_iters={max(length // 2, 1)}')
    lines_before = console[:console.index('Iter(train)')].count('\n')
    print(f'           {lines_before} lines on the console before the first iteration', flush=True)
    assert lines_before <= 40, console
    call('tools/train.py', config, '--work-dir', run, '--resume')
    assert (run / 'last_checkpoint').read_text().endswith(f'iter_{length}.pth')
    best, = run.glob('best_*.pth')
    call('tools/test.py', config, best)
    found = {'': metrics(run)}
    if template != 'cvt13_custom':  # which has no test-time augmentation
        call('tools/test.py', config, best, '--tta')
        found['--tta'] = metrics(run)
    call('tools/plot.py', run, '--out', out / f'{template}.png')
    call('tools/predict.py', config, best, image, '--out-dir', out / 'predictions' / template)
    assert len(list((out / 'predictions' / template).glob('*.png'))) >= 1
    assert not unexplained(run), unexplained(run)
    print(f'           {found}', flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=Path, metavar='OUT')
    parser.add_argument('templates', nargs='*', metavar='TEMPLATE')
    parser.add_argument('--data', type=Path, metavar='DIR')
    parser.add_argument('--max-iters', type=int, metavar='N')
    args = parser.parse_intermixed_args()  # templates may follow --data DIR
    args.out.mkdir(parents=True, exist_ok=True)
    cases = on_photos(args.out, args.data) if args.data else on_shapes(args.out)
    for name in args.templates or cases:
        lines, image = cases[name]
        first_day(name, dict(lines, max_iters=args.max_iters) if args.max_iters else lines, image, args.out)


if __name__ == '__main__':
    main()
