"""Logging as it was: a command that is run in a test's own process sets it up for the whole process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# what llm_serving_exporter.logs.set_up changes
_LOGGERS = (None, "llm_serving_exporter")


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Levels and handlers are afterwards what they were before."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
