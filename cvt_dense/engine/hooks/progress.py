"""A progress bar on a terminal."""
import sys
from contextlib import ExitStack, redirect_stdout
from typing import Any, TextIO

from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from ...registry import HOOKS

WINDOW = 10  # images/s is the mean over this many iterations


@HOOKS.register_module()
class ProgressBarHook(Hook):
    """Shows a bar with iterations, time left, loss and images/s below the log's lines on a terminal.

    It counts the iterations of an epoch, of the whole run where that has no epochs, or of an evaluation. Only the
    main process shows it, and only on a terminal: files and pipes get the log's plain lines.
    """

    priority = 'LOWEST'  # after the log's lines, and after SafeCheckpointHook has found where a resumed run goes on

    def __init__(self):
        self.terminal: TextIO | None = None
        self.bars: list[tqdm] = []  # an evaluation's bar is below that of a training without epochs

    def before_run(self, runner: Runner) -> None:
        self.redirections = ExitStack()
        if runner.rank == 0 and sys.stdout.isatty():
            self.terminal = sys.stdout
            above = DummyTqdmFile(self.terminal)  # removes the bars, writes, and draws them again
            self.redirections.enter_context(redirect_stdout(above))
            for handler in runner.logger.handlers:
                if getattr(handler, 'stream', None) is self.terminal:
                    self.redirections.callback(handler.setStream, handler.setStream(above))

    def after_run(self, runner: Runner) -> None:
        self.redirections.close()

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if self.terminal is None:
            return
        name, total, done = mode, len(getattr(runner, f'{mode}_dataloader')), 0
        if mode == 'train' and isinstance(runner.train_loop, EpochBasedTrainLoop):
            name = f'epoch {runner.epoch + 1}/{runner.max_epochs}'
            done = runner.iter - runner.epoch * total
        elif mode == 'train':
            total, done = runner.max_iters, runner.iter
        # smoothing 0: the time left follows from the mean of all iterations, evaluations in between included.
        self.bars.append(tqdm(desc=name, total=total, initial=done, file=self.terminal, smoothing=0, leave=False,
                              dynamic_ncols=True))

    def _after_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None,
                    mode: str = 'train') -> None:
        if not self.bars:
            return
        if mode == 'train':
            scalars = runner.message_hub.log_scalars
            rate = len(data_batch['inputs']) * runner.world_size / scalars['train/time'].mean(WINDOW)
            loss = scalars['train/loss'].current()
            self.bars[-1].set_postfix_str(f'loss {loss:.4g}, {rate:.1f} images/s', refresh=False)
        self.bars[-1].update()

    def _after_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if self.bars:
            self.bars.pop().close()
