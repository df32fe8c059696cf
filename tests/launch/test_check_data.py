"""Mistakes in detection and segmentation data end a run before it starts, with a message that names the remedy."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from _shapes import CLASSES, generate
from mmengine.config import Config
from mmengine.registry import init_default_scope
from PIL import Image

import cvt_dense  # noqa: F401
from cvt_dense.config.read import redirect_data_root
from cvt_dense.errors import UserError
from cvt_dense.launch.build import load_datasets
from cvt_dense.launch.checks import classes, coco, label_maps

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def shapes(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp('shapes') / 'data', size=64, train=4, val=3, train_per_class=1,
                    val_per_class=1)


@pytest.fixture
def data(shapes, tmp_path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(shapes, tmp_path / 'data'))


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """What the checks write into the log."""
    written = []
    for module in (coco, classes, label_maps):
        monkeypatch.setattr(module, 'print_log', lambda text, **options: written.append(text))
    return written


def build(config: str, data: Path, *stages: str, **options):
    cfg = Config.fromfile(ROOT / f'configs/{config}.py')
    cfg.merge_from_dict({key.replace('__', '.'): value for key, value in options.items()})
    redirect_data_root(cfg, str(data / ('detection' if 'maskrcnn' in config else 'segmentation')))
    init_default_scope(cfg.default_scope)
    return load_datasets(cfg, list(stages or ('train', 'val')))


def detection(data: Path, *stages: str, **options):
    return build('maskrcnn_cvt_nano_shapes', data, *stages, **options)


def segmentation(data: Path, *stages: str, **options):
    return build('upernet_cvt_nano_shapes', data, *stages, **options)


def edit(data: Path, change, split: str = 'train') -> Path:
    """Applies ``change`` to an annotation file's content."""
    file = data / f'detection/annotations/instances_{split}.json'
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return file


def fill(path: Path, value: int) -> None:
    pixels = np.array(Image.open(path))
    pixels[:2, :3] = value
    Image.fromarray(pixels).save(path)


def test_good_data_pass(data):
    assert {stage: len(dataset) for stage, dataset in detection(data).items()} == dict(train=4, val=3)
    assert {stage: len(dataset) for stage, dataset in segmentation(data).items()} == dict(train=4, val=3)


# -- COCO ------------------------------------------------------------------------------------------


def test_annotation_file_missing(data):
    (data / 'detection/annotations/instances_val.json').unlink()
    with pytest.raises(UserError, match='instances_val.json'):
        detection(data)


@pytest.mark.parametrize('content', ['{"images": [', 'GIF89a\xff', ''])
def test_annotation_file_not_json(data, content):
    (data / 'detection/annotations/instances_train.json').write_bytes(content.encode('latin-1'))
    with pytest.raises(UserError, match=r'train_dataloader.*instances_train\.json.*JSON'):
        detection(data)


def test_image_folder_missing(data):
    with pytest.raises(UserError, match='pictures'):
        detection(data, train_dataloader__dataset__data_prefix__img='pictures/')


def test_images_missing(data):
    first, second = sorted((data / 'detection/train').glob('*.png'))[:2]
    first.unlink(), second.unlink()
    with pytest.raises(UserError, match=rf'train_dataloader.* 2 of 4 .*{first.name}.*data_prefix'):
        detection(data)


def test_categories_under_other_names(data):
    file = edit(data, lambda content: content['categories'][2].update(name='moon'))
    with pytest.raises(UserError, match=rf"classes.*'crescent'.*1 of 8.*{file}.*'moon'"):
        detection(data)


def test_classes_in_another_order(data):
    """The framework would number the classes in the file's order and print the config's names."""
    classes = (CLASSES[1], CLASSES[0], *CLASSES[2:])
    with pytest.raises(UserError, match=r"order .*\['arrow', 'circle', 'cres"):
        detection(data, train_dataloader__dataset__metainfo__classes=classes)


def test_one_class_without_comma(data):
    with pytest.raises(UserError, match=r"classes='star'.*\('star', \)"):
        detection(data, train_dataloader__dataset__metainfo__classes='star')


