"""Filter the messages that a run shows on the console; its log file has all of them."""
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from threading import RLock, get_ident
from typing import TextIO

from mmengine.logging import MMLogger

# Marks a record that only the log file shows: ``logger.info(text, extra=FILE_ONLY)``.
FILE_ONLY = dict(file_only=True)
ONE_THREAD = RLock()


def printable(name: object) -> str:
    """Return the name of a file as every terminal and font takes it, with escapes for what is not UTF-8."""
    return str(name).encode(errors='backslashreplace').decode()


class ConsoleFilter(logging.Filter):
    """Pass the records of a logger that its console shows.

    Args:
        name: name of the logger; records of others pass.

    Attributes:
        level: the lowest level of records of this logger that pass.
    """

    level = logging.WARNING

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return True
        # Deprecations are for those who develop with a package; IoUMetric's metrics have no prefix on purpose.
        file_only = getattr(record, 'file_only', False) or any(
            text in record.getMessage() for text in ('deprecated', 'The prefix is not set'))
        return record.levelno >= self.level and not file_only


def add_console_filter(logger: logging.Logger) -> ConsoleFilter:
    """Add a :class:`ConsoleFilter` to the handlers of ``logger`` that write to no file, and return it."""
    console = ConsoleFilter(logger.name)
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(console)
    return console


class ThreadOutput(StringIO):
    """Keeps what the thread that made it prints; what other threads print goes on to ``stream``."""

    def __init__(self, stream: TextIO):
        super().__init__()
        self.stream, self.thread = stream, get_ident()

    def write(self, text: str) -> int:
        """Write a text where it belongs."""
        return super().write(text) if get_ident() == self.thread else self.stream.write(text)


@contextmanager
def prints_to_log() -> Iterator[None]:
    """Write what other packages print to the log file, if there is one, and ignore their warnings.

    One thread at a time is in such a block, because standard output and the filters of warnings are the process's.
    """
    logger = MMLogger.get_current_instance()  # whose handler would otherwise be made for the redirected output
    with ONE_THREAD, redirect_stdout(ThreadOutput(sys.stdout)) as printed, warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            yield
        finally:
            printed.thread = None  # a logging handler may keep it
    if printed.getvalue() and any(isinstance(handler, logging.FileHandler) for handler in logger.handlers):
        logger.info(printed.getvalue(), extra=FILE_ONLY)
