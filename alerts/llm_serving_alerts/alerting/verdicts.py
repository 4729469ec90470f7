"""What the alerts of each check come to, as a record: by model and role, and of what is about no model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import FLEET, MODEL, Dialect, clauses, one_of, series
from llm_serving_alerts.records.slo import BASE_EVENTS
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.rules import (
    ALERT_PREFIX,
    GROUP_PREFIX,
    MINUTELY_SECONDS,
    AlertRule,
    Check,
    Group,
    Record,
    Severity,
)

VERDICT, REST = "model:llm_serving_check:verdict", "fleet:llm_serving_check:verdict"
GOOD, TICKET, PAGE = 0, 1, 2
# of one check
_Names = Mapping[Severity, Sequence[str]]
_LOUD = ((Severity.CRITICAL, f"{PAGE} * "), (Severity.WARNING, ""))
_WATCHDOG, _FAILING = f"{ALERT_PREFIX}Watchdog", f"{ALERT_PREFIX}RulesFailing"
# without these series of a model, nothing is heard of a check whether it is well or not
_INPUTS = {
    Check.PHASES: "model:llm_serving_phase_tokens:rate5m",
    Check.TTFT: f'{BASE_EVENTS}{{slo="ttft"}}',
    Check.SLO: f'{BASE_EVENTS}{{slo!="ttft"}}',
    Check.KV: "model:llm_serving_kv_cache_usage_ratio:max",
    Check.TAIL: "model:llm_serving_long_context_requests_observed:max",
    Check.NODE_LOSS: "model:llm_serving_n1_sufficient:bool",
    Check.COST: "model:llm_serving_cost_usd:increase1h",
    Check.EXPORTER: DOWN,
}
# what an alert may be about, where it names no model
_OF_MODEL, _OF_TARGET, _OF_GPU, _OF_NEITHER = (
    'role!=""',
    'role="",target!=""',
    'role="",target="",gpu!=""',
    'role="",target="",gpu=""',
)


def verdict_group(dialect: Dialect, alerts: Iterable[Group]) -> Group:
    """The verdicts of all checks. `alerts`: as they are rendered; one that is off, of another pack or info is part of no verdict."""
    rendered = [rule for group in alerts for rule in group.rules if isinstance(rule, AlertRule)]
    names = _list_names(rendered)
    evaluated = tuple(_ask_whether_evaluated(dialect, {rule.alert for rule in rendered}))
    about = f"{PAGE} where an alert of the check pages, {TICKET} where one opens a ticket, else {GOOD}; absent where nobody knows"
    of_models = [
        Record(VERDICT, clauses(*_judge_models(dialect, check, by_severity), *evaluated), about, {"check": check.value})
        for check, by_severity in names.items()
    ]
    of_rest = [
        Record(
            REST,
            clauses(*_judge_rest(dialect, by_severity), *evaluated),
            f"{about}: of what belongs to no model",
            {"check": check.value},
        )
        for check, by_severity in names.items()
        if _keep_about(by_severity)
    ]
    return Group(f"{GROUP_PREFIX}verdicts", (*of_models, *of_rest), MINUTELY_SECONDS)


def _list_names(rendered: Iterable[AlertRule]) -> dict[Check, _Names]:
    by_check: dict[Check, dict[Severity, list[str]]] = {}
    for rule in rendered:
        severity = Severity(rule.labels["severity"])
        if severity in dict(_LOUD):
            by_check.setdefault(Check(rule.labels["check"]), {}).setdefault(severity, []).append(rule.alert)
    return {check: by_check[check] for check in Check if check in by_check}


def _ask_whether_evaluated(dialect: Dialect, rendered: Collection[str]) -> Iterator[tuple[str, str]]:
    """Silence is good news only of alerts that are evaluated; with these alerts off nobody can tell."""
    if _WATCHDOG in rendered:
        yield "while alerts are evaluated", f"and on () {_select((_WATCHDOG,))}"
    if _FAILING in rendered:
        yield "and do not fail", f"unless on ({dialect.key()}) {_select((_FAILING,))}"


def _keep_about(by_severity: _Names, label: str = "") -> dict[Severity, list[str]]:
    """Of these alerts those that need not be about a model, and may be about this."""
    about = {
        f"{ALERT_PREFIX}{alert.name}"
        for alert in ALERTS
        if "role" not in alert.identity and (not label or label in alert.identity)
    }
    kept = {severity: [name for name in names if name in about] for severity, names in by_severity.items()}
    return {severity: names for severity, names in kept.items() if names}


def _judge_models(dialect: Dialect, check: Check, by_severity: _Names) -> Iterator[tuple[str, str]]:
    by_model, of_target = dialect.labels(*MODEL), dialect.key("target")
    alerts = [_loudest(by_severity, _OF_MODEL)]
    for label, find in (("target", _find_by_target), ("gpu", _find_by_gpu)):
        if kept := _keep_about(by_severity, label):
            by_target = find(dialect, kept)
            placed = f"{DOWN} * 0 + on ({of_target}) group_left () {by_target}"
            # a label of its own, so that none stands in another's place
            alerts.append(f'label_replace({placed}, "by", "{label}", "", "")')
    yield "the loudest of its alerts that fire", f"max by ({by_model}) ({' or '.join(alerts)})"
    inputs = _find_cards(dialect) if check is Check.GPU else _INPUTS[check]
    yield "or 0 where they have something to go by", f"or on ({by_model}) 0 * count by ({by_model}) ({inputs})"


def _judge_rest(dialect: Dialect, by_severity: _Names) -> Iterator[tuple[str, str]]:
    by_all, of_gpu, of_target = dialect.labels(*FLEET), dialect.key("gpu"), dialect.key("target")
    alerts = [_loudest(_keep_about(by_severity), _OF_NEITHER)]
    for label, where, known in (
        ("target", _OF_TARGET, f"on ({of_target}) {DOWN}"),
        ("gpu", _OF_GPU, f"on ({of_gpu}) ({_find_claims(dialect)} and on ({of_target}) {DOWN})"),
    ):
        if kept := _keep_about(by_severity, label):
            alerts.append(f"({_loudest(kept, where)}) unless {known}")
    yield "the loudest of its alerts that fire, of no model", f"max by ({by_all}) ({' or '.join(alerts)})"
    yield "or 0 where an exporter is", f"or on ({by_all}) 0 * count by ({by_all}) ({series('exporter_build_info')})"


def _loudest(by_severity: _Names, where: str) -> str:
    """Alerts that fire, with how loud they are, each with all of its labels."""
    return " or ".join(
        factor + _select(by_severity[severity], f'severity="{severity}"', where)
        for severity, factor in _LOUD
        if severity in by_severity
    )


def _select(names: Iterable[str], *matchers: str) -> str:
    matched = ",".join([one_of("alertname", dict.fromkeys(names)), 'alertstate="firing"', *matchers])
    return f"{FIRING}{{{matched}}}"


def _find_by_target(dialect: Dialect, by_severity: _Names) -> str:
    return f"max by ({dialect.key('target')}) ({_loudest(by_severity, _OF_TARGET)})"


def _find_by_gpu(dialect: Dialect, by_severity: _Names) -> str:
    of_gpu, of_target = dialect.key("gpu"), dialect.key("target")
    loudest = f"max by ({of_gpu}) ({_loudest(by_severity, _OF_GPU)})"
    return f"max by ({of_target}) ({_find_claims(dialect)} * 0 + on ({of_gpu}) group_left () {loudest})"


def _find_claims(dialect: Dialect) -> str:
    return dialect.bare(series("gpu_target_info"), "gpu", "target")


def _find_cards(dialect: Dialect) -> str:
    """Targets that have a GPU which somebody reads."""
    of_gpu, of_target = dialect.key("gpu"), dialect.key("target")
    return f"{DOWN} and on ({of_target}) ({_find_claims(dialect)} and on ({of_gpu}) {series('gpu_up')})"
