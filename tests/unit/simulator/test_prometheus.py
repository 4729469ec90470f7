"""The demos' Prometheus and Alertmanager as they run: what they have loaded, and that alerts go from one to the other."""

from __future__ import annotations

import json
import shutil
import urllib.request
from typing import Any

import pytest
import yaml

from llm_serving_alerts.routes import alertmanager_config
from llm_serving_alerts.settings_file import default_settings
from llm_serving_simulator.options import require_free
from llm_serving_simulator.programs import Alertmanager, Pace, Prometheus, Rules, find_alertmanager, silence_receivers
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.yaml_text import load_yaml

RULE = {"alert": "Always", "expr": "vector(1)", "labels": {"severity": "warning", "model_name": "m"}}
needs_both = pytest.mark.skipif(
    shutil.which("prometheus") is None or find_alertmanager() is None, reason="`make test` installs both"
)


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return json.loads(answer.read())


def test_receivers_keep_their_names_and_lose_what_they_would_send_by() -> None:
    before = load_yaml(alertmanager_config(default_settings()))
    after = load_yaml(silence_receivers(alertmanager_config(default_settings())))
    assert [receiver["name"] for receiver in before["receivers"]] == [
        receiver["name"] for receiver in after["receivers"]
    ]
    assert all(set(receiver) == {"name"} for receiver in after["receivers"])
    assert any(len(receiver) > 1 for receiver in before["receivers"])
    assert (after["route"], after["inhibit_rules"]) == (before["route"], before["inhibit_rules"])


@pytest.mark.process
@needs_both
def test_an_alert_of_the_rules_is_known_for_whom() -> None:
    found = find_alertmanager()
    prometheus = shutil.which("prometheus")
    assert found is not None
    assert prometheus is not None
    routes = Alertmanager(found, alertmanager_config(default_settings()))
    try:
        rules = Rules(
            {"own.yml": yaml.safe_dump({"groups": [{"name": "own", "rules": [RULE]}]})},
            routes.url.removeprefix("http://"),
        )
        running = Prometheus(prometheus, "127.0.0.1:1", 0, Pace(0.2, 0.2, 7.5, 1.0), rules)
        try:
            flags = ask(f"{running.url}/api/v1/status/flags")["data"]
            assert flags["query.lookback-delta"] == "7s500ms"
            alerts = wait_until(lambda: ask(f"{routes.url}/api/v2/alerts"), "the alert")
        finally:
            running.close()
    finally:
        routes.close()
    (alert,) = alerts
    assert alert["labels"] == {"alertname": "Always", "severity": "warning", "model_name": "m"}
    assert [receiver["name"] for receiver in alert["receivers"]] == ["tickets"]
    assert (running.pid, routes.pid) == (None, None)
    for url in (running.url, routes.url):
        require_free("127.0.0.1", int(url.rpartition(":")[2]))
