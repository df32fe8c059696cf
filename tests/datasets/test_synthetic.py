"""The generated data set: reproducible, right in all three formats, and not to be solved by colour."""
import filecmp
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from cvt_dense.datasets import synthetic
from cvt_dense.datasets.synthetic import CLASSES, generate

SMALL = dict(size=64, train=6, val=3, train_per_class=2, val_per_class=1)


def files(root: Path) -> list:
    return sorted(str(path.relative_to(root)) for path in root.rglob('*') if path.is_file())


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp('data'), train=40, val=3, train_per_class=2, val_per_class=1)


def test_same_seed_same_bytes(tmp_path):
    first, second, other = (generate(tmp_path / str(i), seed=seed, **SMALL)
                            for i, seed in enumerate((3, 3, 4)))
    names = files(first)
    assert len(names) == 2 * 9 + 9 + 2 + 3 * len(CLASSES) + 1
    assert filecmp.cmpfiles(first, second, names, shallow=False) == (names, [], [])
    assert files(other) == names
    images = [name for name in names if name.endswith('.png')]
    assert not set(filecmp.cmpfiles(first, other, images, shallow=False)[0])


def test_classification_counts_do_not_change_scenes(tmp_path):
    first = generate(tmp_path / '0', **SMALL)
    second = generate(tmp_path / '1', **dict(SMALL, train_per_class=3))
    names = [name for name in files(first) if name.startswith('detection')]
    assert names and filecmp.cmpfiles(first, second, names, shallow=False)[0] == names


def test_class_folders(data):
    for split, count in (('train', 2), ('val', 1)):
        root = data / 'classification' / split
        assert sorted(path.name for path in root.iterdir()) == sorted(CLASSES) == list(CLASSES)
        for name in CLASSES:
            sizes = [Image.open(path).size for path in (root / name).iterdir()]
            assert sizes == [(64, 64)] * count


@pytest.mark.parametrize('split, long_name', [('train', 'training'), ('val', 'validation')])
def test_coco_and_label_maps_agree(data, split, long_name):
    coco = COCO(data / 'detection' / 'annotations' / f'instances_{split}.json')
    assert [category['name'] for category in coco.loadCats(coco.getCatIds())] == list(CLASSES)
    assert len(coco.imgs) == dict(train=40, val=3)[split]
    overlaps = 0
    for image in coco.loadImgs(coco.getImgIds()):
        pixels = Image.open(data / 'detection' / split / image['file_name'])
        assert pixels.mode == 'RGB' and pixels.size == (image['width'], image['height']) == (128, 128)
        copy = data / 'segmentation' / 'images' / long_name / image['file_name']
        assert np.array_equal(np.asarray(pixels), np.asarray(Image.open(copy)))
        expected = np.zeros((128, 128), np.uint8)
        boxes = []
        for annotation in coco.loadAnns(coco.getAnnIds(image['id'])):
            mask = coco.annToMask(annotation).astype(bool)
            assert not expected[mask].any(), 'masks hold what is visible, so they do not overlap'
            expected[mask] = annotation['category_id']
            ys, xs = np.nonzero(mask)
            x, y, w, h = annotation['bbox']
            assert (x, y, x + w, y + h) == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            assert annotation['area'] == mask.sum() > 0 and annotation['iscrowd'] == 0
            overlaps += sum(x < x2 + w2 and x2 < x + w and y < y2 + h2 and y2 < y + h
                            for x2, y2, w2, h2 in boxes)
            boxes.append((x, y, w, h))
        assert boxes
        label_map = Image.open(data / 'segmentation' / 'annotations' / long_name / image['file_name'])
        assert label_map.mode == 'L' and np.array_equal(np.asarray(label_map), expected)
    assert overlaps


def test_colour_does_not_give_the_class_away():
    rng = np.random.default_rng(0)
    features, labels = [], []
    for i in range(400):
        image, (instance, ) = synthetic.render_scene(rng, 64, [i % len(CLASSES)])
        pixels = image[instance.mask] / 255
        features.append(np.concatenate((pixels.mean(0), pixels.std(0))))
        labels.append(instance.label)
    features, labels = np.array(features), np.array(labels)
    centres = np.stack([features[:200][labels[:200] == i].mean(0) for i in range(len(CLASSES))])
    guess = np.linalg.norm(features[200:, None] - centres, axis=2).argmin(1)
    assert (guess == labels[200:]).mean() < 0.25  # chance is 0.125


def test_hidden_shapes_stay_visible():
    rng = np.random.default_rng(1)
    for _ in range(20):
        _, instances = synthetic.render_scene(rng, 96, [0, 1, 2, 3, 4, 5])
        assert len(instances) >= 2 and all(instance.mask.sum() > 20 for instance in instances)


def test_finished_data_is_kept_and_other_settings_replace_it(tmp_path):
    out = generate(tmp_path / 'data', **SMALL)
    image = out / 'detection' / 'train' / '00000.png'
    before = image.stat().st_mtime_ns, image.read_bytes()
    generate(out, **SMALL)
    assert (image.stat().st_mtime_ns, image.read_bytes()) == before
    generate(out, **dict(SMALL, train=2))
    assert len(list((out / 'detection' / 'train').iterdir())) == 2


def test_interrupted_data_is_written_anew(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(synthetic, '_write_scenes', lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path / 'data', **SMALL)
    out = generate(tmp_path / 'data', **SMALL)
    again = generate(tmp_path / 'again', **SMALL)
    assert filecmp.cmpfiles(out, again, files(again), shallow=False)[0] == files(again) == files(out)


@pytest.mark.parametrize('setting, message', [
    (dict(size=63), 'size=63'), (dict(train=0), 'train=0'), (dict(val_per_class=0), 'val_per_class=0'),
    (dict(seed=-1), 'seed=-1')])
def test_settings_out_of_range(tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / 'data', **setting)
    assert not (tmp_path / 'data').exists()


def test_command_line(tmp_path, run_tool):
    out = tmp_path / 'data'
    options = [f'--{key.replace("_", "-")}={value}' for key, value in SMALL.items()]
    run_tool('-m', 'cvt_dense.datasets.synthetic', out, *options)
    assert json.loads((out / 'synthetic.json').read_text())['complete']
    (tmp_path / 'mine.txt').write_text('precious')
    result = run_tool('-m', 'cvt_dense.datasets.synthetic', tmp_path, *options, rc=1)
    assert 'was not written by this generator' in result.stdout and 'Traceback' not in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ['data', 'mine.txt']
