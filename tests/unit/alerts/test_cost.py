"""The check cost: names that others rely on, and that money wakes nobody."""

import re
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.alerting.cost import COST, MONTH_HOURS
from llm_serving_alerts.promql import DAY, MINUTE
from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import ALERTS, RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule, Check, Record, Severity
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.catalogue.cost import BUDGET

GROUPS = rule_groups(default_settings())
COST_GROUPS = [group for group in GROUPS[RECORDS] if group.name.startswith("llm-serving.cost.")]
TARGET = {"target", "model_name", "role"}
MODEL = {"model_name", "role"}
# what a review goes by where raw counters are gone: a renamed record or label is a review without that hour
KEPT = {
    "target:llm_serving_gpu_seconds:increase1h": TARGET | {"state", "rate"},
    "target:llm_serving_cost_usd:increase1h": TARGET | {"phase", "rate", "method"},
    "target:llm_serving_phase_tokens:increase1h": TARGET | {"phase"},
    "target:llm_serving_prompt_tokens:increase1h": TARGET,
    "target:llm_serving_cached_prompt_tokens:increase1h": TARGET,
    "target:llm_serving_requests_finished:increase1h": TARGET,
    "target:llm_serving_energy_joules:increase1h": TARGET,
    "target:llm_serving_energy_cost_usd:increase1h": TARGET,
    "target:llm_serving_carbon_grams:increase1h": TARGET,
    "target:llm_serving_prefix_cache_savings_usd:increase1h": TARGET,
    "target:llm_serving_slo_events:increase1h": TARGET | {"slo", "outcome"},
    "model:llm_serving_present_replicas:avg1h": MODEL,
    "model:llm_serving_required_replicas:max1h": MODEL | {"reserve"},
    "model:llm_serving_overprovisioned_cost_usd:sum1h": MODEL,
    "model:llm_serving_reserve_cost_usd:sum1h": MODEL,
    "model:llm_serving_cost_usd_per_million_tokens:ratio6h": MODEL | {"phase", "basis"},
    "fleet:llm_serving_cost_usd:increase1h": set(),
}


def test_the_series_that_a_review_falls_back_to_have_their_names_and_labels() -> None:
    labels = record_labels(GROUPS[RECORDS])
    assert {name: set(labels[name]) for name in KEPT} == KEPT


def test_nobody_is_woken_for_money() -> None:
    rules = [rule for rule in every_rule({ALERTS: GROUPS[ALERTS]}) if isinstance(rule, AlertRule)]
    severities = {rule.labels["severity"] for rule in rules if rule.labels["check"] == Check.COST}
    assert severities == {Severity.WARNING}
    assert len(COST) == 4


def test_hours_are_recorded_often_enough_to_be_there_at_each_whole_hour() -> None:
    """A sample is seen for five minutes, and an evaluation may fail."""
    assert COST_GROUPS
    for group in COST_GROUPS:
        assert 2 * group.interval_seconds < 5 * MINUTE
        assert DAY % group.interval_seconds == 0


def test_a_budgets_month_is_as_long_as_the_catalogue_says() -> None:
    assert f"{MONTH_HOURS} hours" in BUDGET.help


def test_a_threshold_of_cost_stands_in_its_rule_and_nowhere_else(tmp_path: Path) -> None:
    """Each setting of each alert, changed, changes one rule."""
    before = set(map(_text, every_rule(GROUPS)))
    for alert in COST:
        for name in alert.values:
            own = yaml.safe_dump({"alerts": {alert.name: {name: _OTHER[name]}}})
            path = tmp_path / "settings.yml"
            path.write_text(own)
            settings = read_settings(str(path))[0]
            changed = set(map(_text, every_rule(rule_groups(settings)))) - before
            assert len(changed) == 1, (alert.name, name)
            assert re.search(rf"(?<![\d.]){re.escape(_SHOWN.get(name, str(_OTHER[name])))}(?![\d.])", changed.pop())


# values that no rule has by default, and how PromQL shows those that it writes otherwise
_OTHER = {
    "above": 0.77, "tokens": 77_777, "hours": 17, "least_tokens_per_second": 77, "days": 5, "late": "77h",
}  # fmt: skip
_SHOWN = {"late": "277200"}


def _text(rule: Record | AlertRule) -> str:
    name = rule.record if isinstance(rule, Record) else rule.alert
    return f"{name} {dict(rule.labels)}: {rule.expr}"


@pytest.mark.parametrize("identity", ["[cluster]", "[cluster, namespace]"])
def test_what_is_shared_out_among_exporters_stays_within_a_cluster(identity: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yml"
    path.write_text(f"identity_labels: {identity}\n")
    rules = every_rule(rule_groups(read_settings(str(path))[0]))
    summed = [labels for rule in rules for labels in re.findall(r"without \(([^)]*)\)", rule.expr)]
    assert summed
    assert all("cluster" not in labels and "namespace" not in labels for labels in summed)
