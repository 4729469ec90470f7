"""No rule reads a label from a scraped series by a name that a scrape may have given to its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule
from llm_serving_alerts.settings_file import read_settings
from llm_serving_exporter.catalogue.spec import PLACE_LABELS
from tests.support.renamed import find_renamed
from tests.support.rows import check_rows

EVERYTHING = """
slo: {itl: {threshold: 100ms}, e2e: {threshold: 40s}}
drill: {max_age: 90d}
node_loss:
  tolerate_nodes: 2
  workloads: [{model_name: a, namespace: b, kind: deployment, name: c}]
"""
WITH_OWN = "identity_labels: [cluster, namespace, team]\n" + EVERYTHING.replace(
    "name: c}", "name: c, labels: {team: d}}"
)


def expressions(text: str, folder: Path) -> list[tuple[str, str]]:
    """Every expression of the rules, and every query of their texts, with the name of its rule."""
    path = folder / "my-rules.yml"
    path.write_text(text)
    found = []
    for rule in every_rule(rule_groups(read_settings(str(path))[0])):
        found.append((rule.alert if isinstance(rule, AlertRule) else rule.record, rule.expr))
        if isinstance(rule, AlertRule):
            texts = " ".join(rule.annotations.values())
            found += [(rule.alert, query) for query in re.findall(r"`([^`]*llm_serving[^`]*)`", texts)]
    return found


@pytest.mark.parametrize(
    ("text", "labels"), [("", PLACE_LABELS), (EVERYTHING, PLACE_LABELS), (WITH_OWN, (*PLACE_LABELS, "team"))]
)
def test_no_expression_reads_a_label_that_a_scrape_may_have_renamed(
    tmp_path: Path, text: str, labels: tuple[str, ...]
) -> None:
    every = expressions(text, tmp_path)
    # what LabelsRenamed looks for is the renamed one
    found = {
        name: renamed
        for name, expression in every
        if name != "LLMServingLabelsRenamed" and (renamed := find_renamed(expression, labels))
    }
    assert found == {}
    assert len(every) > 300


@check_rows(
    "expression",
    [
        "max by (target, node) (llm_serving_target_node_info)",
        'sum(llm_serving_requests_running{node="a"})',
        "count by (role) (count by (role, node) (llm_serving_target_node_info == 1 and on (target) target:llm_serving_ready:max))",
        "llm_serving_gpu_up * on (gpu, node) llm_serving_gpu_busy_ratio",
        'label_replace(llm_serving_gpu_up, "pod", "$1", "exported_pod", "(.+)") and on (node) x',
        "target:llm_serving_ready:max * on (target) group_left (node) llm_serving_target_node_info",
    ],
)
def test_the_reader_sees_one_that_does(expression: str) -> None:
    assert find_renamed(expression, ("node",)) == ["node"]


@check_rows(
    "expression",
    [
        'max by (target, node) (label_replace(llm_serving_target_node_info, "node", "$1", "exported_node", "(.+)"))',
        'max by (node) (label_replace(label_replace(llm_serving_gpu_up, "node", "$1", "exported_node", "(.+)"), "a", "b", "", ""))',
        "max by (gpu) (llm_serving_gpu_up) * on (gpu) group_left (gpu_name, node) gpu:llm_serving_gpu:info",
        "count by (role, node) (target:llm_serving_node:info and on (target) target:llm_serving_ready:max == 1)",
        "sum by (target) (llm_serving_requests_running)",
    ],
)
def test_the_reader_lets_others_pass(expression: str) -> None:
    assert find_renamed(expression, ("node",)) == []


@pytest.mark.parametrize("identity", ["[namespace]", "[cluster, namespace, team]", "[cluster, workload]"])
def test_every_record_of_a_target_or_a_model_has_the_identity_labels_and_no_other_has_what_is_the_targets(
    tmp_path: Path, identity: str
) -> None:
    path = tmp_path / "my-rules.yml"
    path.write_text(f"identity_labels: {identity}\n")
    settings = read_settings(str(path))[0]
    for name, labels in record_labels(rule_groups(settings)[RECORDS]).items():
        level, metric, _ = name.split(":")
        about_targets = (
            level not in ("fleet", "gpu", "scrape", "node", "job", "exporter", "kube")
            and metric != "llm_serving_claims"
        )
        # what an exporter states of a model
        about_targets |= metric == "llm_serving_expected_replicas"
        wanted = settings.identity_labels if about_targets else settings.external_labels
        # the record of targets has more of what is theirs
        own = set(settings.own_labels) & set(labels)
        assert set(wanted) <= set(labels), name
        # the place that Kubernetes gives its objects
        assert about_targets or not own or level == "kube", name
