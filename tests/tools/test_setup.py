"""The environment's files agree with each other, and set-up says in words what is missing."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools.config.pyprojecttoml import read_configuration

import cvt_dense

ROOT = Path(__file__).resolve().parents[2]
PROJECT = read_configuration(ROOT / 'pyproject.toml', expand=False)['project']


def _requirements(name: str) -> dict[str, Requirement]:
    lines = (line.split('#')[0].strip() for line in (ROOT / name).read_text().splitlines())
    found = [Requirement(line) for line in lines if line and not line.startswith('-')]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def _pins(name: str) -> dict[str, str]:
    specifiers = {key: str(requirement.specifier) for key, requirement in _requirements(name).items()}
    return {key: specifier[2:] for key, specifier in specifiers.items() if specifier.startswith('==')}


def test_everything_is_pinned():
    requirements = _requirements('requirements.txt')
    assert len(requirements) > 50
    assert requirements.keys() == _pins('requirements.txt').keys()
    unpinned = {key for key, requirement in _requirements('requirements-upstream.txt').items()
                if not requirement.specifier}
    assert unpinned and unpinned <= requirements.keys(), unpinned - requirements.keys()


@pytest.mark.parametrize('extra, name', [('onedl', 'requirements.txt'),
                                         ('upstream', 'requirements-upstream.txt')])
def test_declared_ranges_hold_the_tested_versions(extra, name):
    pins = {**_pins('requirements.txt'), **_pins(name)}
    for line in PROJECT['dependencies'] + PROJECT['optional-dependencies'][extra]:
        declared = Requirement(line)
        assert pins[canonicalize_name(declared.name)] in declared.specifier, line


def test_distribution_has_the_version_and_every_module():
    configuration = read_configuration(ROOT / 'pyproject.toml')
    packages = configuration['tool']['setuptools']['packages']
    assert configuration['project']['version'] == cvt_dense.__version__
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / 'cvt_dense').rglob('*.py')}
    assert {'.'.join(folder.parts) for folder in folders} == set(packages)


def test_torchvision_first_in_a_fresh_process():
    """What the environment's .pth file does for programs that import torchvision before this package."""
    script = ('import cvt_dense as hook; assert "torch" not in sys.modules; '
              'import torchvision; assert hook._BeforeTorchvision not in sys.meta_path; '
              'import torch; print(torch.ops.torchvision.nms)')
    script = f'import sys; sys.path = {[str(ROOT), *sys.path]}; {script}'
    result = subprocess.run([sys.executable, '-S', '-c', script],  # -S: without the .pth files that are there
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0 and 'torchvision.nms' in result.stdout, result.stdout


def _setup(**env) -> str:
    """What ``make setup``, which must fail, says in one line."""
    # without what `make test` hands on to a make that it starts
    outside = {key: value for key, value in os.environ.items() if not key.startswith('MAKE')}
    settings = [f'{key}={value}' for key, value in env.items()]
    result = subprocess.run(['make', 'setup', *settings], cwd=ROOT, env={**outside, **env}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode != 0 and 'Traceback' not in result.stdout, result.stdout
    return re.sub(r'\s+', ' ', result.stdout)


def test_no_python_3_11(tmp_path):
    message = _setup(VENV=str(tmp_path / 'venv'), PYTHON='/nowhere/python3.11')
    assert 'set-up: no Python 3.11 was found (looked for: /nowhere/python3.11). Install it, or' in message


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason='set-up is for Python 3.11')
def test_no_compiler(tmp_path):
    venv = tmp_path / 'venv'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', venv], check=True)
    (venv / 'complete').touch()  # without pip, making it takes no time, and no wheel of mmcv can be had
    message = _setup(VENV=str(venv), XDG_CACHE_HOME=str(tmp_path), CXX='/nowhere/c++')
    assert re.search(r'set-up: no wheel of (onedl-)?mmcv==[\d.]+ fits this machine, so its operators must be '
                     r'compiled, but the C\+\+ compiler \(/nowhere/c\+\+\) with Python.s headers \(/.*\) '
                     r'does not work', message)


def test_unknown_stack():
    assert 'STACK=other: give STACK=onedl (default) or STACK=upstream' in _setup(STACK='other')
