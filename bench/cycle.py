"""Our scrape cycle, and a peer's beside it on the same pages in the same seconds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.servers import Nginx, Program, fetch, need
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.targets.host import TargetHost

# until every plan is made and the window has its usual twelve snapshots
WARM_UP = 50


def say(text: str) -> None:
    print(text, flush=True)


class OurCycle:
    """Ticks over `pages`, each as if five seconds after the last; `costs`: CPU seconds of each."""

    def __init__(self, nginx: Nginx, target: Target, pages: Iterator[bytes]) -> None:
        self._nginx, self._pages = nginx, pages
        self.costs: list[float] = []
        host = TargetHost(Config(targets=()), monotonic=lambda: time.monotonic() + 5.0 * len(self.costs))
        self.hosted = host.add_target(target)
        self.tick()
        self.hosted.refresh_facts()
        for _ in range(WARM_UP):
            self.tick()
        gc.freeze()  # as the daemon does once it is up

    def tick(self) -> TargetReading:
        self._nginx.show(next(self._pages))
        before = time.process_time()
        reading = self.hosted.tick()
        self.costs.append(time.process_time() - before)
        assert reading.up, reading.problem
        return reading

    def mean_ms(self, since: int) -> float:
        return 1000 * statistics.mean(self.costs[since:])


def side_by_side(
    ours: OurCycle, program: Program, scrapes: Callable[[], float], seconds: float, idle: float
) -> tuple[float, float]:
    """CPU ms of a cycle, ours and the peer's, over the same seconds and pages: a machine's speed may change from one minute to the next.

    `idle`: CPU seconds a second that the peer uses while it scrapes nothing.
    """
    time.sleep(3)
    cpu, done, first, started = program.cpu_seconds(), scrapes(), len(ours.costs), time.monotonic()
    while time.monotonic() < started + seconds:
        ours.tick()
    elapsed = time.monotonic() - started
    used, made = program.cpu_seconds() - cpu - idle * elapsed, scrapes() - done
    return ours.mean_ms(first), 1000 * used / made


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
