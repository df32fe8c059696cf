"""The package without a checkout: a wheel made as `python -m build` does, and the weights inside it."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from templates_edited import ROOT, write_template

from cvt_dense.recipes.shapes import generate

SOURCES = ('cvt_dense', 'configs', 'tools', 'pyproject.toml', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE',
           'model-index.yml')
PIP = (sys.executable, '-m', 'pip', '--disable-pip-version-check')


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
    (folder / 'source').mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / 'source' / name)
    run(sys.executable, '-c', "from setuptools.build_meta import build_sdist; build_sdist('..')", cwd=folder / 'source')
    shutil.rmtree(folder / 'source')
    sdist, = folder.glob('*.tar.gz')
    run(*PIP, 'wheel', '--no-deps', '--no-build-isolation', '--no-index', '-w', folder, sdist, cwd=folder)
    wheel, = folder.glob('*.whl')
    # An environment that shares the site's packages.
    run(sys.executable, '-m', 'venv', '--without-pip', folder / 'env', cwd=folder)
    site, = (folder / 'env').glob('lib/python*/site-packages')
    shared = [path for path in sys.path if path.endswith('-packages')]
    assert shared and str(ROOT) not in shared
    (site / 'shared.pth').write_text('\n'.join(shared))
    for start in (start for path in shared for start in Path(path).glob('*.pth')):
        if not start.name.startswith('__editable__'):  # of setuptools, for distutils, and of tools/setup.sh
            shutil.copy(start, site / f'z{start.name}')  # read after the paths
    run(*PIP, '--python', folder / 'env/bin/python', 'install', '--no-deps', '--no-index', '--no-build-isolation',
        '--ignore-installed', wheel, cwd=folder)
    return folder / 'env/bin'


def test_packaged_weights(installed, tmp_path):
    """Without a network: the classifier names a photograph's class, and a template trains from the weights."""
    offline = dict.fromkeys(('HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'), 'http://127.0.0.1:9')
    skimage = pytest.importorskip('skimage.data')
    Image.fromarray(skimage.coffee()).save(tmp_path / 'coffee.png')
    recipe = run(installed / 'python', '-c', "import cvt_dense; print(cvt_dense.recipe('cvt_nano_tiny_imagenet.py'))",
                 cwd=tmp_path).split()[-1]
    assert Path(recipe).is_relative_to(installed.parent)
    assert 'espresso' in run(installed / 'cvt-predict', recipe, 'cvt_dense://cvt-nano', 'coffee.png', cwd=tmp_path,
                           **offline)
    data = generate(tmp_path / 'shapes', train=2, val=2, train_per_class=4, val_per_class=1) / 'classification'
    mine = write_template(tmp_path, 'cvt13_custom', arch='cvt-nano', data_root=str(data), max_iters=2, batch_size=4)
    output = run(installed / 'cvt-train', mine, cwd=tmp_path, **offline)
    assert 'cvt_dense://cvt-nano' in output and 'accuracy/top1' in output


def test_every_recipe_and_tool_is_in_the_wheel(installed, tmp_path):
    """Nothing is missing, and each file is the checkout's."""
    code = """
import sys
from pathlib import Path
from cvt_dense.recipes import folder
root = Path(sys.argv[1])
for part in ('configs', 'tools', 'model-index.yml'):
    files = [root / part] if (root / part).is_file() else (root / part).rglob('*')
    files = {f.relative_to(root) for f in files if f.is_file() and '__pycache__' not in f.parts}
    assert files and all((folder() / f).read_bytes() == (root / f).read_bytes() for f in files), part
print('equal')
"""
    assert run(installed / 'python', '-c', code, ROOT, cwd=tmp_path).strip().endswith('equal')
    for command in ('test', 'predict', 'export', 'convert-checkpoint', 'get-flops', 'plot', 'attention'):
        assert (installed / f'cvt-{command}').is_file()
