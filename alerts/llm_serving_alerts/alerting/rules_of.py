"""Declared alerts and settings -> rules as they are rendered."""

from __future__ import annotations

from urllib.parse import quote

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.declare import Alert
from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.rules import ALERT_PREFIX, LOUDNESS, AlertRule, Check, Group, Severity
from llm_serving_alerts.settings import Settings

# what a dashboard can be asked for by a variable of its own
_VARIABLES = ("model_name", "role", "target")
_OF_GPUS = ("gpu", "node")


def alert_groups(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Every alert that is on, a group a check."""
    groups = []
    for check in Check:
        rules = [rule for alert in ALERTS if alert.check is check for rule in alert_rules(alert, dialect, settings)]
        if rules:
            groups.append(Group(f"llm-serving.{check.value.replace('_', '-')}.alerts", tuple(rules)))
    return tuple(groups)


def alert_rules(alert: Alert, dialect: Dialect, settings: Settings) -> tuple[AlertRule, ...]:
    """The rules of one alert, one a severity; () where it is off or nothing asks for it. Where the cap makes two of a severity, the one
    that fires first stays."""
    own = settings.alerts[alert.name]
    if not own.enabled or not alert.needs(settings):
        return ()
    found: dict[Severity, AlertRule] = {}
    for severity, tier in sorted(alert.tiers.items(), key=lambda item: LOUDNESS.index(item[0])):
        capped = settings.capped(own.severity or severity)
        if capped not in found:
            found[capped] = AlertRule(
                alert=f"{ALERT_PREFIX}{alert.name}",
                expr=alert.expr(dialect, settings, own, tier),
                for_seconds=own.for_seconds / dialect.time_scale,
                labels={**settings.labels, **own.labels, "severity": capped.value, "check": alert.check.value},
                annotations=_annotations(alert, dialect, settings),
            )
    return tuple(found.values())


def _annotations(alert: Alert, dialect: Dialect, settings: Settings) -> dict[str, str]:
    text = alert.text(dialect, settings, settings.alerts[alert.name])
    identity = () if alert.bare else dialect.identity_of(alert.identity)
    variables_there = _OF_GPUS if alert.check is Check.GPU else _VARIABLES
    asked = (*identity, *(name for name in alert.identity if name in variables_there))
    variables = "&".join(f"var-{name}={{{{ $labels.{name} | urlquery }}}}" for name in asked)
    dashboard = settings.dashboard_url.replace("{uid}", quote(alert.check.dashboard))
    return {
        "summary": text.summary,
        "description": text.description,
        "action": text.action,
        "runbook_url": settings.runbook_url.replace("{alert}", f"{ALERT_PREFIX}{alert.name}"),
        "dashboard_url": f"{dashboard}{'&' if '?' in dashboard else '?'}{variables}" if variables else dashboard,
    }
