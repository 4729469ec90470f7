"""A renamed series stands under both names for one minor version, wherever series go, and nothing of ours reads the old one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter import __version__, catalogue
from llm_serving_exporter.catalogue import METRICS, PUBLISHED, derived, serving
from llm_serving_exporter.catalogue.spec import Formerly, Metric
from llm_serving_exporter.commands import once
from llm_serving_exporter.docgen import generate
from llm_serving_exporter.expose.encode import write_openmetrics, write_text
from llm_serving_exporter.expose.families import Families, SharedLabels
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.otlp.messages import find_unit
from llm_serving_exporter.otlp.reading import read_family
from tests.support.paths import ROOT
from tests.support.rows import check_rows

LABELS = SharedLabels({"target": "a", "model_name": "llm_serving_kv_blocks_ratio", "engine": "0", "role": "unified"})
GAUGE = replace(derived.PREFIX_CACHE_HIT_RATIO, formerly=Formerly("prefix_hit_ratio", "0.2"))
LATENCY = next(metric for metric in serving.HISTOGRAMS if metric.name == "time_to_first_token_seconds")
HISTOGRAM = replace(LATENCY, formerly=Formerly("first_token_seconds", "0.2"))
COUNTER = replace(derived.SLO_EVENTS, formerly=Formerly("objective_events_total", "0.2"))


def filled() -> Families:
    families = Families()
    families.add_value(GAUGE, LABELS, 0.25)
    families.add_values(COUNTER, LABELS, ("slo",), [("ttft",), ("llm_serving_slo_events_total",)], [1.0, 2.0])
    families.add_histogram(HISTOGRAM, LABELS, Histogram((0.5, 1.0), (1.0, 2.0), 3.0, 2.5))
    return families


def by_name(text: str, prefix: str) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """What follows the prefix in the samples' names, with labels and value."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return [
        (sample.name.removeprefix(prefix), tuple(sample.labels.items()), sample.value)
        for sample in samples
        if sample.name.startswith(prefix)
    ]


@pytest.mark.parametrize("metric", [GAUGE, COUNTER, HISTOGRAM], ids=lambda metric: metric.kind.value)
def test_a_page_has_the_same_samples_under_both_names(metric: Metric) -> None:
    text = write_text(filled()).decode()
    assert metric.former is not None
    now, before = by_name(text, metric.full_name), by_name(text, metric.former.full_name)
    assert before == now
    assert len(now) in (1, 2, 5)
    assert (
        f"# HELP {metric.former.full_name} Renamed to {metric.full_name}: this name ends after 0.2. {metric.help}\n"
        in text
    )
    # a label's value that looks like the name stays
    assert 'model_name="llm_serving_kv_blocks_ratio"' in text
    assert text.count('slo="llm_serving_slo_events_total"') == 2
    assert write_openmetrics(filled()).decode().count(f"# TYPE {metric.former.full_name.removesuffix('_total')} ") == 1


def test_a_page_that_is_kept_compressed_has_them_too() -> None:
    families = Families()
    values = [str(uuid.UUID(int=number * 7919**9 % 2**128)) for number in range(5000)]
    families.add_values(COUNTER, LABELS, ("slo",), [(one,) for one in values], [float(n) for n in range(5000)])
    families.spool_lines()
    families.add_values(COUNTER, LABELS, ("slo",), [("last",)], [1.0])
    assert next(iter(families)).spool is not None
    text = write_text(families).decode()
    now = by_name(text, "llm_serving_slo_events_total")
    assert len(now) == 5001
    assert by_name(text, "llm_serving_objective_events_total") == now


def test_facts_that_are_written_once_stand_once_under_each_name() -> None:
    for labels in (SharedLabels({"target": "a"}), SharedLabels({"target": "b"})):
        families = Families()
        families.add_unchanged(labels, "facts", lambda alone, shared, _: alone.add_value(GAUGE, shared, 1.0))
        assert [family.name for family in families] == [GAUGE.full_name, "llm_serving_prefix_hit_ratio"]
        assert [len(family.samples) for family in families] == [1, 1]


