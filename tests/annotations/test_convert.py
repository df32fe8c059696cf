"""Conversion of detection and segmentation data, and its splits."""
import filecmp
import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from load_tool import run_tool
from PIL import Image
from pycocotools import mask as coco_mask

from cvt_dense.annotations import convert

CLASSES = ['dog', 'cat', 'eel']  # not in sorted order
BOX, POLYGON = [8, 6, 20, 10], [4., 4., 24., 4., 24., 20., 4., 20.]  # of a dog and a cat, in 40x30 pixels


def write_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (40, 30), 'gray').save(path)


def write_yolo(src: Path) -> None:
    (src / 'labels/train').mkdir(parents=True)
    (src / 'data.yaml').write_text(f'names: {CLASSES}\n')
    polygon = ' '.join(str(value / side) for value, side in zip(POLYGON, (40, 30) * 4))
    (src / 'labels/train/a.txt').write_text(f'0 {18 / 40} {11 / 30} {20 / 40} {10 / 30}\n1 {polygon}\n')
    for name in ('images/train/a.png', 'images/val/b.png'):
        write_image(src / name)


def write_voc(src: Path) -> None:
    x, y, w, h = BOX
    polygon = ''.join(f'<{"xy"[i % 2]}{i // 2 + 1}>{value + 1}</{"xy"[i % 2]}{i // 2 + 1}>'
                      for i, value in enumerate(POLYGON))
    (src / 'ImageSets/Main').mkdir(parents=True)
    for name, part in (('a', 'trainval'), ('b', 'val')):
        (src / f'ImageSets/Main/{part}.txt').write_text(f'{name}\n')
    (src / 'a.xml').write_text(
        f'<annotation><object><name>dog</name><difficult>1</difficult><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>'
        f'<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object><object><name>cat</name><bndbox><xmin>5</xmin>'
        f'<ymin>5</ymin><xmax>24</xmax><ymax>20</ymax></bndbox><polygon>{polygon}</polygon></object></annotation>')
    (src / 'b.xml').write_text('<annotation></annotation>')
    for name in ('a.png', 'b.png'):
        write_image(src / name)


def write_labelme(src: Path, **shape) -> None:
    x, y, w, h = BOX
    shapes = [dict(label='dog', shape_type='rectangle', points=[[x, y], [x + w, y + h]]),
              dict(label='cat', shape_type='polygon', points=np.reshape(POLYGON, (-1, 2)).tolist(), **shape)]
    for name, objects in (('train/a', shapes), ('val/b', [])):
        write_image(src / f'{name}.png')
        (src / f'{name}.json').write_text(json.dumps(dict(
            imagePath=f'..\\{name[-1]}.png', imageWidth=40, imageHeight=30, shapes=objects)))


def write_coco(src: Path) -> None:
    categories = [dict(id=3 * i + 1, name=name) for i, name in enumerate(CLASSES)]
    objects = [dict(id=1, image_id=7, category_id=1, bbox=BOX, iscrowd=1),
               dict(id=2, image_id=7, category_id=4, bbox=[4, 4, 20, 16], segmentation=[POLYGON])]
    (src / 'annotations').mkdir(parents=True)
    for split, name, annotations in (('train', 'a', objects), ('val', 'b', [])):
        write_image(src / f'{split}2017/{name}.png')
        content = dict(images=[dict(id=7, file_name=f'{name}.png', width=40, height=30)], annotations=annotations)
        (src / f'annotations/instances_{split}2017.json').write_text(json.dumps(dict(content, categories=categories)))


WRITERS = dict(yolo=write_yolo, voc=write_voc, labelme=write_labelme, coco=write_coco)


def run(src: Path, source: str, dst: Path, target: str = 'coco') -> convert.Data:
    data = convert.read(src, source)
    convert.write(data, dst, target)
    return data


