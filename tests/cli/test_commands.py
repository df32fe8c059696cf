"""The commands of an installed package are named as the tools' files and as the modules of cvt_dense.cli."""
import re
import subprocess
import sys
import tomllib

from load_tool import ROOT, load_tool

CHECKOUT_ONLY = {'demo'}


def test_commands_are_named_as_the_files_and_on_their_page():
    files = {path.stem for path in (ROOT / 'tools').glob('[a-z]*.py')}
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    assert scripts == {f'cvt-{name.replace("_", "-")}': f'cvt_dense.cli.{name}:main' for name in files - CHECKOUT_ONLY}
    for name in files:
        assert load_tool(name).main.__module__ == f'cvt_dense.cli.{name}'
        assert f'from cvt_dense.cli.{name} import main' in (ROOT / f'tools/{name}.py').read_text()
    page = (ROOT / 'tools/README.md').read_text()
    assert set(re.findall(r'^- \*\*(\w+)\.py', page, re.M)) == files - CHECKOUT_ONLY
    assert all(f'`{name}.py`' in page for name in CHECKOUT_ONLY)


def test_modules_are_no_commands():
    """They would end with exit code 0 and have done nothing."""
    assert subprocess.run([sys.executable, '-m', 'cvt_dense.cli.train', 'mine.py'], cwd=ROOT).returncode
