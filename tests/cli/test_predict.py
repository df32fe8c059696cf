"""Predictions are those of the test data sets and of mm's functions; tools/predict.py draws and names mistakes."""
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import load_tool, run_tool
from mmdet.structures import DetDataSample
from mmengine.registry import DATASETS
from mmengine.structures import InstanceData
from PIL import Image

from cvt_dense import inference as api
from cvt_dense.annotations import convert
from cvt_dense.errors import UserError
from cvt_dense.inference import Model
from cvt_dense.report.pictures import draw_labels, grid
from cvt_dense.shapes import CLASSES

TASKS = ('classification', 'detection', 'segmentation')
VAL = dict(classification='classification/val/ring', detection='detection/val',
           segmentation='segmentation/images/validation')
tool = load_tool('predict')


predict = partial(run_tool, 'predict')


# -- the predictions -----------------------------------------------------------------------------------


def test_detector_as_mmdetection(models, nano, shapes):
    from mmdet.apis import inference_detector, init_detector
    image = shapes / VAL['detection'] / '00000.png'
    predicted = api.predict(models['detection'], image, by_class=True)
    expected = inference_detector(init_detector(*map(str, nano['detection']), device='cpu'), str(image)).pred_instances
    assert len(predicted) > 5 and list(predicted['class_name']) == [CLASSES[i] for i in predicted.class_id]
    np.testing.assert_array_equal(predicted.xyxy, expected.bboxes)
    np.testing.assert_array_equal(predicted.mask, expected.masks)
    threshold = float(np.median(predicted.confidence))
    above = api.predict(models['detection'], image, score_thr=threshold, by_class=True)
    assert above == predicted[predicted.confidence >= threshold] and len(above) < len(predicted)


@pytest.mark.parametrize('slice, overlap', [(None, 0.2), (96, 0.)])
def test_an_object_has_one_label(models, monkeypatch, slice, overlap):
    """Of boxes that are one the best is kept, and another object of the same class beside it."""
    found = DetDataSample(pred_instances=InstanceData(
        bboxes=torch.tensor([[0, 0, 40, 40], [0, 0, 38, 40], [15, 0, 55, 40]]).float(), labels=torch.tensor([1, 0, 1]),
        scores=torch.tensor([.5, .6, .4])))
    monkeypatch.setattr(Model, 'run', lambda self, batch: [found] * len(batch['inputs']))
    image = np.zeros((96, 96 if slice is None else 180, 3), np.uint8)
    every, single = (api.predict(models['detection'], image, slice, overlap, by_class=each) for each in (True, False))
    copies = 1 if slice is None else 2
    assert sorted(every.class_id) == sorted([1, 0, 1] * copies) and sorted(single.class_id) == sorted([0, 1] * copies)
    assert set(single['class_name']) == set(CLASSES[:2])


def test_classifier_sees_what_its_data_set_gives(models, tmp_path):
    """Files that decoders turn into RGB in different ways; test_image_dataset.py has turned photographs."""
    model = models['classification']
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((140, 100))
    folder = tmp_path / 'ring'
    folder.mkdir()
    for mode in ('L', 'P', 'CMYK', 'RGBA', 'I;16'):
        pixels = photo.convert('L').point(lambda value: value * 100, 'I').convert('I;16') if mode == 'I;16' else photo
        pixels.convert(mode).save(folder / f'{mode.replace(";", "")}.{"jpg" if mode == "CMYK" else "png"}')
    dataset = DATASETS.build(dict(model.cfg.test_dataloader.dataset, data_root=str(tmp_path), split=''))
    assert len(dataset) == 5
    for sample in dataset:
        prepared = model.pipeline(dict(img=model.read(tmp_path / sample['paths'])))
        assert torch.equal(prepared['inputs'], torch.as_tensor(sample['inputs'])), sample['paths']
    pairs = api.predict(model, folder / Path(dataset[0]['paths']).name)
    logits = model.network.test_step(dict(inputs=torch.as_tensor(dataset[0]['inputs'])[None]))[0]['logits']
    assert [name for name, _ in pairs] == [CLASSES[i] for i in logits.argsort(descending=True)]
    assert sum(score for _, score in pairs) == pytest.approx(1)


