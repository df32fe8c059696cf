"""The package without a checkout: a wheel made as `python -m build` does, and the weights inside it."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from templates_edited import ROOT, write_template

from cvt_dense.shapes import generate

pytestmark = pytest.mark.slow

SOURCES = ('cvt_dense', 'configs', 'tools', 'pyproject.toml', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE',
           'model-index.yml')
PIP = (sys.executable, '-m', 'pip', '--disable-pip-version-check')


def run(*args, cwd: Path, site: Path | None = None, **env) -> str:
    """Run a command without the checkout; ``site`` is the folder into which the wheel was installed."""
    env = {**os.environ, 'PYTHONPATH': str(site or ''), **env}
    result = subprocess.run([str(arg) for arg in args], cwd=cwd, env=env, text=True, timeout=600,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """A folder into which a wheel, made of an sdist, was installed; its commands are in ``bin``."""
    folder = tmp_path_factory.mktemp('wheel')
    (folder / 'source').mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / 'source' / name)
    run(sys.executable, '-c', "from setuptools.build_meta import build_sdist; build_sdist('..')", cwd=folder / 'source')
    shutil.rmtree(folder / 'source')
    sdist, = folder.glob('*.tar.gz')
    run(*PIP, 'wheel', '--no-deps', '--no-build-isolation', '--no-index', '-w', folder, sdist, cwd=folder)
    wheel, = folder.glob('*.whl')
    run(*PIP, 'install', '--no-deps', '--no-index', '--target', folder / 'site', wheel, cwd=folder)
    return folder / 'site'


def test_packaged_weights(installed, tmp_path):
    """Without a network a template trains from the packaged classifier."""
    offline = dict.fromkeys(('HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'), 'http://127.0.0.1:9')
    recipe = run(sys.executable, '-c', "import cvt_dense; print(cvt_dense.recipe('cvt_nano_tiny_imagenet.py'))",
                 cwd=tmp_path, site=installed).split()[-1]
    assert Path(recipe).is_relative_to(installed)
    data = generate(tmp_path / 'shapes', train=2, val=2, train_per_class=4, val_per_class=1) / 'classification'
    mine = write_template(tmp_path, 'cvt13_custom', arch='cvt-nano', data_root=str(data), max_iters=2, batch_size=4)
    output = run(installed / 'bin/cvt-train', mine, cwd=tmp_path, site=installed, **offline)
    assert 'cvt_dense://cvt-nano' in output and 'accuracy/top1' in output


def test_every_recipe_tool_and_packaged_model_is_in_the_wheel(installed):
    """Nothing is missing, and each file is the checkout's."""
    weights = [file for file in (ROOT / 'cvt_dense/weights/files').rglob('*') if file.is_file()]
    assert weights and all((installed / file.relative_to(ROOT)).read_bytes() == file.read_bytes() for file in weights)
    files = [ROOT / 'model-index.yml', *(ROOT / 'configs').rglob('*.py'), *(ROOT / 'tools').glob('*.*')]
    assert all((installed / 'cvt_dense/.mim' / f.relative_to(ROOT)).read_bytes() == f.read_bytes() for f in files)
    assert all((installed / f'bin/cvt-{tool}').is_file() for tool in ('test', 'export', 'convert-checkpoint'))
