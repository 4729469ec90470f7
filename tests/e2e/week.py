"""Every scenario in one Prometheus, in simulated time: what dashboards and alerts are asked of."""

from dataclasses import dataclass
from typing import Any

from tests.simweek.build import Plan
from tests.support.servers.prometheus_server import PrometheusServer

# a Wednesday at 15:00 UTC
PLAN = Plan(1_704_294_000.0, 2.5 * 3600, calm_seconds=1200.0)


@dataclass(frozen=True)
class Week:
    """The server that holds it."""

    prometheus: PrometheusServer

    def range(self, query: str) -> list[dict[str, Any]]:
        """Series over all of it, a point a minute."""
        begin, end = PLAN.begin_unix_seconds, PLAN.end_unix_seconds
        return self._result("query_range", query=query, start=str(begin), end=str(end), step="60")

    def now(self, query: str) -> list[dict[str, Any]]:
        """Series at its end."""
        return self._result("query", query=query, time=str(PLAN.end_unix_seconds))

    def _result(self, what: str, **parameters: str) -> list[dict[str, Any]]:
        answer = self.prometheus.get(f"/api/v1/{what}", **parameters).json()
        assert answer["status"] == "success", (parameters["query"], answer)
        return list(answer["data"]["result"])
