"""The exporter's ticks and its page, driven by a test: real pages over real HTTP, clocks that only the test moves, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_exporter.web.pages.landing import render_landing
from tests.support.builders.pipelines import UNIX_START
from tests.support.builders.procfolders import quiet_machine
from tests.support.servers.exporter_process import Scraped


class HandClock:
    """Monotonic and wall clock of a test: they stand still until it moves them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return UNIX_START + self.seconds


def hand_driven_host(config: Config | None = None, **more: Any) -> tuple[TargetHost, HandClock]:
    """A host on clocks of its own, on a machine that sees every process and has none. `more`: its sources, another /proc."""
    clock = HandClock()
    clocks = {"monotonic": clock.monotonic, "wall": clock.wall}
    return TargetHost(config or Config(targets=()), **clocks, **{"proc_root": quiet_machine(), **more}), clock


class DrivenExporter:
    """`with DrivenExporter(server.url) as exporter:` then `exporter.tick()` and `exporter.scrape()`, in any order and number."""

    def __init__(
        self,
        *urls: str,
        interval_seconds: float = 10.0,
        config: Config | None = None,
        connect: Callable[..., Any] | None = None,
        **target: Any,
    ) -> None:
        config = replace(config or Config(targets=()), stale_after_seconds=3 * interval_seconds)
        self._interval_seconds, self._config = interval_seconds, config
        self.host, self.clock = hand_driven_host(config)
        self.store = Store()
        client = {} if connect is None else {"connect": connect}
        for number, url in enumerate(urls):
            one = Target(f"replica-{number}", url, interval_seconds=interval_seconds, **target)
            self.store.add_target(one)
            self.host.add_target(one, **client)
        self.host.settle_targets()
        self._registry = CollectorRegistry()
        setup = Setup(config.stale_after_seconds, config.stale_after_seconds, "node-a", prices=config.prices)
        self._registry.register(ViewCollector(self.store.view, lambda: setup, self.clock.monotonic))

    def __enter__(self) -> DrivenExporter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.host.close()

    def tick(self, seconds: float | None = None) -> list[TargetReading]:
        """Time goes on by an interval, or by `seconds`; the GPUs and every target are read once. The readings."""
        self.clock.seconds += self._interval_seconds if seconds is None else seconds
        readings = self.host.read_gpus()
        if readings is not None:
            self.store.put_gpus(readings, self.host.gpus.latest.peaks)
        found = []
        for hosted in self.host.targets.values():
            found.append(hosted.tick())
            self.store.put_target(found[-1])
            hosted.refresh_facts()
        return found

    def collect(self) -> Iterable[Family]:
        """What the page now is made of."""
        return self._registry.collect()

    def landing(self) -> str:
        """The landing page now."""
        page = render_landing(
            self.store.view(),
            now_unix=self.clock.wall(),
            now_monotonic=self.clock.seconds,
            stale_after_seconds=self._config.stale_after_seconds,
            version="0",
            telemetry_path="/metrics",
        )
        return page.decode()

    def scrape(self) -> Scraped:
        """The page now."""
        return Scraped(encode(self._registry, "")[0].decode())
