"""Colours of classes: far apart, the same in every tool, and only where a data set has none of its own."""
from itertools import combinations

import cv2
import numpy as np
import pytest
from mmengine.config import Config

from cvt_dense.launch.read import set_palette
from cvt_dense.palette import BACKGROUND, choose_palette


def nearest(palette) -> float:
    """The least distance between two colours, in CIELAB; about 2 can just be seen."""
    lab = cv2.cvtColor(np.array([palette], np.float32) / 255, cv2.COLOR_RGB2LAB)[0]
    return min(np.linalg.norm(a - b) for a, b in combinations(lab, 2))


@pytest.mark.parametrize('number, least', [(2, 100), (8, 55), (20, 30), (80, 15), (150, 10)])
def test_distance(number, least):
    palette = choose_palette([str(i) for i in range(number)])
    assert len(palette) == number and nearest(palette) > least
    assert palette == choose_palette([str(i) for i in range(200)])[:number]


def test_better_than_what_was_drawn_before():
    """COCO's first colours for blood cells, MMSegmentation's random ones for 11 classes of streets."""
    np.random.seed(42)
    assert nearest([(220, 20, 60), (119, 11, 32), (0, 0, 142)]) < 40 < nearest(choose_palette('abc'))
    assert nearest(np.random.randint(0, 255, size=(11, 3))) < 20 < 40 < nearest(choose_palette('abcdefghijk'))


def test_background_is_dark_and_takes_no_colour():
    assert choose_palette(['background', 'a', 'b']) == [BACKGROUND, *choose_palette(['a', 'b'])]


def complete(tmp_path, metainfo) -> dict:
    node = dict(type='CocoDataset', **({} if metainfo is None else dict(metainfo=metainfo)))
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=node))))
    set_palette(cfg)
    return cfg['train_dataloader']['dataset']['dataset'].get('metainfo')


def test_where_a_run_takes_its_colours_from(tmp_path):
    """Classes of one's own, as names or as a file of names, get colours; a palette that is given stays."""
    chosen = choose_palette(['RBC', 'WBC'])
    assert complete(tmp_path, dict(classes=('RBC', 'WBC')))['palette'] == chosen
    (tmp_path / 'classes.txt').write_text('RBC\nWBC\n')
    assert complete(tmp_path, dict(classes=str(tmp_path / 'classes.txt')))['palette'] == chosen
    own = dict(classes=('RBC', 'WBC'), palette=[(1, 2, 3), (4, 5, 6)])
    assert complete(tmp_path, own) == own
    assert complete(tmp_path, None) is None  # the data set's own: COCO's, ADE20K's
