"""A training run of seconds, for tests that start, stop, kill and compare whole runs."""
import atexit
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from load_tool import ROOT, forget_runs, load_tool
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image

from cvt_dense.engine.checkpoint import find_checkpoint

EPOCHS, ITERATIONS = 8, 24  # of the config below: 36 images, 12 a batch

CONFIG = """
_base_ = {base!r}
# norm_eval: BatchNorm on stored statistics, because with its own each process would normalise differently.
model = dict(
    backbone=dict(
        arch=dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6)), norm_eval=True,
        drop_path_rate=0.),
    num_classes=2)
transform = dict(input_size=32)
train_dataloader = dict(batch_size=12, num_workers=0, dataset=dict(data_root={data!r}, transform=transform))
val_dataloader = dict(batch_size=16, dataset=dict(data_root={data!r}, transform=transform))
test_dataloader = dict(batch_size=16, dataset=dict(data_root={data!r}, transform=transform))
auto_scale_lr = dict(base_batch_size=12)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
train_cfg = dict(max_epochs=8, val_interval=4)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=1, end=8, T_max=7, convert_to_iter_based=True)]
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(save_best='accuracy/top1', rule='greater'))
"""


def write_config(folder: Path) -> Path:
    """Writes 36 training and 100 validation images of two classes and a config for them; returns its path."""
    rng = np.random.default_rng(0)
    for split, per_class in (('train', 18), ('val', 50)):
        for label, name in enumerate(('dark', 'light')):
            images = folder / 'data' / split / name
            images.mkdir(parents=True)
            for number in range(per_class):
                wrong = split == 'val' and number % 10 == 0  # so that accuracy is not 100 %
                pixels = rng.integers(0, 200, (40, 40, 3)) + 12 * (label != wrong)
                Image.fromarray(pixels.astype(np.uint8)).save(images / f'{number:03}.png')
    config = folder / 'tiny.py'
    config.write_text(CONFIG.format(base=str(ROOT / 'configs/cvt_nano_shapes.py'), data=str(folder / 'data')))
    return config


def load(path: Path) -> dict[str, Any]:
    return torch.load(path, map_location='cpu', weights_only=False)


def differences(first: Path, second: Path) -> list[str]:
    """Names of what is not bit for bit the same in the weights, averages, optimizers and schedules."""

    def flat(node: Any, name: str) -> dict[str, Any]:
        if isinstance(node, (list, tuple)):
            node = dict(enumerate(node))
        if not isinstance(node, dict):
            return {name: node}
        return {key: value for child in node for key, value in flat(node[child], f'{name}.{child}').items()}

    parts = ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')
    a, b = ({key: value for part in parts for key, value in flat(checkpoint[part], part).items()}
            for checkpoint in (load(first), load(second)))
    assert len(a) > 50, 'the checkpoints hold less than expected'
    return sorted(key for key in a.keys() | b.keys() if key not in a or key not in b or not (
        torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key]))


def assert_same_end(work_dir: Path, expected: Path) -> None:
    """Two runs have left the same files, and the last checkpoints have the same bits, iteration and best score."""
    names = [sorted(path.name for path in folder.glob('*.pth')) for folder in (work_dir, expected)]
    assert names[0] == names[1] and not list(work_dir.glob('.partial-*'))
    last, other = (Path(find_checkpoint(str(folder))) for folder in (work_dir, expected))
    assert last.name == other.name and differences(last, other) == []
    ends = [(saved['meta']['iter'], [value for key, value in saved['message_hub']['runtime_info'].items()
                                     if key.startswith('best_score')]) for saved in map(load, (last, other))]
    assert ends[0] == ends[1]


class Crash(Exception):
    pass


def crash() -> None:
    raise Crash


def stop() -> None:
    signal.raise_signal(signal.SIGTERM)


class Disturb(Hook):
    """Call ``action`` before an iteration of the training, or with ``mode='val'`` in the evaluation after it."""

    def __init__(self, action: Callable[[], None], iteration: int, mode: str = 'train'):
        self.action, self.iteration, self.mode = action, iteration, mode

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        if self.mode == 'train' and runner.iter == self.iteration:
            self.action()

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        if self.mode == 'val' and runner.iter == self.iteration:
            self.action()