def test_fewer_classes_than_categories_need_a_head_to_match(data, caplog):
    options = {f'{stage}_dataloader__dataset__metainfo__classes': CLASSES[:7] for stage in ('train', 'val')}
    with pytest.raises(UserError, match=r'train_dataloader .*7 .*roi_head\.bbox_head\.num_classes is 8.* 7'):
        detection(data, **options)
    heads = dict(model__roi_head__bbox_head__num_classes=7, model__roi_head__mask_head__num_classes=7)
    assert len(detection(data, 'val', **options, **heads)['val']) == 3


def test_annotation_of_something_unknown(data, lines):
    edit(data, lambda content: content['annotations'][0].update(image_id=999))
    detection(data)
    assert any('1 annotations in ' in line and 'are left out' in line for line in lines)
    edit(data, lambda content: content['annotations'][0].update(category_id=77))
    with pytest.raises(UserError, match='category_id.*category_id 77'):
        detection(data)


@pytest.mark.parametrize('key, remedy', [
    ('area', 'of the mask, or width . height of the box'), ('iscrowd', '0'), ('id', 'a number from 1 of its own')])
def test_annotation_without_what_scores_need(data, key, remedy):
    """Home-made files: KeyErrors in MMDetection, those of 'iscrowd' not before the first evaluation."""
    edit(data, lambda content: content['annotations'][0].pop(key), 'val')
    with pytest.raises(UserError, match=rf"1 of \d+ .*'{key}', .*{remedy}"):
        detection(data)
    if key == 'iscrowd':
        edit(data, lambda content: content['annotations'][0].pop(key))
        assert len(detection(data, 'train')['train']) == 4


def test_images_without_annotations_are_left_out_of_training_only(data):
    def remove(content):
        image = content['images'][0]['id']
        content['annotations'] = [a for a in content['annotations'] if a['image_id'] != image]

    edit(data, remove), edit(data, remove, 'val')
    assert {stage: len(dataset) for stage, dataset in detection(data).items()} == dict(train=3, val=3)


def test_no_annotation_at_all(data):
    edit(data, lambda content: content.update(annotations=[]))
    with pytest.raises(UserError, match='none of the 4 images '):
        detection(data)


def test_evaluator_with_another_file(data):
    with pytest.raises(UserError, match=r'val_evaluator\.ann_file .*instances_train\.json.*val_dataloader'):
        detection(data, val_evaluator__ann_file=str(data / 'detection/annotations/instances_train.json'))


def test_classes_of_the_data_set_itself_are_known(data):
    """Without metainfo the classes are CocoDataset's own 80."""
    cfg = dict(model__roi_head__bbox_head__num_classes=80, model__roi_head__mask_head__num_classes=80,
               train_dataloader__dataset__metainfo=None)
    with pytest.raises(UserError, match=r"classes \['person', .*80 of 80"):
        detection(data, 'train', **cfg)


# -- label maps ------------------------------------------------------------------------------------


@pytest.mark.parametrize('split, stage', [('training', 'train'), ('validation', 'val')])
def test_value_beyond_the_classes(data, split, stage):
    path = sorted((data / f'segmentation/annotations/{split}').glob('*.png'))[1]
    fill(path, 9)
    with pytest.raises(UserError, match=rf'{stage}_dataloader.*{path}.*\[9\].*0 to 8 .*\[255\]'):
        segmentation(data)


def test_zero_label_reduced(data):
    """0 is ignored and 1 becomes class 0, so of 9 stored values 8 are classes."""
    options = {f'{stage}_dataloader__dataset__{key}': value for stage in ('train', 'val') for key, value in (
        ('reduce_zero_label', True), ('metainfo', dict(classes=CLASSES, palette=[(0, 0, 0)] * 8)))}
    heads = dict(model__decode_head__num_classes=8, model__auxiliary_head__num_classes=8)
    segmentation(data, **options, **heads)
    fill(next((data / 'segmentation/annotations/training').glob('*.png')), 9)
    with pytest.raises(UserError, match=r'\[9\].*allowed.* 1 to 8 .*\[0, 255\]'):
        segmentation(data, **options, **heads)


def test_label_map_in_colour(data):
    path = next((data / 'segmentation/annotations/training').glob('*.png'))
    Image.new('RGB', (64, 64)).save(path)
    with pytest.raises(UserError, match=f"{path}.*mode 'RGB'"):
        segmentation(data)


