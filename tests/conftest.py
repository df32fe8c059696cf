"""Shared fixtures: everything runs offline, seeded, on the CPU."""
import logging
import os
import subprocess
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE='1', WANDB_MODE='offline', MPLBACKEND='Agg', CUDA_VISIBLE_DEVICES='')

import pytest
import torch
from forked import ROOT
from load_tool import load_tool
from mmengine.logging import MMLogger
from tiny_training import call

SHARED = ROOT.parent / 'shared'


@pytest.fixture(autouse=True)
def _as_a_process_of_its_own(caplog):
    """What a tool that ran in another test of this process leaves: random state, levels of logs, what it kept."""
    torch.manual_seed(0)
    caplog.handler.setLevel(0)  # nncf.set_log_level sets pytest's handler to ERROR, for good
    logger = MMLogger.get_current_instance()
    logger.setLevel(logging.INFO)  # predict.py and selfcheck.py raise it
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler and handler.stream.closed:
            handler.stream = sys.__stderr__  # a logger of another test wrote into that test's stream, which is closed


@pytest.fixture(scope='session')
def shared() -> Path:
    """Folder of real images kept beside the checkout; users do not have it."""
    if not SHARED.is_dir():
        pytest.skip(f'{SHARED} is not there')
    return SHARED


@pytest.fixture(scope='session')
def run_tool(tmp_path_factory):
    """Runs ``python ARGS`` in the project's root as a user would; fails with its output if ``rc`` differs.

    One of the project's tools is forked from the server of forked.py, unless it gets an environment of its own.
    """

    def run(*args, rc: int = 0, timeout: int = 600, **env) -> subprocess.CompletedProcess:
        if str(args[0]).startswith('tools/') and not env:
            output = tmp_path_factory.mktemp('output') / 'output.txt'
            printed = call(*args, output=output, rc=rc, timeout=timeout)
            return subprocess.CompletedProcess(args, rc, printed)
        result = subprocess.run(
            [sys.executable, *map(str, args)], cwd=ROOT, text=True, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env})
        assert result.returncode == rc, f'exit code {result.returncode}, not {rc}:\n{result.stdout[-8000:]}'
        return result

    return run


@pytest.fixture
def call_tool(monkeypatch, capfd):
    """Runs a tool's ``main`` in this process and returns what it printed; fails if its exit code is not ``rc``."""

    def call(name: str, *args, rc: int = 0) -> str:
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, 'argv', [f'{name}.py', *map(str, args)])
        capfd.readouterr()
        code = 0
        try:
            load_tool(name).main()
        except SystemExit as end:
            code = end.code or 0
        printed = ''.join(capfd.readouterr())
        if isinstance(code, str):  # Python prints it and exits with 1
            printed, code = printed + code, 1
        assert code == rc, printed[-8000:]
        return printed

    return call
