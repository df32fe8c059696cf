"""Mistakes in detection and segmentation data end a run before it starts; the error names the setting or the file."""
import functools
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launch.building import build_run, datasets
from load_tool import ROOT
from mmdet.datasets import CocoDataset
from mmengine.config import Config
from mmengine.dataset import Compose
from PIL import Image
from templates_edited import recipe

import cvt_dense
from cvt_dense.annotations.data_sets import check_annotations, coco_files, reads_coco
from cvt_dense.config import redirect_data_root
from cvt_dense.engine import UnreadableImagesHook
from cvt_dense.errors import UserError
from cvt_dense.shapes import CLASSES

TRAIN, VAL = (f'detection/annotations/instances_{split}.json' for split in ('train', 'val'))
MAPS = 'segmentation/annotations/training'
HEADS = 'decode_head', 'auxiliary_head'


@pytest.fixture
def data(shapes, tmp_path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(shapes, tmp_path / 'data'))


def build(task: str, data: Path, *stages: str, **options: Any) -> dict[str, Any]:
    """Build a task's data sets, with options whose points are written as two underscores."""
    cfg = recipe(dict(detection='maskrcnn_cvt_nano_shapes', segmentation='upernet_cvt_nano_shapes')[task])
    cfg.merge_from_dict({key.replace('__', '.'): value for key, value in options.items()})
    redirect_data_root(cfg, str(data / task))
    return datasets(build_run(cfg, *(stages or ('train', 'val'))))


def edit(change, data: Path, file: str = TRAIN) -> None:
    """Apply ``change`` to an annotation file's content."""
    content = json.loads((data / file).read_text())
    change(content)
    (data / file).write_text(json.dumps(content))


def fill(data: Path, value: int, size: tuple[int, int] = (2, 3), number: int | None = 1) -> None:
    """Write a label into the corner of a training image's label map, or of all of them."""
    for path in sorted((data / MAPS).glob('*.png'))[:number]:
        pixels = np.array(Image.open(path))
        pixels[:size[0], :size[1]] = value
        Image.fromarray(pixels).save(path)


def each(file: str, **changes: Any):
    """Return an edit of all annotations of a file."""
    return functools.partial(edit, lambda content: [one.update(changes) for one in content['annotations']], file=file)


def unlink(folder: str):
    return lambda data: next((data / folder).glob('*.png')).unlink()


TRAIN_CLASSES = 'train_dataloader__dataset__metainfo__classes'
# Options or an edit of the data, and the setting or file that the error names. Errors of the frameworks come later, in
# a worker or at the first evaluation, or never. Faults of annotation files are in tests/annotations.
DETECTION = [
    (dict(train_dataloader__dataset__data_prefix__img='pictures/'), 'pictures'),
    ({TRAIN_CLASSES: (CLASSES[1], CLASSES[0], *CLASSES[2:])}, 'train_dataloader'),
    ({TRAIN_CLASSES: 'star'}, 'classes'),
    ({TRAIN_CLASSES: CLASSES[:7]}, r'train_dataloader .*roi_head\.bbox_head\.num_classes'),
    (dict(train_dataloader__dataset__metainfo=None), 'classes'),  # CocoDataset's own 80
    (dict(val_dataloader__dataset__ann_file=[VAL, TRAIN]), 'val_dataloader.*ann_file'),
    (dict(val_evaluator__ann_file='{data}/' + TRAIN), r'val_evaluator\.ann_file'),
    (dict(val_dataloader__dataset__indices=2), r'val_evaluator\.ann_file.* 4 .* 2,.*indices.*val_dataloader'),
    (dict(val_dataloader__dataset=dict(_delete_=True, type='RepeatDataset', times=2, dataset=dict(recipe(
        'maskrcnn_cvt_nano_shapes').val_dataloader.dataset, indices=2))), r'val_evaluator\.ann_file.* 4 .* 2 '),
    (dict(val_dataloader__batch_size=3, val_dataloader__drop_last=True), 'drop_last'),
    (dict(val_dataloader=None), 'val_dataloader.*val_cfg'),
    (dict(train_dataloader__dataset__filter__min_size=9), 'train_dataloader.*filter'),
    (dict(train_dataloader__dataset__filter_cfg__min_size=65), 'train_dataloader.*min_size'),
    (lambda data: (data / VAL).unlink(), 'instances_val.json'),
    (unlink('detection/train'), 'train_dataloader.* 1 of 8 .*data_prefix'),
    (each(TRAIN, ignore=1), 'train_dataloader'), (each(TRAIN, area=0), 'train_dataloader'),
    (each(VAL, iscrowd=1), 'val_dataloader.*crowd'),
    (each(VAL, bbox=[9, 9, .5, 9], segmentation=[[9, 9, 9.5, 9, 9.5, 18]]), 'val_.*format_only'),
    (functools.partial(edit, lambda content: content['images'][0].update(width=99), file=VAL), 'val_dataloader.*99')]