@pytest.mark.parametrize('task', TASKS)
def test_a_list_gives_what_each_image_gives(models, shapes, task):
    """Whether it is an array, a path, bytes or an image of Pillow."""
    model = models[task]
    path = next((shapes / VAL[task]).glob('*.png'))
    array = model.read(path)
    images = [array, path, str(path), path.read_bytes(), Image.open(path), array[:, :96]]  # the last of another size
    expected = [api.predict(model, array)] * 5 + [api.predict(model, images[-1])]
    for predicted, alone in zip(api.predict(model, images), expected, strict=True):
        if task == 'classification':
            assert dict(predicted) == pytest.approx(dict(alone), abs=1e-5)
        elif task == 'detection':
            np.testing.assert_allclose(predicted.xyxy, alone.xyxy, atol=1e-3)
        else:
            assert (predicted == alone).mean() > 0.999


# -- the pictures --------------------------------------------------------------------------------------


def test_pictures_are_tinted_in_the_colours_of_the_classes(nano, shapes, tmp_path):
    """Small images are enlarged."""
    config, checkpoint = nano['segmentation']
    output = predict(config, checkpoint, shapes / VAL['segmentation'], '--out-dir', tmp_path)
    assert f'2 of 2 pictures -> {tmp_path}/overview.png' in output
    model = api.load(config, checkpoint, device='cpu')
    for name in ('00000.png', '00001.png'):
        picture = np.asarray(Image.open(tmp_path / name), float)
        scene = np.asarray(Image.open(shapes / VAL['segmentation'] / name).resize((512, 512), Image.Resampling.BICUBIC))
        labels = api.predict(model, shapes / VAL['segmentation'] / name).repeat(4, 0).repeat(4, 1)
        tinted = 0.4 * scene + 0.6 * np.array(model.palette)[labels]
        assert (np.abs(picture - tinted).max(2) <= 2).mean() > 0.5, name
    grid([('$_{$ is no formula', picture.astype(np.uint8))], 1)


def test_the_background_is_neither_tinted_nor_named():
    labels, white = np.arange(3).repeat(80)[:, None].repeat(240, 1), np.full((240, 240, 3), 255, np.uint8)
    picture = draw_labels(white, labels, ['dog', 'Background', 'background'].__getitem__, [(0, 0, 255)] * 3)
    assert [(picture[labels == i] == 255).all() for i in range(3)] == [False, True, False]


# -- predictions as annotations ------------------------------------------------------------------------


def test_saved_predictions_are_read_back_as_annotations(models, nano, shapes, tmp_path):
    """Boxes and masks are those of the prediction."""
    folder, images, total = tmp_path / 'coco', sorted((shapes / VAL['detection']).glob('*.png')), 0
    output = predict(*nano['detection'], *images, '--out-dir', tmp_path, '--save', 'coco', '--score-thr', 0.15)
    data = convert.read(folder, 'coco')
    assert f'2 images -> {folder}' in output and '--from coco' in output
    assert [sample.split for sample in data.samples] == ['train', 'train']
    for sample, path in zip(data.samples, images, strict=True):
        assert sample.path.read_bytes() == path.read_bytes()
        predicted = api.predict(models['detection'], path, score_thr=0.15)
        predicted = predicted[predicted.mask.any((1, 2))]
        names = [data.classes[annotation['category_id']] for annotation in sample.objects]
        total += len(names)
        assert sorted(names) == sorted(predicted['class_name']), output
        np.testing.assert_allclose([annotation['bbox'] for annotation in sample.objects],
                                   [[x, y, r - x, b - y] for x, y, r, b in predicted.xyxy], atol=1e-3)
        masks = [convert.decode(annotation, sample) for annotation in sample.objects]
        np.testing.assert_array_equal(masks, predicted.mask)
    assert total > 2


