"""Conversion of detection and segmentation data, and its splits."""
import filecmp
import json
import os
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load_tool import run_tool
from PIL import Image
from pycocotools import mask as coco_mask

from cvt_dense.annotations import convert
from cvt_dense.annotations.coco import Fault

CLASSES = ['dog', 'cat', 'eel']  # not in sorted order
BOX, POLYGON = [8, 6, 20, 10], [4., 4., 24., 4., 24., 20., 4., 20.]  # of a dog and a cat, in 40x30 pixels
COCO_FILE = 'annotations/instances_train2017.json'
EXAMPLES = Path(__file__).parents[1] / 'data/annotations'


def write_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (40, 30), 'gray').save(path)


def example(source: str, folder: Path) -> Path:
    """Copy tests/data/annotations/``source``, of which a.png has a dog and a cat, and b.png nothing."""
    return shutil.copytree(EXAMPLES / source, folder, dirs_exist_ok=True)


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, 'utf-8')


def splits(data: convert.Data) -> dict[str, str]:
    return {sample.path.stem: sample.split for sample in data.samples}


def notes(data: convert.Data) -> set[Fault]:
    return {fault for fault, places in data.notes.items() if places}


@pytest.mark.parametrize('source', ['yolo', 'voc', 'labelme', 'coco'])
def test_boxes_polygons_names_and_splits_are_kept(tmp_path, source):
    example(source, tmp_path / 'src')
    for name in ('first', 'second'):
        convert.write(convert.read(tmp_path / 'src', source), tmp_path / name, 'coco')
    first = tmp_path / 'first'
    names = [str(path.relative_to(first)) for path in first.rglob('*') if path.is_file()]
    assert sorted(names) == ['annotations/train.json', 'annotations/val.json', 'train/a.png', 'val/b.png']
    assert filecmp.cmpfiles(first, tmp_path / 'second', names, shallow=False)[0] == names  # the same bytes
    content = json.loads((first / 'annotations/train.json').read_text())
    categories = {category['id']: category['name'] for category in content['categories']}
    assert list(categories.values()) == (CLASSES if source in ('yolo', 'coco') else ['cat', 'dog'])
    objects = {categories[entry['category_id']]: entry for entry in content['annotations']}
    assert objects['dog']['bbox'] == pytest.approx(BOX) and objects['dog']['iscrowd'] == (source in 'coco voc')
    assert objects['cat']['bbox'] == pytest.approx([4, 4, 20, 16]) and objects['cat']['area'] == pytest.approx(320)
    assert objects['cat']['segmentation'][0] == pytest.approx(POLYGON) and not objects['dog'].get('segmentation')


def test_objects_become_label_maps_with_background(tmp_path):
    example('coco', tmp_path / 'src')
    write_image(tmp_path / 'src/train2017/more.png')
    data = convert.read(tmp_path / 'src', 'coco')
    convert.write(data, tmp_path / 'dst', 'masks')
    assert (tmp_path / 'dst/classes.txt').read_text().split() == [*CLASSES, 'background']
    pixels = np.asarray(Image.open(tmp_path / 'dst/labels/train/a.png'))
    assert set(np.unique(pixels)) == {0, 1, 3} and pixels[0, 0] == 3 and pixels[10, 10] == 0  # the smaller one in front
    assert notes(data) >= {Fault.BOX_ALONE, Fault.NOT_NAMED}
    data.samples[1] = convert.Sample(tmp_path / 'a.jpg', data.samples[0].split)  # whose label map has the same name
    with pytest.raises(ValueError, match='one name'):
        convert.write(data, tmp_path / 'new', 'masks')


def test_splits_are_stratified_and_grouped(tmp_path):
    data = convert.Data(CLASSES)
    for video in range(20):
        for frame in range(5):
            sample = convert.Sample(tmp_path / f'v{video:02d}/{frame}.png')
            text(sample.path, f'{video} {frame}')
            sample.objects = [dict(category_id=0), dict(category_id=1 if video % 2 else 0)]
            sample.objects += [dict(category_id=2)] if video < 5 else []
            data.samples.append(sample)
    convert.split(data, (0.6, 0.2, 0.2), seed=1, group=r'v\d+')
    assert Counter(sample.split for sample in data.samples) == dict(train=60, val=20, test=20)
    assert len({(sample.path.parent.name, sample.split) for sample in data.samples}) == 20  # a video is in one part
    for name in convert.SPLITS:
        part = [sample for sample in data.samples if sample.split == name]
        assert {entry['category_id'] for sample in part for entry in sample.objects} == {0, 1, 2}
    before = [sample.split for sample in data.samples]
    convert.split(data, (0.6, 0.2, 0.2), seed=1, group=r'v\d+')
    assert [sample.split for sample in data.samples] == before and not notes(data)
    for group, message in (('v', 'val'), ('w', 'w')):  # a group is more than a part; there is none
        with pytest.raises(ValueError, match=message):
            convert.split(data, (0.99, 0.01), group=group)


