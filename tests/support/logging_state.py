"""A command that a test runs sets up logging for the whole process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# what llm_serving_exporter.logs.set_up changes
_LOGGERS = (None, "llm_serving_exporter")


@contextmanager
def keep_logging() -> Iterator[None]:
    """What comes next starts with the logging that was there before."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            if logger.level != level:
                # it empties the caches of every logger
                logger.setLevel(level)
            logger.handlers[:] = handlers
