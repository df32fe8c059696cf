"""tools/predict.py draws for all three tasks, and says what is wrong with its input."""
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from _shapes import CLASSES, generate
from load_tool import load_tool
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from PIL import Image

from cvt_dense.errors import UserError
from cvt_dense.palette import choose_palette

ROOT = Path(__file__).resolve().parents[2]
predict = load_tool('predict')
import _pictures
from _annotations import find_annotations
from _pictures import Object


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp('data') / 'shapes',
                    train=1,
                    val=2,
                    train_per_class=1,
                    val_per_class=1)


@pytest.fixture(scope='module')
def classifier(tmp_path_factory) -> Path:
    """A checkpoint of configs/cvt_nano_shapes.py, untrained, as the Runner writes it."""
    cfg = Config.fromfile(ROOT / 'configs' / 'cvt_nano_shapes.py')
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp('checkpoint') / 'epoch_1.pth'
    torch.save(
        dict(state_dict=MODELS.build(cfg.model).state_dict(), meta=dict(dataset_meta=dict(classes=CLASSES))),
        path)
    return path


def test_classification(data, classifier, run_tool, tmp_path):
    """Two folders with the same file names give two pictures each; small images are drawn enlarged."""
    folders = [data / 'classification' / 'val' / name for name in ('arrow', 'star')]
    result = run_tool('tools/predict.py', 'configs/cvt_nano_shapes.py', classifier, *folders, '--out-dir',
                      tmp_path, '--ground-truth', '--data-root', data / 'classification')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['arrow_00000.png', 'overview.png', 'star_00000.png']
    for folder, name in zip(folders, ('arrow_00000.png', 'star_00000.png')):
        line, = re.findall(
            rf'^{re.escape(str(folder))}/00000.png -> {re.escape(str(tmp_path))}/{name}: (.*); '
            rf'annotated: {folder.name}$',
            result.stdout, re.M)
        top = [part.split() for part in line.split(', ')]
        scores = [float(score) for _, score in top]
        assert len(top) == 5 and {label for label, _ in top} < set(CLASSES)
        assert scores == sorted(scores, reverse=True) and 1 / 8 < sum(scores) < 1.03
        picture = Image.open(tmp_path / name)
        assert picture.width == 512 and picture.height > 512
        drawn = np.asarray(picture.crop((0, 0, 512, 512)).resize((64, 64), Image.Resampling.BOX), float)
        assert np.abs(drawn - np.asarray(Image.open(folder / '00000.png'), float)).mean() < 3


@pytest.mark.parametrize('config, part, pattern', [
    ('maskrcnn_cvt_nano_shapes.py', 'detection/val',
     r'(nothing with a score|[a-z]+ [01]\.\d\d).*; annotated: \d [a-z]+'),
    ('upernet_cvt_nano_shapes.py', 'segmentation/images/validation',
     r'[a-z]+ \d+\.\d%.*; annotated the same: \d+\.\d% of the annotated pixels')])
