"""The example Alertmanager configuration, by amtool: each alert reaches whom its severity asks for; the dead man's switch."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import ALERTS as ALERT_RULES
from llm_serving_alerts.render import groups_text, rule_groups
from llm_serving_alerts.routes import INHIBITIONS, ONE_PAGE, ONE_TICKET, alertmanager_config, alertmanager_files
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.errors import ConfigError
from tests.support.builders.alertexamples import EVERYTHING, IDENTITY, example_alerts, named, settings_of
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.alertmanager import DEAD_MAN, Alertmanager, alert, write_config
from tests.support.servers.pagerduty import PagerDuty
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.yaml_text import load_yaml

# --- The example Alertmanager configuration, by amtool: it is accepted, and each alert reaches whom its severity asks for


COMMITTED = ROOT / "alerts" / "alertmanager"
# by hand, from the table in docs/alertmanager.md
RECEIVER_OF = {"critical": "pagerduty", "warning": "tickets", "info": "nobody"}
WATCHDOG = "LLMServingWatchdog"


def amtool(*words: str | Path) -> str:
    done = subprocess.run(["amtool", *words], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def receivers(config: Path, labels: dict[str, str]) -> list[str]:
    words = [f"{name}={value}" for name, value in labels.items()]
    return amtool("config", "routes", "test", f"--config.file={config}", *words).strip().split(",")


def test_the_committed_files_are_those_of_the_default_settings() -> None:
    files = alertmanager_files(default_settings())
    for name, text in files.items():
        assert (COMMITTED / name).read_text() == text, f"alerts/alertmanager/{name} is out of date: generate it anew"
    generated = {COMMITTED / name for name in files}
    stray = [path for path in COMMITTED.rglob("*") if path.is_file() and path not in generated]
    assert [path.name for path in stray] == ["prometheus.example.yml"]


@pytest.mark.process
@check_rows("name", ["null", "true", "No", "y"])
def test_a_receiver_may_be_called_what_yaml_takes_for_something_else(tmp_path: Path, name: str) -> None:
    write_config(alertmanager_files(settings_of(f'receivers: {{critical: "{name}"}}\n', tmp_path)), tmp_path)
    assert receivers(tmp_path / "alertmanager.yml", {"severity": "critical"}) == [name]


@pytest.mark.process
def test_receivers_are_called_as_the_settings_say(tmp_path: Path) -> None:
    settings = settings_of("receivers: {critical: on-call, warning: slack/llm}\n", tmp_path)
    write_config(alertmanager_files(settings), tmp_path)
    told = {severity: receivers(tmp_path / "alertmanager.yml", {"severity": severity}) for severity in RECEIVER_OF}
    assert told == {"critical": ["on-call"], "warning": ["slack/llm"], "info": ["nobody"]}
    with pytest.raises(ConfigError, match="two of them have one name"):
        alertmanager_config(settings_of("receivers: {critical: tickets}\n", tmp_path))


@pytest.mark.process
@pytest.mark.seam("amtool")
@pytest.mark.parametrize("text", ["", EVERYTHING + IDENTITY, "identity_labels: [cluster]\n"])
def test_amtool_accepts_the_configuration_with_its_templates(tmp_path: Path, text: str) -> None:
    write_config(alertmanager_files(settings_of(text, tmp_path)), tmp_path)
    said = amtool("check-config", tmp_path / "alertmanager.yml")
    assert "1 templates" in said
    assert f"{len(INHIBITIONS)} inhibit rules" in said


@pytest.mark.process
def test_what_stands_in_comments_to_be_used_is_accepted_too(tmp_path: Path) -> None:
    files = alertmanager_files(default_settings())
    # prose begins with "# ", what is to be used has no space there, or more of them
    text = re.sub(r"^( *)#(?! \S|$)", r"\1", files["alertmanager.yml"], flags=re.MULTILINE)
    document = load_yaml(text)
    (tickets,) = (receiver for receiver in document["receivers"] if receiver["name"] == "tickets")
    assert set(tickets) == {"name", "slack_configs", "email_configs"}
    assert document["global"]["smtp_smarthost"]
    assert document["time_intervals"][0]["time_intervals"][1]["location"] == "Europe/Berlin"
    write_config({**files, "alertmanager.yml": text}, tmp_path)
    amtool("check-config", tmp_path / "alertmanager.yml")


@pytest.mark.process
def test_each_alert_reaches_the_receiver_of_its_severity_and_no_other(tmp_path: Path) -> None:
    settings = settings_of(EVERYTHING + IDENTITY, tmp_path)
    config = write_config(alertmanager_files(settings), tmp_path)
    seen = set()
    for labels in example_alerts(settings):
        wanted = "dead-man" if labels["alertname"] == WATCHDOG else RECEIVER_OF[labels["severity"]]
        assert receivers(config, labels) == [wanted], labels
        seen.add(wanted)
    assert seen == {*RECEIVER_OF.values(), "dead-man"}


@pytest.mark.process
@check_rows("severity", ["critical", "warning", "info", "none", ""])
def test_the_watchdog_never_reaches_people_whatever_its_severity(severity: str) -> None:
    labels = {"alertname": WATCHDOG, "severity": severity, "check": "exporter"}
    assert receivers(COMMITTED / "alertmanager.yml", labels) == ["dead-man"]


@pytest.mark.process
def test_an_alert_of_a_severity_that_nobody_foresaw_is_seen_by_somebody() -> None:
    for labels in ({"alertname": "Other", "severity": "page"}, {"alertname": "Other"}):
        assert receivers(COMMITTED / "alertmanager.yml", labels) == ["tickets"]


@pytest.mark.process
def test_alerts_of_other_packs_go_by_severity_and_one_that_is_for_no_one_reaches_no_one() -> None:
    for severity, receiver in (*RECEIVER_OF.items(), ("none", "nobody")):
        labels = {"alertname": "InfoInhibitor", "severity": severity, "namespace": "x"}
        assert receivers(COMMITTED / "alertmanager.yml", labels) == [receiver]


def test_every_route_to_people_is_quiet_in_maintenance_and_maintenance_is_not_now() -> None:
    document = load_yaml((COMMITTED / "alertmanager.yml").read_text())

    def walk(route: dict[str, object], receiver: object) -> list[tuple[object, object]]:
        own = route.get("receiver", receiver)
        children = route.get("routes", [])
        assert isinstance(children, list)
        return [(own, route.get("mute_time_intervals")), *(pair for child in children for pair in walk(child, own))]

    routes = [pair for child in document["route"]["routes"] for pair in walk(child, None)]
    for receiver, muted in routes:
        assert muted == (["maintenance"] if receiver in ("pagerduty", "tickets") else None), receiver
    assert {receiver for receiver, _ in routes} == {*RECEIVER_OF.values(), "dead-man"}
    assert document["time_intervals"] == [{"name": "maintenance", "time_intervals": [{"years": ["2000"]}]}]


# by hand: what may keep a page back, and which labels both must carry
SILENCES_PAGES = {"NodeLost": ("node",), "FleetUnreachable": ()}


def test_inhibitions_name_alerts_that_exist_and_carry_what_is_compared() -> None:
    alerts = {alert.name: alert for alert in ALERTS}
    for one in INHIBITIONS:
        assert Severity.CRITICAL in alerts[one.cause].tiers
        assert one.of_pages == (one.cause in SILENCES_PAGES)
        for name in (one.cause, *one.effects):
            missing = set(one.equal) - set(alerts[name].identity)
            assert not missing, f"{name} has no label {missing}"
        for name in one.effects:
            assert one.of_pages or set(alerts[name].tiers) - {Severity.CRITICAL}, name


def test_only_a_lost_node_and_a_lost_fleet_silence_pages(tmp_path: Path) -> None:
    settings = settings_of(IDENTITY, tmp_path)
    for rule in load_yaml(alertmanager_config(settings))["inhibit_rules"]:
        (cause,) = (text for text in rule["source_matchers"] if text.startswith("alertname="))
        name = cause.removeprefix('alertname="LLMServing').removesuffix('"')
        pages = any(text.startswith("severity=") and "critical" in text for text in rule["target_matchers"])
        assert pages == (name in SILENCES_PAGES)
        if pages:
            # a node, as a whole fleet, is of no namespace
            assert rule["equal"] == ["cluster", *SILENCES_PAGES[name]]


def test_every_check_has_either_one_ticket_or_one_an_alert_and_only_a_gpu_has_one_page() -> None:
    # a check added later lands in the finer groups until somebody says that its alerts have one cause
    assert set(Check) - set(ONE_TICKET) == {Check.SLO, Check.COST, Check.EXPORTER}
    assert set(ONE_PAGE) == {Check.GPU}


def test_every_group_of_people_has_the_severity_so_that_a_silence_made_of_it_leaves_others_alone() -> None:
    route = load_yaml((COMMITTED / "alertmanager.yml").read_text())["route"]
    grouped = [route["group_by"]]
    for child in route["routes"]:
        if child["receiver"] in ("pagerduty", "tickets"):
            grouped += [found["group_by"] for found in (child, *child["routes"]) if "group_by" in found]
    assert len(grouped) == 4
    assert all("severity" in names for names in grouped)


def test_the_identity_labels_stand_in_every_group_and_every_inhibition(tmp_path: Path) -> None:
    document = load_yaml(alertmanager_config(settings_of(IDENTITY, tmp_path)))
    routes = [document["route"], *document["route"]["routes"]]
    routes += [grandchild for child in document["route"]["routes"] for grandchild in child.get("routes", ())]
    grouped = [route["group_by"] for route in routes if "group_by" in route]
    assert len(grouped) == 5
    for names in [*grouped, *(rule["equal"] for rule in document["inhibit_rules"] if "model_name" in rule["equal"])]:
        assert names[:2] == ["cluster", "namespace"]
    for rule in document["inhibit_rules"]:
        for side in ("source_matchers", "target_matchers"):
            for name in rule["equal"]:
                assert f'{name}=~".+"' in rule[side]


@pytest.mark.process
def test_promtool_accepts_the_example_for_prometheus_and_it_scrapes_as_the_rules_expect() -> None:
    example = COMMITTED / "prometheus.example.yml"
    done = subprocess.run(["promtool", "check", "config", example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = load_yaml(example.read_text())
    assert document["global"]["scrape_interval"] == f"{default_settings().scrape_interval_seconds:g}s"
    (relabel,) = document["alerting"]["alert_relabel_configs"]
    assert relabel["action"] == "labeldrop"
    assert relabel["regex"] in document["global"]["external_labels"]


# --- The dead man's switch: the receivers of docs/alertmanager.md as amtool and a real Alertmanager take them
# And what a stopped Prometheus does to their requests.


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
    watchdog = [group for group in rule_groups(default_settings())[ALERT_RULES] if group.name == "llm-serving.watchdog"]
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
