"""The dead man's switch: the receivers of docs/alertmanager.md as amtool and a real Alertmanager take them, and what a stopped Prometheus
does to their requests."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.render import ALERTS, groups_text, rule_groups
from llm_serving_alerts.routes import WATCHDOG, alertmanager_files
from llm_serving_alerts.settings_file import default_settings
from tests.support.builders.alertexamples import named
from tests.support.paths import ROOT
from tests.support.servers.alertmanager import DEAD_MAN, Alertmanager, alert, write_config
from tests.support.servers.pagerduty import PagerDuty
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import wait_until
from tests.support.yaml_text import load_yaml
from tests.unit.alerts.test_routes import amtool, receivers

_SECTION = re.compile(r"^## A dead man's switch\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documented() -> list[dict[str, Any]]:
    section = _SECTION.search((ROOT / "docs/alertmanager.md").read_text())
    assert section
    return [load_yaml(text)[0] for text in _BLOCK.findall(section[1])]


RECEIVERS = documented()
NAMES = ("healthchecks", "snitch", "pagerduty")


def files_with(receiver: dict[str, Any], *, repeated: str = "") -> dict[str, str]:
    """The example configuration with this receiver for the one of its name. `repeated`: after how long a sign of life is sent
    again, where a test cannot wait for a minute."""
    files = alertmanager_files(default_settings())
    document = load_yaml(files["alertmanager.yml"])
    names = [one["name"] for one in document["receivers"]]
    document["receivers"][names.index(receiver["name"])] = receiver
    (route,) = (one for one in document["route"]["routes"] if one["receiver"] == receiver["name"])
    route["repeat_interval"] = repeated or route["repeat_interval"]
    return {**files, "alertmanager.yml": yaml.safe_dump(document)}


def test_there_is_one_for_each_service_and_none_sends_the_end_of_the_alert() -> None:
    assert len(RECEIVERS) == len(NAMES)
    for receiver in RECEIVERS:
        (sent_by,) = (found for key, found in receiver.items() if key != "name")
        assert [one["send_resolved"] for one in sent_by] == [False]


@pytest.mark.process
@pytest.mark.parametrize("receiver", RECEIVERS, ids=NAMES)
def test_amtool_takes_each_and_the_watchdog_goes_there(tmp_path: Path, receiver: dict[str, Any]) -> None:
    config = write_config(files_with(receiver), tmp_path)
    assert "SUCCESS" in amtool("check-config", config)
    assert receivers(config, {"alertname": WATCHDOG, "severity": "none"}) == ["dead-man"]


@pytest.mark.process
@pytest.mark.parametrize("receiver", RECEIVERS, ids=NAMES)
def test_each_sends_a_sign_of_life_again_and_again(tmp_path: Path, receiver: dict[str, Any]) -> None:
    with (
        PagerDuty() as inbox,
        Alertmanager(write_config(files_with(receiver, repeated="500ms"), tmp_path, inbox)) as running,
    ):
        running.post(alert(named("Watchdog", "none", "exporter")))
        if "pagerduty_configs" not in receiver:
            wait_until(lambda: len(inbox.posts(DEAD_MAN)) > 1, "the second sign of life")
            return
        wait_until(lambda: len(inbox.events) > 1, "the second sign of life")
        assert not inbox.refused
        # one incident to PagerDuty, which the next one ends
        assert {event["event_action"] for event in inbox.events} == {"trigger"}
        assert len({event["dedup_key"] for event in inbox.events}) == 1


@pytest.mark.process
def test_a_prometheus_that_stops_makes_the_signs_of_life_stop(tmp_path: Path) -> None:
    watchdog = [group for group in rule_groups(default_settings())[ALERTS] if group.name == "llm-serving.watchdog"]
    rules = tmp_path / "alerts.yml"
    rules.write_text(groups_text(watchdog))
    files = files_with(RECEIVERS[0], repeated="500ms")
    with PagerDuty() as inbox, Alertmanager(write_config(files, tmp_path / "am", inbox)) as running:
        config = yaml.safe_dump(
            {
                "global": {"evaluation_interval": "500ms"},
                "rule_files": [str(rules)],
                "alerting": {
                    "alertmanagers": [{"static_configs": [{"targets": [running.url.removeprefix("http://")]}]}]
                },
            }
        )
        with PrometheusServer(tmp_path / "prometheus", config, "--rules.alert.resend-delay=1s"):
            wait_until(lambda: len(inbox.posts(DEAD_MAN)) > 2, "the third sign of life")
            assert {one["labels"]["alertname"] for one in inbox.posts(DEAD_MAN)[0]["alerts"]} == {WATCHDOG}
        # four times the resend delay, and a group's interval
        wait_until(lambda: not running.alerts(), "the end of the watchdog")
        wait_until(lambda: not running.groups(), "the end of its group")
        sent = len(inbox.posts(DEAD_MAN))
        # more than two of the group's intervals at a test's pace
        time.sleep(2.5)
        assert len(inbox.posts(DEAD_MAN)) == sent
