"""Options of the suite."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.nvml_stub.stub import build_stub

# a machine that does other work is slow: that says nothing about the code
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# what llm_serving_exporter.logs.set_up changes
_LOGGERS = (None, "llm_serving_exporter", "apscheduler")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="write tests/golden anew; read the diff before you commit it"
    )


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command run within the suite sets up logging for its whole process: the next test starts without."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML stub, compiled once: a process finds a library by its soname, so a second copy would never be asked."""
    return build_stub(tmp_path_factory.mktemp("nvml"))
