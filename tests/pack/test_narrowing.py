"""A test rests on the rules that its questions name and on those that these read, however they name them."""

from typing import Any

import pytest

from llm_serving_alerts.render import ALERTS, RECORDS
from tests.pack.judging import close_over, kind_of, name_of, narrow_rules
from tests.pack.promtool import RENDERED
from tests.pack.rulesets import read_groups


def record(name: str, expr: str) -> dict[str, Any]:
    return {"record": name, "expr": expr}


def alert(name: str, expr: str, **annotations: str) -> dict[str, Any]:
    return {"alert": name, "expr": expr, "annotations": annotations}


RULES = [
    record("model:a:sum", "sum(scraped_a)"),
    record("model:b:sum", "model:a:sum offset 5m"),
    record("model:c:sum", "sum(scraped_c)"),
    record("model:self:max", "max(scraped or model:self:max)"),
    alert("Plain", "model:b:sum > 1"),
    alert("Said", "vector(1)", summary='{{ with query "model:c:sum" }}{{ . }}{{ end }}'),
    alert("Named", 'count({__name__=~"model:[ab]:.+"})'),
    alert("Behind", 'ALERTS{alertname="Plain",alertstate="firing"}'),
    alert("Last", 'count(ALERTS_FOR_STATE{alertname!="Last"})'),
]
EVERY = {name_of(rule) for rule in RULES}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("Plain", {"Plain", "model:b:sum", "model:a:sum"}),
        ("Said", {"Said", "model:c:sum"}),
        ("Named", {"Named", "model:b:sum", "model:a:sum"}),
        ("Behind", {"Behind", "Plain", "model:b:sum", "model:a:sum"}),
        ("Last", EVERY - {"model:self:max"}),
        ("Nowhere", set()),
    ],
)
def test_an_alert_rests_on_what_it_reads(asked: str, kept: set[str]) -> None:
    assert close_over({asked}, (), RULES) == kept


@pytest.mark.parametrize("matcher", ['__name__!~"model:a:.+"', '__name__ != "model:a:sum"'])
def test_all_but_some_is_everything(matcher: str) -> None:
    excepted = alert("Excepted", f"count({{{matcher}}})")
    assert close_over({"Excepted"}, (), [*RULES, excepted]) == {*EVERY, "Excepted"}


def test_a_question_rests_on_what_it_names() -> None:
    assert close_over(set(), ["rate(model:self:max[5m])", "vector(0)"], RULES) == {"model:self:max"}
    assert close_over(set(), ['count(ALERTS{alertname="Plain"})'], RULES) == {"Plain", "model:b:sum", "model:a:sum"}


def test_groups_and_files_without_such_a_rule_are_left_out_and_the_order_stays() -> None:
    files = {
        "records.yml": [
            {"name": "first", "interval": "1m", "rules": [RULES[1], RULES[2], RULES[0]]},
            {"name": "second", "rules": [RULES[3]]},
        ],
        "alerts.yml": [{"name": "alerts", "rules": RULES[4:6]}],
    }
    asked = {"tests": [{"alert_rule_test": [{"alertname": "Plain"}]}, {"promql_expr_test": [{"expr": "scraped_a"}]}]}
    assert narrow_rules(asked, files) == {
        "records.yml": [{"name": "first", "interval": "1m", "rules": [RULES[1], RULES[0]]}],
        "alerts.yml": [{"name": "alerts", "rules": [RULES[4]]}],
    }
    assert narrow_rules({"tests": [{"promql_expr_test": [{"expr": "scraped_a"}]}]}, files) == {}


def test_what_the_committed_alerts_rest_on() -> None:
    assert [kind_of(file) for file in (*RENDERED, "rules/kv.beside.yml")] == [RECORDS, ALERTS, "beside"]
    rules = [rule for file in RENDERED for group in read_groups(file) for rule in group["rules"]]
    assert close_over({"LLMServingWatchdog"}, (), rules) == {"LLMServingWatchdog"}
    kept = close_over({"LLMServingN1Critical"}, (), rules)
    assert "target:llm_serving_node:info" in kept
    assert not {name for name in kept if "_slo_" in name}
    assert 20 < len(kept) < len({name_of(rule) for rule in rules}) / 2
