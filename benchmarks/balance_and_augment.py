"""Measures what the lines ``balance`` and ``augment`` of the templates change: rare classes, few images.

    python benchmarks/balance_and_augment.py OUT --data DIR

DIR holds camvid_small/ and cifar10_small/. Class k of the long-tailed CIFAR-10 has 500 / 50**(k / 9) training images;
of the demo's shapes, class k is in 400 / 20**(k / 7) images at most. Validation sets keep all classes alike. Every
template has arch='nano'. The table goes to OUT/table.md. Interrupted, the same command goes on where it was.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'benchmarks'), str(ROOT / 'tests'), str(ROOT / 'tools')]

from study import read_study, results
from templates_edited import edit_head
from transfer import CAMVID, SHAPES, link_images

from cvt_dense.recipes.shapes import generate

TAIL = ('annotations/long_tail.json', 'train/')
# title, template, data, metrics, iterations, lines, and the values of 'balance' or 'augment' that are compared
TRIALS: tuple[tuple[str, str, str, list[str], int, dict[str, Any], str, tuple], ...] = (
    ('classifier, long-tailed CIFAR-10', 'cvt13_custom', 'tail', ['accuracy/top1'], 400, {}, 'balance',
     (None, 'images')),
    ('Faster R-CNN, long-tailed shapes', 'fasterrcnn_cvt13_custom', 'shapes_tail', ['coco/bbox_mAP'], 150,
     SHAPES | dict(train_ann__train_images=TAIL), 'balance', (None, 'images')),
    ('classifier, CIFAR-10, 50 images a class', 'cvt13_custom', 'few', ['accuracy/top1'], 400, {}, 'augment',
     ('standard', 'strong')),
    ('Faster R-CNN, 400 images of shapes', 'fasterrcnn_cvt13_custom', 'shapes', ['coco/bbox_mAP'], 150,
     SHAPES, 'augment', ('standard', 'strong')),
    ('UperNet, CamVid', 'upernet_cvt13_custom', 'camvid', ['mIoU', 'mAcc'], 200, CAMVID, 'balance',
     (None, 'loss')),
    ('UperNet, CamVid', 'upernet_cvt13_custom', 'camvid', ['mIoU', 'mAcc'], 200, CAMVID, 'augment',
     ('standard', 'strong')))


def make_data(out: Path, data: Path) -> None:
    """Fill ``out`` with links to the images, and the shapes with a long-tailed list of annotations."""
    link_images(out / 'tail', data / 'cifar10_small', lambda k: round(500 / 50**(k / 9)))
    link_images(out / 'few', data / 'cifar10_small', lambda k: 50)
    if not (out / 'camvid').exists():
        (out / 'camvid').symlink_to((data / 'camvid_small').resolve())
        shapes = generate(out.parent / 'generated', train_per_class=1, val_per_class=1)
        for name in ('shapes', 'shapes_tail'):
            (out / name).symlink_to(shapes / 'detection')
    content = json.loads((out / 'shapes' / SHAPES['train_ann__train_images'][0]).read_text())
    left = {category['id']: round(400 / 20**(k / 7)) for k, category in enumerate(content['categories'])}
    images = []
    for image in content['images']:  # an image is taken while each of its classes may still be in one more image
        found = {a['category_id'] for a in content['annotations'] if a['image_id'] == image['id']}
        if all(left[category] for category in found):
            images.append(image)
            for category in found:
                left[category] -= 1
    kept = {image['id'] for image in images}
    content['images'] = images
    content['annotations'] = [a for a in content['annotations'] if a['image_id'] in kept]
    (out / 'shapes' / TAIL[0]).write_text(json.dumps(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, metavar='OUT')
    parser.add_argument('--data', type=Path, required=True, metavar='DIR')
    parser.add_argument('--jobs', default='2', metavar='N', help='trainings at a time (default: %(default)s)')
    args = parser.parse_args()
    out = args.out.resolve()
    make_data(out / 'data', args.data)
    (out / 'configs').mkdir(exist_ok=True)
    members, table = {}, []
    for title, template, data, metrics, length, lines, line, values in TRIALS:
        for value in values:
            default = {'balance': None, 'augment': 'standard', line: value}
            name = f'{template}_{data}_' + '_'.join(map(str, default.values()))
            config = out / 'configs' / f'{name}.py'
            config.write_text(edit_head(template, arch='nano', max_iters=length, data_root=data, **default, **lines))
            members[name] = dict(name=name, config=str(config), data=data, metrics=metrics, seeds=[0, 1], options=[
                f'{setting}={length}' for setting in ('train_cfg.val_interval', 'default_hooks.checkpoint.interval')])
            table.append((title, line, value, metrics, name))
    study = out / 'study.py'
    study.write_text(f'members = {list(members.values())!r}\n')
    subprocess.run([
        sys.executable, ROOT / 'benchmarks/study.py', study, '--work-dir', out / 'study', '--data-root', out / 'data',
        '--jobs', args.jobs], check=True)
    found = {row['name']: row['metrics'] for row in results(read_study(str(study)), out / 'study', {})}
    text = '| training | line | metric | two seeds |\n|---|---|---|---|\n'
    for title, line, value, metrics, name in table:
        for metric in metrics:
            scores = ', '.join(f'{score:.3f}' if 'mAP' in metric else f'{score:.1f}'
                               for score in found[name][metric]['values'])
            text += f"| {title} | `{line} = {value!r}` | {metric.split('/')[-1]} | {scores} |\n"
    (out / 'table.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
