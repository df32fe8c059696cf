"""How errors are reported."""
import argparse

import pytest

from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.models import CvT


def report(error, capsys):
    with pytest.raises(SystemExit) as stop, command_line.report_errors(*command_line.SETUP_ERRORS):
        error()
    assert stop.value.code == 2
    return capsys.readouterr().err


def user_code():
    return None.missing


def test_an_error_of_code_names_its_place(capsys, monkeypatch):
    monkeypatch.delenv(command_line.TRACEBACK, raising=False)
    line = user_code.__code__.co_firstlineno + 1
    text = report(user_code, capsys)
    assert text.startswith("error: AttributeError: 'NoneType' object has no attribute 'missing' (")
    assert f'({__file__}:{line}; {command_line.TRACEBACK}=1 shows' in text and text.count('\n') == 1


def test_a_mistake_of_the_user_names_none(capsys):
    def mistake():
        raise UserError('no such thing.')

    assert report(mistake, capsys) == 'error: no such thing.\n'
    text = report(lambda: CvT(frozen_stages=3), capsys)
    assert text.startswith('error: frozen_stages=3: allowed are') and '.py' not in text


def test_traceback(capsys, monkeypatch):
    monkeypatch.setenv(command_line.TRACEBACK, '0')
    parser = argparse.ArgumentParser()
    command_line.add_arguments(parser)
    parser.parse_args(['--traceback'])
    text = report(user_code, capsys)
    assert text.startswith('Traceback') and 'in user_code' in text and 'error: AttributeError' in text


def test_what_was_kept_for_a_log_file_is_not_lost(run_tool, tmp_path):
    """A mistake is one paragraph; before what may be a fault in code come warnings, and with --traceback everything."""
    code = '\n'.join((
        'import sys, warnings',
        'from cvt_dense import console',
        'from cvt_dense.launch.command_line import SETUP_ERRORS, report_errors',
        'from cvt_dense.errors import UserError',
        f'sys.path.insert(0, {str(tmp_path / "site-packages")!r})',
        'with report_errors(*SETUP_ERRORS):',
        '    with console.quiet_packages():',
        '        import early',
        '    with console.before_the_log(True):',
        '        import late',
        '        raise eval(sys.argv[1])'))
    (tmp_path / 'site-packages').mkdir()
    for name in ('early', 'late'):
        (tmp_path / 'site-packages' / f'{name}.py').write_text(
            f'import warnings\nprint("{name} print")\nwarnings.warn("{name} warning", UserWarning)\n')

    def output(error, **env):
        return run_tool('-c', code, error, rc=2 if error != 'EOFError(1)' else 1, **env).stdout

    assert output('UserError("mine.")') == 'error: mine.\n'
    fault = output('RuntimeError("theirs.")')
    assert 'early warning' in fault and 'late warning' in fault and ' print' not in fault
    for told in (output('UserError("mine.")', **{command_line.TRACEBACK: '1'}), output('EOFError(1)')):
        assert [told.count(text) for text in ('early print', 'early warning', 'late print', 'late warning')] == [1] * 4
