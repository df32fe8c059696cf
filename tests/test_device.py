"""The tests of device_cases.py, in a process of their own.

PyTorch's backward pass knows the devices that there were at its first call, which another test may have made here.
"""
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_on_a_simulated_device():
    tests = Path(__file__).with_name('device_cases.py')
    result = subprocess.run([sys.executable, '-m', 'pytest', '-q', str(tests)], text=True, cwd=tests.parents[1],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout[-8000:]
