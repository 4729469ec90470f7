"""Options of the suite."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.nvml_stub.stub import build_stub
from tests.support.builders.exposition_oracle import remembered_labels
from tests.support.loggers import logging_as_before

# a machine that does other work is slow: that says nothing about the code
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays to the end: each search for garbage would walk over it once more, a fifth of the suite's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# what stands in a module that has tests of a marker; to collect all modules takes each process ten seconds
_WORDS = {"e2e": ("mark.e2e", "keep_quick"), "soak": ("mark.soak",)}
_ALL_OF = re.compile(r"(\w+)(?: and (?:not )?\w+)*")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of a marker reads the modules that have it, and those that it is given by name."""
    expression = _ALL_OF.fullmatch(config.option.markexpr)
    words = _WORDS.get(expression[1]) if expression else None
    named = collection_path in [Path(one.partition("::")[0]).absolute() for one in config.args]
    if words is None or named or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if any(word in text for word in words) else True


# under nohup SIGHUP is ignored, in the background of a shell SIGINT: every program that a test starts would ignore them too
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="write tests/golden anew; read the diff before you commit it"
    )


# modules whose tests share a fixture that takes ten seconds or more, and what they share
SHARED = {
    "tests/e2e/test_dashboards.py": "week",
    "tests/e2e/test_simulated_scenarios.py": "week",
    "tests/e2e/test_situations.py": "situations",
    "tests/e2e/test_n1_forecast.py": "fleets",
    "tests/e2e/test_prometheus.py": "stored",
    "tests/e2e/test_conventions.py": "conventions",
    "tests/unit/report/test_simulated_day.py": "day",
    "tests/unit/report/test_against_prometheus.py": "fortnight",
    "tests/unit/report/test_change.py": "moved",
    "tests/pack/test_records_against_truth.py": "told",
}


class ByTest(LoadScopeScheduling):
    """Each test goes to whichever worker is free, those that share a fixture to the same one.

    xdist's own groups (`--dist loadgroup` with `xdist_group`) do nothing with pytest 9.2: xdist 3.8 writes them into a field that
    pytest no longer reads, and each worker sets up the fixture for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SHARED.get(nodeid.partition("::")[0], nodeid)


# modules of the default suite of which each test stands alone, and which would keep one process busy until after all others have ended
SPREAD = {"tests/pack/test_alert_cases.py"}


class ByFile(LoadScopeScheduling):
    """The tests of a module go to the same worker, those of a long one to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return nodeid if module in SPREAD else module


SCHEDULERS = {"loadscope": ByTest, "loadfile": ByFile}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    made = SCHEDULERS.get(config.getvalue("dist"))
    return made(config, log) if made else None


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command run within the suite sets up logging for its whole process: the next test starts without."""
    with logging_as_before():
        yield


@pytest.fixture(scope="session", autouse=True)
def _remembered_labels() -> Iterator[None]:
    with remembered_labels():
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML stub, compiled once: a process finds a library by its soname, so a second copy would never be asked."""
    return build_stub(tmp_path_factory.mktemp("nvml"))