def test_dense(data, run_tool, tmp_path, config, part, pattern):
    """Trained for one iteration by tools/train.py, since only mmdet and mmseg can build these."""
    root = data / part.split('/')[0]
    run_tool('tools/train.py', f'configs/{config}', '--data-root', root, '--work-dir', tmp_path / 'run',
             '--cfg-options', 'train_cfg.max_iters=1', 'train_dataloader.batch_size=2')
    checkpoint = tmp_path / 'run' / 'iter_1.pth'
    result = run_tool('tools/predict.py', f'configs/{config}', checkpoint, data / part, '--out-dir', tmp_path / 'out',
                      '--score-thr', '0.01', '--ground-truth', '--data-root', root)
    pictures = sorted((tmp_path / 'out').iterdir())
    assert [path.name for path in pictures] == ['00000.png', '00001.png', 'overview.png']
    assert f'2 of 2 pictures -> {pictures.pop()}' in result.stdout
    classes = (('background', *CLASSES) if config.startswith('upernet') else CLASSES)
    palette = np.array(choose_palette(classes))
    meta = torch.load(checkpoint, weights_only=False)['meta']
    dumped = Config.fromfile(tmp_path / 'run' / config).train_dataloader.dataset.metainfo
    assert (np.array(meta['dataset_meta']['palette']) == palette).all() and (np.array(dumped.palette) == palette).all()
    for path in pictures:
        assert re.search(rf'{path.name} -> {re.escape(str(path))}: {pattern}', result.stdout)
        picture = np.asarray(Image.open(path).convert('RGB'), float)
        gap = picture.shape[1] - 2 * 512  # between annotation and prediction, each below its title
        title = next(y for y in range(100) if (picture[y, :512] != 255).any(1).all())
        assert 0 < gap < 20 and picture.shape[0] > title + 512
        scene = Image.open(data / part / path.name).resize((512, 512), Image.Resampling.BICUBIC)
        annotation, prediction = picture[title:title + 512, :512], picture[title:title + 512, -512:]
        assert np.abs(prediction - np.asarray(scene)).mean() > 2, 'something is drawn'
        labels = np.asarray(Image.open(data / 'segmentation' / 'annotations' / 'validation' / path.name))
        labels = labels.repeat(4, 0).repeat(4, 1)
        if config.startswith('upernet'):
            assert np.abs(annotation - (0.4 * np.asarray(scene) + 0.6 * palette[labels])).max() <= 1
        else:  # within each shape most pixels are tinted in its class's colour
            tinted = 0.65 * np.asarray(scene) + 0.35 * palette[np.maximum(labels, 1) - 1]
            for label in set(labels.ravel().tolist()) - {0}:
                inside = labels == label
                assert (np.abs(annotation - tinted).max(2)[inside] <= 1).mean() > 0.5, CLASSES[label - 1]