def test_over_otlp_go_both_with_the_same_unit(renamed: None) -> None:
    readings = {reading.name: reading for reading in map(read_family, filled())}
    for metric in (GAUGE, COUNTER, HISTOGRAM):
        assert metric.former is not None
        assert readings[metric.former.full_name].values == readings[metric.full_name].values
        assert readings[metric.former.full_name].form is readings[metric.full_name].form
        assert find_unit(metric.former.full_name) == find_unit(metric.full_name)


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue with the three renamed metrics in the place of theirs."""
    changed = {metric.name: metric for metric in (GAUGE, COUNTER, HISTOGRAM)}
    metrics = tuple(changed.get(metric.name, metric) for metric in METRICS)
    former = [metric.former for metric in metrics if metric.former is not None]
    by_name = {metric.name: metric for metric in metrics}
    for module in (once, catalogue):
        monkeypatch.setattr(module, "BY_NAME", by_name)
    published = {metric.full_name: metric for metric in (*metrics, *former)}
    monkeypatch.setattr("llm_serving_exporter.otlp.messages.PUBLISHED", published)
    monkeypatch.setattr(generate, "METRICS", metrics)


def test_once_has_both(renamed: None) -> None:
    found = once._add_former_names({"prefix_cache_hit_ratio": 0.5, "requests_running": 3})
    assert found == {"prefix_cache_hit_ratio": 0.5, "requests_running": 3, "prefix_hit_ratio": 0.5}


def test_the_reference_says_until_when(renamed: None) -> None:
    assert "Renamed: until the end of 0.2 it is `llm_serving_prefix_hit_ratio`, too." in generate.metrics_md()


def test_a_renamed_record_is_recorded_under_both_names_the_old_one_after_it() -> None:
    record = Record(
        "model:llm_serving_new:rate5m", "sum(x)", "what it is", formerly=Formerly("model:llm_serving_old:rate5m", "0.2")
    )
    group = Group("llm-serving.test", (record, Record("model:llm_serving_last:sum", "y")))
    names = [rule.record for rule in group.rules if isinstance(rule, Record)]
    assert names == ["model:llm_serving_new:rate5m", "model:llm_serving_old:rate5m", "model:llm_serving_last:sum"]
    old = group.rules[1]
    assert isinstance(old, Record)
    assert (old.expr, old.about) == (
        "model:llm_serving_new:rate5m",
        "Renamed to model:llm_serving_new:rate5m: this name ends after 0.2. what it is",
    )
    assert replace(group, interval_seconds=60.0).rules == group.rules


@check_rows(
    ("version", "over"),
    [("0.1.9", False), ("0.2.0", False), ("0.2.17", False), ("0.3.0rc1", True), ("0.10.0", True), ("1.0.0", True)],
)
def test_the_old_name_has_one_minor_version(version: str, over: bool) -> None:
    assert Formerly("old", "0.2").is_over(version) is over


def renames() -> dict[str, Formerly]:
    """Of what is declared now: whole former name -> the rename."""
    found = {
        one.former.full_name: one.formerly for one in METRICS if one.formerly is not None and one.former is not None
    }
    for rule in every_rule(rule_groups(default_settings())):
        if isinstance(rule, Record) and rule.formerly is not None:
            found[rule.formerly.name] = rule.formerly
    return found


def list_overdue(found: Iterable[Formerly], version: str) -> list[str]:
    """Old names that should have gone from the declarations by this version of the exporter."""
    return [one.name for one in found if one.is_over(version)]


def test_no_former_name_stands_longer_than_its_minor_version() -> None:
    assert list_overdue(renames().values(), "0.0.1") == []
    assert list_overdue([Formerly("old", "0.1")], "0.2.0") == ["old"]
    overdue = list_overdue(renames().values(), __version__)
    assert not overdue, f"{overdue}: their minor version is over; take `formerly` away, and say it as a [CHANGE]"


def test_former_names_are_nobody_elses_and_nothing_of_ours_reads_them() -> None:
    former = renames()
    assert len(PUBLISHED) == len(METRICS) + sum(1 for metric in METRICS if metric.former is not None)
    files = [*(ROOT / "alerts").rglob("*.md"), *(ROOT / "dashboards/rendered").glob("*.json")]
    texts = {str(path): path.read_text() for path in files}
    for rule in every_rule(rule_groups(default_settings())):
        texts[str(rule)] = rule.expr
    for name in former:
        own = re.compile(rf"(?<![a-z0-9_:]){re.escape(name)}(?![a-z0-9_:])")
        assert [where for where, text in texts.items() if own.search(text)] == [], name
