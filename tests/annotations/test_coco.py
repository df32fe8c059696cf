"""Files that a run refuses, that the conversion repairs, and that mean the same in MMDetection and pycocotools.

Each file of ``tests/data/annotations`` is a case, named by what is wrong or right in it, with the classes cat and dog.
"""
import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from load_tool import run_tool
from mmdet.datasets import CocoDataset
from mmdet.evaluation import CocoMetric
from mmengine.config import Config
from PIL import Image
from pycocotools import mask as coco_mask

from cvt_dense.annotations.coco import run_lengths
from cvt_dense.annotations.data_sets import check_annotations
from cvt_dense.errors import UserError

DATA = Path(__file__).parents[1] / 'data/annotations'
CLASSES = ('cat', 'dog')


def files(folder: str) -> list[Any]:
    found = sorted((DATA / folder).glob('*.json'))
    assert found
    return [pytest.param(path, id=f'{folder}-{path.stem}') for path in found]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


def folder_of(path: Path, folder: Path, file: str = 'annotations/train.json') -> Path:
    """Copy a file and write its images."""
    (folder / file).parent.mkdir(parents=True)
    shutil.copy(path, folder / file)
    for image in read(path)['images']:
        name = folder / 'train' / image['file_name']
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (int(image['width']), int(image['height']))).save(name)
    return folder / file


def check(file: Path, masks: bool = True, scored: bool = True, classes=CLASSES) -> None:
    """Check a file as a validation of Mask R-CNN reads it, or as the training of a network of boxes."""
    stage = 'val' if scored else 'train'
    pipeline = [dict(type='LoadAnnotations', with_bbox=True, with_mask=masks)]
    cfg = Config({'default_scope': 'mmdet', f'{stage}_dataloader': dict(dataset=dict(
        type='CocoDataset', ann_file=str(file), data_prefix=dict(img=str(file.parents[1] / 'train')),
        metainfo=dict(classes=classes), pipeline=pipeline))})
    if scored:
        cfg.val_evaluator = dict(type='CocoMetric', ann_file=str(file), metric=['bbox', 'segm'] if masks else 'bbox')
    check_annotations(cfg, [stage])


def samples(file: Path) -> list[tuple[str, list[Any]]]:
    """Return what MMDetection learns of each image, by name: classes, boxes and the sides of masks."""
    data_set = CocoDataset(ann_file=str(file), data_prefix=dict(img=''), metainfo=dict(classes=CLASSES), pipeline=[])

    def described(one: dict[str, Any], info: dict[str, Any]) -> tuple[Any, ...]:
        mask = one.get('mask') and coco_mask.toBbox(run_lengths(one['mask'], info['height'], info['width'])).tolist()
        return CLASSES[one['bbox_label']], one['ignore_flag'], np.round(one['bbox'], 2).tolist(), mask

    return sorted((Path(info['img_path']).name, sorted(described(one, info) for one in info['instances']))
                  for info in map(data_set.get_data_info, range(len(data_set))))


def score(file: Path) -> dict[str, float]:
    """Return the metrics that MMDetection computes by pycocotools, where every object that is no crowd is predicted."""
    metric = CocoMetric(str(file), metric=['bbox', 'segm'])
    metric.dataset_meta = dict(classes=CLASSES)
    content = read(file)
    labels = {category['id']: CLASSES.index(category['name']) for category in content['categories']
              if category['name'] in CLASSES}
    for image in content['images']:
        found = [one for one in content['annotations'] if one['image_id'] == image['id'] and not one['iscrowd']
                 and one['category_id'] in labels]
        boxes = torch.tensor([one['bbox'] for one in found]).reshape(-1, 2, 2).cumsum(1).reshape(-1, 4)
        masks = torch.zeros((len(found), image['height'], image['width']), dtype=torch.bool)
        for mask, (left, top, right, bottom) in zip(masks, boxes.round().int().tolist()):
            mask[top:bottom, left:right] = True
        metric.process({}, [dict(img_id=image['id'], ori_shape=masks.shape[1:], pred_instances=dict(
            bboxes=boxes, masks=masks, scores=torch.full((len(found), ), 0.9),
            labels=torch.tensor([labels[one['category_id']] for one in found], dtype=torch.long)))])
    return metric.evaluate(len(content['images']))


@pytest.mark.parametrize('path', files('refused'))
def test_values_without_a_meaning_are_refused(tmp_path, path):
    """By the conversion too, which cannot know what they mean."""
    (tmp_path / 'data/annotations').mkdir(parents=True)
    file = Path(shutil.copy(path, tmp_path / 'data/annotations'))
    with pytest.raises(UserError, match=file.stem):
        check(file)
    for number in range(1, 7):
        Image.new('RGB', (40, 30)).save(tmp_path / f'data/{number}.jpg')
    run_tool('convert_data', tmp_path / 'data', tmp_path / 'new', '--from', 'coco', rc=2)
    assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize('path', [*files('repaired'), *files('repaired/masks')])
