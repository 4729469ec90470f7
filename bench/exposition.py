"""What a target's part of our page costs Prometheus, of two versions of the exporter in the same seconds.

    PYTHONPATH=OLD/exporter python -m bench.exposition write before
    python -m bench.exposition write after
    python -m bench.exposition compare before after

`write` makes the pages that the exporter on PYTHONPATH publishes for the recorded vLLM run with MFU metrics, up to second 60 and everything
known, a file a tick. `compare` serves the pages of each folder as so many targets to a Prometheus of its own, and both at a time.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.cycle import metric, say
from bench.run import our_target, prometheus
from bench.servers import Nginx, Program, free_port
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Replica

# of steady load; the last is the page that budgets are measured on
SECONDS = range(30, 61)
INTERVAL_SECONDS = 5.0
PRICES = PriceBook((PriceStatement(Scope.TARGET, "bench", 2.5, "owned"),), (Rate("owned", RateKind.OWNED),))


def make_pages() -> Iterator[bytes]:
    """Our page after each tick. A second of the recording stands for an interval."""
    run, now, store = recording("vllm-0.32-mfu"), 0.0, Store()
    registry = CollectorRegistry()
    registry.register(ViewCollector(store.view, lambda: Setup(15.0, 15.0, "node", prices=PRICES), lambda: now))
    with Replica({"/metrics": run.pages[SECONDS[0]]}) as server:
        host = TargetHost(replace(Config(targets=()), prices=PRICES), monotonic=lambda: now)
        hosted = host.add_target(our_target(server.url))
        store.add_target(hosted.target)
        hosted.tick()
        hosted.refresh_facts()
        for second in SECONDS:
            server.show({"/metrics": run.pages[second]})
            now += INTERVAL_SECONDS
            store.put_target(hosted.tick())
            yield encode(registry, "text/plain")[0]
        hosted.close()


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(make_pages()):
        (folder / f"{number:04}.prom").write_bytes(page)


@dataclass(frozen=True)
class Cost:
    """What pages of one folder cost. `page` is the last one; everything else is Prometheus' own."""

    page: bytes
    cpu_ms_per_scrape: float
    samples_per_scrape: float
    head_series: float
    resident_bytes: int

    @property
    def series(self) -> int:
        """Of the target, on its page."""
        return sum(b'target="' in line for line in self.page.splitlines() if not line.startswith(b"#"))


class _Side:
    """A Prometheus that scrapes the pages of a folder."""

    def __init__(self, stack: ExitStack, pages: Path, targets: int, interval_seconds: float) -> None:
        self._pages = [path.read_bytes() for path in sorted(pages.glob("*.prom"))]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-exposition-")))
        self._nginx = Nginx(self._pages[0], folder)
        stack.enter_context(self._nginx.program)
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/metrics"
        config = self._write_config(folder, targets, interval_seconds)
        self.program: Program = stack.enter_context(prometheus(folder, config, port))
        self._cpu = self._scrapes = self._samples = 0.0

    def _write_config(self, folder: Path, targets: int, interval_seconds: float) -> Path:
        path = folder / "prometheus.yml"
        one = "{{targets: ['127.0.0.1:{port}'], labels: {{__metrics_path__: /replica-{number}/metrics, instance: '{number}'}}}}"
        listed = ", ".join(one.format(port=self._nginx.port, number=number) for number in range(targets))
        every = f"{interval_seconds:g}s"
        path.write_text(
            f"global: {{scrape_interval: {every}, scrape_timeout: {every}}}\n"
            f"scrape_configs: [{{job_name: page, honor_labels: true, static_configs: [{listed}]}}]\n"
        )
        return path

    def show(self, tick: int) -> None:
        """The page of a tick; behind the last comes the first, as if engines had restarted."""
        self._nginx.show(self._pages[tick % len(self._pages)])

    def _count_scrapes(self) -> float:
        return metric(self._url, "prometheus_target_interval_length_seconds_count")

    def begin(self) -> None:
        self._cpu, self._scrapes = self.program.cpu_seconds(), self._count_scrapes()
        self._samples = metric(self._url, "prometheus_tsdb_head_samples_appended_total")

    def end(self) -> Cost:
        used, made = self.program.cpu_seconds() - self._cpu, self._count_scrapes() - self._scrapes
        appended = metric(self._url, "prometheus_tsdb_head_samples_appended_total") - self._samples
        series = metric(self._url, "prometheus_tsdb_head_series")
        resident = self.program.resident_bytes()
        return Cost(self._pages[-1], 1000 * used / made, appended / made, series, resident)


def compare(folders: list[Path], targets: int, interval_seconds: float, seconds: float) -> list[Cost]:
    """The cost of each, in the same seconds."""
    with ExitStack() as stack:
        sides = [_Side(stack, folder, targets, interval_seconds) for folder in folders]
        ticks = 0

        def scrape_for(span: float) -> None:
            nonlocal ticks
            end = time.monotonic() + span
            while time.monotonic() < end:
                for side in sides:
                    side.show(ticks)
                ticks += 1
                time.sleep(interval_seconds)

        # every series is there, and every target was scraped
        scrape_for(10 * interval_seconds)
        for side in sides:
            side.begin()
        scrape_for(seconds)
        return [side.end() for side in sides]


def print_table(costs: list[Cost], names: list[str], targets: int) -> None:
    rows = (
        ("series of the target", [f"{cost.series}" for cost in costs]),
        ("its page", [f"{len(cost.page) / 1e3:.1f} KB" for cost in costs]),
        ("its page, gzip level 1", [f"{len(gzip.compress(cost.page, 1)) / 1e3:.1f} KB" for cost in costs]),
        ("CPU of Prometheus a scrape", [f"{cost.cpu_ms_per_scrape:.2f} ms" for cost in costs]),
        ("samples appended a scrape", [f"{cost.samples_per_scrape:.0f}" for cost in costs]),
        (f"head series, {targets} targets", [f"{cost.head_series:,.0f}" for cost in costs]),
        (f"resident memory, {targets} targets", [f"{cost.resident_bytes / 1e6:.0f} MB" for cost in costs]),
    )
    say(f"| what | {' | '.join(names)} |")
    say(f"|---|{'---|' * len(names)}")
    for what, values in rows:
        say(f"| {what} | {' | '.join(values)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.exposition", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="make the pages of the exporter on PYTHONPATH")
    write.add_argument("folder", type=Path)
    sides = commands.add_parser("compare", help="what the pages of these folders cost Prometheus")
    sides.add_argument("folders", type=Path, nargs="+")
    sides.add_argument("--targets", type=int, default=100, help="default 100")
    sides.add_argument("--interval", type=float, default=1.0, help="seconds between two scrapes (default 1)")
    sides.add_argument("--seconds", type=float, default=90.0, help="of measuring (default 90)")
    arguments = parser.parse_args()
    if arguments.command == "write":
        write_pages(arguments.folder)
        return
    costs = compare(arguments.folders, arguments.targets, arguments.interval, arguments.seconds)
    print_table(costs, [folder.name for folder in arguments.folders], arguments.targets)


if __name__ == "__main__":
    main()
