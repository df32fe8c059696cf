"""Read checkpoints as the tools do, in every test of this folder."""
import pytest

from cvt_dense.weights import register_safe_loading


@pytest.fixture(autouse=True)
def _safe_loading():
    """MMEngine 0.10.7 alone cannot read its own checkpoints under a PyTorch of today."""
    register_safe_loading()
