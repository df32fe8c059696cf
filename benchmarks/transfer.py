"""Measures what cvt_dense://cvt-nano gives segmentors, detectors and classifiers of few images, beside random weights.

    python benchmarks/transfer.py OUT --data DIR

DIR holds camvid_small/, coco_tiny/ and cifar10_small/. The templates train with arch='nano' from the weights, from
random ones, and from random ones for twice as many iterations. knn_probe.py measures the features themselves. The
result is benchmarks/cvt_nano_transfer.json, from which docs/make_tables.py writes tables. Interrupted, the same command
goes on where it was.
"""
import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests'), str(ROOT / 'tools')]

from study import read_study, results
from templates_edited import edit_head

from cvt_dense.atomic import write_atomically
from cvt_dense.cli.benchmark.report import environment
from cvt_dense.recipes.shapes import CLASSES, generate

RESULT = ROOT / 'benchmarks/cvt_nano_transfer.json'
# lines of a template's head for the data sets that several benchmarks train on
CAMVID = dict(
    classes=('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
             'Bicyclist'),
    ignore_index=11, train_ann__train_images=('annotations/train', 'images/train'),
    val_ann__val_images=('annotations/val', 'images/val'), img_suffix__seg_map_suffix=('.png', '.png'))
SHAPES = dict(
    classes=CLASSES, image_size=128, train_ann__train_images=('annotations/instances_train.json', 'train/'),
    val_ann__val_images=('annotations/instances_val.json', 'val/'))
PER_CLASS = (5, 50, 500)  # images of CIFAR-10
PROBED = (('cvt_dense://cvt-nano', 0), ('scratch', 0), ('scratch', 1))  # weights and seed
STARTS = dict(weights=('published', 1), scratch=(None, 1), twice=(None, 2))  # 'pretrained', and times the iterations

LARGER = ('model.backbone.frozen_stages=1', 'optim_wrapper.paramwise_cfg.decay_rate=0.8',
          'train_dataloader.dataset.pipeline.2.type=RandomResize',
          'train_dataloader.dataset.pipeline.2.ratio_range=(0.6,1.4)')


@dataclass
class Task:
    """A template on a data set: its head's lines, for each of ``STARTS`` the seeds, and options of the command line."""
    name: str
    title: str
    template: str
    data: str
    metric: str
    iterations: int
    lines: dict[str, Any]
    seeds: tuple[list[int], ...] = ([0, 1], [0, 1], [0])
    options: tuple[str, ...] = ()
    twice: str = ''  # the training that is also this task's one with twice the iterations


def boxes(detector: str, data: str, title: str, iterations: int, suffix: str = '', options: tuple[str, ...] = (),
          **lines: Any) -> Task:
    name = detector.replace('-', '').replace(' ', '').lower()
    return Task(f'{name}_{data}{suffix}', f'{detector}, {title}', f'{name}_cvt13_custom', data, 'coco/bbox_mAP',
                iterations, lines, ([0, 1], [0, 1], []), options)


def tasks() -> list[Task]:
    people = dict(
        classes=('person', ), image_size=160,
        train_ann__train_images=('annotations/instances_train2017.json', 'train2017/'),
        val_ann__val_images=('annotations/instances_val2017.json', 'val2017/'))
    return [
        Task('upernet_camvid', 'UperNet, CamVid, 90 images', 'upernet_cvt13_custom', 'camvid', 'mIoU', 200, CAMVID),
        Task('upernet_camvid_500', 'the same', 'upernet_cvt13_custom', 'camvid', 'mIoU', 500, CAMVID, ([0], [0], []),
             twice='upernet_camvid_1000_scratch'),
        Task('upernet_camvid_1000', 'the same', 'upernet_cvt13_custom', 'camvid', 'mIoU', 1000, CAMVID, ([0], [0], [])),
        boxes('Faster R-CNN', 'people', 'people in 80 images of COCO, 160 pixels', 200, **people),
        boxes('Faster R-CNN', 'people', 'people at 256 pixels, scales of 0.6 to 1.4, 2 stages frozen', 700, '_256',
              LARGER, **people | dict(image_size=256, batch_size=4)),
        boxes('RetinaNet', 'people', 'people in 80 images of COCO, 160 pixels', 200, **people),
        boxes('Faster R-CNN', 'shapes', "400 images of the demo's shapes, 128 pixels", 150, **SHAPES),
        boxes('RetinaNet', 'shapes', "400 images of the demo's shapes, 128 pixels", 150, **SHAPES),
        *(Task(f'cifar{number}', f'classifier, CIFAR-10, {number} images a class', 'cvt13_custom', f'cifar{number}',
               'accuracy/top1', 200, {}) for number in PER_CLASS)]