@pytest.mark.parametrize('source', WRITERS)
def test_boxes_polygons_names_and_splits_are_kept(tmp_path, source):
    WRITERS[source](tmp_path / 'src')
    for name in ('one', 'two'):
        run(tmp_path / 'src', source, tmp_path / name)
    names = [str(path.relative_to(tmp_path / 'one')) for path in (tmp_path / 'one').rglob('*') if path.is_file()]
    assert sorted(names) == ['annotations/train.json', 'annotations/val.json', 'train/a.png', 'val/b.png']
    assert filecmp.cmpfiles(tmp_path / 'one', tmp_path / 'two', names, shallow=False)[0] == names  # the same bytes
    content = json.loads((tmp_path / 'one/annotations/train.json').read_text())
    categories = {category['id']: category['name'] for category in content['categories']}
    assert list(categories.values()) == (CLASSES if source in ('yolo', 'coco') else ['cat', 'dog'])
    found = {categories[one['category_id']]: one for one in content['annotations']}
    assert found['dog']['bbox'] == pytest.approx(BOX, abs=1e-4) and found['dog']['iscrowd'] == (source in 'coco voc')
    assert found['cat']['bbox'] == pytest.approx([4, 4, 20, 16], abs=1e-4)
    again = convert.read(tmp_path / 'one', 'coco').samples[0]
    mask = coco_mask.decode(convert.rle(next(one for one in again.objects if one.get('segmentation')), again))
    wanted = coco_mask.decode(coco_mask.frPyObjects([POLYGON], 30, 40))[..., 0]
    assert (mask & wanted).sum() / (mask | wanted).sum() > 0.85  # supervision's polygons reach half a pixel further


def test_boxes_and_polygons_are_written_for_labelme(tmp_path):
    """A mask in two pieces stays one object, and an image without objects keeps its file."""
    write_coco(tmp_path / 'src')
    data = convert.read(tmp_path / 'src', 'coco')
    data.samples[0].objects[1]['segmentation'].append([30., 1., 36., 1., 36., 7., 30., 7.])
    convert.write(data, tmp_path / 'dst', 'labelme')
    again = convert.read(tmp_path / 'dst', 'labelme')
    assert [(sample.split, len(sample.objects)) for sample in again.samples] == [('train', 2), ('val', 0)]
    assert any('crowds' in note for note in data.notes)
    dog, cat = sorted(again.samples[0].objects, key=lambda one: 'segmentation' in one)
    assert [again.classes[one['category_id']] for one in (dog, cat)] == ['dog', 'cat']
    assert dog['bbox'] == pytest.approx(BOX, abs=1e-3) and 'segmentation' not in dog
    wanted = coco_mask.decode(convert.rle(data.samples[0].objects[1], data.samples[0]))
    assert np.array_equal(coco_mask.decode(cat['segmentation']), wanted)  # pixel for pixel


def test_objects_become_label_maps_with_background(tmp_path):
    write_coco(tmp_path / 'src')
    data = run(tmp_path / 'src', 'coco', tmp_path / 'dst', 'masks')
    assert (tmp_path / 'dst/classes.txt').read_text().split() == [*CLASSES, 'background']
    pixels = np.asarray(Image.open(tmp_path / 'dst/labels/train/a.png'))
    assert set(np.unique(pixels)) == {0, 1, 3} and pixels[0, 0] == 3 and pixels[10, 10] == 0  # the smaller one in front
    assert any('rectangles' in note for note in data.notes)


def test_splits_are_stratified_and_grouped(tmp_path):
    data = convert.Data(CLASSES)
    for video in range(20):
        for frame in range(5):
            sample = convert.Sample(tmp_path / f'v{video:02d}_{frame}.png', 'train', 40, 30)
            sample.objects = [dict(category_id=0), dict(category_id=1 if video % 2 else 0)]
            sample.objects += [dict(category_id=2)] if video < 5 else []
            data.samples.append(sample)
    convert.split(data, (0.6, 0.2, 0.2), seed=1, group=r'v\d+')
    parts = Counter(sample.split for sample in data.samples)
    assert 50 <= parts['train'] <= 70 and min(parts.values()) >= 15
    assert len({(sample.path.name[:3], sample.split) for sample in data.samples}) == 20  # a video is in one part
    for name in convert.SPLITS:
        part = [sample for sample in data.samples if sample.split == name]
        assert {one['category_id'] for sample in part for one in sample.objects} == {0, 1, 2}
    before = [sample.split for sample in data.samples]
    convert.split(data, (0.6, 0.2, 0.2), seed=1, group=r'v\d+')
    assert [sample.split for sample in data.samples] == before and not any(data.notes.values())


