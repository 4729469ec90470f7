"""promtool judges every case."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.rules import Check
from tests.pack.judging import verdict
from tests.pack.promtool import Kind
from tests.pack.rulesets import as_yaml
from tests.pack.write import CHECKS, all_documents, write_rules

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
    "TargetsDown": {_ANY_NUMBER: (Kind.LOW_TRAFFIC,)},
    "SignalLost": {"what was never there is a case of its own": (Kind.FIRST_WEEK,)},
    "BudgetExceeded": {
        "goes by money, which time makes": (Kind.LOW_TRAFFIC,),
        _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES),
    },
    "ReportMissed": {_ANY_NUMBER: (Kind.LOW_TRAFFIC,), _NO_REPLICA: (Kind.ONE_REPLICA, Kind.ROLES)},
    "LabelsRenamed": {
        _NO_HISTORY: (Kind.FIRST_WEEK,),
        _ANY_NUMBER: (Kind.LOW_TRAFFIC,),
    },
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


DOCUMENTS = all_documents()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules that the cases are judged by, beside the committed ones."""
    made = tmp_path_factory.mktemp("pack")
    write_rules(made)
    return made


# histories of a day and more, or of many pods: minutes of promtool's time
LONG = {"node_loss.rollouts.raw.yml", "node_loss.long.yml", "exporter.signals_long.raw.yml", "exporter.long.yml"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.e2e) if name in LONG else name for name in sorted(DOCUMENTS)]
)
def test_promtool_agrees(name: str, folder: Path) -> None:
    (folder / name).write_text(as_yaml(DOCUMENTS[name]), encoding="utf-8")
    assert not verdict(folder, name)