SEGMENTATION = [
    (dict(val_dataloader__dataset__metainfo__classes=(*CLASSES, 'background')), 'order'),
    (dict(model__decode_head__num_classes=5), r'model\.decode_head\.num_classes'),
    (functools.partial(fill, value=9), r'train_dataloader.*\[9\]'),
    (lambda data: Image.new('RGB', (64, 64)).save(next((data / MAPS).glob('*.png'))), 'png'),
    (unlink(MAPS), '1 of 8 files .*data_prefix'),
    (dict(train_dataloader__num_batch_per_epoch=1, train_dataloader__dataset__seg_map_suffix='.tif'), 'of 8 files'),
    *((functools.partial(fill, value=value, size=(64, 64), number=None), 'ignored') for value in (0, 255))]


@pytest.mark.parametrize('task, change, named', [
    *(('detection', *row) for row in DETECTION), *(('segmentation', *row) for row in SEGMENTATION)])
def test_data_that_do_not_fit_the_config_are_refused(data, task, change, named):
    options = change if isinstance(change, dict) else {}
    if not options:
        change(data)
    options = {key: value.format(data=data) if isinstance(value, str) else value for key, value in options.items()}
    with pytest.raises(UserError, match=named):
        build(task, data, **options)


def test_trainings_and_tests_check_their_annotation_files(data, tmp_path):
    edit(lambda content: [one.update(ignore=1) for one in content['annotations']], data)
    edit(lambda content: [one.update(ignore=1) for one in content['annotations']], data, VAL)
    config = ROOT / 'configs/maskrcnn_cvt_nano_shapes.py'
    settings = dict(data_root=data / 'detection', work_dir=tmp_path / 'a')
    with pytest.raises(UserError, match='ignore=1'):
        cvt_dense.train(config, **settings)
    (tmp_path / 'a.pth').touch()
    with pytest.raises(UserError, match='ignore=1'):
        cvt_dense.test(config, tmp_path / 'a.pth', **settings)


def test_good_data_pass(data, capsys):
    """Images without objects are left out of training only; three classes fit three outputs; the log counts losses."""
    def remove(content):
        image = content['images'][0]['id']
        content['annotations'] = [one for one in content['annotations'] if one['image_id'] != image]
        content['annotations'].append(dict(content['annotations'][-1], id=777777))  # a second time

    (data / 'segmentation/images/training/x.JPG').touch()
    assert {stage: len(dataset) for stage, dataset in build('segmentation', data).items()} == dict(train=8, val=4)
    edit(remove, data), edit(remove, data, VAL)
    assert {stage: len(dataset) for stage, dataset in build('detection', data).items()} == dict(train=7, val=4)
    assert re.search(r'(?s)x\.JPG.*777777.*filter_empty_gt', capsys.readouterr().out)
    assert len(build('detection', data, 'test', test_dataloader__dataset__metainfo__classes=CLASSES[:3],
                     model__roi_head__bbox_head__num_classes=3, model__roi_head__mask_head__num_classes=3)['test']) == 4
    assert 'category_id' in capsys.readouterr().out  # objects of the other classes


def test_a_detector_skips_images_that_cannot_be_read(data):
    """In training another image takes the place, in an evaluation a black one."""
    for split in ('train', 'val'):
        next((data / 'detection' / split).glob('*.png')).write_bytes(b'')
    built = build('detection', data, default_hooks__unreadable_images__max_share=.5)
    built['train'].pipeline = Compose(built['train'].pipeline.transforms)  # as mmdet's PipelineSwitchHook replaces it
    UnreadableImagesHook().before_train_epoch(SimpleNamespace(train_dataloader=SimpleNamespace(dataset=built['train'])))
    assert [sum(not sample['inputs'].any() for sample in samples) for samples in built.values()] == [0, 1]


