"""Pages of real servers in which some values cannot be true, and what an exporter makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.commands.once import as_document_of, as_table
from llm_serving_exporter.expose.encode import LineFamily
from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings, ModelSettings
from llm_serving_exporter.render.numbers import write_json
from llm_serving_exporter.settings.config import Config
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.golden_cases import Case
from tests.support.servers.driven_exporter import DrivenExporter
from tests.support.servers.replica import Answer, Routes

# what no sample of a page is, in truth; the last is a number like others, as small as there is
LIES = ("+Inf", "-Inf", "NaN", "-1", "1e308", "1e15", "5e-324")
PRICES = PriceBook((PriceStatement(Scope.TARGET, "replica-0", 2.5, "owned"),), (Rate("owned", RateKind.OWNED),))
# with them every figure is worked out: of a model, on GPUs that have a price
KNOWN: Mapping[str, Any] = {
    "gpu_model": "H100 SXM",
    "gpu_count": 2,
    "batch_limit_requests": 64,
    "model": ModelSettings(config=demo_model_config()),
}
_SAMPLE = re.compile(rb"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)$", re.MULTILINE)


def list_names(page: bytes) -> list[str]:
    """The sample names of a page in text."""
    return list(dict.fromkeys(found[1].decode() for found in _SAMPLE.finditer(page)))


def change_samples(page: bytes, name: str, change: Callable[[float], object]) -> bytes:
    """The page with other values of the samples of one name."""

    def put(found: re.Match[bytes]) -> bytes:
        if found[1].decode() != name:
            return found[0]
        return b"%s%s %s" % (found[1], found[2] or b"", str(change(float(found[3]))).encode())

    return _SAMPLE.sub(put, page)


class Server:
    """A server without a socket: `connect` goes to `TargetHost.add_target`; it answers with `routes`."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes

    def connect(
        self, base_url: str, settings: HttpSettings, *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> _Client:
        return _Client(self, monotonic, wall)


class _Client:
    def __init__(self, server: Server, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._server, self._monotonic, self._wall = server, monotonic, wall

    async def get_metrics(self, path: str) -> Page | Refusal:
        body = self._find(path)
        if not isinstance(body, bytes):
            return Refusal(FailureReason.STATUS, "404", 404, self._wall())
        return Page(body, "text/plain; version=0.0.4", self._wall(), self._monotonic())

    async def get_any(self, path: str) -> Page | Refusal:
        return await self.get_metrics(path)

    async def get_json(
        self, path: str, max_bytes: int = 0, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        body = self._find(path)
        if not isinstance(body, bytes | str):
            return Refusal(FailureReason.STATUS, "404", 404, self._wall())
        try:
            return JsonAnswer(json.loads(body), 200)
        except ValueError:
            return Refusal(FailureReason.PROTOCOL, "not JSON", 200, self._wall())

    def close(self) -> None:
        """There is nothing to close."""

    def _find(self, path: str) -> Answer | None:
        return self._server.routes.get(path, self._server.routes.get(path.partition("?")[0]))


def read_case(case: Case) -> tuple[Server, DrivenExporter, bytes]:
    """A server with the last pages of a golden case, an exporter that has read the ones before, and the page itself."""
    steps = case.steps()
    server = Server(steps[0])
    exporter = DrivenExporter(
        "http://lying",
        interval_seconds=5.0,
        config=Config(targets=(), prices=PRICES),
        connect=server.connect,
        **{**KNOWN, **case.target},
    )
    for routes in steps:
        server.routes = routes
        exporter.tick()
    page = steps[-1][case.path]
    assert isinstance(page, bytes)
    return server, exporter, page


def find_faults(exporter: DrivenExporter, readings: list[TargetReading]) -> Iterator[str]:
    """What is wrong with what the exporter says after these readings."""
    for reading in readings:
        if not reading.page.up:
            yield f"it was not read: {reading.page.problem}"
        table = as_table(reading)
        yield from (word for word in ("nan ", "inf ", "e+") if word in table.lower())
        json.loads(write_json(as_document_of(reading)), parse_constant=lambda word: f"{word} in JSON")
    if "could not be shown" in exporter.landing():
        yield "the landing page lacks a part"
    for family in exporter.collect():
        yield from _find_impossible(family)


def _find_impossible(family: Family) -> Iterator[str]:
    name = family.name.removeprefix(PREFIX)
    metric = BY_NAME.get(name) or BY_NAME.get(f"{name}_total") or BY_NAME[f"{name}_info"]
    # its lines as they are: to read their labels takes ten times as long
    assert isinstance(family, LineFamily)
    for line in family.read_text().split("\n")[:-1]:
        series, _, number = line.rpartition(" ")
        part = series.partition("{")[0].removeprefix(metric.full_name)
        fine = 0 <= float(number) <= 1e24 if part else metric.bounds.admits(float(number))
        if not fine:
            yield line
