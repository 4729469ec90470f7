"""Options of the suite."""

from __future__ import annotations

import ast
import gc
import itertools
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.nvml_stub.stub import build_stub
from tests.support import rows
from tests.support.builders.exposition_oracle import remembered_labels
from tests.support.logging_state import keep_logging
from tests.support.programs import ProgramWatch

# how many examples a property is tried on: here, in CI, and in each round of `make fuzz`, which ends when its time is over. A machine that
# does other work is slow: that says nothing about the code, so there are no deadlines.
for profile, examples in {"quick": 25, "ci": 300, "fuzz": 2_000}.items():
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("PROPERTIES") or ("ci" if os.environ.get("CI") else "quick"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays to the end: each search for garbage would walk over it once more, a fifth of the suite's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# what stands in a module that has tests of a marker. Any other marker may be on a test of any module.
_WORDS = {
    "process": ("mark.process",),
    "seam": ("mark.seam",),
    "packages": ("mark.packages",),
    "e2e": ("mark.e2e", "keep_quick", "BESIDE_ONE_ANOTHER"),
    "soak": ("mark.soak", "BESIDE_ONE_ANOTHER"),
}
_MARKS_OF_ALL = re.compile(r"^pytestmark = (.+)$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run reads the modules that can have tests of its markers, and those that it is given by name: to collect all takes each process
    seventeen seconds."""
    named = collection_path in [Path(one.partition("::")[0]).absolute() for one in config.args]
    expression = config.option.markexpr
    if named or not expression or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return (
        None
        if True in _say_whether(ast.parse(expression, mode="eval").body, collection_path.read_text("utf-8"))
        else True
    )


def _say_whether(node: ast.expr, text: str) -> set[bool]:
    """What an expression of markers may be for the tests of a module with this text."""
    if isinstance(node, ast.UnaryOp):
        return {not one for one in _say_whether(node.operand, text)}
    if isinstance(node, ast.BoolOp):
        join = all if isinstance(node.op, ast.And) else any
        return {join(each) for each in itertools.product(*(_say_whether(value, text) for value in node.values))}
    if not isinstance(node, ast.Name):
        return {True, False}
    of_all = _MARKS_OF_ALL.search(text)
    if of_all and node.id in re.findall(r"\bmark\.(\w+)", of_all[1]):
        return {True}
    words = _WORDS.get(node.id)
    return {False} if words and not any(word in text for word in words) else {True, False}


# under nohup SIGHUP is ignored, in the background of a shell SIGINT: every program that a test starts would ignore them too
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="write tests/golden anew; read the diff before you commit it"
    )
    parser.addoption(
        "--row", metavar="NAME", help="try this row alone of each table that has it (tests/support/rows.py)"
    )


def pytest_configure(config: pytest.Config) -> None:
    rows.chosen.name = config.getoption("--row")
    config.pluginmanager.register(ProgramWatch(), "program-watch")


# modules whose tests share a fixture that takes ten seconds or more, and what they share
SHARED = {
    "tests/e2e/test_dashboards.py": "week",
    "tests/e2e/test_simulated_scenarios.py": "week",
    "tests/e2e/test_situations.py": "situations",
    "tests/e2e/test_n1_forecast.py": "fleets",
    "tests/e2e/test_prometheus.py": "stored",
    "tests/e2e/test_conventions.py": "conventions",
    "tests/unit/review/test_simulated_day.py": "day",
    "tests/unit/review/test_against_prometheus.py": "fortnight",
    "tests/unit/review/test_change.py": "moved",
    "tests/pack/test_records_against_truth.py": "told",
    "tests/pack/test_conventions.py": "namespaces",
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
    with keep_logging():
        yield


@pytest.fixture(scope="session", autouse=True)
def _remembered_labels() -> Iterator[None]:
    with remembered_labels():
        yield


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML stub, compiled once: a process finds a library by its soname, so a second copy would never be asked."""
    return build_stub(tmp_path_factory.mktemp("nvml"))
