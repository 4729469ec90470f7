"""Check slo: engines that are stuck."""

from __future__ import annotations

from llm_serving_alerts.declare import Alert, Text, label, of_target, value
from llm_serving_alerts.promql import ENGINE, Dialect, seconds_text
from llm_serving_alerts.records.stalled import find_stalled
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.setting_kinds import RANGE
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown


def _stalled(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return find_stalled(dialect, own["range"])


def _stalled_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    span = seconds_text(own["range"])
    return Text(
        f"{of_target(dialect)}: engine {label('engine')} is stuck with {value()} requests",
        f"For {span} or longer requests ran, waited or were given up, and no token, step or answer was counted, while the page was answered. A health "
        "check that only asks whether the process answers does not see this.",
        "take a stack dump, then restart the replica",
    )


STUCK = Alert(
    "Stalled",
    Check.SLO,
    ENGINE,
    {Severity.CRITICAL: ""},
    _stalled,
    _stalled_text,
    Shown("replica", "Waiting requests"),
    {"range": RANGE},
)
