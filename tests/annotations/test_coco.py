"""The one reading of a file in COCO's format: what is an error, what is left out and counted, and the classes."""
import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from cvt_dense.annotations import coco

NAN = float('nan')
WIDTH, HEIGHT = 40, 30


def make_content() -> dict[str, Any]:
    """Six images with two objects each; the categories ascend."""
    return json.loads((Path(__file__).parents[1] / 'data/annotations/two_objects_an_image.json').read_text())


def run_lengths(width: int = WIDTH, height: int = HEIGHT, compressed: bool = True, cut: int = 0) -> dict[str, Any]:
    pixels = np.zeros((height, width), np.uint8, order='F')
    pixels[5:20, 8:30] = 1
    found = coco_mask.encode(pixels)
    counts = [8 * height + 5, *[15, height - 15] * 21, 15, height - 20 + 10 * height]
    return dict(size=[height, width], counts=found['counts'].decode()[cut:] if compressed else counts[cut:])


SQUARE = [[20, 12, 29, 12, 29, 19, 20, 19]]
ERRORS = [('annotations', key, value) for key, values in dict(
    id=[None, 1.5, 2, 'a b', [1]], image_id=[None, '1', {}], category_id=[None, '1', True and 1.5],
    bbox=[None, [NAN] * 4, [1, 2, None, 4], ['1', '2', '3', '4'], [1, 2, 3], [1, 2, 3, 4, 90], [1, 2, 3, 10**400], '1'],
    area=[None, '63', NAN, float('inf'), -63, 1e11], iscrowd=[None, '0', 2, 'false'], ignore=[None, '1', -1],
    segmentation=[SQUARE[0], str(SQUARE), [[1, 2, None, 4, 5, 6]], [[1, 2, NAN, 4, 5, 6]], [[1, 2, '3', 4, 5, 6]],
                  [[1, 2, 1e9, 4, 5, 6]], [SQUARE[0] + [3]], [[[1, 2], [3, 4], [5, 6]]], [SQUARE[0], 3],
                  dict(size=[HEIGHT, WIDTH]),
                  dict(size=[HEIGHT, WIDTH], counts=[5.5]), dict(size=[HEIGHT, WIDTH], counts=[-1, 1201])],
).items() for value in values if not (key == 'id' and value == 'a b')]
ERRORS += [('images', key, value) for key, values in dict(
    id=[None, '1', 2], file_name=[None, 7, '', '2.jpg', './2.jpg'], width=[None, '40', -1, 0, 40.5, NAN],
    height=[None, [30]]).items() for value in values]
ERRORS += [('categories', key, value) for key, values in dict(id=[None, '1', 2], name=[None, 7, '']).items()
           for value in values]
ERRORS += [('annotations', 'segmentation', value) for value in (
    run_lengths(HEIGHT, WIDTH), run_lengths(HEIGHT, WIDTH, compressed=False), run_lengths(cut=2),
    run_lengths(compressed=False, cut=2), dict(size=[HEIGHT, WIDTH], counts=''),
    dict(size=[HEIGHT, WIDTH], counts='é~'), dict(run_lengths(), size=None))]
ERRORS += [('annotations', 'attributes', dict(rotation=value)) for value in (90., -12, NAN, '90')]


@pytest.mark.parametrize('place, key, value', ERRORS)
def test_values_without_a_meaning(tmp_path, place, key, value):
    """The message has the file, the key and the value; missing keys are errors like null."""
    content = make_content()
    content[place][0][key] = value
    (tmp_path / 'a.json').write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r'(?s)a\.json.*' + ('size' if 'size' in str(value) else key)):
        coco.read(tmp_path / 'a.json')


@pytest.mark.parametrize('content', ['[]', '{', '{"images": []}', '{"images": [1], "categories": []}',
                                     '{"images": [], "categories": [], "annotations": null}', '7', ''])
def test_what_is_no_coco_file(tmp_path, content):
    (tmp_path / 'a.json').write_text(content)
    with pytest.raises(ValueError, match=r'a\.json'):
        coco.read(tmp_path / 'a.json')


@pytest.mark.parametrize('change', [
    lambda x, y, w, h: [x, y, x + w, y + h], lambda x, y, w, h: [x + w / 2, y + h / 2, w, h],
    lambda x, y, w, h: [x / WIDTH, y / HEIGHT, w / WIDTH, h / HEIGHT], lambda x, y, w, h: [
        x / WIDTH - 1, y / HEIGHT - 1, w / WIDTH + 1, h / HEIGHT + 1], lambda x, y, w, h: [2 * x, 2 * y, 2 * w, 2 * h]])
