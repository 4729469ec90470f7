"""A real Alertmanager on loopback, with the example configuration at a pace for tests."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.support.servers.pagerduty import ROUTING_KEY, PagerDuty
from tests.support.servers.server_process import ServerProcess, program
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.yaml_text import load_yaml

# Debian's package calls the server prometheus-alertmanager
PROGRAMS = ("prometheus-alertmanager", "alertmanager")
TICKETS, DEAD_MAN = "/slack", "/dead-man"

Labels = Mapping[str, str]


def write_config(files: Mapping[str, str], folder: Path, inbox: PagerDuty | None = None, **changes: Any) -> Path:
    """Writes the configuration's files; returns the path of alertmanager.yml.

    With an inbox every receiver posts to it (PagerDuty's events, TICKETS, DEAD_MAN), and groups wait a fiftieth of their time at first
    (300 ms for pages, 600 ms for tickets) and 1 s between notifications. `changes` replace keys of the configuration.
    """
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    config = folder / "alertmanager.yml"
    document = {**load_yaml(files["alertmanager.yml"]), **changes}
    if inbox is not None:
        _at_pace(document["route"])
        for receiver in document["receivers"]:
            _to(inbox, receiver, folder)
    config.write_text(yaml.safe_dump(document))
    return config


def _at_pace(route: dict[str, Any]) -> None:
    wait = route.get("group_wait", "0s")
    if wait != "0s":
        route["group_wait"] = f"{int(wait.removesuffix('s')) * 40}ms"
    if "group_interval" in route:
        route["group_interval"] = "1s"
    for child in route.get("routes", ()):
        _at_pace(child)


def _to(inbox: PagerDuty, receiver: dict[str, Any], folder: Path) -> None:
    for config in receiver.get("pagerduty_configs", ()):
        key = folder / "routing-key"
        key.write_text(ROUTING_KEY + "\n")
        config.update(routing_key_file=str(key), url=inbox.url)
    for config in receiver.get("slack_configs", ()):
        url = folder / "slack-url"
        url.write_text(inbox.base + TICKETS)
        config.update(api_url_file=str(url))
    for config in receiver.get("webhook_configs", ()):
        config.update(url=inbox.base + DEAD_MAN)


def alert(
    labels: Labels, annotations: Labels | None = None, *, since: datetime | None = None, ended: bool = False
) -> dict[str, Any]:
    """An alert as Prometheus posts it, firing for a minute where `since` is not given; `ended`: it resolves now."""
    now = datetime.now(UTC)
    posted = {
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
        "startsAt": (since or now - timedelta(seconds=60)).isoformat(),
        "generatorURL": "http://prometheus.example.com/graph",
    }
    return {**posted, "endsAt": now.isoformat()} if ended else posted


class Alertmanager(ServerProcess):
    """`with Alertmanager(config) as running:`; its log is kept beside the configuration."""

    def __init__(self, config: Path, *, log_level: str = "info") -> None:
        def command(port: int) -> tuple[str, ...]:
            return (
                program(*PROGRAMS),
                f"--config.file={config}",
                f"--storage.path={config.parent / f'data-{port}'}",
                f"--web.listen-address=127.0.0.1:{port}",
                f"--web.external-url=http://127.0.0.1:{port}",
                "--cluster.listen-address=",
                f"--log.level={log_level}",
            )

        super().__init__(command, config.with_suffix(".log"))

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Sends alerts, as Prometheus does."""
        answer = self.http.post(f"{self.url}/api/v2/alerts", json=list(alerts), timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text

    def silence(self, *equal: tuple[str, str]) -> str:
        """Silences for an hour what has these labels; returns the silence's name."""
        now = datetime.now(UTC)
        silence = {
            "matchers": [{"name": name, "value": text, "isRegex": False} for name, text in equal],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "test",
            "comment": "test",
        }
        answer = self.http.post(f"{self.url}/api/v2/silences", json=silence, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["silenceID"])

    def end_silence(self, name: str) -> None:
        """Ends a silence now."""
        answer = self.http.delete(f"{self.url}/api/v2/silence/{name}", timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text

    def alerts(self) -> list[dict[str, Any]]:
        """What it knows, with receivers and status (silencedBy, inhibitedBy)."""
        return self._list("alerts")

    def groups(self) -> list[dict[str, Any]]:
        """Its groups: labels, receiver, alerts."""
        return self._list("alerts/groups")

    def _list(self, what: str) -> list[dict[str, Any]]:
        return list(self.get(f"/api/v2/{what}").json())

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until `holds`, with a deadline."""
        wait_until(holds, what, lambda: f"log:\n{self.log}")
