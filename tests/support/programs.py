"""Which tests start a program: one that does so says it (`process`), or fails and is told which program it was.

Python tells of each start (`sys.addaudithook`). What a shared fixture starts, each test that uses it starts.
"""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# a test with one of these may start programs
MAY_START = ("process", "packages", "e2e", "soak", "bench", "hardware", "grafana", "kubernetes", "live", "deb")
# the compiler of a stub, once a session, and what Python itself asks for the place of a library
_NOT_MEANT = frozenset({"cc", "gcc", "ld", "ldconfig"})

_started: list[str] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        program = arguments[0] if arguments[0] is not None else arguments[1][0]
    elif event in ("os.posix_spawn", "os.system", "os.exec"):
        program = arguments[0]
    elif event in ("os.fork", "os.forkpty"):
        program = "a fork"
    else:
        return
    name = Path(os.fsdecode(program)).name
    if name not in _NOT_MEANT:
        _started.append(name)


class ProgramWatch:
    """A plugin that fails each test which starts a program and does not say so."""

    def __init__(self) -> None:
        self._by_fixture: dict[Any, list[str]] = {}
        self._before = 0
        sys.addaudithook(_listen)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Keeps what a shared fixture starts."""
        before = len(_started)
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function" and len(_started) > before:
                self._by_fixture[fixturedef] = _started[before:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        """Counts from here."""
        self._before = len(_started)
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, Any]:
        """Fails the test."""
        ended = yield
        fixtures = {used for name in item.fixturenames for used in item._fixtureinfo.name2fixturedefs.get(name, ())}
        programs = {*_started[self._before :], *(name for used in fixtures for name in self._by_fixture.get(used, ()))}
        if programs and not any(item.get_closest_marker(marker) for marker in MAY_START):
            pytest.fail(f"it starts {', '.join(sorted(programs))}: mark it `process`", pytrace=False)
        return ended
