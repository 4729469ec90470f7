"""A real Prometheus on loopback with a configuration of the test's own."""

import re
from pathlib import Path
from typing import Any

from tests.support.servers.server_process import ServerProcess, program

_MISSED = re.compile(r"^prometheus_rule_group_iterations_missed_total\{.*\} (\S+)$", re.MULTILINE)


class PrometheusServer(ServerProcess):
    """`with PrometheusServer(folder, config) as prometheus:`; its data and log stay in `folder`. `name`: of the program."""

    def __init__(
        self, folder: Path, config: str, *arguments: str, retention: str = "30d", name: str = "prometheus"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(config)
        fixed = (
            program(name),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={retention}",
        )
        super().__init__(lambda port: (*fixed, f"--web.listen-address=127.0.0.1:{port}", *arguments), folder / "log")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant vector: dicts with metric and value."""
        return list(self._data("query", query=expression)["result"])

    def value(self, expression: str) -> float:
        """The one value of an expression."""
        (found,) = self.query(expression)
        return float(found["value"][1])

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts."""
        return list(self._data("alerts")["alerts"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self._data("rules")["groups"] for rule in group["rules"]]

    def count_missed_evaluations(self) -> float:
        """Of the group of rules that was most often not evaluated when it was due, how often: the evaluation before had not ended."""
        page = self.get("/metrics").text
        return max((float(number) for number in _MISSED.findall(page)), default=0.0)

    def _data(self, what: str, **parameters: str) -> Any:
        return self.get(f"/api/v1/{what}", **parameters).json()["data"]
