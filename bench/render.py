"""What /metrics costs: CPU to derive what only it asks for, to encode, and to compress, of one target and of many.

    python -m bench.render [--targets 200] [--rounds 5]

The targets all read the recorded vLLM run with MFU metrics, everything known; between two pages each of them is ticked once, so that every
page has moved. Each row is CPU of the thread that makes the page, best and mean of the rounds, in milliseconds.
"""

from __future__ import annotations

import gc
import gzip
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bench.peers import PROMETHEUS_ACCEPTS, make_target, moving_pages
from bench.shared import make_parser, print_table
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import LEVEL, Spool, write_page
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from tests.support.servers.replica import Replica

# plans are made, and rates have two pages
WARM_UP = 15
INTERVAL_SECONDS = 5.0
_MILLI = 1000.0


@dataclass
class Costs:
    """CPU milliseconds of each page."""

    derive: list[float] = field(default_factory=list)  # what no tick works out
    encode: list[float] = field(default_factory=list)  # readings to text, compression of what is kept compressed aside
    gzip: list[float] = field(default_factory=list)  # all compression of the page that goes out, level 1
    page_bytes: int = 0  # as text, of the last one
    series: int = 0  # of a target on that, those of the exporter itself not counted
    sent_bytes: int = 0  # compressed


class Fleet:
    """So many targets, ticked through real exchanges with one server; `now` is the clock of all of it."""

    def __init__(self, server: Replica, count: int) -> None:
        names = [f"replica-{number}" for number in range(count)]
        prices = PriceBook(
            tuple(PriceStatement(Scope.TARGET, name, 2.5, "owned") for name in names), (Rate("owned", RateKind.OWNED),)
        )
        self.now = 0.0
        self._server, self._pages = server, moving_pages()
        self._host = TargetHost(replace(Config(targets=()), prices=prices), monotonic=lambda: self.now)
        self._store, self.registry = Store(), CollectorRegistry()
        setup = Setup(15.0, 15.0, "node", prices=prices)
        self.registry.register(ViewCollector(self._store.view, lambda: setup, lambda: self.now))
        self._hosted = [self._host.add_target(replace(make_target(server.url), name=name)) for name in names]
        for one in self._hosted:
            self._store.add_target(one.target)
        self.tick()
        for one in self._hosted:
            one.refresh_facts()
        for _ in range(WARM_UP):
            self.tick()

    def tick(self) -> None:
        self._server.show({"/metrics": next(self._pages)})
        self.now += INTERVAL_SECONDS
        for one in self._hosted:
            self._store.put_target(one.tick())

    def derive(self) -> None:
        """Works out what the page will ask for."""
        for reading in self._store.view().targets:
            assert reading.page.derived is not None, reading.page.problem

    def close(self) -> None:
        for one in self._hosted:
            one.close()


@contextmanager
def _timed(compressions: list[float]) -> Iterator[None]:
    """Notes how long each part of a page takes to be compressed, its CRC included."""
    real = Spool.add

    def add(spool: Spool, text: bytes) -> None:
        compressions.append(measure_cpu(lambda: real(spool, text)))

    Spool.add = add
    try:
        yield
    finally:
        Spool.add = real


def measure_cpu(do: Callable[[], object]) -> float:
    """CPU milliseconds of the thread."""
    started = time.thread_time()
    do()
    return _MILLI * (time.thread_time() - started)


def measure_pages(count: int, rounds: int) -> Costs:
    costs, compressions = Costs(), list[float]()
    with Replica({"/metrics": b""}) as server:
        fleet = Fleet(server, count)
        gc.freeze()  # as the daemon does once it is up
        for _ in range(rounds):
            fleet.tick()
            costs.derive.append(measure_cpu(fleet.derive))
            with _timed(compressions):
                compressions.clear()
                started = time.thread_time()
                page, _ = write_page(fleet.registry, PROMETHEUS_ACCEPTS)
                made = _MILLI * (time.thread_time() - started)
            kept = sum(compressions)
            costs.encode.append(made - kept)
            sent = b""
            if isinstance(page, bytes):
                kept += measure_cpu(lambda page=page: gzip.compress(page, LEVEL, mtime=0))
                sent = gzip.compress(page, LEVEL, mtime=0)
                costs.series = sum(b'target="replica-0"' in line for line in page.splitlines())
            costs.gzip.append(kept)
            costs.page_bytes = len(page)
            costs.sent_bytes = len(sent) if isinstance(page, bytes) else page.gzip_bytes
        fleet.close()
        gc.unfreeze()
    return costs


def report(found: dict[int, Costs]) -> None:
    """A column for each number of targets. The budgets: 1 ms to encode one target's page, and 350 series of a target."""
    rows = []
    for name, one in zip(
        ("derive what only a page asks for", "encode", "gzip level 1"), ("derive", "encode", "gzip"), strict=True
    ):
        values = [getattr(costs, one) for costs in found.values()]
        rows.append((name, *(f"{min(each):.2f} ms, {statistics.mean(each):.2f} ms" for each in values)))
    rows.append(
        ("page", *(f"{one.page_bytes / 1e3:.1f} KB, {one.sent_bytes / 1e3:.1f} KB sent" for one in found.values()))
    )
    rows.append(("series of a target", *(f"{one.series}" if one.series else "" for one in found.values())))
    print_table(("what", *(f"{count} of them, best and mean" for count in found)), rows)


def main() -> None:
    parser = make_parser("render", __doc__)
    parser.add_argument("--targets", type=int, default=200, help="beside one (default 200)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="pages of all of them (default 5); of one, forty times as many"
    )
    arguments = parser.parse_args()
    many = arguments.targets
    report({1: measure_pages(1, 40 * arguments.rounds), many: measure_pages(many, arguments.rounds)})


if __name__ == "__main__":
    main()
