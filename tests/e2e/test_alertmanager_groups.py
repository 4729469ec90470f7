"""The worked-out Alertmanager against the real one: where alerts go, and what is sent of a timeline."""

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.settings_file import default_settings
from tests.support.alertmanager_groups import AlertKey, read_config, send
from tests.support.builders.alertexamples import EVERYTHING, IDENTITY, example_alerts, settings_of
from tests.support.servers.alertmanager import Alertmanager, alert
from tests.support.servers.pagerduty import PagerDuty
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml


def key(**labels: str) -> AlertKey:
    return tuple(sorted(labels.items()))


@pytest.mark.process
def test_each_alert_takes_the_routes_that_amtool_says(tmp_path: Path) -> None:
    settings = settings_of(EVERYTHING + IDENTITY, tmp_path)
    text = alertmanager_files(settings)["alertmanager.yml"]
    file = tmp_path / "alertmanager.yml"
    file.write_text(text)
    config = read_config(text)
    for labels in (*example_alerts(settings), {"alertname": "Other", "severity": "page"}, {"alertname": "Other"}):
        words = [f"{name}={value}" for name, value in labels.items()]
        done = subprocess.run(
            ["amtool", "config", "routes", "test", f"--config.file={file}", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        assert [route.receiver for route in config.route.find(labels)] == done.stdout.strip().split(","), labels


# groups, an inhibition and times that a test can wait for
CONFIG = """
route:
  receiver: tickets
  group_by: [alertname]
  group_wait: 3s
  group_interval: 6s
  repeat_interval: 1h
  routes:
    - {matchers: ['severity="critical"'], receiver: pagerduty, group_by: [node]}
inhibit_rules:
  - source_matchers: ['alertname="NodeLost"', 'node=~".+"']
    target_matchers: ['alertname=~"ReplicaLost|TargetsDown|NodeLost"', 'node=~".+"']
    equal: [node]
receivers:
  - name: pagerduty
    webhook_configs: [{url: 'URL/pagerduty', send_resolved: true}]
  - name: tickets
    webhook_configs: [{url: 'URL/tickets', send_resolved: false}]
"""
NODE = key(alertname="NodeLost", severity="critical", node="n1")
NODE_AGAIN = key(alertname="TargetsDown", severity="critical", node="n1")
OTHER = key(alertname="TargetsDown", severity="critical", node="n2")
REPLICA = key(alertname="ReplicaLost", severity="warning", node="n1")
FAR = key(alertname="ReplicaLost", severity="warning", node="n3")
SLOW = key(alertname="SLOBurn", severity="warning")
# Alertmanager looks three seconds after what happens and before what comes next: a busy machine is later than one
STEP = 12.0
# what fires at each step: a cause with its effects, one that joins late, one that ends and comes again
TIMELINE: tuple[frozenset[AlertKey], ...] = (
    frozenset({NODE, NODE_AGAIN, REPLICA}),
    frozenset({NODE, NODE_AGAIN, REPLICA, FAR, OTHER}),
    frozenset({NODE, REPLICA, FAR}),
    frozenset({REPLICA, FAR, SLOW}),
    frozenset({REPLICA, OTHER}),
    frozenset(),
    frozenset({SLOW}),
    frozenset(),
)


def heard(post: dict[str, Any]) -> tuple[frozenset[AlertKey], frozenset[AlertKey]]:
    """Firing and resolved alerts of a webhook."""
    by_status = {
        status: frozenset(key(**one["labels"]) for one in post["alerts"] if one["status"] == status)
        for status in ("firing", "resolved")
    }
    return by_status["firing"], by_status["resolved"]


def str_of(sent: tuple[frozenset[AlertKey], frozenset[AlertKey]]) -> str:
    return str([sorted(part) for part in sent])


@pytest.mark.e2e
def test_what_is_sent_of_a_timeline_is_what_a_real_alertmanager_sends(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    with PagerDuty() as inbox:
        file.write_text(CONFIG.replace("URL", inbox.base))
        with Alertmanager(file) as running:
            before: frozenset[AlertKey] = frozenset()
            # Alertmanager looks at once at a group whose alert began longer ago than group_wait: between two of one request
            began: dict[AlertKey, datetime] = {}
            begin = time.monotonic()
            for number, firing in enumerate(TIMELINE):
                time.sleep(max(0.0, begin + number * STEP - time.monotonic()))
                began = {one: began.get(one, datetime.now(UTC)) for one in firing | before}
                running.post(
                    *[alert(dict(one), since=began[one]) for one in sorted(firing)],
                    *[alert(dict(one), since=began.pop(one), ended=True) for one in sorted(before - firing)],
                )
                before = firing
            time.sleep(STEP)
            real = {
                receiver: [heard(one) for one in inbox.posts(f"/{receiver}")] for receiver in ("pagerduty", "tickets")
            }
    timeline = [(number * STEP, firing) for number, firing in enumerate(TIMELINE)]
    worked_out = list(send(read_config(CONFIG), timeline, len(TIMELINE) * STEP))
    for receiver, theirs in real.items():
        assert theirs, receiver
        # groups of a receiver that are due at the same time come in any order
        mine = [(frozenset(one.firing), frozenset(one.resolved)) for one in worked_out if one.receiver == receiver]
        assert sorted(mine, key=str_of) == sorted(theirs, key=str_of)


def test_the_rendered_configuration_pages_once_for_a_cause_that_joins(tmp_path: Path) -> None:
    config = read_config(alertmanager_files(default_settings())["alertmanager.yml"])
    down = key(alertname="LLMServingTargetsDown", severity="critical", check="exporter", model_name="m", role="unified")
    effect = key(
        alertname="LLMServingTargetDown",
        severity="warning",
        check="exporter",
        model_name="m",
        role="unified",
        target="a",
    )
    timeline = [(60.0 * minute, frozenset({down, effect}) if minute < 20 else frozenset()) for minute in range(60)]
    sent = [one for one in send(config, timeline, 3600.0) if one.opens]
    assert [(one.receiver, one.firing) for one in sent] == [("pagerduty", (down,))]


@pytest.mark.parametrize("text", ["severity", "=x", "severity~x"])
def test_what_is_no_matcher_is_not_guessed_at(text: str) -> None:
    document = load_yaml(CONFIG)
    document["route"]["routes"][0]["matchers"] = [text]
    with pytest.raises(AssertionError, match="is not a matcher"):
        read_config(yaml.safe_dump(document))
