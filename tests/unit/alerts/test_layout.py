"""Expressions over several lines mean what they meant on one, to Prometheus itself."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from llm_serving_alerts.promql import clauses
from llm_serving_alerts.promql_tree import lay_out, strip_comments
from llm_serving_alerts.render import DUMPERS, dump, every_rule, rule_document, rule_groups
from llm_serving_alerts.rules import AlertRule, Record
from llm_serving_alerts.runbook_texts import complete_runbook
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.model.record import replace
from tests.support.rows import check_rows
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import find_program
from tests.support.yaml_text import load_yaml


def every_setting(folder: Path) -> Settings:
    """As many branches of the rules as one file can ask for, with labels that need quoting."""
    path = folder / "settings.yml"
    path.write_text(
        "identity_labels: [cluster, namespace, team]\n"
        'baseline: {since: "2026-01-31T08:00:00Z"}\n'
        "slo: {itl: {threshold: 0.2s}, e2e: {threshold: 30s}}\n"
        "drill: {max_age: 30d}\n"
        "node_loss:\n"
        "  tolerate_nodes: 2\n"
        "  workloads:\n"
        '    - {model_name: "a\\"b\\\\c # d", namespace: llm, kind: deployment, name: x, pods_per_replica: 2, labels: {team: t}}\n'
    )
    return read_settings(str(path))[0]


def written(settings: Settings) -> dict[str, tuple[str, str]]:
    """Each rule's expression on one line, and as the file has it, by name and number."""
    rules = list(every_rule(rule_groups(settings)))
    rendered = [rule["expr"] for group in load_yaml(rule_document(settings))["groups"] for rule in group["rules"]]
    names = [rule.record if isinstance(rule, Record) else rule.alert for rule in rules]
    assert len(rules) == len(rendered)
    return {
        f"{name} {number}": (rule.expr, text)
        for number, (name, rule, text) in enumerate(zip(names, rules, rendered, strict=True))
    }


def test_libyaml_and_its_python_twin_write_the_same_bytes(tmp_path: Path) -> None:
    """Which of them there is depends on how PyYAML was built; the committed files must not. (A smiley libyaml writes as \\U0001F600.)"""
    document = load_yaml(rule_document(every_setting(tmp_path)))
    document["odd"] = [*"'#|", "", " both ", "a: b", "µ – ×", "x" * 300, "one\ntwo", "one\n\n two \n", "yes", "1"]
    fast, plain = DUMPERS
    assert dump(document, fast) == dump(document, plain)


@pytest.mark.e2e
@pytest.mark.parametrize("program", ["prometheus", "prometheus3"])
def test_what_a_file_has_is_to_prometheus_what_was_declared(tmp_path: Path, program: str) -> None:
    """Prometheus' own formatter writes what it has understood: parentheses, modifiers and all."""
    if find_program(program) is None:
        pytest.skip(f"no {program} on PATH; `make test-prometheus3` builds it where Go is installed")
    every = {**written(default_settings()), **{f"{k}!": v for k, v in written(every_setting(tmp_path)).items()}}
    broken = [name for name, (_, text) in every.items() if "\n" in text]
    assert len(broken) > 100
    different = []
    with PrometheusServer(tmp_path / "prometheus", "scrape_configs: []\n", name=program) as prometheus:
        understood = {
            text: prometheus.get("/api/v1/format_query", query=text).json()["data"]
            for pair in every.values()
            for text in pair
        }
    for name, (bare, text) in every.items():
        if understood[bare] != understood[text]:
            different.append(name)
    assert different == []


def test_only_white_space_and_comments_are_put_between_the_tokens() -> None:
    for bare, text in written(default_settings()).values():
        said = re.sub(r"(?m)^\s*#.*\n", "", text)
        assert re.sub(r"\s", "", said) == re.sub(r"\s", "", bare)
        assert strip_comments(text) == strip_comments(bare)


def test_words_of_a_clause_stand_above_it_in_the_file() -> None:
    (text,) = (text for name, (_, text) in written(default_settings()).items() if "LLMServingBudgetExceeded" in name)
    lines = text.splitlines()
    said = {below.strip(): above.strip() for above, below in pairwise(lines) if above.strip().startswith("# ")}
    assert lines[0].startswith("# ")
    assert said["> on () max by () (llm_serving_cost_budget_usd_per_month)"] == "# is above what the price file allows"
    assert len(said) == 3


def test_a_rule_keeps_its_expression_and_its_words_apart() -> None:
    record = Record("target:llm_serving_x:max", clauses(("why so", "a > 1"), ("and  why\nnot", "and on (t) b")))
    assert record.expr == "a > 1 and on (t) b"
    assert record.explained == "# why so\na > 1\n# and why not\nand on (t) b"
    plain = Record("target:llm_serving_x:max", 'a{x="# no comment"}')
    assert (plain.expr, plain.explained) == ('a{x="# no comment"}',) * 2
    assert replace(record, expr="c").explained == "c"


@check_rows(
    ("expression", "lines"),
    [
        ("a", ["a"]),
        ("sum by (x) (rate(a[5m])) > 1", ["sum by (x) (", "  rate(a[5m])", ")", "> 1"]),
        ("long and on (x, y) b or c", ["long and on (x, y) b", "or c"]),
        ("longer_one and on (x, y) b or c", ["  longer_one", "  and on (x, y) b", "or c"]),
        ("1 - (long_name_of_a / on (x) group_left () b)", ["1", "- (", "  long_name_of_a", "  / on (x) group_left () b", ")"]),
        ("a > bool 0 unless b offset 5m", ["a > bool 0", "unless b offset 5m"]),
        ("max_over_time((a)[1h:5m] offset 1d)", ["max_over_time(", "  (a)[1h:5m] offset 1d", ")"]),
        ('label_replace(a, "b", "c", "", "")', ["label_replace(", "  a,", '  "b",', '  "c",', '  "",', '  ""', ")"]),
        ("# one\na", ["# one", "a"]),
        ("a # of b\n + b", ["a", "# of b", "+ b"]),
        ("f(# in\n a, b)", ["f(", "  # in", "  a,", "  b", ")"]),
        ("-a ^ 2 * sum(b) without (c) - {d=\"}\"}", ["  -a ^ 2", "  * sum(b) without (c)", '- {d="}"}']),
        ("Inf - a @ end() offset -1m", ["Inf", "- a @ end() offset -1m"]),
    ],
)  # fmt: skip
def test_an_operand_a_line_indented_by_depth(expression: str, lines: list[str]) -> None:
    assert lay_out(expression, 22).splitlines() == lines


@check_rows("expression", ["a b", "(a", "a +", "sum by (a", "a # said of nothing", "f(a # of nothing\n)", "a ? b"])
def test_what_is_no_promql_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"PromQL|belongs to nothing|is missing"):
        lay_out(expression)


def test_a_runbook_ends_with_its_expression_whatever_it_had_before() -> None:
    rule = AlertRule(
        "LLMServingX", clauses(("full", "a > 1"), ("and wait", "and on (t) b > 0")), 0.0, {"severity": "warning"}, {}
    )
    once = complete_runbook("# LLMServingX\n\n## False alarms\n\nNone.\n", [rule])
    assert once.endswith("```promql\n# full\na > 1\n# and wait\nand on (t) b > 0\n```\n")
    assert complete_runbook(once, [rule]) == once
    assert complete_runbook(once, []).count("```") == 0
