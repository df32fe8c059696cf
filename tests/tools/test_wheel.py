"""The package without a checkout: a wheel made as `python -m build` does, and a stranger's config on a recipe."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cvt_dense.datasets.synthetic import generate

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ('cvt_dense', 'configs', 'tools', 'pyproject.toml', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE',
           'model-index.yml')
CONFIG = """
_base_ = 'cvt_dense::maskrcnn_cvt_nano_shapes.py'
train_cfg = dict(max_iters=2, val_interval=2)
train_dataloader = dict(batch_size=2)
param_scheduler = []
"""


def run(*args, cwd, **env):
    env = {key: value for key, value in {**os.environ, **env}.items() if key != 'PYTHONPATH'}
    result = subprocess.run([str(arg) for arg in args], cwd=cwd, env=env, text=True, timeout=600,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """The folder of the commands of an environment into which a wheel, made of an sdist, was installed."""
    folder = tmp_path_factory.mktemp('wheel')
    source = folder / 'source'
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
        else:
            shutil.copy(ROOT / name, source)
    run(sys.executable, '-c', "from setuptools.build_meta import build_sdist; build_sdist('..')", cwd=source)
    shutil.rmtree(source)
    sdist, = folder.glob('*.tar.gz')
    pip = (sys.executable, '-m', 'pip', '--disable-pip-version-check')
    run(*pip, 'wheel', '--no-deps', '--no-build-isolation', '--no-index', '-w', folder, sdist, cwd=folder)
    wheel, = folder.glob('*.whl')
    run(sys.executable, '-m', 'venv', '--without-pip', folder / 'env', cwd=folder)
    site, = (folder / 'env').glob('lib/python*/site-packages')
    shared = [path for path in sys.path if path.endswith('-packages')]
    assert shared and str(ROOT) not in shared
    (site / 'shared.pth').write_text('\n'.join(shared))
    run(*pip, '--python', folder / 'env/bin/python', 'install', '--no-deps', '--no-index', '--ignore-installed', wheel,
        cwd=folder)
    return folder / 'env' / 'bin'


def test_strangers_config_trains(installed, tmp_path):
    data = generate(tmp_path / 'shapes', train=4, val=2, train_per_class=1, val_per_class=1) / 'detection'
    where = run(installed / 'python', '-c', 'import cvt_dense; print(cvt_dense.__file__)', cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    (tmp_path / 'mine.py').write_text(CONFIG)
    output = run(installed / 'cvt-train', 'mine.py', '--data-root', data, cwd=tmp_path)
    assert 'coco/bbox_mAP' in output
    checkpoint = tmp_path / 'work_dirs' / 'mine' / 'iter_2.pth'
    assert checkpoint.is_file()
    output = run(installed / 'python', '-m', 'cvt_dense.tools', 'test', 'mine.py', checkpoint, '--data-root', data,
                 cwd=tmp_path)
    assert 'coco/bbox_mAP' in output


def test_every_recipe_and_tool_is_in_the_wheel(installed, tmp_path):
    """Each recipe resolves by either name to what the checkout's file says; nothing is missing or too much."""
    code = """
import sys
from pathlib import Path
from mmengine.config import Config  # before cvt_dense: the order must not matter
import cvt_dense
from cvt_dense.recipes import folder
root = Path(sys.argv[1])
for part in ('configs', 'tools', 'model-index.yml'):
    files = [root / part] if (root / part).is_file() else (root / part).rglob('*')
    files = {f.relative_to(root) for f in files if f.is_file() and '__pycache__' not in f.parts}
    assert files and all((folder() / f).read_bytes() == (root / f).read_bytes() for f in files), part
mine = Path('by_name.py')
for file in sorted((root / 'configs').glob('*.py')):
    mine.write_text(f"_base_ = 'cvt_dense::{file.name}'")
    short = Config.fromfile(mine)
    mine.write_text(f"_base_ = __import__('cvt_dense').recipe({file.name!r})")
    assert short._cfg_dict == Config.fromfile(mine)._cfg_dict == Config.fromfile(file)._cfg_dict, file
print('equal')
"""
    assert run(installed / 'python', '-c', code, ROOT, cwd=tmp_path).strip().endswith('equal')
    for command in ('test', 'predict', 'convert', 'flops', 'benchmark', 'plot'):
        assert (installed / f'cvt-{command}').is_file()


def test_unknown_recipe(tmp_path):
    from cvt_dense import recipe
    with pytest.raises(FileNotFoundError, match="no recipe 'maskrcnn.py'.*There are: .*maskrcnn_cvt13_coco.py"):
        recipe('maskrcnn.py')
