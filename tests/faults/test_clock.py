"""Clocks that jump under the real exporter: ticks, rates and memory stay, and SIGTERM ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clock_stub.stub import MovedClocks
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.http_server import QuietHandler, serve

# each starts an exporter and follows its ticks: seven times four seconds
pytestmark = pytest.mark.e2e

YEAR = 365 * 86_400.0
TOKENS_PER_SECOND = 1000.0
MEBIBYTE = 2**20
PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens:.3f}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m"}} 10
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 4
"""


class Engine(QuietHandler):
    """Generates so many tokens a second."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.answer(200, PAGE.format(tokens=TOKENS_PER_SECOND * time.monotonic()).encode(), "text/plain")
        else:
            self.answer(404, b"{}")


@pytest.fixture
def clocks(tmp_path: Path) -> MovedClocks:
    return MovedClocks(tmp_path)


@pytest.fixture
def exporter(clocks: MovedClocks) -> Iterator[Exporter]:
    settings = ("--scrape.interval", "0.5s", "--window", "3s")
    with serve(Engine) as url, Exporter("--target", url, *settings, env=clocks.environment) as running:
        running.until(generates, "a true rate")
        yield running


def generates(page: Scraped) -> bool:
    """Whether the page has the engine's rate, and it is true. A rate that is there and false fails the test: one by a clock that jumped is
    false by orders of magnitude, one of a busy machine by less."""
    found = page.series("phase_tokens_per_second", phase="decode")
    for rate in found.values():
        assert TOKENS_PER_SECOND / 3 < rate < TOKENS_PER_SECOND * 3
    return bool(found)


def resident(page: Scraped) -> float:
    return page.samples["process_resident_memory_bytes", frozenset()]


JUMPS: dict[str, Callable[[MovedClocks], None]] = {
    "20 years ahead": lambda clocks: clocks.step_wall(20 * YEAR),
    "a year ahead": lambda clocks: clocks.step_wall(YEAR),
    "20 years back": lambda clocks: clocks.step_wall(-20 * YEAR),
    "an hour ahead": lambda clocks: clocks.step_wall(3600.0),
    "an hour back": lambda clocks: clocks.step_wall(-3600.0),
    "a night's suspend": lambda clocks: clocks.suspend(8 * 3600.0),
}


@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_jumps_stops_nothing(jump: str, clocks: MovedClocks, exporter: Exporter) -> None:
    before = exporter.scrape()
    JUMPS[jump](clocks)
    exporter.until(lambda page: generates(page) and _attempts(page) >= _attempts(before) + 5, "five more ticks")
    after = exporter.until(generates, "a true rate")
    assert resident(after) - resident(before) < 20 * MEBIBYTE
    # the engine went on: its counters do, and no restart is counted
    assert after.value("decode_tokens_total") > before.value("decode_tokens_total")
    assert after.total("target_restarts_total") == before.total("target_restarts_total") == 0


def test_a_slewed_clock_moves_no_rate(clocks: MovedClocks, exporter: Exporter) -> None:
    last = exporter.scrape()
    for _ in range(6):
        clocks.step_wall(0.3)
        last = exporter.until(lambda page, last=last: generates(page) and _attempts(page) > _attempts(last), "a tick")


def _attempts(page: Scraped) -> float:
    return page.total("scrape_attempts_total")
