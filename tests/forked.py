"""Run the project's scripts in processes that have imported the libraries already, which saves seconds for each.

A server imports them once and forks for each process; that has its own group, files, environment and random state.
Tests of launchers, of imports and of a process's end start ``python`` itself.
"""
import atexit
import gc
import multiprocessing
import os
import random
import runpy
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = multiprocessing.get_context('forkserver')
CONTEXT.set_forkserver_preload([
    'cvt_dense.engine', 'cvt_dense.launch.build', 'cvt_dense.launch.machine', 'cvt_dense.models', 'forked',
    'matplotlib.pyplot', 'mmdet.apis', 'mmseg.apis', 'pycocotools.coco', 'scipy.optimize', 'supervision'])


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return str(sock.getsockname()[1])


def run_as_main(args: list[str]) -> None:
    """Run a script with a random state of its own, and at its end what ``atexit`` has, as Python does."""
    import numpy as np
    random.seed()
    np.random.seed()
    sys.argv = args
    try:
        runpy.run_path(args[0], run_name='__main__')
    finally:
        atexit._run_exitfuncs()  # multiprocessing does so itself from Python 3.13 on


def run_script(args: list[str], output: str, cwd: str, env: dict[str, str]) -> None:
    """Do what ``python *args > output 2>&1`` does in the folder ``cwd`` with the environment ``env``."""
    import torch
    gc.freeze()  # the libraries, through which each collection would go
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, name in ((1, 'stdout'), (2, 'stderr')):
        os.dup2(file, number)
        setattr(sys, name, open(number, 'w', buffering=1, closefd=False))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    torch.set_num_threads(int(env.get('OMP_NUM_THREADS', torch.get_num_threads())))
    folders = env.get('PYTHONPATH', '').split(os.pathsep)
    sys.path[:0] = [os.path.dirname(os.path.abspath(args[0])), *filter(None, folders)]
    run_as_main(args)


class Forked(CONTEXT.Process):
    """``python *args``, forked from the server, with the methods of ``subprocess.Popen`` that the tests use.

    Args:
        args: a script and its flags.
        output: file to which the process appends what it prints.
        cwd: working directory.
        env: changes of the environment.
    """

    def __init__(self, *args, output: Path, cwd: Path = ROOT, **env: str):
        super().__init__(
            target=run_script, args=([str(arg) for arg in args], str(output), str(cwd), {**os.environ, **env}))
        self.start()

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.name, timeout)
        return self.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)
