"""Declared alerts and settings -> rules as they are rendered."""

from __future__ import annotations

from urllib.parse import quote

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.declare import Alert, Text
from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.rules import (
    ALERT_PREFIX,
    GROUP_PREFIX,
    LOUDNESS,
    MINUTELY_SECONDS,
    AlertRule,
    Check,
    Group,
    Severity,
)
from llm_serving_alerts.runbook_texts import link_queries, read_queries
from llm_serving_alerts.settings import Settings


def alert_groups(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Every alert that is on, in groups by check and duty: what pages does not wait for the expressions of tickets, and the watchdog for
    nothing. A ticket is looked at once a minute."""
    groups: dict[tuple[str, float | None], list[AlertRule]] = {}
    for check in Check:
        for alert in ALERTS:
            for rule in alert_rules(alert, dialect, settings) if alert.check is check else ():
                severity = Severity(rule.labels["severity"])
                interval = None if severity in (Severity.CRITICAL, Severity.NONE) else MINUTELY_SECONDS
                groups.setdefault((_group_name(check, severity), interval), []).append(rule)
    return tuple(Group(name, tuple(rules), interval) for (name, interval), rules in groups.items())


def _group_name(check: Check, severity: Severity) -> str:
    if severity is Severity.NONE:
        return f"{GROUP_PREFIX}watchdog"
    pages = ".pages" if severity is Severity.CRITICAL else ""
    return f"{GROUP_PREFIX}{check.value.replace('_', '-')}.alerts{pages}"


def alert_rules(alert: Alert, dialect: Dialect, settings: Settings) -> tuple[AlertRule, ...]:
    """The rules of one alert, one a severity; () where it is off or nothing asks for it. Where the cap makes two of a severity, either
    condition fires it, or the one that fires first where the other is only worse."""
    own = settings.alerts[alert.name]
    if not own.enabled or not alert.needs(settings):
        return ()
    by_severity: dict[Severity, AlertRule] = {}
    for severity, tier in sorted(alert.tiers.items(), key=lambda item: LOUDNESS.index(item[0])):
        capped = settings.capped(own.severity or severity)
        expr, text = alert.write(dialect, settings, own, tier)
        held = 0.0 if alert.halves else own.for_seconds_of(severity) / dialect.time_scale
        if capped in by_severity:
            if not alert.separate:
                continue
            expr = f"{by_severity[capped].expr} or on ({dialect.labels(*alert.identity)}) {expr}"
            held = min(held, by_severity[capped].for_seconds)
        by_severity[capped] = AlertRule(
            alert=f"{ALERT_PREFIX}{alert.name}",
            expr=expr,
            for_seconds=held,
            labels={**settings.labels, **own.labels, "severity": capped.value, "check": alert.check.value},
            annotations=_annotations(alert, text, dialect, settings),
        )
    return tuple(by_severity.values())


def _annotations(alert: Alert, text: Text, dialect: Dialect, settings: Settings) -> dict[str, str]:
    identity = () if alert.bare else dialect.identity_of(alert.identity)
    chosen = (*identity, *alert.choices)
    variables = "&".join(f"var-{name}={{{{ $labels.{name} | urlquery }}}}" for name in chosen)
    board = (settings.dashboard_url or "/d/{uid}").replace("{uid}", quote(alert.shown.uid))
    name = f"{ALERT_PREFIX}{alert.name}"
    queries = link_queries(settings.queries_url, read_queries(name), alert.identity) if settings.queries_url else ""
    annotations = {
        "summary": text.summary,
        "description": text.description,
        "action": text.action,
        # a URL only where one is set: tools make a link of it, which must lead somewhere
        **(
            {"runbook_url": settings.runbook_url.replace("{alert}", name)}
            if settings.runbook_url
            else {"runbook": f"llm-serving-exporter runbook {name}"}
        ),
        "dashboard_url" if settings.dashboard_url else "dashboard": (
            f"{board}{'&' if '?' in board else '?'}{variables}" if variables else board
        ),
    }
    return {**annotations, "queries_url": queries} if queries else annotations