def make_data(out: Path, data: Path) -> None:
    """Fill ``out`` with the tasks' data folders: links to those of ``data``, and the generated shapes."""
    shapes = generate(out.parent / 'generated', train_per_class=1, val_per_class=1)
    links = {out / 'camvid': data / 'camvid_small', out / 'people': data / 'coco_tiny',
             out / 'shapes': shapes / 'detection'}
    for number in PER_CLASS:
        link_images(out / f'cifar{number}', data / 'cifar10_small', lambda k, number=number: number)
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target.resolve())


def link_images(out: Path, data: Path, number: Callable[[int], int]) -> None:
    """Link class folders: the first ``number(k)`` training images of the k-th class, and all validation images."""
    for k, folder in enumerate(sorted((data / 'train').iterdir())):
        (out / 'train' / folder.name).mkdir(parents=True, exist_ok=True)
        for image in sorted(folder.iterdir())[:number(k)]:
            link = out / 'train' / folder.name / image.name
            if not link.is_symlink():
                link.symlink_to(image.resolve())
    if not (out / 'val').is_symlink():
        (out / 'val').symlink_to((data / 'val').resolve())


def write_study(out: Path) -> Path:
    """Write the edited templates and a study of them for study.py into ``out``; return the study's file."""
    members = []
    (out / 'configs').mkdir(parents=True, exist_ok=True)
    for task in tasks():
        for (start, (pretrained, times)), seeds in zip(STARTS.items(), task.seeds, strict=True):
            length = times * task.iterations
            config = out / 'configs' / f'{task.name}_{start}.py'
            config.write_text(edit_head(
                task.template, arch='nano', pretrained=pretrained, max_iters=length, data_root=task.data, **task.lines))
            options = [option for option in task.options if pretrained or 'frozen_stages' not in option]
            options += [f'{setting}={length}' for setting in (
                'train_cfg.val_interval', 'default_hooks.checkpoint.interval')]
            members.append(dict(name=config.stem, config=str(config), data=task.data, metrics=[task.metric],
                                seeds=seeds, options=options))
    study = out / 'transfer.py'
    study.write_text(f'members = {members!r}\n')
    return study


def probe(file: Path, data: Path) -> None:
    """Write the accuracies of nearest neighbours and linear probes on features that are not trained further."""
    found = []
    for weights, seed in PROBED:
        output = subprocess.run(
            [sys.executable, ROOT / 'benchmarks/knn_probe.py', weights, '--seed', str(seed), '--data-root',
             data / 'cifar10_small'], check=True, text=True, stdout=subprocess.PIPE).stdout
        found += [json.loads(line) for line in output.splitlines() if line.startswith('{')]
    write_atomically(file, json.dumps(found))


def collect(study: Path, work_dir: Path, probes: Path) -> dict[str, Any]:
    """Return what has been measured until now; tasks of which nothing was trained are left out."""
    found = {row['name']: row['metrics'] for row in results(read_study(str(study)), work_dir, {})}
    rows = []
    for task in tasks():
        trainings = {start: f'{task.name}_{start}' for start in STARTS} | ({'twice': task.twice} if task.twice else {})
        values = {start: found[name].get(task.metric, {}).get('values', []) for start, name in trainings.items()}
        if any(values.values()):
            rows.append(dict(name=task.name, title=task.title, metric=task.metric, iterations=task.iterations,
                             **values))
    return dict(environment=environment('cpu'), transfer=rows, probes=json.loads(probes.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, metavar='OUT', help='folder of everything but the result')
    parser.add_argument('--data', type=Path, required=True, metavar='DIR')
    parser.add_argument('--jobs', default='2', metavar='N', help='trainings at a time (default: %(default)s)')
    parser.add_argument('--only', nargs='+', default=[], metavar='NAME', help='these trainings alone')
    args = parser.parse_args()
    out = args.out.resolve()
    make_data(out / 'data', args.data)
    study = write_study(out)
    trained = subprocess.run([
        sys.executable, ROOT / 'benchmarks/study.py', study, '--work-dir', out / 'study', '--data-root', out / 'data',
        '--jobs', args.jobs, *(['--only', *args.only] if args.only else [])])
    probes = out / 'probes.json'
    if not probes.exists():
        probe(probes, args.data)
    write_atomically(RESULT, json.dumps(collect(study, out / 'study', probes), indent=1) + '\n')
    print('result:', RESULT)
    sys.exit(trained.returncode)


if __name__ == '__main__':
    main()