@pytest.mark.parametrize('source, name, content', [
    ('yolo', 'labels/train/a.txt', '0 0.5'), ('yolo', 'labels/train/a.txt', '7 0.5 0.5 0.1 0.1'),
    ('yolo', 'data.yaml', 'names: [a'), ('yolo', 'images/train/a.png', 'no image'), ('voc', 'a.xml', '<annotation>'),
    ('labelme', 'train/a.json', '{}'), ('voc', 'a.xml', '<a><size><width>80</width><height>60</height></size></a>'),
    ('labelme', 'train/a.json', '{"imagePath": "a.png", "shapes": [], "imageWidth": 80, "imageHeight": 60}'),
    ('coco', 'annotations/instances_val2017.json', '{"images": [')])
def test_a_damaged_annotation_file_is_named(tmp_path, source, name, content):
    WRITERS[source](tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=name):
        convert.read(tmp_path, source)


@pytest.mark.parametrize('names, classes', [
    ('[a, "7", ё]', ['a', '7', 'ё']), ('{1: b, 0: a}\nnc: 2', ['a', 'b']), ('{"1": b, "0": a}', ['a', 'b']),
    *((wrong, None) for wrong in ('car', '{0: a, 2: c}', '{1: a, 2: b}', '[a, yes]', '[0, 1]', '[a, a]', '[]', '7',
                                  '{a: 0, b: 1}', '[a, b]\nnc: 3', '[a, b]\nnc: 1', '[[a, b]]'))])
def test_yolo_names(tmp_path, names, classes):
    """Names are text, and each number from 0 has one."""
    write_yolo(tmp_path)
    (tmp_path / 'data.yaml').write_text(f'names: {names}\n', 'utf-8')
    with nullcontext() if classes else pytest.raises(ValueError):
        assert convert.read(tmp_path, 'yolo').classes == classes


@pytest.mark.parametrize('folder, part', [
    ('festival', 'train'), ('latest', 'train'), ('val2017', 'val'), ('my_validation', 'val'), ('Testing', 'test')])
def test_words_that_name_a_split(folder, part):
    assert convert.split_name(Path(f'images/{folder}/a.png')) == part


def test_command_line(tmp_path):
    write_yolo(tmp_path / 'src')
    command = ('convert_data', tmp_path / 'src', tmp_path / 'dst', '--from', 'yolo', '--to', 'coco')
    out = run_tool(*command)
    assert f'classes = {tuple(CLASSES)}' in out and "val_ann, val_images = 'annotations/val.json', 'val/'" in out
    assert 'fasterrcnn_cvt13_custom.py' in out
    written = [path for path in (tmp_path / 'dst').rglob('*') if path.is_file()]
    assert len(written) == 4
    before = [path.read_bytes() for path in written]
    assert '--force' in run_tool(*command, rc=2) and [path.read_bytes() for path in written] == before
    again = ('convert_data', tmp_path / 'dst', tmp_path / 'dst/new', '--from', 'coco', '--to', 'coco', '--force')
    assert 'would overwrite an input' in run_tool(*again, rc=2)


def test_what_cannot_be_converted_is_listed(tmp_path):
    write_yolo(tmp_path / 'yolo')
    (tmp_path / 'yolo/data.yaml').write_text(f'names: {CLASSES}\nkpt_shape: [2, 3]\n')
    lines = '0 0.9 0.5 0.6 0.4 .1 .1 2 .3 .3 2\n1 1.5 0.5 0.2 0.2 .1 .1 2 .3 .3 2\n'
    (tmp_path / 'yolo/labels/train/a.txt').write_text(lines)
    data = convert.read(tmp_path / 'yolo', 'yolo')
    assert data.samples[0].objects[0]['bbox'] == pytest.approx([24, 9, 16, 12], abs=1e-4)
    assert len([note for note, places in data.notes.items() if places]) == 4  # cut, outside, keypoints, no annotation
    write_labelme(tmp_path / 'labelme')
    content = json.loads((tmp_path / 'labelme/train/a.json').read_text())
    content['shapes'] += [dict(label='x', shape_type='circle', points=[[0, 0], [3, 3]])]
    (tmp_path / 'labelme/train/a.json').write_text(json.dumps(content))
    data = convert.read(tmp_path / 'labelme', 'labelme')
    assert ['circle' in note for note, places in data.notes.items() if places] == [True]
    assert data.classes == ['cat', 'dog']
    write_coco(tmp_path / 'coco')
    write_image(tmp_path / 'coco/train2017/more.png')
    edited(tmp_path / 'coco' / COCO_FILE, annotations__segmentation=[[1, 1, 2, 2]], annotations__keypoints=[1, 2, 2],
           annotations__iscrowd=0, annotations__ignore=1)
    data = convert.read(tmp_path / 'coco', 'coco')
    notes = [note for note, places in data.notes.items() if places]
    assert len(notes) == 3 and data.samples[0].objects[0]['iscrowd'] == 1
    for words in ('polygons', 'no annotation file names', 'keypoints'):
        assert any(words in note for note in notes)


