"""Measures what cvt_dense://cvt-nano gives segmentors, detectors and classifiers of few images, beside random weights.

    python benchmarks/transfer.py OUT --data DIR

DIR holds camvid_small/, coco_tiny/ and cifar10_small/. The templates train with the small network from the weights and
from random ones. The result is benchmarks/cvt_nano_transfer.json, from which docs/make_tables.py writes the table of
the model card. Interrupted, the same command goes on where it was.
"""
import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speed import environment

from cvt_dense.atomic import write_atomically
from cvt_dense.cli.trainings import ROOT, Run, edit_head, read_result, train
from cvt_dense.recipes.shapes import CLASSES, generate

RESULT = ROOT / 'benchmarks/cvt_nano_transfer.json'
CAMVID = dict(
    classes=('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
             'Bicyclist'),
    ignore_index=11, train_ann__train_images=('annotations/train', 'images/train'),
    val_ann__val_images=('annotations/val', 'images/val'), img_suffix__seg_map_suffix=('.png', '.png'))
PEOPLE = dict(
    classes=('person', ), image_size=160,
    train_ann__train_images=('annotations/instances_train2017.json', 'train2017/'),
    val_ann__val_images=('annotations/instances_val2017.json', 'val2017/'))
SHAPES = dict(
    classes=CLASSES, image_size=128, train_ann__train_images=('annotations/instances_train.json', 'train/'),
    val_ann__val_images=('annotations/instances_val.json', 'val/'))
PER_CLASS = 50  # images of CIFAR-10
SEEDS = (0, 1)
STARTS = dict(weights='published', scratch=None)  # values of 'pretrained'
LARGER = ('model.backbone.frozen_stages=1', 'optim_wrapper.paramwise_cfg.decay_rate=0.8',
          'train_dataloader.dataset.pipeline.2.type=RandomResize',
          'train_dataloader.dataset.pipeline.2.ratio_range=(0.6,1.4)')


@dataclass
class Task:
    """A template on a data set: lines of its head, and options of the command line."""
    name: str
    title: str
    template: str
    data: str
    metric: str
    iterations: int
    lines: dict[str, Any]
    options: tuple[str, ...] = ()


TASKS = [
    Task('upernet_camvid', 'UperNet, CamVid, 90 images', 'upernet_cvt13_custom', 'camvid', 'mIoU', 200, CAMVID),
    Task('upernet_camvid_1000', 'the same', 'upernet_cvt13_custom', 'camvid', 'mIoU', 1000, CAMVID),
    Task('fasterrcnn_people', 'Faster R-CNN, people in 80 images of COCO, 160 pixels', 'fasterrcnn_cvt13_custom',
         'people', 'coco/bbox_mAP', 200, PEOPLE),
    Task('fasterrcnn_people_256', 'Faster R-CNN, people at 256 pixels, scales of 0.6 to 1.4, 2 stages frozen',
         'fasterrcnn_cvt13_custom', 'people', 'coco/bbox_mAP', 700, PEOPLE | dict(image_size=256, batch_size=4),
         LARGER),
    *(Task(f'{template}_shapes', f"{title}, 400 images of the demo's shapes, 128 pixels", f'{template}_cvt13_custom',
           'shapes', 'coco/bbox_mAP', 150, SHAPES)
      for template, title in (('fasterrcnn', 'Faster R-CNN'), ('retinanet', 'RetinaNet'))),
    Task('cifar50', f'classifier, CIFAR-10, {PER_CLASS} images a class', 'cvt13_custom', 'cifar', 'accuracy/top1', 200,
         {})]


def link(path: Path, target: Path) -> None:
    """Make a link, unless it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target.resolve())


def make_data(out: Path, data: Path) -> None:
    """Fill ``out`` with the tasks' data folders: links to those of ``data``, and the generated shapes."""
    shapes = generate(out.parent / 'generated', train_per_class=1, val_per_class=1)
    link(out / 'camvid', data / 'camvid_small')
    link(out / 'people', data / 'coco_tiny')
    link(out / 'shapes', shapes / 'detection')
    cifar = data / 'cifar10_small'
    for folder in (cifar / 'train').iterdir():
        for image in sorted(folder.iterdir())[:PER_CLASS]:
            link(out / 'cifar/train' / folder.name / image.name, image)
    link(out / 'cifar/val', cifar / 'val')


def trainings(task: Task, start: str, out: Path) -> list[Run]:
    """Write the edited template of a task, and return its training with each seed."""
    config = out / 'configs' / f'{task.name}_{start}.py'
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(edit_head(task.template, arch='cvt-nano', pretrained=STARTS[start], max_iters=task.iterations,
                                data_root=task.data, **task.lines))
    options = [option for option in task.options if start == 'weights' or 'frozen_stages' not in option]
    options += [f'{key}={task.iterations}' for key in ('train_cfg.val_interval', 'default_hooks.checkpoint.interval')]
    return [Run(f'{config.stem}_seed{seed}', str(config), str(out / 'data' / task.data),
                [*options, f'randomness.seed={seed}']) for seed in SEEDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, metavar='OUT', help='folder of everything but the result')
    parser.add_argument('--data', type=Path, required=True, metavar='DIR')
    parser.add_argument('--jobs', type=int, default=2, metavar='N', help='trainings at a time (default: %(default)s)')
    parser.add_argument('--only', nargs='+', metavar='NAME', help='these tasks alone')
    args = parser.parse_args()
    out = args.out.resolve()
    make_data(out / 'data', args.data)
    runs = {(task.name, start): trainings(task, start, out)
            for task in TASKS if not args.only or task.name in args.only for start in STARTS}
    failed = train([run for seeds in runs.values() for run in seeds], out, args.jobs)
    rows = []
    for task in TASKS:
        results = {start: [read_result(out / run.name) for run in runs.get((task.name, start), ())] for start in STARTS}
        values = {start: [result[task.metric] for result in found if result] for start, found in results.items()}
        if any(values.values()):
            rows.append({key: value for key, value in asdict(task).items() if key in (
                'name', 'title', 'metric', 'iterations')} | values)
    write_atomically(RESULT, json.dumps(dict(environment=environment('cpu'), transfer=rows), indent=1) + '\n')
    sys.exit('\n'.join(failed.values()) or 0)


if __name__ == '__main__':
    main()