def test_boxes_of_another_kind(change):
    """Corners, centres, relative boxes, and the pixels of a larger image."""
    content = make_content()
    for one in content['annotations']:
        one.pop('segmentation')
        one['bbox'][0] += 6
        one['bbox'] = change(*one['bbox'])
    with pytest.raises(ValueError, match='bbox'):
        coco.Annotations(content)


def transposed(mask: list[list[float]]) -> dict[str, Any]:
    pixels = np.zeros((WIDTH, HEIGHT), np.uint8, order='F')
    x, y = np.min(np.reshape(mask, (-1, 2)), 0)
    pixels[x:x + 9, y:y + 7] = 1
    return dict(coco_mask.encode(pixels), size=[HEIGHT, WIDTH], counts=coco_mask.encode(pixels)['counts'].decode())


@pytest.mark.parametrize('change', [
    lambda mask: [np.reshape(mask, (-1, 2))[:, ::-1].ravel().tolist()], lambda mask: (np.array(mask) / WIDTH).tolist(),
    lambda mask: (np.array(mask) / 2).tolist(), transposed])
def test_masks_outside_of_their_boxes(change):
    """Polygons of (y, x), relative ones, the pixels of a smaller image, and run lengths along rows."""
    content = make_content()
    for number, one in enumerate(content['annotations']):
        one['segmentation'] = change(one['segmentation'])
        if number == 2:
            coco.Annotations(copy.deepcopy(content))  # a few are the annotators' mistakes
    with pytest.raises(ValueError, match='segmentation'):
        coco.Annotations(content)


def test_masks_may_be_larger_than_their_boxes_and_boxes_end_a_little_outside():
    larger, outside = make_content(), make_content()
    for one in larger['annotations']:
        one['bbox'] = (np.array(one['bbox']) + [1, 1, -2, -2]).tolist()
    assert not coco.Annotations(larger).changed
    for one in outside['annotations']:
        one['bbox'][0] = WIDTH - 7
        one.pop('segmentation')
    assert [one['bbox'][2] for one in coco.Annotations(outside).content['annotations']] == [7] * 12


KEPT = [
    (dict(bbox=[1, 2, 0, 5]), None), (dict(bbox=[1, 2, 3, -1]), None), (dict(bbox=[WIDTH, 2, 5, 5]), None),
    (dict(bbox=[-9, 2, 5, 5]), None), (dict(image_id=99), None), (dict(category_id=99), None),
    (dict(bbox=[-5, 2, 9, 5]), dict(bbox=[0, 2, 4, 5], area=20)),
    (dict(bbox=[30, 20, 40, 40]), dict(bbox=[30, 20, 10, 10], area=63)),
    (dict(ignore=1), dict(iscrowd=1)), (dict(ignore=True), dict(iscrowd=1)),
    (dict(segmentation=[[1, 2, 3, 4], *SQUARE]), dict(segmentation=SQUARE)),
    (dict(segmentation=[[]]), dict(segmentation=[])), (dict(id=0), dict(id=1))]


@pytest.mark.parametrize('values, expected', KEPT)
def test_what_nobody_can_use_is_counted(values, expected):
    content = make_content()
    content['annotations'][0].update(values)
    found = coco.Annotations(content)
    assert found.changed and found.total == 12 and len(found.content['annotations']) == 12 - (expected is None)
    assert sum(found.counts.values(), []) == [1] * (not {'ignore', 'id'} & values.keys())
    assert {key: found.content['annotations'][0][key] for key in expected or ()} == (expected or {})


@pytest.mark.parametrize('values', [
    {}, dict(bbox=[-0.9, 2, 9, 5]), dict(bbox=[20, 12, 20.9, 9]), dict(segmentation=None), dict(segmentation={}),
    dict(segmentation=run_lengths()), dict(segmentation=run_lengths(compressed=False)), dict(image_id=1.),
    dict(id=7e5), dict(iscrowd=True), dict(attributes=dict(rotation=0.)), dict(attributes=['a']), dict(score=NAN)])
def test_what_is_right_stays_as_it_is(values):
    content = make_content()
    content['annotations'][0].update(values)
    before = json.dumps(content)
    found = coco.Annotations(content)
    found.use_classes(['cat', 'dog'])
    assert not found.changed and not any(found.counts.values()) and json.dumps(found.content) == before


def test_missing_keys_with_one_meaning():
    content = make_content()
    content['images'][0]['width'] = float(WIDTH)  # which pycocotools does not take
    for key in ('area', 'iscrowd', 'segmentation'):
        content['annotations'][0].pop(key)
    found = coco.Annotations(content)
    assert repr(found.content['images'][0]['width']) == str(WIDTH)
    assert (found.content['annotations'][0]['area'], found.content['annotations'][0]['iscrowd']) == (63, 0)
    assert coco.Annotations({key: content[key] for key in ('images', 'categories')}).content['annotations'] == []