def test_bad_splits_and_folders(tmp_path):
    data = convert.Data(CLASSES, samples=[convert.Sample(tmp_path / f'v{i % 3}_{i}.png', 'train', 40, 30)
                                          for i in range(30)])
    with pytest.raises(ValueError, match='val'):  # a video is more than a tenth
        convert.split(data, (0.9, 0.1), group='v.')
    write_yolo(tmp_path / 'yolo')
    for folder in ('yolo', 'missing'):
        with pytest.raises(FileNotFoundError, match=folder):
            convert.read(tmp_path / folder, 'coco')


def edited(path: Path, **changes) -> None:
    """Change the first image's or object's values in a COCO file."""
    content = json.loads(path.read_text())
    for key, value in changes.items():
        place, key = key.split('__')
        content[place][0][key] = value
    path.write_text(json.dumps(content))


COCO_FILE = 'annotations/instances_train2017.json'


@pytest.mark.parametrize('changes, wrong', [
    (dict(images__width=41), '41'), (dict(categories__name='cat'), 'cat'),
    (dict(annotations__segmentation=dict(size=[3, 3], counts='1')), r'\[3, 3\]')])
def test_coco_files_that_do_not_fit_their_images(tmp_path, changes, wrong):
    write_coco(tmp_path)
    edited(tmp_path / COCO_FILE, **changes)
    with pytest.raises(ValueError, match=f'instances_train2017.json.*{wrong}'):
        convert.read(tmp_path, 'coco')


@pytest.mark.parametrize('name, new', [
    ('IMG[2024].png', 'IMG[2024].png'), ('a.png', r'train2017\a.png'), ('a.png', '../train2017/a.png')])
def test_file_names_in_coco_files(tmp_path, name, new):
    write_coco(tmp_path)
    (tmp_path / 'train2017/a.png').rename(tmp_path / 'train2017' / name)
    edited(tmp_path / COCO_FILE, images__file_name=new)
    assert len(convert.read(tmp_path, 'coco').samples[0].objects) == 2


def test_two_images_of_one_id_or_one_name(tmp_path):
    write_coco(tmp_path)
    (tmp_path / 'val2017/b.png').rename(tmp_path / 'val2017/a.png')
    edited(tmp_path / 'annotations/instances_val2017.json', images__file_name='a.png')
    found = [(sample.path.parent.name, len(sample.objects)) for sample in convert.read(tmp_path, 'coco').samples]
    assert found == [('train2017', 2), ('val2017', 0)]  # each file has the image of its own folder
    file = tmp_path / COCO_FILE
    content = json.loads(file.read_text())
    content['images'].append(content['images'][0])
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match='id 7'):
        convert.read(tmp_path, 'coco')