def test_the_command_of_the_error_repairs_a_copy(tmp_path, path):
    file = folder_of(path, tmp_path / 'data')
    before = {one: one.read_bytes() for one in tmp_path.rglob('*') if one.is_file()}
    with pytest.raises(UserError, match='convert_data') as error:
        check(file)
    assert {one: one.read_bytes() for one in tmp_path.rglob('*') if one.is_file()} == before
    folder, new, *flags = re.search(r'--from coco (\S+) (\S+)( --masks)?$', str(error.value)).groups()
    assert (flags == [' --masks']) == (path.parent.name == 'masks')
    said = run_tool('convert_data', folder, new, '--from', 'coco', *(['--masks'] if flags[0] else []))
    assert 'note: ' in said
    repaired = Path(new, 'annotations/train.json')
    check(repaired)
    assert read(repaired) == read(path.parent / 'expected' / path.name)
    assert score(repaired)['coco/bbox_mAP'] == 1


@pytest.mark.parametrize('path', files('accepted'))
def test_what_is_accepted_is_learnt_and_scored_rightly(tmp_path, path):
    file = folder_of(path, tmp_path)
    check(file)
    results = score(file)
    assert results['coco/bbox_mAP'] == 1 and results['coco/segm_mAP'] >= 0
    content, learnt = read(file), dict(samples(file))
    known = {category['id'] for category in content['categories'] if category['name'] in CLASSES}
    for image in content['images']:
        objects = [one for one in content['annotations'] if one['image_id'] == image['id']]
        assert len(learnt[image['file_name']]) == len([one for one in objects if one['category_id'] in known])


@pytest.mark.parametrize('path', files('accepted_in_training_of_boxes'))
def test_what_a_training_of_boxes_accepts(tmp_path, path):
    """MMDetection drops an object in a training that pycocotools would count, and needs no masks and numbers."""
    file = folder_of(path, tmp_path)
    check(file, masks=False, scored=False)
    data_set = CocoDataset(ann_file=str(file), data_prefix=dict(img=''), metainfo=dict(classes=CLASSES), pipeline=[])
    learnt = [one for i in range(len(data_set)) for one in data_set.get_data_info(i)['instances']]
    lost = path.stem == 'ignored' or path.stem.startswith('box')
    assert [CLASSES[one['bbox_label']] for one in learnt] == ['cat', 'dog', 'cat', 'dog'][lost:]
    assert all(run_lengths(one['mask'], 30, 40)['size'] == [30, 40] for one in learnt if one.get('mask'))


@pytest.mark.parametrize('path', files('other_classes'))
def test_other_classes_are_refused_with_the_line_to_paste(tmp_path, path):
    file = folder_of(path, tmp_path)
    with pytest.raises(UserError, match='classes') as error:
        check(file)
    check(file, classes=ast.literal_eval(re.search(r' classes = (\(.*?\))', str(error.value))[1]))


# -- several files and folders ---------------------------------------------------------------------

ORIGINAL = DATA / 'two_objects_an_image.json'


def test_two_files_are_joined(tmp_path):
    """Whose ids are the same, of whose categories they are others, and whose images have one name in many folders."""
    for number in (0, 1):
        content = read(ORIGINAL)
        content['images'] = content['images'][number::2]
        ids = {image['id']: i for i, image in enumerate(content['images'])}
        content['annotations'] = [
            dict(one, image_id=ids[one['image_id']], category_id=one['category_id'] + number)
            for one in content['annotations'] if one['image_id'] in ids]
        for image in content['images']:
            image.update(id=ids[image['id']], file_name=f'camera{image["id"]}/1.jpg')
        for category in content['categories']:
            category['id'] += number
        (tmp_path / f'{number}.json').write_text(json.dumps(content))
    file = folder_of(tmp_path / '0.json', tmp_path / 'data', 'annotations/0_train.json')
    shutil.copy(tmp_path / '1.json', file.parent / '1_train.json')
    for image in content['images']:
        (tmp_path / 'data/train' / image['file_name']).parent.mkdir()
        Image.new('RGB', (40, 30)).save(tmp_path / 'data/train' / image['file_name'])
    run_tool('convert_data', tmp_path / 'data', tmp_path / 'new', '--from', 'coco')
    file = tmp_path / 'new/annotations/train.json'
    check(file)
    joined, original = (sorted(objects for _, objects in samples(path)) for path in (file, ORIGINAL))
    assert joined == original and score(file)['coco/bbox_mAP'] == 1
    assert all((tmp_path / 'new/train' / image['file_name']).is_file() for image in read(file)['images'])