def test_labels_hide_no_object_and_no_other_label():
    """Of a crowd of small objects, and a large one around them; what finds no place is in the legend."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 600, (40, 2))
    boxes = [(0., 0., 640., 480.), *((x, min(y, 450.), x + 30, min(y, 450.) + 25) for x, y in corners.tolist())]
    placed = []
    for box in boxes:
        place = _pictures._place_label((70., 26.), box, boxes, placed, (640, 480), 2)
        if place is not None:
            placed.append(place)
            assert 0 <= place[0] < place[2] <= 640 and 0 <= place[1] < place[3] <= 480
    assert len(placed) > 10
    shared = _pictures._shared_area
    assert not any(shared(a, b) for a, b in combinations(placed, 2))
    assert max(shared(place, box) / (30 * 25) for place in placed for box in boxes[1:]) <= _pictures.MAX_HIDDEN


def test_a_small_object_is_not_hidden():
    """Not by its own frame and label; texts grow with the picture."""
    image = np.full((1000, 2000, 3), 90, np.uint8)
    found = [Object(0, (500., 400., 512., 410.), None, 0.666)]
    drawn = _pictures.draw_objects(image, found, ('cell', ), [(200, 0, 0)])
    assert (drawn[401:410, 501:512] == 90).all()
    rows = np.flatnonzero((drawn != 90).any((1, 2)))
    assert 40 < rows.max() - rows.min() < 120 and _pictures.text_size(image) == 57
    assert _pictures.text_size(np.zeros((512, 512, 3))) == 20


def test_input_is_the_data_sets(tmp_path, classifier, monkeypatch):
    """For each EXIF orientation, and for files that decoders turn into RGB in different ways."""
    seen = []
    monkeypatch.setattr('cvt_dense.models.classifier.ImageClassifier.test_step',
                        lambda self, data: seen.append(data['inputs'][0]) or [dict(logits=torch.zeros(8))])
    read, predictor = build(arguments(tmp_path, checkpoint=str(classifier)))
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((140, 100))
    (tmp_path / 'a').mkdir()
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        photo.save(tmp_path / f'a/{orientation}.jpg', exif=exif)
    for mode in ('L', 'P', 'CMYK', 'RGBA', 'I;16'):
        pixels = photo.convert('L').point(lambda value: value * 100, 'I').convert('I;16') if mode == 'I;16' else photo
        pixels.convert(mode).save(tmp_path / f'a/{mode.replace(";", "")}.{"jpg" if mode == "CMYK" else "png"}')
    cfg = Config.fromfile(ROOT / 'configs' / 'cvt_nano_shapes.py')
    dataset = DATASETS.build(dict(cfg.test_dataloader.dataset, data_root=str(tmp_path), split=''))
    for sample in dataset:
        picture, _ = predictor(read(tmp_path / sample['paths']))
        assert torch.equal(seen.pop(), sample['inputs']), sample['paths']
    assert len(dataset) == 13 and sum(Image.fromarray(read(tmp_path / f'a/{i}.jpg')).size == (100, 140)
                                      for i in range(1, 9)) == 4


def test_unreadable_image_is_named_and_the_others_are_drawn(data, classifier, run_tool, tmp_path):
    broken = tmp_path / 'broken.jpg'
    broken.write_bytes(b'no image')
    good = data / 'classification' / 'val' / 'ring' / '00000.png'
    result = run_tool('tools/predict.py', 'configs/cvt_nano_shapes.py', classifier, broken, good,
                      '--out-dir', tmp_path / 'out', rc=2)
    assert f'error: 1 of 2 images cannot be read: {broken}. The others were drawn.' in result.stdout
    assert [path.name for path in (tmp_path / 'out').iterdir()] == ['00000.png']


def test_outputs_without_a_name_are_drawn_by_number(classifier, tmp_path):
    """A head that was trained with more outputs than there were class folders."""
    checkpoint = torch.load(classifier, weights_only=True)
    checkpoint['meta']['dataset_meta']['classes'] = CLASSES[:2]
    torch.save(checkpoint, tmp_path / 'old.pth')
    _, predictor = build(arguments(tmp_path, checkpoint=str(tmp_path / 'old.pth')))
    _, summary = predictor(np.zeros((64, 64, 3), np.uint8))
    names = [part.split()[0] for part in summary.split(', ')]
    assert len(names) == 5 and set(names) < {*CLASSES[:2], *'234567'} and len(set(names) - set(CLASSES)) >= 3


def test_missing_image_stops_before_the_checkpoint_is_read(run_tool, tmp_path):
    result = run_tool('tools/predict.py', 'configs/cvt_nano_shapes.py', 'no.pth', tmp_path / 'no.jpg', rc=2)
    assert f'error: image {tmp_path}/no.jpg does not exist.' in result.stdout
    assert 'Traceback' not in result.stdout


def test_override_without_effect_and_traceback(classifier, data, run_tool, tmp_path):
    """As tools/train.py and tools/test.py have it."""
    image = data / 'classification' / 'val' / 'ring' / '00000.png'
    output = run_tool('tools/predict.py', 'configs/cvt_nano_shapes.py', classifier, image, '--traceback',
                      '--out-dir', tmp_path / 'out', '--cfg-options', 'model.num_clases=8', rc=2).stdout
    assert "model has no 'num_clases', and nothing reads it. Did you mean model.num_classes?" in output
    assert 'Traceback (most recent' in output and not (tmp_path / 'out').exists()


def test_mistakes_with_ground_truth(data, classifier, tmp_path, run_tool):
    """An image that is in no data set; data that is not there."""
    image = tmp_path / 'mine.png'
    Image.new('RGB', (64, 64)).save(image)
    given = ('tools/predict.py', 'configs/cvt_nano_shapes.py', classifier, '--out-dir', tmp_path / 'out')
    output = run_tool(*given, image, '--ground-truth', '--data-root', data / 'classification', rc=2).stdout
    assert re.search(rf'error: --ground-truth: 1 of 1 images, e.g. {image}, have no annotation in the data of '
                     r'configs/cvt_nano_shapes.py: test \(8 images\), train \(8 images\). Give images of these', output)
    assert 'Traceback' not in output and not (tmp_path / 'out').exists()
    args = arguments(tmp_path, config=str(ROOT / 'configs' / 'maskrcnn_cvt_nano_shapes.py'))
    with pytest.raises(UserError, match='no annotation in .*: test .not there: .*instances_val.json'):
        find_annotations(predict.load_config(args), [image])


@pytest.mark.parametrize('score', [30., -0.1, float('nan')])
def test_score_out_of_range(tmp_path, score):
    with pytest.raises(UserError, match=f'--score-thr={float(score)}: it must be a number from 0 to 1'):
        predict.load_config(arguments(tmp_path, score_thr=score))


def test_checkpoint_of_another_task(tmp_path, classifier):
    args = arguments(tmp_path, checkpoint=str(classifier), config=str(ROOT / 'configs' / 'upernet_cvt_nano_shapes.py'))
    with pytest.raises(UserError, match='epoch_1.pth.* is for another architecture than the config'):
        build(args)


def build(args):
    return predict.build_predictor(args, predict.load_config(args))


def arguments(tmp_path, **changes):
    return predict.argparse.Namespace(**dict(
        dict(config=str(ROOT / 'configs' / 'cvt_nano_shapes.py'),
             checkpoint=str(tmp_path / 'no.pth'),
             device='cpu',
             cfg_options=None,
             compile=False,
             score_thr=0.3), **changes))


def test_wrong_config_checkpoint_or_device(tmp_path, classifier):
    with pytest.raises(UserError, match="config file 'no.py' does not exist"):
        build(arguments(tmp_path, config='no.py'))
    with pytest.raises(UserError, match="no.pth' does not exist"):
        build(arguments(tmp_path))
    with pytest.raises(UserError, match="--device 'tpu7' cannot be used here"):
        build(arguments(tmp_path, device='tpu7', checkpoint=str(classifier)))
    options = {'model.backbone.arch.embed_dims': [16, 32, 64]}
    with pytest.raises((UserError, ValueError), match='epoch_1.pth'):
        build(arguments(tmp_path, checkpoint=str(classifier), cfg_options=options))


def test_folders_and_names(tmp_path):
    for folder in ('a', 'b', 'empty'):
        (tmp_path / folder).mkdir()
    for name in ('a/x.png', 'a/y.JPG', 'a/note.txt', 'b/x.jpg', 'x_2.png'):
        (tmp_path / name).touch()
    images = predict.find_images(
        [str(tmp_path / 'a'), str(tmp_path / 'b' / 'x.jpg'),
         str(tmp_path / 'x_2.png')])
    assert [str(path.relative_to(tmp_path))
            for path in images] == ['a/x.png', 'a/y.JPG', 'b/x.jpg', 'x_2.png']
    names = [path.name for path in predict.name_pictures(images, tmp_path / 'out')]
    assert names == ['a_x.png', 'y.png', 'b_x.png', 'x_2.png']
    assert predict.name_pictures(images[:1] * 2, tmp_path / 'out')[1].name == 'a_x_2.png'
    with pytest.raises(UserError, match='empty holds no image'):
        predict.find_images([str(tmp_path / 'empty')])
    (tmp_path / 'x_2.png').rename(tmp_path / 'a' / 'x_2.png')
    found = predict.find_images([str(tmp_path)])  # class folders
    assert [str(path.relative_to(tmp_path)) for path in found] == ['a/x.png', 'a/x_2.png', 'a/y.JPG', 'b/x.jpg']
    (tmp_path / 'deep' / 'er').mkdir(parents=True)
    (tmp_path / 'a').rename(tmp_path / 'deep' / 'er' / 'a')
    with pytest.raises(UserError, match='deep holds no image .*, nor do the folders in it; deeper ones are not search'):
        predict.find_images([str(tmp_path / 'deep')])
    (tmp_path / 'deep' / 'er' / 'a').rename(tmp_path / 'a')
    with pytest.raises(UserError, match='would replace an image'):
        predict.name_pictures(found, tmp_path / 'a')
    with pytest.raises(UserError, match='is a file: name a folder'):
        predict.name_pictures(images, tmp_path / 'a' / 'note.txt')
