"""Memory as each system counts it; what Windows lacks."""
import subprocess
import sys

import pytest

from cvt_dense.engine.hooks import cost

WINDOWS = """
import signal, sys
sys.modules['resource'] = None
del signal.SIGUSR1
from mmengine.registry import MODELS
import torch
import cvt_dense.engine, cvt_dense.launch.build
from cvt_dense.engine.hooks.cost import peak_memory
backbone = MODELS.build(dict(type='cvt_dense.CvT', arch=dict(embed_dims=[8], depths=[1], num_heads=[1])))
print(backbone(torch.rand(2, 3, 32, 32))[0].shape, peak_memory())
"""


def test_imports_and_runs_without_what_windows_lacks():
    result = subprocess.run([sys.executable, '-c', WINDOWS], text=True, capture_output=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.endswith('torch.Size([2, 8, 8, 8]) None\n')


@pytest.mark.parametrize('platform, unit', [('linux', 1024), ('darwin', 1)])
def test_unit_of_the_resident_size(monkeypatch, platform, unit):
    resource = pytest.importorskip('resource')
    monkeypatch.setattr(resource, 'getrusage', lambda who: type('Usage', (), dict(ru_maxrss=7)))
    monkeypatch.setattr(sys, 'platform', platform)
    assert cost.peak_memory() == 7 * unit
