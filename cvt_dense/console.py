"""What of a run's messages is on the console; its log file has all of them.

On the console is what this package and the user's own code say, and of the installed packages' messages those about
the run: errors, warnings, metrics, checkpoints. Their dumps of the config, the environment and the hooks, what they
print while they are imported or read a file, and their warnings about themselves are in the log file only.
"""
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from logging.handlers import MemoryHandler
from typing import Any, TextIO

from mmengine.logging import MMLogger

# Modules that messages only pass through, on their way from who has something to say.
PASSING = re.compile(r'(logging|warnings|mmengine\.logging)(\.|$)')
# Where what installed packages log is about the run. Here and below: MODULE:FUNCTION.
ABOUT_THE_RUN = re.compile(r'\w+(\.\w+)*\.(hooks|evaluation|evaluator)\b|'
                           r'mmengine\.runner\.runner:(scale_lr|resume|load_checkpoint)$')
# Where their loggers' warnings are about themselves, and where Python's warnings in them are about the run.
ABOUT_THEMSELVES = re.compile(r'mmengine\.(registry|fileio|config|utils|evaluator)\b')
WARNS_OF_THE_RUN = re.compile(r'torch\.utils\.data\.dataloader:')
# Of ours, what is longer than a console's share.
LONG = re.compile(r'cvt_dense\.engine\.layer_decay:')


def _speaker() -> tuple[str, bool]:
    """'module:function' that the message being logged, warned of or printed comes from, and whether of a package.

    What is not in an environment's folder of packages, or is this package, counts as the user's.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_globals.get('__name__') == __name__
                                        or PASSING.match(frame.f_globals.get('__name__', ''))):
        frame = frame.f_back
    module = frame.f_globals.get('__name__', '')
    installed = re.search(r'[/\\](site|dist)-packages[/\\]', frame.f_code.co_filename) is not None
    return f'{module}:{frame.f_code.co_name}', installed and module.split('.')[0] not in ('cvt_dense', '__main__')


class ForTheConsole(logging.Filter):
    """Lets a record of a logger pass if the console shows it; called in the thread that logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        speaker, installed = _speaker()
        if record.levelno >= logging.ERROR:
            return True
        if not installed:
            return not LONG.match(speaker)
        if getattr(record, 'from_python', False):
            return WARNS_OF_THE_RUN.match(speaker) is not None
        if record.levelno == logging.WARNING:
            return not ABOUT_THEMSELVES.match(speaker) and 'deprecated' not in record.getMessage()
        return ABOUT_THE_RUN.match(speaker) is not None


class _Prints:
    """In place of stdout: what packages print goes to the current logger, what others print to the real one."""

    def __init__(self, stream: TextIO):
        self.stream, self.line = stream, ''

    def write(self, text: str) -> int:
        if not _speaker()[1]:
            return self.stream.write(text)
        *lines, self.line = (self.line + text).split('\n')
        for line in filter(str.strip, lines):
            _log(logging.INFO, line)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _LastResort(logging.Handler):
    """Takes the records of loggers for which nobody has set up a handler; Python's own prints them on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        _log(record.levelno, record.getMessage(), from_python=record.levelno < logging.ERROR)


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                  file: TextIO | None = None, line: str | None = None) -> None:
    # A RuntimeWarning is about values: numpy's of divisions by zero, Pillow's of images too large.
    _log(logging.WARNING, f'{category.__name__}: {message} ({filename}:{lineno})',
         from_python=not issubclass(category, RuntimeWarning))


_early: list[tuple[int, str]] | None = []  # what was said before there was a logger, whose making imports PyTorch
_before: MemoryHandler | None = None  # what was logged before there was a log file


def _log(level: int, text: str, from_python: bool = False) -> None:
    if _early is None:
        MMLogger.get_current_instance().log(level, text, extra=dict(from_python=from_python))
    elif _speaker()[1] and level < logging.ERROR:
        _early.append((level, text))
    else:
        print(text, file=sys.stderr)


@contextmanager
def quiet_packages() -> Iterator[None]:
    """What installed packages print in here goes to the log; from here on Python's warnings do."""
    warnings.showwarning = _show_warning
    last_resort, logging.lastResort = logging.lastResort, _LastResort(logging.WARNING)
    with redirect_stdout(_Prints(sys.stdout)):
        try:
            yield
        finally:
            logging.lastResort = last_resort


@contextmanager
def before_the_log(main_process: bool) -> Iterator[None]:
    """While a run is being set up: :func:`quiet_packages`, and all that is logged is kept for the log file.

    Args:
        main_process: whether this is the process that may speak.
    """
    global _before, _early
    name = f'before the log {len(MMLogger._instance_dict)}'
    logger = MMLogger.get_instance(name, logger_name='mmengine')
    show_on_console(logger)
    if not main_process:
        logger.handlers[0].setLevel(logging.ERROR)
    _before = MemoryHandler(sys.maxsize, flushLevel=sys.maxsize)
    logger.handlers.append(_before)
    for level, text in _early or ():
        _before.handle(logger.makeRecord('mmengine', level, '', 0, text, (), None))
    _early = None
    logging.getLogger('torch').handlers[:] = [_LastResort()]  # its own prints notes to those who write for it
    with quiet_packages():
        yield


def print_kept(least: int = logging.INFO) -> None:
    """Prints what was kept for a log file, where there will be none: the run has ended before it.

    Args:
        least: level from which messages are printed.
    """
    global _before, _early
    kept = [(record.levelno, record.getMessage()) for record in _before.buffer] if _before is not None else _early
    texts = [text for level, text in kept or () if level >= least]
    _before, _early = None, _early and []
    if texts:
        print('\n  '.join(['Said before, for a log file that there is not yet:', *texts]), file=sys.stderr)


def show_on_console(logger: MMLogger) -> None:
    """Gives the console of a new logger its share; the file that it writes begins with what was said before."""
    global _before
    for handler in logger.handlers:
        stream = getattr(handler, 'stream', None)
        if isinstance(handler, logging.FileHandler):
            if _before is not None:
                _before.setTarget(handler)
                _before.close()  # flushes
                _before = None
        elif stream is not None:
            handler.addFilter(ForTheConsole())
            if isinstance(stream, _Prints):
                handler.setStream(stream.stream)
