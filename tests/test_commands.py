"""The commands of an installed package are named as the tools' files."""
import re
import tomllib

from load_tool import ROOT

from cvt_dense import commands

CHECKOUT_ONLY = {'demo'}


def test_commands_are_named_as_the_files_and_on_their_page():
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    assert scripts == {f'cvt-{name.replace("_", "-")}': f'cvt_dense.commands:{name}' for name in commands.NAMES}
    files = {path.stem for path in (ROOT / 'tools').glob('[a-z]*.py')}
    assert files == {*commands.NAMES, *CHECKOUT_ONLY}
    assert all(callable(getattr(commands, name)) for name in commands.NAMES)
    page = (ROOT / 'docs/reference/command_lines.md').read_text()
    assert set(re.findall(r'^- \*\*(\w+)\.py', page, re.M)) == files - CHECKOUT_ONLY
    assert all(f'`{name}.py`' in page for name in CHECKOUT_ONLY)