def test_zero_label_reduced(data):
    """0 is ignored and 1 becomes class 0, so of 9 stored values 8 are classes."""
    options = {f'{stage}_dataloader__dataset__{key}': value for stage in ('train', 'val') for key, value in (
        ('reduce_zero_label', True), ('metainfo', dict(classes=CLASSES, palette=[(0, 0, 0)] * 8)))}
    options |= {f'model__{head}__num_classes': 8 for head in HEADS}
    build('segmentation', data, **options)
    heads = {f'model__{head}__ignore_index': 0 for head in HEADS}  # what is ignored must be so for the head too
    with pytest.raises(UserError, match='seg_pad_val'):
        build('segmentation', data, **options, **heads)
    with pytest.raises(UserError, match=r'\[255\]'):
        build('segmentation', data, **options, **heads, model__data_preprocessor__seg_pad_val=0)
    fill(data, 9)
    with pytest.raises(UserError, match=r'\[8\]'):
        build('segmentation', data, **options)


def test_file_of_test_images(data, tmp_path):
    """COCO's test-dev: no annotations at all; its results are sent in."""
    edit(lambda content: content.pop('annotations'), data, VAL)
    with pytest.raises(UserError, match='test_evaluator'):
        build('detection', data, 'test')
    written = dict(test_evaluator__format_only=True, test_evaluator__outfile_prefix=str(tmp_path / 'results'))
    assert len(build('detection', data, 'test', **written)['test']) == 4


@pytest.mark.parametrize('changes', [{}, dict(type='DeepFashionDataset'), dict(backend_args=dict(backend='local'))])
def test_files_of_boxes(data, capsys, changes):
    """Also of subclasses and the local backend; 'segmentation' in a path asks for no masks."""
    edit(lambda content: [one.pop('segmentation') for one in content['annotations']], data, VAL)
    file = str(shutil.move(data / VAL, data / 'segmentation'))
    node = dict(type='CocoDataset', ann_file=file, metainfo=dict(classes=CLASSES)) | changes
    cfg = Config(dict(default_scope='mmdet', val_dataloader=dict(dataset=node),
                      val_evaluator=dict(type='CocoMetric', ann_file=file, metric='bbox')))
    check_annotations(cfg, ['val'])
    assert [file.uses for file in coco_files(cfg, 'val')] == [{'read', 'scored'}]
    own = type('Own', (CocoDataset, ), dict(parse_data_info=lambda self, info: None))
    assert reads_coco(CocoDataset) and not reads_coco(own)
    cfg.val_dataloader.dataset.type, cfg.val_evaluator.type = 'CocoPanopticDataset', 'CocoPanopticMetric'
    assert not coco_files(cfg, 'val') and 'CocoPanopticDataset' in capsys.readouterr().out


def test_joined_data_sets_have_the_same_classes(data):
    first = recipe('maskrcnn_cvt_nano_shapes').train_dataloader.dataset
    second = dict(first, ann_file=str(shutil.copy(data / TRAIN, data)), metainfo=dict(classes=CLASSES[:3]))
    joined = dict(_delete_=True, type='ConcatDataset', datasets=[first, second])
    edit(lambda content: content.update(categories=content['categories'][:3]), data, Path(TRAIN).name)
    with pytest.raises(UserError, match='other classes'):
        build('detection', data, train_dataloader__dataset=joined)


def test_a_package_that_an_augmentation_lacks(data, monkeypatch):
    monkeypatch.setattr('mmdet.datasets.transforms.transforms.Compose', None)
    with pytest.raises(UserError, match='albumentations'):
        build('detection', data, train_dataloader__dataset__pipeline=[dict(type='Albu', transforms=[])])


def test_several_data_sets_are_scored_each_by_its_own_file(data):
    """One metric for both would take the images of one file for those of the other, whose ids are the same."""
    def number_of_images(files: int) -> int:
        """Return how many images a validation with two data sets and so many metrics reads."""
        cfg = recipe('maskrcnn_cvt_nano_shapes')
        first, metric = cfg.val_dataloader.dataset, cfg.val_evaluator
        second = dict(first, ann_file=cfg.train_dataloader.dataset.ann_file, data_prefix=dict(img='train/'))
        metrics = [metric, dict(metric, ann_file=f'{data}/{TRAIN}')][:files]
        return len(build('detection', data, 'test', **{
            'test_dataloader__dataset': dict(_delete_=True, type='ConcatDataset', datasets=[first, second]),
            'test_evaluator': dict(_delete_=True, type='MultiDatasetsEvaluator', metrics=metrics,
                                  dataset_prefixes=['a', 'b'])})['test'])

    assert number_of_images(2) == 12
    with pytest.raises(UserError, match='datasets.1.ann_file'):
        number_of_images(1)
