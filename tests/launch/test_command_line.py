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
