"""Colours of classes: far apart, the same in every tool, and only where a data set has none of its own."""
from itertools import combinations

import cv2
import numpy as np
import pytest

from cvt_dense.palette import BACKGROUND, choose_palette


def nearest(palette) -> float:
    """Return the least distance between two colours, in CIELAB; about 2 can just be seen."""
    lab = cv2.cvtColor(np.array([palette], np.float32) / 255, cv2.COLOR_RGB2LAB)[0]
    return min(np.linalg.norm(a - b) for a, b in combinations(lab, 2))


@pytest.mark.parametrize('number, least', [(8, 55), (20, 30), (80, 15)])
def test_distance(number, least):
    palette = choose_palette([str(i) for i in range(number)])
    assert len(palette) == number and nearest(palette) > least
    assert palette == choose_palette([str(i) for i in range(100)])[:number]


def test_background_is_dark_and_takes_no_colour():
    assert choose_palette(['background', 'a', 'b']) == [BACKGROUND, *choose_palette(['a', 'b'])]