@contextmanager
def reserved_port() -> Iterator[str]:
    """Keep a port from other programs; one that sets SO_REUSEADDR, as PyTorch's store does, can listen at it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(('127.0.0.1', 0))
        yield str(sock.getsockname()[1])


class Fork(multiprocessing.get_context('fork').Process):
    """``python tools/NAME.py ARGS`` in a fork of this process, which saves importing PyTorch again.

    It has the methods of ``subprocess.Popen`` that the tests use.
    """

    def __init__(self, tool: str, args: list[str], output: Path, env: dict[str, str]):
        super().__init__(target=self._main, args=(tool, args, str(output), env))
        self.start()

    @staticmethod
    def _main(tool: str, args: list[str], output: str, env: dict[str, str]) -> None:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_APPEND)
        for number, name in ((1, 'stdout'), (2, 'stderr')):
            os.dup2(file, number)
            setattr(sys, name, open(number, 'w', buffering=1, closefd=False))
        os.environ.update(env)
        os.chdir(ROOT)
        atexit._clear()  # what the parent is to do at its end
        torch.set_num_threads(1)
        random.seed()
        np.random.seed()
        forget_runs()
        try:
            load_tool(tool).main(args)
        finally:
            atexit._run_exitfuncs()  # as at the end of Python; multiprocessing does so from Python 3.13 on

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.name, timeout)
        return self.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Process:
    """A command running in the project's root as a group of its own, with its output in a file.

    A tool without an interpreter before it (``'tools/train.py', ...``) is forked from this process.
    """

    def __init__(self, *args: Any, output: Path, **env: str):
        self.output = output
        words = [str(arg) for arg in args]
        env = {'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1', **env}
        output.write_text('')
        if words[0].endswith('.py'):
            self.popen = Fork(Path(words[0]).stem, words[1:], output, env)
            return
        with open(output, 'a') as file:
            self.popen = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT,
                                          start_new_session=True, env={**os.environ, **env})

    def text(self) -> str:
        return self.output.read_text(errors='replace')  # the last character may be written in part

    def wait_for(self, ready: Callable[[], bool], timeout: float = 300.) -> None:
        """Returns as soon as ``ready()``; fails if the command ends before."""
        end = time.monotonic() + timeout
        ended = False
        while not ready():
            assert not ended and time.monotonic() < end, self.text()[-6000:]
            ended = self.popen.poll() is not None  # what it has written before is looked at once more
            time.sleep(0.002)

    def wait_for_text(self, text: str) -> None:
        self.wait_for(lambda: text in self.text())

    def finish(self, rc: int = 0, timeout: float = 600.) -> str:
        """Waits for the end and returns the output; fails with it if the exit code is not ``rc``."""
        code = self.popen.wait(timeout)
        assert code == rc, f'exit code {code}, not {rc}:\n{self.text()[-8000:]}'
        return self.text()

    def group_is_alive(self) -> bool:
        """Return whether the group has a process after a minute; init may need a while to clear away ended ones."""
        for _ in range(600):
            try:
                os.killpg(self.popen.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.1)
        return True


@contextmanager
def start(*args: Any, output: Path, **options: Any) -> Iterator[Process]:
    """Starts a command; whatever is left of its group is killed at the end."""
    process = Process(*args, output=output, **options)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGTERM)  # torchrun passes it on to its processes, each in its own group
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()


@contextmanager
def start_two(*args: Any, output: Path, launcher: str = 'pytorch', **env: str) -> Iterator[list[Process]]:
    """Start a command in two processes as torchrun or srun does; the outputs are ``{output}0`` and ``{output}1``."""
    with ExitStack() as stack:
        env |= dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=stack.enter_context(reserved_port()))
        yield [stack.enter_context(start(
            *args, '--launcher', launcher, output=Path(f'{output}{rank}'), RANK=str(rank), LOCAL_RANK=str(rank),
            SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **env)) for rank in range(2)]