@pytest.mark.parametrize('group', [None, r'^\w'])
def test_equal_files_are_in_one_split(tmp_path, group):
    """Also where they join two groups of one name each."""
    data = convert.Data(CLASSES)
    for number in range(12):
        sample = convert.Sample(tmp_path / f'{"abcdefghijkl"[number]}.png')
        sample.path.write_text(str(number % 6))  # each content twice
        sample.objects = [dict(category_id=0)]
        data.samples.append(sample)
    convert.split(data, (0.5, 0.5), group=group)
    assert [sample.split for sample in data.samples[:6]] == [sample.split for sample in data.samples[6:]]
    assert Counter(sample.split for sample in data.samples) == dict(train=6, val=6)


def cases(kind: str) -> list[Any]:
    """Return the folders ``formats/KIND/SOURCE/NAME``, each with a file that replaces one of the source's example."""
    found = sorted((EXAMPLES / 'formats' / kind).glob('*/*'))
    assert found
    return [pytest.param(folder, id=f'{folder.parent.name}-{folder.name}') for folder in found]


def replaced(case: Path, folder: Path) -> convert.Data:
    example(case.parent.name, folder)
    shutil.copytree(case, folder, dirs_exist_ok=True)
    return convert.read(folder, case.parent.name)


@pytest.mark.parametrize('case', cases('refused'))
def test_what_has_no_certain_meaning_is_an_error(tmp_path, case):
    file, = (path for path in case.rglob('*') if path.is_file())
    with pytest.raises(ValueError, match=rf'\b{file.stem}\.'):
        replaced(case, tmp_path)


@pytest.mark.parametrize('case', cases('accepted'))
def test_what_has_a_meaning_is_read(tmp_path, case):
    assert replaced(case, tmp_path).classes[0] == 'dog'


@pytest.mark.parametrize('folder, part', [
    ('festival', 'train'), ('latest', 'train'), ('val2017', 'val'), ('my_validation', 'val'), ('Testing', 'test')])
def test_words_that_name_a_split(folder, part):
    assert convert.split_name(Path(f'images/{folder}/a.png')) == part


@pytest.mark.parametrize('lines, expected', [
    ('train: images/train\nval: images/val', dict(a='train', b='val')),
    ('train: images/val\nval: images/train', dict(a='val', b='train')),
    ('train: ../images/val\ntest: [images/train]', dict(a='test', b='train')),
    ('path: images\ntrain: [train, val]', dict(a='train', b='train')), ('train: images/train/', dict(a='train')),
    ('train:\nval:', dict(a='train', b='val')),  # then the folders' names decide
    ('train: ../images/train\nval: ../images/val\ntest: ../images/test', dict(a='train', b='val')),  # Roboflow's
    ('train: FOLDER/images/train', dict(a='train')), ('train: images/train\nval: images/train', None),
    ('val: images/missing', None), ('val: a.txt', None)])
def test_splits_of_data_yaml(tmp_path, lines, expected):
    example('yolo', tmp_path)
    (tmp_path / 'data.yaml').write_text(f'names: {CLASSES}\n{lines}\n'.replace('FOLDER', str(tmp_path)))
    with nullcontext() if expected else pytest.raises(ValueError, match='train|val'):
        data = convert.read(os.path.relpath(tmp_path), 'yolo')
        assert splits(data) == expected and (Fault.NOT_LISTED in notes(data)) == (len(expected) < 2)


@pytest.mark.parametrize('lists, expected', [
    (dict(val='x/b.png', trainval='"a" b'), dict(a='train', b='val')), (dict(train='a', test='a b'), None),
    (dict(train='a b', val='b'), None), (dict(train='a'), dict(a='train')), ({}, dict(a='train', b='train'))])
def test_splits_of_voc(tmp_path, lists, expected):
    example('voc', tmp_path)
    for path in (tmp_path / 'ImageSets/Main').iterdir():
        path.unlink()
    for part, names in lists.items():
        text(tmp_path / f'ImageSets/Main/{part}.txt', '\ufeff' + names.replace(' ', ' \n') + '\n\n')
    with nullcontext() if expected else pytest.raises(ValueError, match='(val|test).txt'):
        assert splits(convert.read(tmp_path, 'voc')) == expected


@pytest.mark.parametrize('source, copied, copy', [
    ('coco', COCO_FILE, 'annotations/more_train2017.json'), ('labelme', 'train/a.json', 'val/more.json'),
    ('voc', 'a.png', 'a.jpg')])