@pytest.mark.parametrize('source, suffix', (('labelme', 'json'), ('voc', 'xml')))
def test_images_of_the_same_name_keep_their_own_annotations(tmp_path, source, suffix):
    WRITERS[source](tmp_path / 'train')
    annotated, = (tmp_path / 'train').rglob(f'a.{suffix}')
    (tmp_path / 'val').mkdir()
    for name in ('a', 'c'):
        write_image(tmp_path / f'val/{name}.png')
    (tmp_path / f'val/a.{suffix}').write_text(annotated.read_text().replace('dog', 'eel'))
    found = {sample.path.relative_to(tmp_path).parts[0]: {data.classes[one['category_id']] for one in sample.objects}
             for data in [convert.read(tmp_path, source)] for sample in data.samples if sample.path.stem == 'a'}
    assert found == dict(train={'cat', 'dog'}, val={'cat', 'eel'})


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize('lines, files, expected', [
    ('train: images/train\nval: images/val', {}, dict(a='train', b='val')),
    ('train: images/val\nval: images/train', {}, dict(a='val', b='train')),
    ('train: ../images/val\ntest: [images/train]', {}, dict(a='test', b='train')),
    ('path: images\ntrain: [train, val]', {}, dict(a='train', b='train')),
    ('path: ../elsewhere\ntrain: images/train/', {}, dict(a='train')),
    ('val: a.txt\ntrain: images/b.txt', {'a.txt': './images/train/a.png', 'images/b.txt': 'val/b.png\n\n'},
     dict(a='val', b='train')),
    ('train:\nval:', {}, dict(a='train', b='val')),  # then the folders' names decide
    ('train: ../images/train\nval: ../images/val\ntest: ../images/test', {}, dict(a='train', b='val')),  # Roboflow's
    *((line, {}, None) for line in ('train: images/train\nval: images/missing', 'train: /tmp', 'val: ..')),
    ('train: images\nval: images/val', {}, None),
    ('train: a.txt', {'a.txt': 'images/train/missing.png'}, None)])
def test_splits_of_data_yaml(tmp_path, lines, files, expected):
    write_yolo(tmp_path)
    (tmp_path / 'data.yaml').write_text(f'names: {CLASSES}\n{lines}\n')
    for name, content in files.items():
        text(tmp_path / name, content)
    with nullcontext() if expected else pytest.raises(ValueError, match='train|val'):
        data = convert.read(tmp_path, 'yolo')
        assert {sample.path.stem: sample.split for sample in data.samples} == expected
        assert any('data.yaml' in note for note, places in data.notes.items() if places) == (len(expected) < 2)


@pytest.mark.parametrize('lists, expected', [
    (dict(val='b', trainval='a b'), dict(a='train', b='val')), (dict(test='a', train='b'), dict(a='test', b='train')),
    (dict(train='a'), dict(a='train')), ({}, dict(a='train', b='train')), (dict(train='a b', val='b'), None)])
def test_splits_of_voc(tmp_path, lists, expected):
    write_voc(tmp_path)
    for path in (tmp_path / 'ImageSets/Main').iterdir():
        path.unlink()
    for part, names in lists.items():
        text(tmp_path / f'ImageSets/Main/{part}.txt', names.replace(' ', '\n'))
    with nullcontext() if expected else pytest.raises(ValueError, match='ImageSets'):
        data = convert.read(tmp_path, 'voc')
        assert {sample.path.stem: sample.split for sample in data.samples} == expected


WRONG = [('yolo', 'labels/train/a.txt', line, 'line 2') for line in (
    '0 nan .5 .1 .1', '0 .5 .5 .1', '0 .1 .1 .5 .1 .5 .5 .1', '0.5 .5 .5 .1 .1', '-1 .5 .5 .1 .1', '3 .5 .5 .1 .1',
    '0 .5 .5 -.1 .1', '0 .5 .5 inf .1', '0')]
WRONG += [('yolo', 'labels/train/a.txt', 'dog .5 .5 .1 .1', 'a.txt')]
WRONG += [('voc', 'a.xml', f'<a><object>{inside}</object></a>', 'a.xml') for inside in (
    '<name>dog</name>', '<name>dog</name><bndbox><xmin>nan</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>',
    '<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>',
    '<name>dog</name><robndbox><cx>1</cx><cy>1</cy></robndbox>')]
WRONG += [('labelme', 'train/a.json', json.dumps(dict(imagePath='a.png', shapes=[dict(
    label=label, shape_type=kind, points=points)])), 'a.json') for label, kind, points in (
        ('dog', 'rectangle', [[1, 2], [float('nan'), 9]]), ('dog', 'polygon', [[1, 2], [3, 4]]), ('dog', 'polygon', []),
        ('dog', 'polygon', [[1, 2], [3, 4], [5, None]]), (7, 'rectangle', [[1, 2], [9, 9]]))]


