"""Our scrape cycle, and a peer's beside it on the same pages in the same seconds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.servers import Nginx, Program, fetch, need
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.prices import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.targets.host import TargetHost

# until every plan is made and the window has its usual twelve snapshots
WARM_UP = 50


# 15 s over 5 s
SCRAPED_EVERY = 3
# what Prometheus 2.42 asks for: OpenMetrics first
PROMETHEUS_ACCEPTS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
# a price too, so that everything is known that there is to know
PRICES = PriceBook((PriceStatement(Scope.TARGET, "bench", 2.5, "owned"),), (Rate("owned", RateKind.OWNED),))


def say(text: str) -> None:
    print(text, flush=True)


class Asking(Enum):
    """What is asked of a reading, beside what each tick works out."""

    # /metrics as Prometheus 2.42 asks for it, at every third tick: intervals of 5 s and 15 s
    SCRAPED = "scraped every third tick"
    # every figure at every tick, and no /metrics
    EVERYTHING = "everything derived at every tick"


class OurCycle:
    """Ticks over `pages`, each as if five seconds after the last; `costs`: CPU seconds of each."""

    def __init__(
        self, nginx: Nginx, target: Target, pages: Iterator[bytes], asking: Asking = Asking.EVERYTHING
    ) -> None:
        self._nginx, self._pages, self._asking = nginx, pages, asking
        self.costs: list[float] = []
        host = TargetHost(Config(targets=(), prices=PRICES), monotonic=self._monotonic)
        self.hosted = host.add_target(target)
        self._store, self._registry = Store(), CollectorRegistry()
        self._store.add_target(target)
        self._registry.register(ViewCollector(self._store.view, lambda: Setup(15.0, 15.0, "node"), self._monotonic))
        self.tick()
        self.hosted.refresh_facts()
        for _ in range(WARM_UP):
            self.tick()
        gc.freeze()  # as the daemon does once it is up

    def _monotonic(self) -> float:
        return time.monotonic() + 5.0 * len(self.costs)

    def tick(self) -> TargetReading:
        self._nginx.show(next(self._pages))
        before = time.process_time()
        reading = self.hosted.tick()
        if self._asking is Asking.EVERYTHING:
            assert reading.derived is not None
        else:
            self._store.put_target(reading)
            if len(self.costs) % SCRAPED_EVERY == 0:
                self.render()
        self.costs.append(time.process_time() - before)
        assert reading.up, reading.problem
        return reading

    def render(self) -> bytes:
        """The page of the last tick."""
        return encode(self._registry, PROMETHEUS_ACCEPTS)[0]

    def mean_ms(self, since: int) -> float:
        return 1000 * statistics.mean(self.costs[since:])


def side_by_side(
    ours: Sequence[OurCycle], program: Program, scrapes: Callable[[], float], seconds: float, idle: float
) -> tuple[list[float], float]:
    """CPU ms of a cycle, each of ours and the peer's, over the same seconds and pages: a machine's speed may change from one minute to the
    next.

    `idle`: CPU seconds a second that the peer uses while it scrapes nothing.
    """
    time.sleep(3)
    cpu, done, first, started = program.cpu_seconds(), scrapes(), [len(one.costs) for one in ours], time.monotonic()
    while time.monotonic() < started + seconds:
        for one in ours:
            one.tick()
    elapsed = time.monotonic() - started
    used, made = program.cpu_seconds() - cpu - idle * elapsed, scrapes() - done
    return [one.mean_ms(since) for one, since in zip(ours, first, strict=True)], 1000 * used / made


def metric(url: str, name: str) -> float:
    lines = (line for line in fetch(url).splitlines() if line.startswith(name) and line[len(name)] in " {")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def idle_share(program: Program, seconds: float = 5.0) -> float:
    time.sleep(3)
    before = program.cpu_seconds()
    time.sleep(seconds)
    return (program.cpu_seconds() - before) / seconds


def scrape_config(folder: Path, name: str, targets: str, interval: str) -> Path:
    path = folder / f"{name}.yml"
    path.write_text(
        f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n"
        f"scrape_configs: [{{job_name: page, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    return path


def vmagent(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    return Program(
        need("vmagent"), f"-promscrape.config={config}", f"-remoteWrite.url={nginx.url}/write", f"-httpListenAddr=127.0.0.1:{port}",
        f"-remoteWrite.tmpDataPath={folder}/vmagent-{port}", ready_url=f"http://127.0.0.1:{port}/metrics",
    )  # fmt: skip
