"""The exporter's pipeline beside a simulated replica without a socket between them: the same answers, as fast as they can be made."""

from __future__ import annotations

import json
from collections.abc import Callable

from llm_serving_exporter.fetch.http import Connect, JsonAnswer
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings
from llm_serving_simulator.fleet.endpoints import side_answers
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.replica import ReplicaState
from llm_serving_simulator.web import METRICS_CONTENT_TYPE


class _Client:
    """A `fetch.http.Client` of one replica."""

    def __init__(self, fleet: Fleet, name: str, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._fleet, self._replica = fleet, fleet.replica(name)
        self._monotonic, self._wall = monotonic, wall

    async def get_metrics(self, path: str) -> Page | Refusal:
        """Its page on /metrics, else 404; refused as the server of a fleet refuses."""
        if self._replica.name in self._fleet.unreachable:
            return self._away()
        page = self._fleet.page(self._replica.name)
        if page is None:
            return self._away()
        if path != "/metrics":
            return self._refused(FailureReason.STATUS, f"the server answered {path} with 404", 404)
        return Page(page, METRICS_CONTENT_TYPE, self._wall(), self._monotonic())

    async def get_json(
        self, path: str, max_bytes: int = 1024 * 1024, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        """A side endpoint."""
        replica = self._replica
        if replica.engine is None or replica.name in self._fleet.unreachable:
            return self._away()
        started = self._fleet.unix_seconds(replica.started_seconds)
        body = side_answers(replica.spec.engine, started).get(path.partition("?")[0])
        if body is None:
            return self._refused(FailureReason.STATUS, f"the server answered {path} with 404", 404)
        return JsonAnswer(json.loads(body), 200)

    async def get_any(self, path: str) -> Page | Refusal:
        """As `get_metrics`."""
        return await self.get_metrics(path)

    def close(self) -> None:
        """There is nothing to close."""

    def _away(self) -> Refusal:
        # the first node has the address
        if self._replica.name in self._fleet.unreachable or self._replica.spec.nodes[0] in self._fleet.lost_nodes:
            return self._refused(FailureReason.UNREACHABLE, "no connection within 4 s", None)
        if self._replica.state is ReplicaState.LOADING:
            return self._refused(FailureReason.LOADING, "the server says that it is not ready yet", 503)
        return self._refused(FailureReason.REFUSED, "connection refused", None)

    def _refused(self, reason: FailureReason, detail: str, status: int | None) -> Refusal:
        return Refusal(reason, detail, status, self._wall())


def connect_to(fleet: Fleet, name: str) -> Connect:
    """For `TargetHost.add_target(connect=…)`: whatever the target's URL says, the replica answers."""

    def connect(
        base_url: str, settings: HttpSettings, *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> _Client:
        return _Client(fleet, name, monotonic, wall)

    return connect
