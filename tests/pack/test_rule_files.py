"""Groups of the rule files, the series that rules read, and the rules that a test rests on."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.external import EXTERNALS
from llm_serving_alerts.render import ALERTS, RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.catalogue import METRICS
from llm_serving_exporter.catalogue.spec import LABELS, Kind
from tests.pack.judging import ask, close_over, expect, kind_of, name_of, narrow_rules
from tests.pack.promtool import RENDERED
from tests.pack.rulesets import committed_records, read_groups

# --- Replicas over several nodes in the rules: two groups of two nodes with eight GPUs each, by one exporter or by one a node


MODEL = {"model_name": "chat", "role": "unified"}
# leader's and worker's node of each group
GROUPS = (("node-0", "node-1"), ("node-2", "node-3"))
MINUTES = 20
LOST_AT = 10
Series = dict[str, str]


def line(name: str, values: str, **labels: str) -> Series:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return {f"llm_serving_{name}{{{written}}}": values}


def always(value: float) -> str:
    return f"{value:g}x{MINUTES}"


def write_fleet(by_daemonset: bool) -> Iterator[Series]:
    """What Prometheus has of both groups; at minute 10 the second one's worker goes, and with it the replica."""
    for number, nodes in enumerate(GROUPS):
        name = f"serving/lws-{number}:8000"
        is_lost = number == 1
        by = {"target": name, "instance": f"{nodes[0]}:10077" if by_daemonset else "cluster:10077"}
        yield line("target_info", always(1), **by, **MODEL)
        yield line("target_gpus", always(16), **by, gpu_name="H100")
        yield line("target_start_time_seconds", always(0), **by)
        for state, before, after in (("ready", 1, 0), ("down", 0, 1)):
            values = f"{before}x{LOST_AT - 1} {after}x{MINUTES - LOST_AT}" if is_lost else always(before)
            yield line("target_state", values, **by, state=state)
        of_engine = {**by, **MODEL, "engine": "0"}
        for gauge, value in (
            ("kv_cache_capacity_tokens", 100_000),
            ("kv_cache_used_tokens", 10_000),
            ("batch_limit_requests", 64),
            ("requests_running", 4),
            ("requests_waiting", 0),
        ):
            gone = f"{value:g}x{LOST_AT - 1} stale" if is_lost else always(value)
            yield line(gauge, gone, **of_engine)
        for node in nodes:
            yield line("target_node_info", always(1), **by, **MODEL, node=node)
            instance = f"{node}:10077"
            if by_daemonset and node != nodes[0]:
                # as the exporter beside a worker writes it: it knows neither model nor role
                unknown = {"target": name, "instance": instance, "model_name": "", "role": "unified", "node": node}
                yield line("target_node_info", always(1), **unknown)
            for card in range(8 if by_daemonset else 0):
                claim = {"gpu": f"GPU-{node}-{card}", "target": name, "instance": instance}
                yield line("gpu_target_info", always(1), **claim, origin="kubelet")
                yield line("gpu_target_share_ratio", always(1), **claim)


@pytest.mark.process
@pytest.mark.parametrize("by_daemonset", [False, True], ids=["one exporter of the cluster", "one a node"])
def test_two_groups_of_two_nodes(tmp_path: Path, by_daemonset: bool) -> None:
    series = {name: values for one in write_fleet(by_daemonset) for name, values in one.items()}
    of_model = '{model_name="chat", role="unified"}'
    kv = 'model_node:llm_serving_capacity:sum{resource="kv"}'
    by_node = {
        f'model_node:llm_serving_capacity:sum{{model_name="chat", role="unified", node="{node}", resource="kv"}}': 1e5
        for nodes in GROUPS
        for node in nodes
    }
    left = 'model:llm_serving_n1_capacity:sum{resource="kv"}'
    checks = [
        expect("sum(target:llm_serving_gpus:max)", "8m", {"{}": 32}),
        expect("model:llm_serving_gpus:sum", "8m", {f"model:llm_serving_gpus:sum{of_model}": 32}),
        expect("count(target:llm_serving_node:info)", "8m", {"{}": 4}),
        expect("model:llm_serving_nodes:count", "8m", {f"model:llm_serving_nodes:count{of_model}": 4}),
        expect("model:llm_serving_ready_replicas:sum", "8m", {f"model:llm_serving_ready_replicas:sum{of_model}": 2}),
        # each of the four nodes takes one replica with it, the worker's as well as the leader's
        expect(kv, "8m", by_node),
        expect(
            "model:llm_serving_largest_node_replicas:max",
            "8m",
            {f"model:llm_serving_largest_node_replicas:max{of_model}": 1},
        ),
        expect(left, "8m", {f'{left[:-1]}, model_name="chat", role="unified"}}': 1e5}),
        expect('target:llm_serving_claims:count or gpu:llm_serving_claims:count', "8m", {}),
        # one worker lost is one replica lost
        expect("model:llm_serving_ready_replicas:sum", "18m", {f"model:llm_serving_ready_replicas:sum{of_model}": 1}),
        expect("model:llm_serving_nodes:count", "18m", {f"model:llm_serving_nodes:count{of_model}": 2}),
        expect("model:llm_serving_gpus:sum", "18m", {f"model:llm_serving_gpus:sum{of_model}": 16}),
        expect(left, "18m", {}),
    ]  # fmt: skip
    assert not ask(tmp_path, series, checks, committed_records())


# --- Every series that a rule reads is published by somebody: the catalogue, another rule, or one of the declared others


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


# --- A test rests on the rules that its questions name and on those that these read, however they name them


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
