"""Mistakes are reported before PyTorch and the mm packages are imported; the tests look at imports, not at a clock."""
import os
import subprocess
import sys

import pytest
from load_tool import ROOT

import cvt_dense
from cvt_dense.models import CvT

pytestmark = pytest.mark.slow

HEAVY = ('torch', 'mmengine', 'mmdet', 'mmseg', 'transformers', 'matplotlib')


def test_the_package_imports_nothing_heavy_until_it_is_needed():
    script = f'import cvt_dense, sys; print([name for name in {HEAVY} if name in sys.modules])'
    printed = subprocess.run([sys.executable, '-c', script], check=True, text=True, stdout=subprocess.PIPE).stdout
    assert printed == '[]\n' and cvt_dense.CvT is CvT


@pytest.mark.parametrize('command, named', [
    ('train.py CONFIG --amp int8', '--amp'), ('train.py nowhere.py', 'nowhere.py'),
    ('train.py CONFIG --data-root /nowhere', '--data-root'), ('train.py CONFIG --data-root tests', 'data_prefix'),
    ('train.py CONFIG --data-root tests --no-check --resume a.pth', 'a.pth'),
    ('test.py CONFIG nowhere.pth', 'nowhere.pth'), ('predict.py CONFIG nowhere.pth nowhere.jpg', 'nowhere.jpg'),
    ('train.py README.md', 'README.md'), ('train.py CONFIG --no-check --launcher slurm', 'SLURM_PROCID')])
def test_wrong_command_lines_and_paths_need_no_torch(command, named, tmp_path):
    for package in ('torch', 'transformers', 'matplotlib'):
        (tmp_path / f'{package}.py').write_text(f"raise SystemExit('{package} is imported')")
    tool, *args = command.replace('CONFIG', 'configs/maskrcnn_cvt13_coco.py').split()
    result = subprocess.run([sys.executable, f'tools/{tool}', *args], cwd=ROOT, text=True, capture_output=True,
                            env={**os.environ, 'PYTHONPATH': str(tmp_path)})
    assert result.returncode == 2 and named in result.stderr
