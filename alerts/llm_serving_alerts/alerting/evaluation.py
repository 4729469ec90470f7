"""Check exporter, who evaluates the rules: rules that fail and groups that come too late, on whatever evaluates them."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.declare import Alert, Text, alert_matchers, label, value
from llm_serving_alerts.external import RULE_COUNTERS, RULE_STATES
from llm_serving_alerts.promql import Dialect, clauses
from llm_serving_alerts.rules import GROUP_PREFIX, Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown

# shorter than the alert's own time: what happened once is over before it
_SECONDS = 600.0
_OURS = GROUP_PREFIX.replace(".", "[.]") + ".+"


def _troubles(dialect: Dialect, matchers: str = "") -> Iterator[tuple[str, str]]:
    """Words and PromQL by group of ours: what was counted, and what is so now."""
    for words, counters in RULE_COUNTERS.items():
        grown = (
            dialect.increase(f'{one.name}{{{one.label}=~"{_where(one.label)}"{matchers}}}', _SECONDS)
            for one in counters
        )
        yield words, " or ".join(f"{one} > 0" for one in grown)
    for words, states in RULE_STATES.items():
        yield words, " or ".join(f'{one.name}{{{one.label}=~"{_where(one.label)}"{matchers}}} > 0' for one in states)


def _where(name: str) -> str:
    # Prometheus, Thanos and Mimir write file;group
    return f".*;{_OURS}" if name == "rule_group" else _OURS


def _failing(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    parts = [
        (words, query if number == 0 else f"or {query}") for number, (words, query) in enumerate(_troubles(dialect))
    ]
    # several rules of one group, and what both failed and came late, are one group
    by_group = f"count by ({dialect.labels('instance')}, rule_group, group) ({clauses(*parts)})"
    return f"count by ({dialect.labels('instance')}) ({by_group})"


def _failing_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    names = (*dialect.external, "instance")
    # the same values stand at several places of the query
    matchers = "".join(f",{name}=%[{number}]q" for number, name in enumerate(names, 1))
    troubles = " or ".join(query for _, query in _troubles(dialect, matchers))
    _, values = alert_matchers(names)
    query = f"printf `count by (rule_group, group) ({troubles})` {values}"
    groups = f'{{{{ range {query} | query | sortByLabel "rule_group" }}}}{{{{ .Labels.rule_group }}}}{{{{ .Labels.group }}}} {{{{ end }}}}'
    return Text(
        f"{label('instance')}: groups of rules that fail or come too late: {value()}",
        f"Again and again within the last 10m: {groups}- what these groups record is old or missing, and what they alert on is found late or not at all.",
        "read the rule's error on the rules page; look at its memory and CPU",
    )


EVALUATION = (
    Alert("RulesFailing", Check.EXPORTER, ("instance",), {Severity.WARNING: ""}, _failing, _failing_text, Shown("exporter")),
)  # fmt: skip
