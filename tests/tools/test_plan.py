"""benchmarks/plan.py."""
import pytest
from plan import plan


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
