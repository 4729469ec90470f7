"""promtool judges every case."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import ALERTS as ALERT_RULES
from llm_serving_alerts.rules import Check
from tests.pack.builders import read_rules
from tests.pack.judging import asked_alerts, kind_of, verdict
from tests.pack.promtool import RENDERED, Document, Kind, split_quick, weigh
from tests.pack.rulesets import alerts_left_out
from tests.pack.write import CHECKS, all_documents, write_document

# which kinds of case an alert may do without, and why
_NO_HISTORY = "compares with nothing older"
_ANY_NUMBER = "one is enough"
_NO_REPLICA = "is about no model"
MAY_LACK: dict[str, dict[str, tuple[Kind, ...]]] = {
    "PrefillStarvesDecode": {_NO_HISTORY: (Kind.FIRST_WEEK,)},
    "ReplicaOutlier": {_NO_HISTORY: (Kind.FIRST_WEEK,)},
    "TTFTBurn": {_NO_HISTORY: (Kind.FIRST_WEEK,)},
    "SLOBurn": {_NO_HISTORY: (Kind.FIRST_WEEK,)},
    "Stalled": {_NO_HISTORY: (Kind.FIRST_WEEK,)},
    "TargetDown": {_NO_HISTORY: (Kind.FIRST_WEEK,), _ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "PageFails": {_NO_HISTORY: (Kind.FIRST_WEEK,), _ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "TargetsDown": {_ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "SignalLost": {"what was never there is a case of its own": (Kind.FIRST_WEEK,)},
    "BudgetExceeded": {
        "goes by money, which time makes": (Kind.LOW_TRAFFIC,),
        _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES),
    },
    "ReportMissed": {_ANY_NUMBER: (Kind.LOW_TRAFFIC,), _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES)},
    "LabelsRenamed": {_NO_HISTORY: (Kind.FIRST_WEEK,), _ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "ClaimedTwice": {
        _NO_HISTORY: (Kind.FIRST_WEEK,),
        _ANY_NUMBER: (Kind.LOW_TRAFFIC,),
        "goes by target": (Kind.ROLES,),
    },
    "FleetUnreachable": {
        _ANY_NUMBER: (Kind.LOW_TRAFFIC,),
        "is about several models": (Kind.ONE_REPLICA, Kind.TWO_MODELS),
    },
    "ExporterAbsent": {
        _NO_HISTORY: (Kind.FIRST_WEEK,),
        _ANY_NUMBER: (Kind.LOW_TRAFFIC,),
        _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES),
        "fires where it rests on nothing": (Kind.ABSENT,),
    },
    "ConfigReloadFailed": {
        _NO_HISTORY: (Kind.FIRST_WEEK,),
        _ANY_NUMBER: (Kind.LOW_TRAFFIC,),
        _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES),
    },
    "NotificationsFailing": {_NO_HISTORY: (Kind.FIRST_WEEK,), _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES)},
    "RulesFailing": {_NO_HISTORY: (Kind.FIRST_WEEK,), _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES)},
    "RestartLoop": {_NO_HISTORY: (Kind.FIRST_WEEK,), _ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "Watchdog": {"always fires": tuple(kind for kind in Kind if kind not in (Kind.FIRES, Kind.ABSENT))},
}
COMPLETE = (Check.PHASES, Check.TTFT, Check.SLO, Check.COST, Check.EXPORTER)


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS if alert.check in COMPLETE])
def test_an_alert_has_every_kind_of_case_but_those_that_it_may_lack(alert: str) -> None:
    shown = {kind for cases in CHECKS.values() for case in cases if case.alert == alert for kind in case.kinds}
    lacks = {kind for kinds in MAY_LACK.get(alert, {}).values() for kind in kinds}
    assert shown == set(Kind) - lacks


@pytest.mark.parametrize("rules", ["drill", "clusters"])
def test_an_alerts_link_asks_for_labels_that_it_has(rules: str) -> None:
    """Of some case: what a firing alert has not is asked for as nothing."""
    has: dict[str, set[str]] = {}
    for case in (case for cases in CHECKS.values() for case in cases):
        for _, firing in case.looks:
            has.setdefault(f"LLMServing{case.alert}", {"cluster"}).update(
                label for one in firing for label in one.labels
            )
    for alert, tiers in read_rules(rules).items():
        for rule in tiers.values():
            assert set(re.findall(r"\$labels\.(\w+) \| urlquery", rule.annotations["dashboard"])) <= has[alert], alert


DOCUMENTS = all_documents()


def test_no_case_asks_for_an_alert_whose_rule_its_set_leaves_out() -> None:
    """It would be silent whatever the rule says. Where the settings have no such rule, that is what a case may show."""
    left_out = {
        name: asked_alerts(made) & alerts_left_out(file)
        for name, made in DOCUMENTS.items()
        for file in made["rule_files"]
        if kind_of(file) == ALERT_RULES and file not in RENDERED
    }
    assert len(left_out) > 40
    assert {name: found for name, found in left_out.items() if found} == {}


# histories of a day and more, or of many pods or prices, minutes of promtool's time; and what other settings make of an alert that has
# quick cases
LONG = re.compile(
    r"exporter\.signals_long\.|(node_loss|exporter)\.\w+\.long\.|(node_loss|cost)\.samples\."
    r"|\w+\.(rollouts|burns|workloads|clusters|retired|ttft_front_doors|signals_retired|gpu_clusters)\."
)


SPLIT = {name: split_quick(made) for name, made in DOCUMENTS.items()}


QUICK: dict[str, list[str]] = {}
for _name in sorted(DOCUMENTS):
    if not LONG.match(_name):
        QUICK.setdefault(_name.partition(".")[0], []).append(_name)


@pytest.mark.process
@pytest.mark.seam("promtool")
@pytest.mark.parametrize("check", QUICK)
def test_promtool_agrees(check: str, tmp_path: Path) -> None:
    """With the quick cases of a check, in one run."""
    assert not verdict(
        tmp_path, *(file for name in QUICK[check] for file in write_document(tmp_path, name, SPLIT[name][0]))
    )


# five seconds of promtool's time and more are for `make test-soak`
_SOAK = 100_000


def with_tier(made: Mapping[str, Document]) -> list[Any]:
    """The names of the test files, as end to end or as soak."""
    return [
        pytest.param(name, marks=pytest.mark.soak if weigh(made[name]) > _SOAK else pytest.mark.e2e)
        for name in sorted(made)
    ]


@pytest.mark.parametrize("name", with_tier({name: SPLIT[name][0] for name in DOCUMENTS if LONG.match(name)}))
def test_promtool_agrees_with_long_histories(name: str, tmp_path: Path) -> None:
    assert not verdict(tmp_path, *write_document(tmp_path, name, SPLIT[name][0]))


@pytest.mark.parametrize("name", with_tier({name: others for name, (_, others) in SPLIT.items() if others}))
def test_promtool_agrees_with_the_other_histories(name: str, tmp_path: Path) -> None:
    others = SPLIT[name][1]
    assert others
    assert not verdict(tmp_path, *write_document(tmp_path, name, others))


def test_each_alert_has_quick_cases() -> None:
    asked = {name: asked_alerts(quick) for name, (quick, _) in SPLIT.items()}
    every = {alert for alerts in asked.values() for alert in alerts}
    assert len(every) > 30
    assert {alert for names in QUICK.values() for name in names for alert in asked[name]} == every


def test_every_history_is_judged() -> None:
    parts = {name: [test for part in split if part for test in part["tests"]] for name, split in SPLIT.items()}
    assert {name: sorted(map(repr, tests)) for name, tests in parts.items()} == {
        name: sorted(map(repr, made["tests"])) for name, made in DOCUMENTS.items()
    }
