"""Filter the messages that a run shows on the console; its log file has all of them."""
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

from mmengine.logging import MMLogger

# Marks a record that only the log file shows: ``logger.info(text, extra=FILE_ONLY)``.
FILE_ONLY = dict(file_only=True)


class ConsoleFilter(logging.Filter):
    """Pass the records of a logger that its console shows.

    Args:
        name: name of the logger; records of others pass.
        level: the lowest level of records of this logger that pass; may be changed at any time.
    """

    def __init__(self, name: str, level: int = logging.WARNING):
        super().__init__(name)
        self.level = level

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return True
        # Deprecations are for those who develop with a package; IoUMetric's metrics have no prefix on purpose.
        file_only = getattr(record, 'file_only', False) or any(
            text in record.getMessage() for text in ('deprecated', 'The prefix is not set'))
        return record.levelno >= self.level and not file_only


def add_console_filter(logger: logging.Logger, level: int = logging.WARNING) -> ConsoleFilter:
    """Add a :class:`ConsoleFilter` to the handlers of ``logger`` that write to no file, and return it.

    Args:
        logger: a logger with its handlers.
        level: the lowest level of records that the console shows.
    """
    console = ConsoleFilter(logger.name, level)
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(console)
    return console


@contextmanager
def prints_to_log() -> Iterator[None]:
    """Write what other packages print to the log file, if there is one, and ignore their warnings."""
    logger = MMLogger.get_current_instance()  # whose handler would otherwise be made for the redirected output
    with redirect_stdout(StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield
    if printed.getvalue() and any(isinstance(handler, logging.FileHandler) for handler in logger.handlers):
        logger.info(printed.getvalue(), extra=FILE_ONLY)