@pytest.mark.parametrize('ids, listed, classes', [
    (ids, listed, classes) for ids in [*itertools.permutations((2, 7, 11)), ('a', 'b', 'c')]
    for listed in ((0, 1, 2), (2, 0, 1)) for classes in (['cat', 'dog', 'eel'], ['eel', 'cat'], ['dog'])])
def test_each_class_has_its_place(ids, listed, classes):
    """MMDetection numbers classes as the file lists them, pycocotools as their ids ascend."""
    content = make_content()
    named = dict(zip(ids, ('cat', 'dog', 'eel')))
    content['categories'] = [dict(id=ids[i], name=named[ids[i]]) for i in listed]
    for one, category in zip(content['annotations'], itertools.cycle(ids)):
        one['category_id'] = category
    before = [named[one['category_id']] for one in content['annotations']]
    found = coco.Annotations(content)
    found.use_classes(classes)
    after = {one['id']: one['name'] for one in found.content['categories']}
    assert [name for name in after.values() if name in classes] == classes  # mmdet's order
    assert {*map(type, after)} == {int}  # pycocotools takes a text for a list of ids
    assert [after[number] for number in sorted(after) if after[number] in classes] == classes  # that of pycocotools
    assert [after[one['category_id']] for one in found.content['annotations']] == before
    assert found.classes == {number: name for number, name in after.items() if name in classes}


@pytest.mark.parametrize('names, classes', [
    (('cat', 'cat'), ['cat']), (('cat', 'dog'), ['cat', 'cat']), (('cat', 'dog'), ['cat', 'cow']),
    (('cat', 'dog'), 'cat')])
def test_classes_without_a_place(names, classes):
    content = make_content()
    for one, name in zip(content['categories'], names):
        one['name'] = name
    with pytest.raises(ValueError, match='cat|cow'):
        coco.Annotations(content).use_classes(classes)


def test_a_file_may_lack_classes():
    """MMDetection gives the classes behind a missing one smaller numbers."""
    content = make_content()
    reading = coco.Annotations(content)
    reading.use_classes(['ant', 'cat', 'cow', 'dog'])
    assert [category['name'] for category in content['categories']] == ['ant', 'cat', 'cow', 'dog']
    assert {reading.classes[entry['category_id']] for entry in content['annotations']} == {'cat', 'dog'}


def test_objects_without_masks_are_ignored_where_masks_are_needed():
    content = make_content()
    content['annotations'][0]['segmentation'] = [[1, 2, 3, 4]]
    found = coco.Annotations(content)
    found.use_classes(['cat', 'dog'], masks=True)
    assert [one['iscrowd'] for one in found.content['annotations']] == [1] + [0] * 11
    mask = coco_mask.frPyObjects(found.content['annotations'][0]['segmentation'], HEIGHT, WIDTH)
    assert coco_mask.area(mask) == [63]  # of its box


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16'])
def test_files_in_other_encodings_are_written_again(tmp_path, encoding):
    """What pycocotools could not open is written again."""
    content = make_content()
    content['images'][0]['file_name'] = 'é.jpg'
    (tmp_path / 'a.json').write_text(json.dumps(content, ensure_ascii=False), encoding)
    found = coco.read(tmp_path / 'a.json')
    assert found.changed == (encoding != 'utf-8') and found.content['images'][0]['file_name'] == 'é.jpg'


@pytest.mark.parametrize('name, there', [
    (r'train\a b.jpg', 'train/a b.jpg'), ('train/a%20b.jpg', 'train/a b.jpg'), ('a b.jpg', 'a%20b.jpg'),
    ('Cafe\u0301.jpg', 'Caf\u00e9.jpg'), ('Caf\u00e9.jpg', 'Cafe\u0301.jpg'), ('./a.jpg', 'a.jpg'),
    ('a%20b.jpg', 'a%20b.jpg')])
def test_spellings_of_file_names(tmp_path, name, there):
    (tmp_path / there).parent.mkdir(exist_ok=True)
    content = make_content()
    content['images'][0]['file_name'] = name
    for file in (there, *(f'{i}.jpg' for i in range(2, 7))):
        (tmp_path / file).touch()
    found = coco.Annotations(content, str(tmp_path))
    assert Path(tmp_path, found.content['images'][0]['file_name']).is_file()
    assert not found.changed or found.content['images'][0]['file_name'] == there
    content = make_content()
    for image, file in zip(content['images'], (name, there)):
        image['file_name'] = file
    if name != there:
        with pytest.raises(ValueError, match='file_name'):
            coco.Annotations(content, str(tmp_path))
