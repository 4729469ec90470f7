"""Every series that a rule reads is published by somebody: the catalogue, another rule, or one of the declared others."""

import re

from llm_serving_alerts.external import EXTERNALS
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.catalogue import METRICS
from llm_serving_exporter.catalogue.spec import LABELS, Kind

_NAME = re.compile(r"\b[a-z_]+(?::[a-z0-9_]+){2}|\b[a-z_]+[a-z0-9_]*\b(?=\s*[{\[])|\bllm_serving_\w+")
_WORDS = {"by", "on", "and", "or", "unless", "group_left", "offset", "bool", "without"}


def published() -> set[str]:
    """Names of the exporter's series, as scraped."""
    names = set()
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        names |= {metric.full_name + suffix for suffix in suffixes}
    return names


def test_every_series_of_every_rule_is_published_or_recorded_or_declared() -> None:
    rules = list(every_rule(rule_groups(default_settings())))
    recorded = {rule.record for rule in rules if isinstance(rule, Record)}
    known = published() | recorded | EXTERNALS
    named = {name for rule in rules for name in _NAME.findall(re.sub(r'"[^"]*"', '""', rule.expr))} - _WORDS - LABELS
    assert len(named) > 150
    assert named <= known, sorted(named - known)
    # a name that nobody publishes is seen
    assert not {"llm_serving_tokens_total", "model:llm_serving_tokens:rate9m"} <= known


def test_every_record_is_read_by_a_rule_or_says_what_it_is_for() -> None:
    rules = list(every_rule(rule_groups(default_settings())))
    assert [rule.record for rule in rules if isinstance(rule, Record) and not rule.about] == []
