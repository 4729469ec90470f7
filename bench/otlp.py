"""What sending all series over OTLP costs, beside making /metrics: CPU of the thread that does it, of one target and of many.

    python -m bench.otlp [--targets 1 50 200] [--rounds 5]

The fleet is that of bench.render: every page has moved. A sending is all that one costs but the network: to collect the series, to read
them, to compare them with those before, to write the messages and to compress them. Each row is the best and the mean of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.cycle import PROMETHEUS_ACCEPTS, say
from bench.render import Fleet, measure_cpu
from llm_serving_exporter.daemon.garbage import fit_collector
from llm_serving_exporter.expose.encode import LEVEL, write_page
from llm_serving_exporter.model.sample import Page
from llm_serving_exporter.otlp.messages import Request
from llm_serving_exporter.otlp.sender import Sender, compress_request
from llm_serving_exporter.settings.config import OtlpConfig
from tests.support.servers.replica import Replica


@dataclass
class Costs:
    """CPU milliseconds of each sending and each page."""

    sendings: list[float] = field(default_factory=list)  # over OTLP
    pages: list[float] = field(default_factory=list)  # /metrics, compressed as Prometheus asks for it
    sent_bytes: int = 0  # of the last sending, compressed
    requests: int = 0  # that it was split into
    page_bytes: int = 0  # of the last page, compressed
    kept_bytes: int = 0  # that the sender keeps of what was received


class TakingSender(Sender):
    """One whose receiver takes everything, and is not there."""

    sent_bytes, requests = 0, 0

    def _post(self, request: Request) -> Page:
        self.sent_bytes += len(compress_request(request))
        self.requests += 1
        return Page(b"", "", 0.0, 0.0)


def measure_sendings(count: int, rounds: int) -> Costs:
    """The costs of so many sendings and pages of so many targets."""
    costs = Costs()
    with Replica({"/metrics": b""}) as server:
        fleet = Fleet(server, count)
        sender = TakingSender(OtlpConfig("http://127.0.0.1:9"), fleet.registry.collect, ())
        sender.send()
        fit_collector(count)
        gc.freeze()  # as the daemon does once it is up
        for _ in range(rounds):
            fleet.tick()
            fleet.derive()  # whoever asks first pays for it
            sender.sent_bytes = sender.requests = 0
            costs.sendings.append(measure_cpu(sender.send))
            costs.pages.append(measure_cpu(lambda: _note_page(fleet, costs)))
        costs.sent_bytes, costs.requests = sender.sent_bytes, sender.requests
        costs.kept_bytes = sum(kept.size_bytes for kept in sender._received.values())
        sender.close()
        fleet.close()
        gc.unfreeze()
    return costs


def _note_page(fleet: Fleet, costs: Costs) -> None:
    page, _ = write_page(fleet.registry, PROMETHEUS_ACCEPTS)
    costs.page_bytes = len(gzip.compress(page, LEVEL, mtime=0)) if isinstance(page, bytes) else page.gzip_bytes


def print_table(found: dict[int, Costs]) -> None:
    say("| targets | a sending, best and mean | /metrics, best and mean | a sending is | sent | page | kept |")
    say("|---|---|---|---|---|---|---|")
    for count, costs in found.items():
        ratio = min(costs.sendings) / min(costs.pages)
        say(
            f"| {count} | {_best_and_mean(costs.sendings)} | {_best_and_mean(costs.pages)} | {ratio:.2f} x "
            f"| {costs.sent_bytes / 1e3:.1f} KB in {costs.requests} | {costs.page_bytes / 1e3:.1f} KB | {costs.kept_bytes / 1e3:.1f} KB |"
        )


def _best_and_mean(values: Iterable[float]) -> str:
    numbers = list(values)
    return f"{min(numbers):.1f} ms, {statistics.mean(numbers):.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.otlp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, nargs="+", default=[1, 50, 200], help="fleets (default 1 50 200)")
    parser.add_argument("--rounds", type=int, default=5, help="sendings of each (default 5)")
    arguments = parser.parse_args()
    print_table({count: measure_sendings(count, arguments.rounds) for count in arguments.targets})


if __name__ == "__main__":
    main()
