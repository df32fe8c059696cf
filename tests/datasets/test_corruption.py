import numpy as np
import pytest
from PIL import Image

from cvt_dense.datasets.corruption import CORRUPTIONS, VALIDATION_CORRUPTIONS, CorruptImage, corrupt


@pytest.fixture(scope='module')
def photo() -> np.ndarray:
    """Odd sides, smooth and sharp parts."""
    y, x = np.mgrid[:33, :45]
    image = np.stack([y * 5, x * 3, (x // 8 + y // 8) % 2 * 200], axis=-1)
    return image.astype(np.uint8)


@pytest.mark.parametrize('name', CORRUPTIONS + VALIDATION_CORRUPTIONS)
def test_is_a_function_of_its_arguments(name, photo):
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    first = corrupt(photo, name, 3)
    assert np.array_equal(np.random.get_state()[1], before)  # others draw what they would have drawn
    np.random.seed(2)
    assert np.array_equal(corrupt(photo, name, 3), first)
    assert first.shape == photo.shape and first.dtype == np.uint8 and not np.array_equal(first, photo)


def test_images_seeds_and_severities_draw_differently(photo):
    noise = [corrupt(image, 'gaussian_noise', severity, seed).astype(int) - image
             for image, severity, seed in ((photo, 1, 0), (photo, 1, 1), (photo, 5, 0), (photo[:, ::-1], 1, 0))]
    assert not any(np.array_equal(noise[0], other) for other in (*noise[1:3], noise[3][:, ::-1]))


def test_bgr_images_are_corrupted_as_rgb(photo):
    # snow whitens by a weighted sum of the channels, so their order matters
    expected = corrupt(photo, 'snow', 2)
    results = CorruptImage('snow', 2)(dict(img=photo[..., ::-1], other=1))
    assert np.array_equal(results['img'][..., ::-1], expected) and results['img'].flags['C_CONTIGUOUS']
    assert np.array_equal(np.asarray(CorruptImage('snow', 2)(Image.fromarray(photo))), expected)
    as_is = CorruptImage('snow', 2, to_rgb=False)(dict(img=photo[..., ::-1]))['img'][..., ::-1]
    assert not np.array_equal(as_is, expected)


def test_without_a_corruption_the_image_stays_itself(photo):
    image = Image.fromarray(photo)
    transform = CorruptImage()
    assert transform(image) is image
    transform.set('fog', 4)
    assert transform(image) is not image


@pytest.mark.parametrize('change', [dict(corruption='rain'), dict(severity=0), dict(severity=6)])
def test_wrong_settings(change):
    with pytest.raises(ValueError, match='corruption|severity'):
        CorruptImage(**{'corruption': 'fog', 'severity': 1, **change})
