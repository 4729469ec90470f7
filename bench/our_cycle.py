"""Our scrape cycle in a process of its own, so that nothing else is on its CPU time or in its memory: `OurCycle` starts one.

It ticks as the daemon does, back to back or at a pace, on a page of nginx that it moves itself before each tick, and tells its counts when
it is asked. Back to back is how the ticks of many targets come; at a pace, the processor has
forgotten the code by the next tick, as a peer's.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from llm_serving_exporter.cost.meters import Costs
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.derive.derive import Tick
from llm_serving_exporter.engines.apply import Normaliser
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost

# until every plan is made and the window has its usual twelve snapshots
WARM_UP = 50
# pages that are made at a time: 34 MB of the usual one
PAGES_AHEAD = 600
# 15 s over 5 s
SCRAPED_EVERY = 3
# what Prometheus 2.42 asks for: OpenMetrics first
PROMETHEUS_ACCEPTS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
# a price too, so that everything is known that there is to know
PRICES = PriceBook((PriceStatement(Scope.TARGET, "bench", 2.5, "owned"),), (Rate("owned", RateKind.OWNED),))
# GET waits for a server: what is not its CPU time counts in no stage
_STAGES: tuple[tuple[str, type, str], ...] = (
    ("GET", HttpClient, "get_metrics"),
    ("parse", PageParser, "parse"),
    ("normalise", Normaliser, "apply"),
    ("derive what a tick needs", Tick, "__init__"),
    ("GPUs and cost", Costs, "advance_target"),
    ("page: derive the rest", Tick, "whole"),
)
_TICK, _PAGE = "the rest of a tick: window, falls, lengths, reading", "page: series and their text"


class Asking(Enum):
    """What is asked of a reading, beside what each tick works out."""

    # /metrics as Prometheus 2.42 asks for it, at every third tick: intervals of 5 s and 15 s
    SCRAPED = "scraped every third tick"
    # every figure at every tick, and no /metrics
    EVERYTHING = "everything derived at every tick"


@dataclass
class Counts:
    """What a cycle has done."""

    ticks: int = 0
    # CPU seconds of all ticks, and of all pages
    tick_seconds: float = 0.0
    page_seconds: float = 0.0
    # CPU seconds by stage, where these are told apart
    stages: dict[str, float] = field(default_factory=dict)

    def mean_ms(self, since: Counts) -> float:
        """CPU milliseconds a tick, its share of pages included."""
        spent = self.tick_seconds + self.page_seconds - since.tick_seconds - since.page_seconds
        return 1000 * spent / (self.ticks - since.ticks)


class OurCycle:
    """Ticks until it is closed. `page`: where its target's page is, a file of nginx; `pages`: makes its contents, counters going on.

    `pace_seconds`: between two ticks; 0: back to back. `stages`: tell them apart, which takes time itself. `roofline`: whether the target
    has one, without which the figure would be too good.
    """

    def __init__(
        self,
        target: Target,
        page: Path,
        pages: Callable[[], Iterator[bytes]],
        asking: Asking = Asking.EVERYTHING,
        *,
        pace_seconds: float = 0.0,
        stages: bool = False,
        roofline: bool = True,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(theirs, target, page, pages, asking, pace_seconds, stages, roofline), daemon=True
        )
        self._process.start()
        theirs.close()
        if (problem := self._ours.recv()) is not None:
            raise SystemExit(problem)

    def count(self) -> Counts:
        """What it has done so far."""
        self._ours.send("count")
        found: Counts = self._ours.recv()
        return found

    def close(self) -> None:
        """Ends it."""
        self._ours.send("end")
        self._process.join(10)


def _move(page: Path, pages: Iterator[bytes]) -> Iterator[None]:
    """Shows the next page each time. They are made many at a time, so that making one is not what happens just before a tick."""
    fresh = page.with_suffix(".new")
    while True:
        for body in list(islice(pages, PAGES_AHEAD)):
            fresh.write_bytes(body)
            fresh.replace(page)
            yield


def _run(
    connection: Connection,
    target: Target,
    page: Path,
    pages: Callable[[], Iterator[bytes]],
    asking: Asking,
    pace_seconds: float,
    stages: bool,
    roofline: bool,
) -> None:
    counts, spent = Counts(), defaultdict[str, float](float)
    if stages:
        for label, owner, name in _STAGES:
            _time_calls(owner, name, label, spent)

    def monotonic() -> float:
        # as if five seconds after the last
        return time.monotonic() + 5.0 * counts.ticks

    host = TargetHost(Config(targets=(), prices=PRICES), monotonic=monotonic)
    hosted, store, registry = host.add_target(target), Store(), CollectorRegistry()
    store.add_target(target)
    registry.register(ViewCollector(store.view, lambda: Setup(15.0, 15.0, "node"), monotonic))

    moved = _move(page, pages())

    def tick() -> None:
        next(moved)
        before = time.process_time()
        reading = hosted.tick()
        if asking is Asking.EVERYTHING:
            assert reading.page.derived is not None
        else:
            store.put_target(reading)
        counts.tick_seconds += time.process_time() - before
        counts.ticks += 1
        if asking is Asking.SCRAPED and counts.ticks % SCRAPED_EVERY == 0:
            before = time.process_time()
            encode(registry, PROMETHEUS_ACCEPTS)
            counts.page_seconds += time.process_time() - before
        if not reading.page.up:
            raise SystemExit(reading.page.problem)

    tick()
    hosted.refresh_facts()
    for _ in range(WARM_UP):
        tick()
    derived = hosted.tick().page.derived
    known = not roofline or (derived is not None and bool(derived.engines[0].roofline.ratio))
    # the figure would be too good
    connection.send(None if known else "the roofline is not worked out")
    gc.freeze()  # as the daemon does once it is up
    following = time.monotonic()
    while known:
        tick()
        following = max(following + pace_seconds, time.monotonic() - pace_seconds)
        if connection.poll(max(0.0, following - time.monotonic()) if pace_seconds else 0.0):
            if connection.recv() == "end":
                return
            counts.stages = _complete_stages(spent, counts) if stages else {}
            connection.send(counts)


def _time_calls(owner: type, name: str, label: str, spent: dict[str, float]) -> None:
    """Has the CPU seconds of each call added to `spent`, those of calls within it not."""
    call: Callable[..., Any] = getattr(owner, name)
    under_way: list[float] = _UNDER_WAY

    def begin() -> float:
        under_way.append(0.0)
        return time.process_time()

    def end(began: float) -> None:
        whole = time.process_time() - began
        spent[label] += whole - under_way.pop()
        if under_way:
            under_way[-1] += whole

    if name.startswith("get_"):

        @wraps(call)
        async def timed_wait(*args: Any, **more: Any) -> Any:
            began = begin()
            try:
                found: Awaitable[Any] = call(*args, **more)
                return await found
            finally:
                end(began)

        setattr(owner, name, timed_wait)
        return

    @wraps(call)
    def timed(*args: Any, **more: Any) -> Any:
        began = begin()
        try:
            return call(*args, **more)
        finally:
            end(began)

    setattr(owner, name, timed)


# CPU seconds within each call that is under way
_UNDER_WAY: list[float] = []


def _complete_stages(spent: Mapping[str, float], counts: Counts) -> dict[str, float]:
    """With what is left of ticks and of pages. The rest of derive is asked for by pages alone."""
    of_pages = {label: seconds for label, seconds in spent.items() if label.startswith("page")}
    of_ticks = {label: seconds for label, seconds in spent.items() if label not in of_pages}
    return {
        **of_ticks,
        _TICK: counts.tick_seconds - sum(of_ticks.values()),
        **of_pages,
        _PAGE: counts.page_seconds - sum(of_pages.values()),
    }


def list_stages(counts: Counts, since: Counts) -> Sequence[tuple[str, float]]:
    """CPU milliseconds a tick of each stage, the page's as its share of every third tick."""
    ticks = counts.ticks - since.ticks
    return [
        (label, 1000 * (seconds - since.stages.get(label, 0.0)) / ticks) for label, seconds in counts.stages.items()
    ]