def test_an_image_has_one_annotation_file(tmp_path, source, copied, copy):
    """Objects of a second one would get lost; and the file of images of one name would be a guess."""
    example(source, tmp_path)
    (tmp_path / copy).write_bytes((tmp_path / copied).read_bytes())
    with pytest.raises(ValueError, match=r'a\.'):
        convert.read(tmp_path, source)


def test_the_image_that_is_named(tmp_path):
    """And not one of its name that is as near to the annotation file, or of another suffix that is nearer."""
    file = example('labelme', tmp_path) / 'train/a.json'
    text(file, file.read_text().replace('a.png', '../images/a.png'))
    for name in ('images/a.png', 'depth/a.png'):
        write_image(tmp_path / name)
    file.with_suffix('.png').rename(file.with_suffix('.jpg'))
    image, = (sample.path for sample in convert.read(tmp_path, 'labelme').samples if sample.objects)
    assert image == tmp_path / 'images/a.png'


@pytest.mark.parametrize('source, file, other', [
    ('labelme', 'train/a.json', 'val/a.json'), ('voc', 'a.xml', 'b/a.xml'),
    ('coco', COCO_FILE, 'annotations/instances_val2017.json'), ('yolo', 'labels/train/a.txt', 'labels/val/a.txt')])
def test_images_of_one_name_keep_their_annotations(tmp_path, source, file, other):
    """The image in the folder of the annotation file, or of the split that its name has."""
    example(source, tmp_path)
    image = {'coco': 'val2017/a.png', 'yolo': 'images/val/a.png'}.get(source, str(Path(other).with_suffix('.png')))
    write_image(tmp_path / image)
    text(tmp_path / other, (tmp_path / file).read_text().replace('dog', 'fox').replace('0 0.4', '2 0.4'))
    for lists in tmp_path.rglob('ImageSets/Main/*.txt'):
        lists.unlink()
    data = convert.read(tmp_path, source)
    classes = {str(sample.path.relative_to(tmp_path)): {data.classes[entry['category_id']] for entry in sample.objects}
               for sample in data.samples if sample.path.stem == 'a'}
    assert 'dog' not in classes.pop(image) and [*classes.values()] == [{'cat', 'dog'}]


def test_groups_of_labelme_are_objects(tmp_path):
    shapes = [dict(label='dog', group_id=group, shape_type=kind, points=points) for group, kind, points in (
        (1, 'rectangle', [[2, 3], [8, 9]]), (1, 'polygon', [[20, 12], [30, 12], [30, 20]]),
        (None, 'polygon', [[1, 1], [5, 5], [1, 5]]), (None, 'polygon', [[1, 1], [5, 5], [5, 1]]),
        (None, 'rectangle', [[1, 1], [5, 5]]), (None, 'rectangle', [[11, 6], [13, 1], [18, 3], [16, 8]]))]
    write_image(tmp_path / 'a.png')
    text(tmp_path / 'a.json', json.dumps(dict(imagePath='a.png', shapes=[*shapes, dict(shapes[0], label='eel'), dict(
        label='x', shape_type='circle', points=[[0, 0], [3, 3]])])))
    data = convert.read(tmp_path, 'labelme')
    objects = data.samples[0].objects
    boxes = [[2, 3, 28, 17], [1, 1, 4, 4], [1, 1, 4, 4], [11, 1, 7, 7], [2, 3, 6, 6]]
    assert [entry['bbox'] for entry in objects] == boxes  # a box alone repeats the triangles, which differ
    mask = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(objects[0]['segmentation'], 30, 40)))
    assert mask[5, 5] and mask[14, 28] and not mask[10, 12] and not objects[3].get('segmentation')
    assert notes(data) == {Fault.SHAPE, Fault.REPEATED} and data.classes == ['dog', 'eel']


def test_what_was_left_out_is_named_if_nothing_remains(tmp_path):
    example('coco', tmp_path)
    (tmp_path / 'train2017/a.png').unlink()
    with pytest.raises(FileNotFoundError, match=r'a\.png'):
        convert.read(tmp_path, 'coco')


def test_command_line(tmp_path):
    example('yolo', tmp_path / 'src')
    command = ('convert_data', tmp_path / 'src', tmp_path / 'dst', '--from', 'yolo', '--to', 'coco')
    assert '--split' in run_tool(*command, '--split', '80,20', rc=2)
    run_tool(*command)
    written = [path for path in (tmp_path / 'dst').rglob('*') if path.is_file()]
    assert len(written) == 4
    before = [path.read_bytes() for path in written]
    assert 'dst' in run_tool(*command, rc=2) and [path.read_bytes() for path in written] == before
    run_tool('convert_data', tmp_path / 'dst', tmp_path / 'dst/new', '--from', 'coco', rc=2)
    assert 'missing' in run_tool('convert_data', tmp_path / 'missing', tmp_path / 'new', '--from', 'coco', rc=2)