@pytest.mark.parametrize('source, file, content, named', WRONG)
def test_what_has_no_certain_meaning_is_an_error(tmp_path, source, file, content, named):
    WRITERS[source](tmp_path)
    (tmp_path / file).write_text(f'0 .5 .5 .1 .1\n{content}\n' if source == 'yolo' else content)
    with pytest.raises(ValueError, match=named):
        convert.read(tmp_path, source)


@pytest.mark.parametrize('values', [
    dict(bbox=[float('nan')] * 4), dict(segmentation=[[1, 2, None, 4, 5, 6]]), dict(attributes=dict(rotation=30)),
    dict(iscrowd='0'), dict(bbox=None)])
def test_coco_files_pass_the_gate(tmp_path, values):
    write_coco(tmp_path)
    edited(tmp_path / COCO_FILE, **{f'annotations__{key}': value for key, value in values.items()})
    with pytest.raises(ValueError, match=f'instances_train2017.json.*{next(iter(values))}'):
        convert.read(tmp_path, 'coco')


@pytest.mark.parametrize('source, copied, copy', [
    ('coco', COCO_FILE, 'annotations/more_train2017.json'), ('labelme', 'train/a.json', 'val/more.json'),
    ('voc', 'a.png', 'a.jpg')])
def test_an_image_has_one_annotation_file(tmp_path, source, copied, copy):
    """Objects of a second one would get lost; and the file of images of one name would be a guess."""
    WRITERS[source](tmp_path)
    (tmp_path / copy).write_bytes((tmp_path / copied).read_bytes())
    with pytest.raises(ValueError, match=r'a\.'):
        convert.read(tmp_path, source)


def test_one_group_of_labelme_is_one_object(tmp_path):
    shapes = [dict(label='dog', group_id=group, shape_type=kind, points=points) for group, kind, points in (
        (1, 'rectangle', [[2, 3], [8, 9]]), (1, 'polygon', [[20, 12], [30, 12], [30, 20]]),
        (None, 'rectangle', [[1, 1], [5, 5]]), (None, 'rectangle', [[11, 1], [15, 5]]))]
    write_image(tmp_path / 'a.png')
    text(tmp_path / 'a.json', json.dumps(dict(imagePath='a.png', shapes=shapes)))
    found = convert.read(tmp_path, 'labelme').samples[0].objects
    assert [one['bbox'] for one in found] == [[2, 3, 28, 17], [1, 1, 4, 4], [11, 1, 4, 4]]
    mask = coco_mask.decode(found[0]['segmentation'])
    assert mask[5, 5] and mask[14, 28] and not mask[10, 12] and 'segmentation' not in found[1]


@pytest.mark.parametrize('line, named', [('0 .5 .5 .2 .2 .1 .1 .2 .2 .3 .3', None), ('0 .5 .5 .2 .2', None),
                                         ('0 .5 .5 .75 .5 .75 .75 .5 .75', 'line 1')])
def test_yolo_keypoints(tmp_path, line, named):
    write_yolo(tmp_path)
    (tmp_path / 'data.yaml').write_text(f'names: {CLASSES}\nkpt_shape: [3, 2]\n')
    (tmp_path / 'labels/train/a.txt').write_text(line)
    with pytest.raises(ValueError, match=named) if named else nullcontext():
        assert convert.read(tmp_path, 'yolo').samples[0].objects[0]['bbox'] == pytest.approx([16, 12, 8, 6])


def test_label_maps_are_written_pixel_for_pixel(tmp_path):
    write_image(tmp_path / 'a.png')
    pixels = np.zeros((30, 40), np.uint8)
    pixels[29, 39], pixels[0, 0], pixels[5:9, 5:9] = 1, convert.IGNORED, 2  # a single pixel in the corner
    data = convert.Data(list(CLASSES), [convert.Sample(tmp_path / 'a.png', 'train', 40, 30)], background=False)
    data.add_label_map(data.samples[0], pixels)
    convert.write(data, tmp_path / 'dst', 'masks')
    assert np.array_equal(np.asarray(Image.open(tmp_path / 'dst/labels/train/a.png')), pixels)
