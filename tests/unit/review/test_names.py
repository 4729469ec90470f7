"""The names that the review asks for are those that the rules and the exporter have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.alerting import verdicts
from llm_serving_alerts.promql import MODEL, NODES, TARGET
from llm_serving_alerts.records.identity import TARGET_CLAIMS
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, AlertRule, Record, Severity
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import NODE_LABELS, Subject
from llm_serving_review.evidence import names
from llm_serving_review.evidence.names import Asking
from tests.pack.judging import verdict
from tests.support.rows import check_rows

RENDERED = tuple(every_rule(rule_groups(default_settings())))
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="`make test` installs promtool")


@check_rows("name", [*names.RECORDS, *names.MODEL_RECORDS, names.VERDICT])
def test_every_record_is_recorded(name: str) -> None:
    assert name in {rule.record for rule in RENDERED if isinstance(rule, Record)}


@check_rows("quantity", names.QUANTITIES, ids=lambda one: one.name)
def test_every_counter_has_the_labels_that_are_kept(quantity: names.Quantity) -> None:
    labels = BY_NAME[quantity.counter].labels
    assert set(labels) == {*names.TARGET, *quantity.alike, *quantity.of}


@check_rows("name", names.GAUGES)
def test_every_gauge_is_in_the_catalogue(name: str) -> None:
    assert name in BY_NAME


def test_levels_and_words_are_the_rules_own() -> None:
    assert (names.TARGET, names.MODEL, names.ALERT_PREFIX) == (TARGET, MODEL, ALERT_PREFIX)
    assert {names.PAGE, names.TICKET} <= {severity.value for severity in Severity}
    assert names.VERDICTS == {"fine": verdicts.GOOD, "ticket": verdicts.TICKET, "page": verdicts.PAGE}
    assert names.WATCHDOG in {rule.alert for rule in RENDERED if isinstance(rule, AlertRule)}


def queries(asking: Asking) -> list[str]:
    return [
        *(asking.increase(quantity, seconds) for quantity in names.QUANTITIES for seconds in (3600.0, 1800.0)),
        asking.presence(),
        asking.answers([("llm", "10.0.0.1:10077"), ("pods|x", "[::1]:10077")]),
        asking.uncounted([("llm", "10.0.0.1:10077")]),
        asking.scraped_jobs(["llm", 'a "b"']),
        asking.scraped_at_all(),
        f"sum_over_time({asking.samples([('target', 'x')], 61.0)})",
        *(asking.over_hour(name, BY_NAME[name].labels, 3600.0) for name in names.GAUGES),
        asking.mean_by_model(names.BANDWIDTH, ("source",), 3600.0),
        asking.replicas(names.REQUIRED, 'reserve="none"', "max_over_time", 3600.0),
        asking.replicas(names.PRESENT, "", "avg_over_time", 3600.0),
        *(asking.verdicts(value, 3600.0) for value in names.VERDICTS.values()),
        asking.alerts(),
        asking.watchdog(),
        asking.everything_of([("cluster", 'a "b" \\ c'), ("target", "x")]),
    ]


@pytest.mark.process
@NEEDS_PROMTOOL
@pytest.mark.parametrize("asking", [Asking(), Asking(("cluster",), ("team", "cluster"))], ids=["plain", "labels"])
def test_every_query_is_promql(asking: Asking, tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries(asking))]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.process
@NEEDS_PROMTOOL
def test_a_pair_that_does_not_agree_counts_no_second_twice_and_records_step_in(tmp_path: Path) -> None:
    own = 'target="a",model_name="m",role="unified",engine="0",rate="r",team="red"'
    lost = 'target="a",model_name="",role="unified",engine="0",rate="r",team="red"'
    record = (
        'target:llm_serving_gpu_seconds:increase1h{target="%s",model_name="m",role="unified",state="busy",rate="r"}'
    )
    series = [
        # one reads the server, the other cannot reach it
        {"series": f'llm_serving_gpu_seconds_total{{{own},state="busy",instance="1"}}', "values": "0+60x120"},
        {"series": f'llm_serving_gpu_seconds_total{{{lost},state="down",instance="2"}}', "values": "0+60x120"},
        # of b the counters are gone; of a the record would count an hour again
        *({"series": record % target, "values": f"{value}+0x120"} for target, value in (("a", 3600), ("b", 1800))),
    ]
    query = Asking((), ("team",)).increase(names.GPU_SECONDS, 3600.0)
    expected = [{"labels": '{target="a"}', "value": 3600}, {"labels": '{target="b"}', "value": 1800}]
    case = {"expr": f"sum by (target) ({query})", "eval_time": "2h", "exp_samples": expected}
    promtool_test(tmp_path, series, case)


def promtool_test(folder: Path, series: list[dict[str, str]], case: dict[str, object]) -> None:
    file = folder / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [], "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [case]}]}
        )
    )
    assert not verdict(folder, file.name)


@pytest.mark.process
@NEEDS_PROMTOOL
def test_a_batch_is_as_full_as_it_was_while_there_was_one(tmp_path: Path) -> None:
    series = {
        "series": 'llm_serving_batch_utilization_ratio{target="a",model_name="m",role="unified",engine="0"}',
        "values": "0.4x29 0x30",
    }
    query = Asking().mean_by_model(names.BATCH, (), 3600.0)
    case = {
        "expr": query,
        "eval_time": "1h",
        "exp_samples": [{"labels": '{model_name="m",role="unified"}', "value": 0.4}],
    }
    promtool_test(tmp_path, [series], case)


@pytest.mark.process
@NEEDS_PROMTOOL
def test_labels_of_targets_are_read_under_the_name_that_a_scrape_left_them(tmp_path: Path) -> None:
    scrape = 'job="pods",instance="10.0.0.1:10077",namespace="monitoring",node="k8s-1",team="platform"'
    series = []
    for name, team in (("a", "red"), ("b", "blue")):
        renamed = f'exported_namespace="llm",exported_node="gpu-{name}",exported_team="{team}"'
        of = f'{scrape},{renamed},target="{name}",model_name="m",role="unified"'
        series += [
            {"series": f'llm_serving_gpu_seconds_total{{{of},engine="0",state="busy",rate="r"}}', "values": "0+60x120"},
            {"series": f"llm_serving_target_node_info{{{of}}}", "values": "1x120"},
        ]
    asking = Asking((), ("team",))
    for query, by, expected in (
        (
            asking.increase(names.GPU_SECONDS, 3600.0),
            "target, team",
            {'{target="a",team="red"}': 3600, '{target="b",team="blue"}': 3600},
        ),
        (
            asking.over_hour(names.NODE_INFO, ("target", "node"), 3600.0),
            "target, node",
            {'{target="a",node="gpu-a"}': 1, '{target="b",node="gpu-b"}': 1},
        ),
    ):
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        promtool_test(tmp_path, series, {"expr": f"sum by ({by}) ({query})", "eval_time": "2h", "exp_samples": samples})


@pytest.mark.process
@NEEDS_PROMTOOL
def test_a_node_whose_place_becomes_known_is_one_node_to_the_rules_and_its_place_is_read_under_either_name(
    tmp_path: Path,
) -> None:
    of = 'job="x",instance="y",target="a",model_name="m",role="unified",node="gpu-1"'
    # at 30 minutes the exporter begins to know its zone; the scrape of the other has a region of its own
    places = [
        {"series": f"llm_serving_target_node_info{{{of}}}", "values": "1x30 stale"},
        {
            "series": f'llm_serving_target_node_info{{{of},zone="z",exported_region="r",region="scrape"}}',
            "values": "_x29 1x90",
        },
        {
            "series": 'llm_serving_target_info{job="x",instance="y",target="a",model_name="m",role="unified"}',
            "values": "1x120",
        },
    ]
    query = Asking().over_hour(names.NODE_INFO, ("target", "node", *NODE_LABELS), 3600.0)
    both = [
        {"labels": '{target="a",node="gpu-1"}', "value": 1},
        {"labels": '{target="a",node="gpu-1",zone="z",region="r"}', "value": 1},
    ]
    promtool_test(tmp_path, places, {"expr": query, "eval_time": "1h", "exp_samples": both})
    (record,) = (rule.expr for rule in RENDERED if isinstance(rule, Record) and rule.record == NODES)
    (claims,) = (
        rule.expr
        for rule in RENDERED
        if isinstance(rule, Record) and rule.record == TARGET_CLAIMS and rule.labels == {"of": "nodes"}
    )
    for minute in ("29m", "30m", "31m", "1h"):
        one = {"expr": f"count ({record})", "eval_time": minute, "exp_samples": [{"labels": "{}", "value": 1}]}
        promtool_test(tmp_path, places, one)
        promtool_test(tmp_path, places, {"expr": claims, "eval_time": minute, "exp_samples": []})


def test_what_the_bill_is_split_by_may_be_a_label_of_a_target() -> None:
    """`target_labels` stand on every series of a target: on all that the review adds up, or a split would lose some of it."""
    assert {BY_NAME[counter].subject for counter in names.COUNTERS} == {Subject.TARGET}
