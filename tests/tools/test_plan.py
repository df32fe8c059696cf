"""tools/benchmark.py plan."""
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tools'))

from _benchmark.plan import plan, training_images, training_size


def test_by_hand():
    # 3,600 images of 1 GMAC: 6 GFLOPs each, at 100 x 0.6 GFLOP/s 10 a second: 360 s on one GPU
    found = plan(3600, 1e9, gpus=2, total_batch=16, flops=100e9, utilisation=0.6)
    assert found == (3600, 6e9, pytest.approx(10), pytest.approx(0.1), pytest.approx(0.1 / 48), 8)
    # half of it recomputed: 7 GFLOPs
    assert plan(3600, 1e9, 2, 16, recomputed=0.5e9, flops=100e9, utilisation=0.6).gpu_hours == pytest.approx(0.7 / 6)
    # with a teacher of 2 GMACs: 10 GFLOPs
    assert plan(3600, 1e9, 2, 16, teacher=2e9, flops=100e9, utilisation=0.6).gpu_hours == pytest.approx(1 / 6)
    # a measured speed takes the place of all that
    assert plan(7200, 1e9, 8, 16, flops=1., utilisation=1., images_per_second=2.)[3:5] == (1., pytest.approx(1 / 192))


@pytest.mark.parametrize('name, images, batch, size', [
    ('cvt13_in1k', 300 * 1_281_167, 2048, (224, 224)),
    ('cvt13_384_in1k', None, 512, (384, 384)),
    ('simmim_cvt13_in1k', 100 * 1_281_167, 2048, (192, 192)),
    ('upernet_cvt13_ade20k', 160_000 * 16, 16, (512, 512)),
    ('maskrcnn_cvt13_coco_3x', 36 * 117_266, 16, None)])
def test_of_recipes(name, images, batch, size):
    cfg = Config.fromfile(ROOT / f'configs/{name}.py')
    found = training_images(cfg, None)
    assert found[1] == batch and (images is None or found[0] == images)
    if size:
        assert training_size(cfg) == size
    else:
        with pytest.raises(ValueError, match='give one by --size'):
            training_size(cfg)
