"""The generated references of records and alerts, the page about N-1, and the names of the check cost that others rely on."""

import math
import re
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting.cost import COST, MONTH_HOURS
from llm_serving_alerts.promql import DAY, MINUTE
from llm_serving_alerts.reference import alerts_md, record_labels, records_md
from llm_serving_alerts.render import ALERTS as ALERT_RULES
from llm_serving_alerts.render import RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule, Check, Record, Severity
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.catalogue.cost import BUDGET
from tests.pack.fleets_node_loss import _CAPACITY, _NODES, _ROLES, N1_LOAD, SUFFICIENT
from tests.pack.samples import Fleet
from tests.pack.write import all_documents
from tests.support.paths import ROOT
from tests.support.rows import check_rows

# --- The generated references of records and alerts, the page about N-1, and the names of the check cost that others rely on


SETTINGS = default_settings()
GROUPS = rule_groups(SETTINGS)
# of one record, with nothing that changes its labels
PLAIN = re.compile(
    r"(?:(?:round|abs)\()?([a-z_]+:llm_serving_\w+:\w+)(?:\{[^}]*\})?(?: [*/] [\d.]+)?[^a-z]*(?:< bool [\d.]+)?\Z"
)


def cells(text: str) -> list[list[str]]:
    """The rows of a page's tables, without heads and rules."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] not in ("record", "check", "level")]


def test_the_labels_of_a_record_are_those_that_promtool_was_shown() -> None:
    documented = record_labels(GROUPS[RECORDS])
    seen = set()
    for name_of_file, document in all_documents().items():
        # what a settings file adds is another page
        tests = [] if "cluster" in name_of_file else document["tests"]
        for question in (one for test in tests for one in test.get("promql_expr_test") or ()):
            name = PLAIN.match(question["expr"])
            for sample in question["exp_samples"] if name else ():
                labels = set(re.findall(r'(\w+)="', sample["labels"]))
                # a kind of GPU that nobody knows is no label
                assert labels | {"gpu_name"} == set(documented[name[1]]) | {"gpu_name"}, question
                seen.add(name[1])
    levels = {name.split(":")[0] for name in seen}
    assert levels >= {"target", "model", "model_gpu", "model_node", "fleet"}
    assert len(seen) > 40


def test_every_record_is_there_once_with_its_meaning() -> None:
    rows = [row for row in cells(records_md(SETTINGS)) if ":" in row[0]]
    names = [rule.record for rule in every_rule({RECORDS: GROUPS[RECORDS]}) if isinstance(rule, Record)]
    assert [row[0].strip("`") for row in rows] == list(dict.fromkeys(names))
    assert all(rule.about for rule in every_rule({RECORDS: GROUPS[RECORDS]}) if isinstance(rule, Record))
    assert all(len(row) == 2 for row in rows)


def test_every_alert_is_there_with_its_default_settings_and_its_runbook() -> None:
    rows = {re.match(r"\[(\w+)\]", row[1])[1]: row for row in cells(alerts_md(SETTINGS))}
    assert list(rows) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        check, link, severity, _lasting, when, settings = rows[alert.name]
        runbook = re.search(r"\((.*)\)", link)
        assert (ROOT / "docs" / runbook[1]).is_file()
        assert check == alert.check.value
        assert when
        assert severity.removesuffix(" (not by default)") == ", ".join(one.value for one in alert.tiers)
        assert [part.split(":")[0].strip("`") for part in settings.split(", ") if part != "–"] == list(alert.values)
    # by settings.yml
    assert rows["KVSaturated"][3:] == [
        "10m of 20m",
        "the KV cache is full, or will be soon, and requests wait",
        "`above: 0.95`, `filling_above: 0.8`, `within: 15m`",
    ]
    assert rows["DrillOverdue"][2] == "info (not by default)"


# --- docs/internals-n1.md: its examples are the fleets that promtool judges ---


PAGE = (ROOT / "docs/internals-n1.md").read_text()
FLEETS = {fleet.model_name: fleet for fleet in (*_NODES, *_CAPACITY, *_ROLES)}
ROWS = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([\d./ +]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


def expected(fleet: Fleet, record: str, **labels: str) -> float | None:
    found = [one.value for one in fleet.expected if one.record == record and one.labels == labels]
    assert len(found) == 1
    return found[0]


def total(sums: str) -> float:
    """`600/1200 + 180/600`"""
    return math.fsum(float(over) / float(under) for over, under in (part.split("/") for part in sums.split(" + ")))


@check_rows(("name", "sums", "value"), ROWS)
def test_an_example_is_the_tests_and_its_sum_is_right(name: str, sums: str, value: str) -> None:
    assert expected(FLEETS[name], N1_LOAD, resource="phases") == float(value)
    assert round(total(sums), 3) == float(value)


def test_there_are_examples() -> None:
    assert len(ROWS) == 10


def test_what_has_no_number_has_none() -> None:
    sentence = PAGE.split("And where there is no number:")[1].split("## ")[0]
    unknown = re.findall(r"`([\w-]+)` \(", sentence)
    assert len(unknown) == 5
    assert [expected(FLEETS[name], SUFFICIENT) for name in unknown] == [None] * 5
    assert expected(FLEETS["unknown-short"], SUFFICIENT) == 0


# --- The check cost: names that others rely on, and that money wakes nobody


EVERY_GROUP = rule_groups(default_settings())
COST_GROUPS = [group for group in EVERY_GROUP[RECORDS] if group.name.startswith("llm-serving.cost.")]
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
    labels = record_labels(EVERY_GROUP[RECORDS])
    assert {name: set(labels[name]) for name in KEPT} == KEPT


def test_nobody_is_woken_for_money() -> None:
    rules = [rule for rule in every_rule({ALERT_RULES: EVERY_GROUP[ALERT_RULES]}) if isinstance(rule, AlertRule)]
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
    before = set(map(_text, every_rule(EVERY_GROUP)))
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
