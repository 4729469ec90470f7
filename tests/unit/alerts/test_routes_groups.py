"""What a real Alertmanager makes of every alert of two fleets, models, roles and GPUs, all at once: groups, and which silence which."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest

from llm_serving_alerts.routes import alertmanager_files
from tests.support.builders.alertexamples import EVERYTHING, IDENTITY, Frozen, example_alerts, frozen, settings_of
from tests.support.servers.alertmanager import Alertmanager, alert, write_config
from tests.support.servers.pagerduty import PagerDuty

pytestmark = pytest.mark.process

# what makes alerts of different incidents different, whatever else they say
APART = ("cluster", "namespace", "check", "severity", "model_name", "role", "gpu", "node", "slo")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Any], dict[Frozen, list[Frozen]]]]:
    """All groups, and by the labels of an alert those that inhibit it."""
    folder = tmp_path_factory.mktemp("fleet")
    settings = settings_of(EVERYTHING + IDENTITY, folder)
    variants = [
        {"cluster": cluster, "model_name": model, "role": role, "gpu": gpu, "slo": slo}
        for cluster, model, role, gpu, slo in product(
            ("eu", "us"), ("model-a", "model-b"), ("unified", "decode"), ("GPU-1", "GPU-2"), ("ttft", "itl")
        )
    ]
    posted = {frozen(labels): labels for variant in variants for labels in example_alerts(settings, variant)}
    # and every alert as a rule with other labels, or somebody else's with the same name, would send it: without model and role
    bare = [
        {name: text for name, text in labels.items() if name not in ("model_name", "role", "cluster")}
        for labels in posted.values()
    ]
    posted.update((frozen(labels), labels) for labels in bare)
    with PagerDuty() as inbox, Alertmanager(write_config(alertmanager_files(settings), folder, inbox)) as running:
        running.post(*(alert(labels) for labels in posted.values()))
        running.until(
            lambda: sum(len(group["alerts"]) for group in running.groups()) == len(posted), "every alert in a group"
        )
        known = running.alerts()
        by_fingerprint = {found["fingerprint"]: frozen(found["labels"]) for found in known}
        inhibited = {
            frozen(found["labels"]): [by_fingerprint[cause] for cause in found["status"]["inhibitedBy"]]
            for found in known
        }
        assert not inbox.refused
        yield running.groups(), inhibited


def test_alerts_that_differ_in_what_makes_an_incident_are_never_in_one_group(fleet: Any) -> None:
    groups, _ = fleet
    for group in groups:
        if group["receiver"]["name"] in ("pagerduty", "tickets"):
            for one, other in combinations((found["labels"] for found in group["alerts"]), 2):
                differ = {name for name in APART if one.get(name) != other.get(name)}
                assert not differ, f"{one} hides {other}"


def test_each_alert_is_in_one_group_of_one_receiver(fleet: Any) -> None:
    groups, inhibited = fleet
    seen = [frozen(found["labels"]) for group in groups for found in group["alerts"]]
    assert len(seen) == len(set(seen)) == len(inhibited)
    for group in groups:
        for found in group["alerts"]:
            assert [receiver["name"] for receiver in found["receivers"]] == [group["receiver"]["name"]]


OF_MODEL, OF_NODE, OF_FLEET = ("cluster", "namespace", "model_name", "role"), ("cluster", "node"), ("cluster",)
# by hand, from the table in docs/alertmanager.md: an alert is silent while one of these pages for the same model, node or fleet. All of
# them are there at once, and Alertmanager names the first that it finds
SILENCED_BY = {
    ("ThroughputBelowBaseline", "warning"): ("ThroughputBelowBaseline", OF_MODEL),
    ("TTFTBurn", "warning"): ("TTFTBurn", OF_MODEL),
    ("SLOBurn", "warning"): ("SLOBurn", OF_MODEL),
    ("N1Insufficient", "warning"): ("N1Critical", OF_MODEL),
    ("ReplicaLost", "warning"): ("N1Critical", OF_MODEL),
    ("TargetDown", "warning"): ("TargetsDown", OF_MODEL),
    ("TargetsDown", "critical"): ("NodeLost", OF_NODE),
    ("N1Critical", "critical"): ("NodeLost", OF_NODE),
    ("GPUFailed", "critical"): ("NodeLost", OF_NODE),
    ("TTFTBurn", "critical"): ("NodeLost", OF_NODE),
    ("SLOBurn", "critical"): ("NodeLost", OF_NODE),
    ("NodeLost", "critical"): ("FleetUnreachable", OF_FLEET),
}


def test_a_page_silences_what_follows_from_it_for_its_own_model_node_or_fleet_and_nothing_else(fleet: Any) -> None:
    _, inhibited = fleet
    silenced = set()
    for target, causes in inhibited.items():
        labels = dict(target)
        kind = labels["alertname"].removeprefix("LLMServing"), labels["severity"]
        wanted, equal = SILENCED_BY.get(kind, ("", ()))
        # each side has to carry what is compared
        if not wanted or not labels.keys() >= set(equal):
            assert causes == [], labels
            continue
        assert len(causes) == 1, labels
        cause = dict(causes[0])
        assert cause["alertname"] == f"LLMServing{wanted}"
        assert cause["severity"] == "critical"
        for name in equal:
            assert cause[name] == labels[name]
        assert wanted != "SLOBurn" or cause["slo"] == labels["slo"]
        silenced.add(kind)
    assert silenced == set(SILENCED_BY)
