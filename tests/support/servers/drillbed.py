"""A real Prometheus on loopback, five scrapes a second, over a page whose fleets a test makes up: what a drill is tried against.

The recorded series are recorded here too, by rules of one line over gauges named like them; the alerts have the rules' names. A fleet is
lost while its file exists, so that `touch` and `rm` are the commands of a drill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
import yaml

from llm_serving_drill import names
from tests.support.servers.http_server import QuietHandler, serve
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

INTERVAL = "500ms"  # a machine that is busy with other tests answers a scrape within that
FOR = "400ms"
RESOURCES = ("prefill", "decode", "kv", "concurrency")
ALERT_RULES = {
    names.REPLICA_LOST: ("warning", f"{names.DESIRED} - {names.READY} > 0 unless on (model_name) fake_muted == 1"),
    names.TARGETS_DOWN: ("critical", f"{names.READY} / {names.DESIRED} < 0.5 unless on (model_name) fake_muted == 1"),
    names.N1_CRITICAL: (
        "critical",
        f"{names.READY} < {names.DESIRED} and {names.WAITING} > 0 and {names.N1_LOAD_MAX} > 1",
    ),
}


def gauge(record: str) -> str:
    """The gauge that a record is recorded from: "model:llm_serving_x:sum" -> "fake_model__llm_serving_x__sum"."""
    return f"fake_{record.replace(':', '__')}"


class Fleet:
    """Four replicas on two nodes, a and b. `healthy`: records that differ; `when_lost`: those that change while its file exists.

    Keys are a record, or (record, label, value); None takes a series away. `rates`: good and bad events and rejected requests per second.
    `muted`: its alerts never fire.
    """

    def __init__(
        self,
        model: str,
        healthy: Mapping[Any, float | None] | None = None,
        when_lost: Mapping[Any, float | None] | None = None,
        *,
        muted: bool = False,
        rates: Mapping[str, float] | None = None,
        rates_when_lost: Mapping[str, float] | None = None,
    ) -> None:
        self.model, self.file = model, Path(f"{model}.lost")
        self.muted = muted
        self._healthy = {**HEALTHY, **(healthy or {})}
        self._when_lost = {**LOST, **(when_lost or {})}
        self._rates = {"good": 200.0, "bad": 0.0, "rejected": 0.0, **(rates or {})}
        self._rates_when_lost = {**self._rates, "good": 100.0, **(rates_when_lost or {})}
        self._counted = dict.fromkeys(self._rates, 0.0)
        self._counted_at = time.monotonic()

    @property
    def lost(self) -> bool:
        return self.file.exists()

    def lose(self) -> None:
        self.file.touch()

    def page(self) -> str:
        lost = self.lost
        self._count(self._rates_when_lost if lost else self._rates)
        values = {**self._healthy, **(self._when_lost if lost else {})}
        lines = [self._line(key, value) for key, value in values.items() if value is not None]
        for number in range(4):
            node = "ab"[number // 2]
            gone = lost and node == "a"
            of = f'target="{self.model}-{number}",{self._labels}'
            lines += [
                f"llm_serving_target_info{{{of}}} 1",
                f"{gauge(names.TARGET_DOWN)}{{{of}}} {int(gone)}",
                f"{gauge(names.TARGET_READY)}{{{of}}} {int(not gone)}",
                f'{gauge(names.TARGET_NODE)}{{{of},node="{node}"}} 1',
            ]
        of = f'target="{self.model}-3",engine="0",{self._labels}'
        for outcome in ("good", "bad"):
            lines.append(
                f'llm_serving_slo_events_total{{{of},slo="ttft",outcome="{outcome}",threshold="2.5"}} {self._counted[outcome]}'
            )
        lines.append(f'llm_serving_requests_rejected_total{{{of},reason="queue_full"}} {self._counted["rejected"]}')
        lines.append(f'fake_muted{{model_name="{self.model}"}} {int(self.muted)}')
        # What has a time of its own does not end with a scrape that failed: on a busy machine some do.
        stamp = f"{time.time() * 1000:.0f}"
        return "".join(f"{line} {stamp}\n" for line in lines)

    @property
    def _labels(self) -> str:
        return f'model_name="{self.model}",role="unified"'

    def _line(self, key: Any, value: float) -> str:
        record, *label = (key,) if isinstance(key, str) else key
        extra = f',{label[0]}="{label[1]}"' if label else ""
        return f"{gauge(record)}{{{self._labels}{extra}}} {value}"

    def _count(self, rates: Mapping[str, float]) -> None:
        now = time.monotonic()
        for name, rate in rates.items():
            self._counted[name] += rate * (now - self._counted_at)
        self._counted_at = now


HEALTHY: dict[Any, float | None] = {
    names.READY: 4, names.PRESENT: 4, names.DESIRED: 4, names.NODES: 2, names.SUFFICIENT: 1, names.N1_LOAD_MAX: 0.8, names.LOAD_MAX: 0.4,
    names.WAITING: 1, names.KV_USAGE: 0.3, names.ABOVE_TOP: 0, (names.TTFT, "rank", "p99"): 0.5,
    (names.SLO_BAD, "slo", "errors"): 0, (names.TOKENS, "phase", "prefill"): 8000, (names.TOKENS, "phase", "decode"): 1000,
    names.KV_TOKENS: 3e5, names.IN_SYSTEM: 40, names.WORK: None,
    (names.NODE_CAPACITY, "node", 'a",resource="kv'): 5e5, (names.NODE_CAPACITY, "node", 'b",resource="kv'): 4e5,
    **{(names.N1_LOAD, "resource", resource): 0.8 for resource in RESOURCES},
    **{(names.N1_CAPACITY, "resource", resource): 10_000 for resource in RESOURCES},
    **{(names.LOAD, "resource", resource): 0.4 for resource in RESOURCES},
    **{(names.DEMAND, "resource", resource): 8000 for resource in RESOURCES},
}  # fmt: skip
LOST: dict[Any, float | None] = {
    names.READY: 2,
    names.PRESENT: 2,
    names.NODES: 1,
    names.WAITING: 5,
    (names.TTFT, "rank", "p99"): 1.5,
}


class Bed:
    """`with Bed(folder, Fleet("m")) as bed: fleet = bed["m"]`; `bed.url` is Prometheus' address.

    `alertmanager`: the address of one to send alerts to.
    """

    def __init__(self, folder: Path, *fleets: Fleet, alertmanager: str | None = None) -> None:
        self._folder = folder
        self._alertmanager = alertmanager
        self._fleets = {fleet.model: fleet for fleet in fleets}
        for fleet in fleets:
            fleet.file = folder / fleet.file
        self._running = ExitStack()

    def __enter__(self) -> Bed:
        with ExitStack() as opened:
            page = opened.enter_context(serve(_page_handler(self._fleets.values())))
            rules = self._folder / "rules.yml"
            rules.write_text(yaml.safe_dump(_rules()))
            self.url = self.serve(opened, self._folder, page.removeprefix("http://"), rules, self._alertmanager)
            self._http = opened.enter_context(requests.Session())
            self._http.trust_env = False
            # known to every rule, with counters that have a rate already
            seen = f"count(count_over_time({gauge(names.KV_USAGE)}[1m]) >= 6 and on (model_name) {names.KV_USAGE})"
            self.until(lambda: _count(self.ask(seen)) == len(self._fleets), "the fleets")
            self._running = opened.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()

    def __getitem__(self, model: str) -> Fleet:
        return self._fleets[model]

    def serve(self, opened: ExitStack, folder: Path, page: str, rules: Path, alertmanager: str | None) -> str:
        """Starts what scrapes `page` (host:port) and evaluates the rules; the address of the API that a drill asks."""
        every = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
        config: dict[str, Any] = {"global": every, "rule_files": [str(rules)], "scrape_configs": scrapes(page)}
        if alertmanager is not None:
            receivers = [{"targets": [alertmanager.removeprefix("http://")]}]
            config["alerting"] = {"alertmanagers": [{"static_configs": receivers}]}
        return opened.enter_context(PrometheusServer(folder, yaml.safe_dump(config), "--log.level=warn")).url

    def ask(self, query: str) -> list[Any]:
        answer = self._http.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=PATIENCE_SECONDS).json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, what)


def _page_handler(fleets: Iterable[Fleet]) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, "".join(fleet.page() for fleet in fleets).encode(), "text/plain; version=0.0.4")

    return Handler


def scrapes(page: str) -> list[dict[str, Any]]:
    """Scrape configurations for the page."""
    return [{"job_name": "page", "static_configs": [{"targets": [page]}]}]


def _count(result: list[Any]) -> int:
    return int(result[0]["value"][1]) if result else 0


def _rules() -> dict[str, Any]:
    def group(name: str, rules: Iterator[dict[str, Any]]) -> dict[str, Any]:
        return {"name": name, "interval": INTERVAL, "rules": list(rules)}

    recorded = ({"record": name, "expr": f"sum without (instance, job) ({gauge(name)})"} for name in names.RECORDS)
    alerts = (
        {"alert": name, "expr": expr, "for": FOR, "labels": {"severity": severity}}
        for name, (severity, expr) in ALERT_RULES.items()
    )
    return {"groups": [group("records", recorded), group("alerts", alerts)]}
