"""The drawn data set: reproducible, the same objects in all formats, and not to be solved by colour."""
import filecmp
from pathlib import Path

import numpy as np
from _shapes import CLASSES, generate
from PIL import Image
from pycocotools.coco import COCO

SMALL = dict(size=64, train=3, val=2, train_per_class=2, val_per_class=1)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob('*') if path.is_file())


def test_same_seed_same_bytes(tmp_path):
    first, second, other = (generate(tmp_path / str(i), seed=seed, **SMALL) for i, seed in enumerate((3, 3, 4)))
    names = files(first)
    assert len(names) == 2 * 5 + 5 + 2 + 3 * len(CLASSES) + 1
    assert filecmp.cmpfiles(first, second, names, shallow=False) == (names, [], [])
    images = [name for name in names if name.endswith('.png')]
    assert files(other) == names and not set(filecmp.cmpfiles(first, other, images, shallow=False)[0])
    more = generate(tmp_path / 'more', seed=3, **dict(SMALL, train_per_class=3))
    scenes = [name for name in names if name.startswith('detection')]
    assert filecmp.cmpfiles(first, more, scenes, shallow=False)[0] == scenes  # not changed by other counts


def test_formats_agree(tmp_path):
    data = generate(tmp_path / 'data', train=10, val=1, train_per_class=1, val_per_class=1)
    assert sorted(path.name for path in (data / 'classification/train').iterdir()) == list(CLASSES)
    coco = COCO(data / 'detection/annotations/instances_train.json')
    assert [category['name'] for category in coco.loadCats(coco.getCatIds())] == list(CLASSES)
    assert len(coco.imgs) == 10
    for image in coco.loadImgs(coco.getImgIds()):
        label_map = np.asarray(Image.open(data / 'segmentation/annotations/training' / image['file_name']))
        expected = np.zeros_like(label_map)
        for annotation in coco.loadAnns(coco.getAnnIds(image['id'])):
            mask = coco.annToMask(annotation).astype(bool)
            assert not expected[mask].any(), 'masks of visible parts do not overlap'
            expected[mask] = annotation['category_id']
            ys, xs = np.nonzero(mask)
            x, y, w, h = annotation['bbox']
            assert (x, y, x + w, y + h) == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            assert annotation['area'] == mask.sum() > 0
        assert expected.any() and np.array_equal(label_map, expected)
