"""A real Alertmanager on loopback, with the example configuration at a pace for tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.pagerduty import ROUTING_KEY, PagerDuty

# Debian's package calls the server prometheus-alertmanager
PROGRAMS = ("prometheus-alertmanager", "alertmanager")
PATIENCE_SECONDS = 20.0
TICKETS, DEAD_MAN = "/slack", "/dead-man"

Labels = Mapping[str, str]


def write_config(files: Mapping[str, str], folder: Path, inbox: PagerDuty | None = None, **changes: Any) -> Path:
    """Writes the configuration's files; returns the path of alertmanager.yml.

    With an inbox every receiver posts to it (PagerDuty's events, TICKETS, DEAD_MAN), and groups wait 300 ms at first and 1 s between
    notifications. `changes` replace keys of the configuration.
    """
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    config = folder / "alertmanager.yml"
    document = {**yaml.safe_load(files["alertmanager.yml"]), **changes}
    if inbox is not None:
        _at_pace(document["route"])
        for receiver in document["receivers"]:
            _to(inbox, receiver, folder)
    config.write_text(yaml.safe_dump(document))
    return config


def _at_pace(route: dict[str, Any]) -> None:
    for key, pace in (("group_wait", "300ms"), ("group_interval", "1s")):
        if key in route and route[key] != "0s":
            route[key] = pace
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


class Alertmanager:
    """`with Alertmanager(config) as running:`; ended by its process id, its log kept beside the configuration."""

    def __init__(self, config: Path, *, log_level: str = "info") -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        assert program, f"none of {' or '.join(PROGRAMS)} is on PATH; `make test` installs it"
        self._program, self._config, self._log_level = program, config, log_level
        self._log = config.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Alertmanager:
        self.http = requests.Session()
        self.http.trust_env = False
        try:
            for _attempt in range(3):  # a port that was free may be taken by another test
                if self._starts():
                    return self
                self._end()
            raise AssertionError(f"Alertmanager did not start:\n{self.log}")
        except BaseException:
            self.__exit__()
            raise

    def _starts(self) -> bool:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [
            self._program,
            f"--config.file={self._config}",
            f"--storage.path={self._config.parent / f'data-{port}'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.external-url={self.url}",
            "--cluster.listen-address=",
            f"--log.level={self._log_level}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.http.get(f"{self.url}/-/ready", timeout=2).ok:
                    return True
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        return False

    def __exit__(self, *exc: object) -> None:
        self._end()
        self.http.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Sends alerts, as Prometheus does."""
        answer = self.http.post(f"{self.url}/api/v2/alerts", json=list(alerts), timeout=10)
        assert answer.status_code == 200, answer.text

    def alerts(self) -> list[dict[str, Any]]:
        """What it knows, with receivers and status (silencedBy, inhibitedBy)."""
        return self._list("alerts")

    def groups(self) -> list[dict[str, Any]]:
        """Its groups: labels, receiver, alerts."""
        return self._list("alerts/groups")

    def _list(self, what: str) -> list[dict[str, Any]]:
        answer = self.http.get(f"{self.url}/api/v2/{what}", timeout=10)
        assert answer.status_code == 200, answer.text
        return list(answer.json())

    @property
    def log(self) -> str:
        """What it has said since it started."""
        return self._log.read_text(errors="replace")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until `holds`, with a deadline."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come about; log:\n{self.log}"
            time.sleep(0.05)
