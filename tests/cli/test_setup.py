"""The environment's files agree with each other, and set-up names what is missing."""
import os
import subprocess

import pytest
from load_tool import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools.config.pyprojecttoml import read_configuration

pytestmark = pytest.mark.slow

PROJECT = read_configuration(ROOT / 'pyproject.toml', expand=False)['project']


def _requirements(name: str) -> dict[str, Requirement]:
    lines = (line.split('#')[0].strip() for line in (ROOT / name).read_text().splitlines())
    requirements = [Requirement(line) for line in lines if line and not line.startswith('-')]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _pins(name: str) -> dict[str, str]:
    specifiers = {key: str(requirement.specifier) for key, requirement in _requirements(name).items()}
    return {key: specifier[2:] for key, specifier in specifiers.items() if specifier.startswith('==')}


def test_everything_is_pinned():
    requirements = _requirements('requirements.txt')
    assert len(requirements) > 50 and requirements.keys() == _pins('requirements.txt').keys()


@pytest.mark.parametrize('extra, name', [('onedl', 'requirements.txt'), ('upstream', 'requirements-upstream.txt')])
def test_declared_ranges_hold_the_tested_versions(extra, name):
    pins = {**_pins('requirements.txt'), **_pins(name)}
    for line in PROJECT['dependencies'] + PROJECT['optional-dependencies'][extra]:
        declared = Requirement(line)
        assert pins[canonicalize_name(declared.name)] in declared.specifier, line


def test_a_folder_of_something_else_is_not_emptied(tmp_path):
    kept = tmp_path / 'notes.txt'
    kept.write_text('mine')
    # without what `make test` hands on to a make that it starts
    env = {key: value for key, value in os.environ.items() if not key.startswith('MAKE')}
    result = subprocess.run(['make', 'setup', f'VENV={tmp_path}', f'XDG_CACHE_HOME={tmp_path}/cache'], cwd=ROOT,
                            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode != 0 and 'Traceback' not in result.stdout, result.stdout
    assert str(tmp_path) in ' '.join(result.stdout.split()) and kept.read_text() == 'mine'
