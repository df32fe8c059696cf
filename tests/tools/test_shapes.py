"""The drawn data set: reproducible, the same objects in all formats, and not to be solved by colour."""

import numpy as np
from _shapes import CLASSES, generate
from PIL import Image
from pycocotools.coco import COCO


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
