"""Our scrape cycle beside a peer's, on the same pages in the same seconds."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from bench.our_cycle import PROMETHEUS_ACCEPTS, Asking, OurCycle
from bench.servers import Nginx, Program, fetch, need

__all__ = ["PROMETHEUS_ACCEPTS", "Asking", "OurCycle"]

# between two scrapes of a peer, and between two pages
PACE_SECONDS = 0.02
# of a peer's, made before anything is measured; their counters begin again after as many
PAGES_AHEAD = 1000


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def show_pages(nginx: Nginx, pages: Iterator[bytes], count: int = PAGES_AHEAD) -> Iterator[None]:
    """Shows another page every 20 ms. They are made before: what makes them is no part of what is measured."""
    ahead, stopping = list(islice(pages, count)), threading.Event()
    nginx.show(ahead[0])

    def show() -> None:
        for page in cycle(ahead):
            if stopping.wait(PACE_SECONDS):
                return
            nginx.show(page)

    thread = threading.Thread(target=show)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def side_by_side(
    ours: Sequence[OurCycle], program: Program, scrapes: Callable[[], float], seconds: float, idle: float
) -> tuple[list[float], float]:
    """CPU ms of a cycle, each of ours and the peer's, over the same seconds and pages: a machine's speed may change from one minute to the
    next.

    `idle`: CPU seconds a second that the peer uses while it scrapes nothing.
    """
    time.sleep(3)
    cpu, done, first, started = program.cpu_seconds(), scrapes(), [one.count() for one in ours], time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    used, made = program.cpu_seconds() - cpu - idle * elapsed, scrapes() - done
    return [one.count().mean_ms(since) for one, since in zip(ours, first, strict=True)], 1000 * used / made


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """The median of runs, from the least to the most."""
    middle = f"{statistics.median(values):.{digits}f} {unit}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


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


def agent(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """Prometheus as an agent, which only forwards: to where vmagent forwards to."""
    own = folder / f"agent-{port}.yml"
    own.write_text(f"{config.read_text()}remote_write: [{{url: '{nginx.url}/write'}}]\n")
    return Program(
        need("prometheus"), "--enable-feature=agent", f"--config.file={own}", f"--storage.agent.path={folder}/agent-{port}",
        f"--web.listen-address=127.0.0.1:{port}", ready_url=f"http://127.0.0.1:{port}/-/ready",
    )  # fmt: skip


def naive(folder: Path, nginx: Nginx, config: Path, port: int) -> Program:
    """What a team writes by itself: bench/naive.py. Of `config` it reads whether there is a target, and how often."""
    text = config.read_text()
    url = f"{nginx.url}/metrics" if f"127.0.0.1:{nginx.port}" in text else ""
    interval = text.partition("scrape_interval: ")[2].partition(",")[0]
    seconds = float(interval[:-2]) / 1000 if interval.endswith("ms") else float(interval[:-1])
    return Program(
        sys.executable, "-m", "bench.naive", str(port), f"{seconds:g}", url, ready_url=f"http://127.0.0.1:{port}/metrics"
    )  # fmt: skip
