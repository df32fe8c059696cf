"""tools/predict.py draws for all three tasks, and says what is wrong with its input."""
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from PIL import Image

from cvt_dense.datasets.synthetic import CLASSES, generate
from cvt_dense.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location('predict', ROOT / 'tools' / 'predict.py')
predict = importlib.util.module_from_spec(spec)
spec.loader.exec_module(predict)


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
                      tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['00000.png', '00000_2.png']
    for folder, name in zip(folders, ('00000.png', '00000_2.png')):
        line, = re.findall(
            rf'^{re.escape(str(folder))}/00000.png -> {re.escape(str(tmp_path))}/{name}: (.*)$',
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
    ('maskrcnn_cvt_nano_shapes.py', 'detection/val', r'nothing with a score|[a-z]+ 0\.\d\d'),
    ('upernet_cvt_nano_shapes.py', 'segmentation/images/validation', r'[a-z]+ \d+\.\d%')])
def test_dense(data, run_tool, tmp_path, config, part, pattern):
    """Trained for one iteration by tools/train.py, since only mmdet and mmseg can build these."""
    root = data / part.split('/')[0]
    run_tool('tools/train.py', f'configs/{config}', '--data-root', root, '--work-dir', tmp_path / 'run',
             '--cfg-options', 'train_cfg.max_iters=1', 'train_dataloader.batch_size=2')
    result = run_tool('tools/predict.py', f'configs/{config}', tmp_path / 'run' / 'iter_1.pth', data / part,
                      '--out-dir', tmp_path / 'out', '--score-thr', '0.01')
    pictures = sorted((tmp_path / 'out').iterdir())
    assert [path.name for path in pictures] == ['00000.png', '00001.png']
    for path in pictures:
        assert re.search(rf'{path.name} -> {re.escape(str(path))}: ({pattern})', result.stdout)
        picture = np.asarray(Image.open(path).convert('RGB'), float)
        plain = np.asarray(
            Image.open(data / part / path.name).resize((512, 512), Image.Resampling.BICUBIC), float)
        legend = picture.shape[0] - 512  # of a label map: below the objects, not over them
        assert picture.shape[1:] == (512, 3) and (legend > 0) == config.startswith('upernet')
        assert np.abs(picture[:512] - plain).mean() > 2, 'something is drawn'


def test_input_is_the_data_sets(tmp_path, classifier, monkeypatch):
    """For each EXIF orientation, and for files that decoders turn into RGB in different ways."""
    seen = []
    monkeypatch.setattr('cvt_dense.models.classifier.ImageClassifier.test_step',
                        lambda self, data: seen.append(data['inputs'][0]) or [dict(logits=torch.zeros(8))])
    read, predictor = predict.build_predictor(arguments(tmp_path, checkpoint=str(classifier)))
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
    _, predictor = predict.build_predictor(arguments(tmp_path, checkpoint=str(tmp_path / 'old.pth')))
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


def arguments(tmp_path, **changes):
    return predict.argparse.Namespace(**dict(
        dict(config=str(ROOT / 'configs' / 'cvt_nano_shapes.py'),
             checkpoint=str(tmp_path / 'no.pth'),
             device='cpu',
             cfg_options=None,
             score_thr=0.3), **changes))


def test_wrong_config_checkpoint_or_device(tmp_path, classifier):
    with pytest.raises(UserError, match="config file 'no.py' does not exist"):
        predict.build_predictor(arguments(tmp_path, config='no.py'))
    with pytest.raises(UserError, match="no.pth' does not exist"):
        predict.build_predictor(arguments(tmp_path))
    with pytest.raises(UserError, match="--device 'tpu7' cannot be used here"):
        predict.build_predictor(arguments(tmp_path, device='tpu7', checkpoint=str(classifier)))
    options = {'model.backbone.arch.embed_dims': [16, 32, 64]}
    with pytest.raises((UserError, ValueError), match='epoch_1.pth'):
        predict.build_predictor(arguments(tmp_path, checkpoint=str(classifier), cfg_options=options))


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
    assert names == ['x.png', 'y.png', 'x_2.png', 'x_2_2.png']
    with pytest.raises(UserError, match='empty holds no image'):
        predict.find_images([str(tmp_path / 'empty')])
    with pytest.raises(UserError, match='would replace an image'):
        predict.name_pictures(images, tmp_path / 'a')
    with pytest.raises(UserError, match='is a file: name a folder'):
        predict.name_pictures(images, tmp_path / 'a' / 'note.txt')
