"""What is in the week beside the simulated fleets: recorded servers of other kinds, and what the exporter says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict, ReviewRuns
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_simulator.fleet.history import Sample
from llm_serving_simulator.replay import Timeline
from llm_serving_simulator.web import METRICS_CONTENT_TYPE
from tests.support.builders.recordings import recording

HOUR, DAY = 3600.0, 86_400.0
# a model that only reads, and one that proposes tokens
RECORDED = {"embedder": "vllm-0.32-embed", "speculator": "vllm-0.32-spec"}

_FILES = {
    "/version": "endpoints/version.body",
    "/v1/models": "endpoints/v1_models.body",
    "/server_info": "endpoints/server_info_config_format_json.body",
}


class Recorded:
    """A recorded server, played round after round by a clock of the caller's, and an exporter beside it."""

    def __init__(self, name: str, now: Callable[[], float], wall: Callable[[], float], interval_seconds: float) -> None:
        found = recording(RECORDED[name])
        self._timeline, self._members = Timeline(found, clock=now), found.members
        self._now, self._wall = now, wall
        self._target = Target(
            name,
            f"http://{name}:8000",
            nodes=(f"{name}-n0",),
            gpu_count=1,
            gpu_model="L4",
            interval_seconds=interval_seconds,
        )
        self._store = Store()
        self._store.add_target(self._target)
        self._collector = ViewCollector(
            self._store.view, lambda: Setup(3 * interval_seconds, 3 * interval_seconds, f"{name}-n0"), now
        )
        host = TargetHost(Config(targets=(), window_seconds=interval_seconds), monotonic=now, wall=wall)
        self._hosted = host.add_target(self._target, lambda *_args, **_kwargs: self)

    def samples(self) -> Iterator[Sample]:
        """Every sample now, of the target only."""
        self._store.put_target(self._hosted.tick())
        self._hosted.refresh_facts()
        yield from _samples(self._collector.collect())

    # --- a scrape.http.Client ---------------------------------------------------------------------------------------

    async def get_metrics(self, path: str) -> Page | Refusal:
        if path != "/metrics":
            return self._not_found(path)
        body = self._timeline.body().replace(b'="tiny-llama"', f'="{self._target.name}"'.encode())
        return Page(body, METRICS_CONTENT_TYPE, self._wall(), self._now())

    async def get_json(
        self, path: str, max_bytes: int = 1 << 20, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        member = self._members.get(_FILES.get(path.partition("?")[0], ""))
        return self._not_found(path) if member is None else JsonAnswer(json.loads(member), 200)

    def _not_found(self, path: str) -> Refusal:
        return Refusal(FailureReason.STATUS, f"the server answered {path} with 404", 404, self._wall())

    async def get_any(self, path: str) -> Page | Refusal:
        return await self.get_metrics(path)

    def close(self) -> None:
        """There is nothing to close."""


class Own:
    """What the exporter says of itself: its configuration was read anew once, a drill passed, last week's review was made."""

    def __init__(self, end_unix_seconds: float, wall: Callable[[], float]) -> None:
        self._store, self._end, self._wall = Store(), end_unix_seconds, wall
        setup = Setup(60.0, 60.0, "exporter", installed_unix_seconds=end_unix_seconds - 60 * DAY)
        self._collector = ViewCollector(self._store.view, lambda: setup, wall)

    def samples(self) -> Iterator[Sample]:
        """Its page now, its targets apart."""
        now, end = self._wall(), self._end
        loaded = end - 90 * 60.0
        self._store.put_config("a" * 64 if now < loaded else "b" * 64, True, end - 5 * DAY if now < loaded else loaded)
        drilled = end - 2 * HOUR
        if now >= drilled:
            model = DrillResult("node-loss-under-load", Role.UNIFIED, drilled, drilled, DrillVerdict.PASSED)
            self._store.put_values(drills=(model,))
        due = end - 2 * DAY
        self._store.put_values(review=ReviewRuns(due, due + 60, due + 60, due + 7 * DAY))
        yield from _samples(self._collector.collect())
        yield "process_start_time_seconds", {}, end - 5 * DAY
        yield "alertmanager_notifications_failed_total", {"integration": "pagerduty"}, 0.0
        yield "alertmanager_notifications_total", {"integration": "pagerduty"}, 4.0


def _samples(families: Iterator[Family]) -> Iterator[Sample]:
    for family in families:
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