def test_label_maps_are_saved_once(models, nano, shapes, tmp_path):
    images = sorted((shapes / VAL['segmentation']).glob('*.png'))
    command = *nano['segmentation'], *images, '--out-dir', tmp_path, '--save', 'masks'
    predict(*command)
    assert str(tmp_path / 'masks') in predict(*command, '--force', rc=2)
    for path in images:
        assert (tmp_path / 'masks/images/train' / path.name).read_bytes() == path.read_bytes()
        label_map = np.asarray(Image.open(tmp_path / f'masks/labels/train/{path.stem}.png'))
        np.testing.assert_array_equal(label_map, api.predict(models['segmentation'], path))


# -- mistakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize('changes, words', [
    (dict(image='no.jpg', checkpoint='no.pth'), 'no.jpg'),  # before the checkpoint is read
    (dict(config=Path(__file__).parents[2] / 'configs/upernet_cvt_nano_shapes.py'), 'classification.pth'),
    (dict(flags=['--score-thr', 'nan']), '--score-thr'), (dict(flags=['--score-thr', '0.5']), 'score_thr'),
    (dict(flags=['--overlap', '0.5']), 'overlap'), (dict(flags=['--runtime', 'openvino']), 'runtime'),
    (dict(flags=['--save', 'coco']), '--save'),
    (dict(flags=['--cfg-options', 'modle.num_classes=8']), 'modle'),
], ids=lambda value: '' if isinstance(value, str) else next(iter(value)))
def test_a_refused_call_names_the_flag_or_file(nano, shapes, tmp_path, changes, words):
    config, checkpoint = nano['classification']
    args = dict(dict(config=config, checkpoint=checkpoint, image=shapes / VAL['classification'], flags=[]), **changes)
    output = predict(args['config'], args['checkpoint'], args['image'], *args['flags'], '--out-dir', tmp_path / 'out',
                     rc=2)
    assert words in output and 'Traceback' not in output and not (tmp_path / 'out').exists()


def test_neither_a_picture_nor_an_image_is_overwritten(nano, shapes, tmp_path):
    """The image not even with --force."""
    image = Path(shutil.copy(shapes / VAL['classification'] / '00000.png', tmp_path))
    before, command = image.read_bytes(), (*nano['classification'], image, '--out-dir')
    assert '00000.png' in predict(*command, tmp_path, '--force', rc=2) and image.read_bytes() == before
    predict(*command, tmp_path / 'out')
    assert '--force' in predict(*command, tmp_path / 'out', rc=2)
    predict(*command, tmp_path / 'out', '--force')


def test_folders_and_names(tmp_path, capsys):
    hidden = 'a/._x.png', 'a/.x.png', '.ipynb_checkpoints/x.png', '__MACOSX/x.png'
    for name in ('a/x.png', 'a/y.JPG', 'a/note.txt', 'b/x.jpg', 'x_2.png', *hidden):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    images = tool.find_images([str(tmp_path / 'a'), str(tmp_path / 'b/x.jpg'), str(tmp_path / 'x_2.png')])
    assert [str(path.relative_to(tmp_path)) for path in images] == ['a/x.png', 'a/y.JPG', 'b/x.jpg', 'x_2.png']
    assert re.search('a: 1 ', capsys.readouterr().out)
    names = [path.name for path in tool.name_pictures(images, tmp_path / 'out')]
    assert names == ['a_x.png', 'a_y.jpg', 'b_x.jpg', f'{tmp_path.name}_x_2.png']
    assert tool.name_pictures(images[:1] * 2, tmp_path / 'out')[1].name == 'a_x_2.png'
    assert tool.name_pictures([Path('x.jpg'), Path('x_labels.png')], Path())[1].name == 'x_labels_2.png'
    (tmp_path / 'empty').mkdir()
    with pytest.raises(UserError, match='empty'):
        tool.find_images([str(tmp_path / 'empty')])