def test_label_map_missing(data):
    path = next((data / 'segmentation/annotations/training').glob('*.png'))
    path.unlink()
    with pytest.raises(UserError, match=f'1 of 4 files .*{path}.*data_prefix'):
        segmentation(data)


def test_everything_ignored(data):
    for path in (data / 'segmentation/annotations/training').glob('*.png'):
        Image.new('L', (64, 64), 255).save(path)
    with pytest.raises(UserError, match='4 label maps .*ignored'):
        segmentation(data)


def test_head_with_other_classes(data):
    with pytest.raises(UserError, match=r'9 classes.*model\.decode_head\.num_classes is 5'):
        segmentation(data, model__decode_head__num_classes=5)


# -- what is right, if unusual, passes -------------------------------------------------------------


def test_file_of_test_images(data, tmp_path):
    """COCO's test-dev: no annotations at all; its results are sent in."""
    edit(data, lambda content: content.pop('annotations'), 'val')
    with pytest.raises(UserError, match='format_only=True and outfile_prefix in test_evaluator'):
        detection(data, 'test')
    written = dict(test_evaluator__format_only=True, test_evaluator__outfile_prefix=str(tmp_path / 'results'))
    assert len(detection(data, 'test', **written)['test']) == 3


def test_evaluators_file_may_have_more_images(data):
    """The score is of the images that are loaded."""
    full = data / 'detection/annotations/instances_val.json'
    content = json.loads(full.read_text())
    first = content['images'][0]['id']
    content.update(images=content['images'][:1],
                   annotations=[a for a in content['annotations'] if a['image_id'] == first])
    full.with_name('first.json').write_text(json.dumps(content))
    options = dict(val_dataloader__dataset__ann_file='annotations/first.json')
    assert len(detection(data, 'val', **options, val_evaluator__ann_file=str(full))['val']) == 1
    full.with_name('first.json').write_text(json.dumps(dict(content, annotations=content['annotations'][:1])))
    if len(content['annotations']) > 1:
        with pytest.raises(UserError, match='other images or objects'):
            detection(data, 'val', **options, val_evaluator__ann_file=str(full))


@pytest.mark.parametrize('mask', [None, [], [[]], [[1, 2, 3, 4]]])
def test_boxes_without_masks_under_a_mask_head(data, mask):
    """A worker would die with KeyError: 'mask', or every object would be left out."""
    def bare(content):
        for annotation in content['annotations']:
            annotation.pop('segmentation')
            if mask is not None:
                annotation['segmentation'] = mask

    edit(data, bare)
    with pytest.raises(UserError, match='train_dataloader.* mask .*fasterrcnn_cvt13_custom.*retinanet_cvt13_custom'):
        detection(data)


# -- as a user sees it -----------------------------------------------------------------------------


@pytest.mark.parametrize('tool', ['train', 'test'])
def test_command_ends_with_a_paragraph(run_tool, data, tmp_path, tool):
    if tool == 'train':
        fill(next((data / 'segmentation/annotations/training').glob('*.png')), 200)
        args = ('tools/train.py', 'configs/upernet_cvt_nano_shapes.py', '--data-root', data / 'segmentation')
    else:
        edit(data, lambda content: content['categories'][0].update(name='dart'), 'val')
        (tmp_path / 'a.pth').touch()
        args = ('tools/test.py', 'configs/maskrcnn_cvt_nano_shapes.py', tmp_path / 'a.pth', '--data-root',
                data / 'detection')
    result = run_tool(*args, '--work-dir', tmp_path / 'work', rc=2)
    assert 'Traceback' not in result.stdout
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith('error: ') and ('holds the values [200]' in last or "classes ['arrow']" in last)
    assert not (tmp_path / 'work').exists()


def test_one_polygon_without_area_in_the_data_of_an_evaluation(data):
    """pycocotools cannot read it, which would end the training at its first evaluation."""
    edit(data, lambda content: content['annotations'][0].update(segmentation=[[]]), 'val')
    with pytest.raises(UserError, match='val_dataloader.*1 of'):
        detection(data)
