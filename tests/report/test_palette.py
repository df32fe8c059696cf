"""The colours of classes."""
import cv2
import numpy as np
import pytest

from cvt_dense.inference.palette import DEUTERANOPIA, choose_palette


@pytest.mark.parametrize('number', range(2, 21))
def test_colours_can_be_told_apart(number):
    """By most people, and without the cones for green: distances in CIELAB, of which 2.3 can just be seen."""
    palette = np.array(choose_palette([str(i) for i in range(number)]), np.float32)
    linear = np.where(palette <= 10, palette / 3294.6, ((palette / 255 + 0.055) / 1.055)**2.4)
    without_green = (linear @ DEUTERANOPIA.T).clip(0, 1).astype(np.float32)
    for lab in (cv2.cvtColor(palette[None] / 255, cv2.COLOR_RGB2LAB)[0],
                cv2.cvtColor(without_green[None], cv2.COLOR_LRGB2LAB)[0]):
        distances = np.linalg.norm(lab[:, None] - lab, axis=-1)[~np.eye(number, dtype=bool)]
        assert distances.min() > (30 if number <= 8 else 16)


def test_more_classes_do_not_change_the_first_colours():
    assert choose_palette('abcd')[:2] == choose_palette('ab')
    assert choose_palette(['background', 'a'])[1:] == choose_palette('a')
