"""The user's thresholds and labels in the dashboards: from the one file that the alerts are made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_dashboards.boards import Dashboard, build_dashboards
from llm_serving_dashboards.queries import NOTHING, list_record_labels
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PLACE_LABELS
from tests.support.builders.default_boards import default_boards, default_documents, panels_of
from tests.support.renamed import find_renamed
from tests.support.rows import check_rows


def documents(tmp_path: Path, settings: str) -> dict[str, dict[str, Any]]:
    return {made.board.uid: made.document for made in boards(tmp_path, settings)}


def boards(tmp_path: Path, settings: str) -> tuple[Dashboard, ...]:
    path = tmp_path / "settings.yml"
    path.write_text(settings)
    return build_dashboards(read_settings(str(path))[0])


def panel(document: dict[str, Any], title: str) -> dict[str, Any]:
    (found,) = (one for one in document["panels"] if one["title"] == title)
    return found


def steps(found: dict[str, Any]) -> list[float | None]:
    return [step["value"] for step in found["fieldConfig"]["defaults"]["thresholds"]["steps"]]


@check_rows(
    ("settings", "uid", "title", "wanted"),
    [
        (
            "alerts: {KVSaturated: {above: 0.9}}",
            "llm-serving-home",
            "KV cache usage of the fullest engine",
            [None, 0.9],
        ),
        ("alerts: {KVSaturated: {above: 0.9}}", "llm-serving-kv", "KV cache usage", [None, 0.8, 0.9]),
        ("alerts: {LongContextFewFit: {below: 9}}", "llm-serving-kv", "Long requests that fit", [None, 9]),
        ("slo: {ttft: {threshold: 1s}}", "llm-serving-home", "p99 time to first token", [None, 1]),
        ("slo: {ttft: {objective: 0.95}}", "llm-serving-home", "Requests within the objective", [None, 0.95]),
        ("panels: {idle_above: 0.4}", "llm-serving-cost", "Idle share of the cost", [None, 0.4]),
        (
            "panels: {bandwidth_below: 0.4}",
            "llm-serving-roofline",
            "MBU against the baseline, by GPU model",
            [None, 0.4],
        ),
        ("alerts: {CostPerTokenUp: {above: 2}}", "llm-serving-cost", "Cost against the baseline", [None, 2]),
    ],
)
def test_a_threshold_is_the_alerts_own(
    tmp_path: Path, settings: str, uid: str, title: str, wanted: list[float | None]
) -> None:
    (made,) = (one for one in boards(tmp_path, settings) if one.board.uid == uid)
    assert steps(panel(made.document, title)) == wanted
    assert steps(panel(default_documents()[uid], title)) != wanted


def test_an_objective_without_a_threshold_is_not_shown_and_one_with_it_is(tmp_path: Path) -> None:
    def shown(settings: str) -> set[str]:
        titles = [one["title"] for one in documents(tmp_path, settings)["llm-serving-latency"]["panels"]]
        return {title.partition(" ")[0] for title in titles if title.endswith(" attained")}

    assert shown("") == {"ttft", "errors"}
    assert shown("slo: {itl: {threshold: 100ms}, ttft: {threshold: off}}") == {"itl", "errors"}


def test_rules_that_look_at_a_moment_that_has_passed_have_the_same_dashboards(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text("evaluation_delay: 30s\n")
    made = build_dashboards(read_settings(str(path))[0])
    assert [one.document for one in made] == list(default_documents().values())


def test_windows_of_the_users_own_are_asked_for(tmp_path: Path) -> None:
    windows = "{fast: [{long: 90m, short: 15m, factor: 7}], slow: [{long: 1d, short: 2h, factor: 3}]}"
    made = documents(tmp_path, f"slo: {{period: 28d}}\nburn: {windows}\n")
    asked = " ".join(
        target["expr"] for document in made.values() for one in panels_of(document) for target in one.get("targets", ())
    )
    assert set(re.findall(r"slo_bad:(?:ratio_)?increase(\w+)", asked)) == {"5m", "1h30m", "1d", "28d"}


def expressions(document: dict[str, Any]) -> list[str]:
    """As they are without what hidden variables narrow them to."""
    asked = [target["expr"] for one in panels_of(document) for target in one.get("targets", ())]
    asked += [one["expr"] for one in document["annotations"]["list"]]
    return [
        re.sub(rf',?(?:{NOTHING}|target|gpu|model_name)=~"\$(?:up_to|from|many|worst|gpus)\w*"', "", one)
        for one in asked
    ]


def test_labels_of_the_scrape_are_variables_and_stay_in_every_query(tmp_path: Path) -> None:
    settings = "identity_labels: [cluster, site]\nexternal_labels: [cluster, site]"
    known = {*list_record_labels(default_settings()), *(metric.full_name for metric in BY_NAME.values())}
    for uid, document in documents(tmp_path, settings).items():
        names = [variable["name"] for variable in document["templating"]["list"]]
        assert names[:3] == ["datasource", "cluster", "site"]
        for expression in expressions(document):
            for name, matchers in re.findall(r"([a-zA-Z_][\w:]*)\{([^}]*)\}", expression):
                # an alert may lack them: of a Prometheus of one cluster, or of no site
                assert re.search(r'cluster=~"\$cluster\|?"', matchers), (uid, name)
                assert re.search(r'site=~"\$site\|?"', matchers), (uid, name)
            # what is asked for without matchers would be of everybody
            bare = known & set(re.findall(r"[a-zA-Z_][\w:]*", re.sub(r"\{[^}]*\}", "{", expression)))
            assert all(f"{name}{{" in expression for name in bare), (uid, expression)
            for grouping in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
                # on (): whether there are few, of all that is chosen; on (state): with the number of a state, which is the same everywhere
                few = not grouping and "on () count(" in expression
                assert grouping.startswith("cluster, site") or few or grouping == "state"


def test_labels_of_the_targets_are_variables_and_are_read_where_they_are_sure_to_stand(tmp_path: Path) -> None:
    about_targets = {metric.full_name for metric in BY_NAME.values() if {"target", "model_name"} & {*metric.labels}}
    narrowed = 'target:llm_serving_owner:info{cluster=~"$cluster",namespace=~"$namespace"}'
    seen = 0
    for uid, document in documents(tmp_path, "identity_labels: [cluster, namespace]").items():
        variables = {one["name"]: one.get("definition", "") for one in document["templating"]["list"]}
        assert list(variables)[:3] == ["datasource", "cluster", "namespace"]
        assert variables["namespace"] == 'label_values(target:llm_serving_down:min{cluster=~"$cluster"}, namespace)'
        for asked in expressions(document):
            # which models a target is of; what is joined with it is of the chosen namespaces
            expression = re.sub(r" and on \(cluster, target\) llm_serving_target_info\{[^}]*\}", "", asked)
            assert find_renamed(expression.replace(narrowed, "target:llm_serving_owner:info"), ["namespace"]) == [], uid
            for name, matchers in re.findall(r"([a-zA-Z_][\w:]*)\{([^}]*)\}", expression):
                if name.startswith(("model:", "target:", "engine:", "model_")):
                    assert 'namespace=~"$namespace"' in matchers, (uid, name)
                elif name in about_targets:
                    assert narrowed in expression, (uid, expression)
                    seen += 1
    assert seen > 40


def test_no_query_reads_a_label_that_a_scrape_may_have_renamed() -> None:
    for uid, document in default_documents().items():
        assert [one for one in expressions(document) if find_renamed(one, PLACE_LABELS)] == [], uid


def test_series_are_told_apart_by_the_identity_labels_too(tmp_path: Path) -> None:
    found = documents(tmp_path, "identity_labels: [cluster, namespace]")
    targets = [one for made in found.values() for panel in panels_of(made) for one in panel.get("targets", ())]
    named = [
        one["legendFormat"]
        for one in targets
        if re.search(r"\{\{(model_name|target|node)\}\}|legend_(model_name|node)", one["legendFormat"])
    ]
    assert len(named) > 80
    assert all(legend.endswith("$legend_cluster $legend_namespace") for legend in named)


def test_series_of_replicas_name_their_model() -> None:
    # what the exporter says of its targets has no model, and one replica has one
    others = "llm-serving-exporter", "llm-serving-replica"
    boards_of_models = [made for made in default_boards().values() if made.board.uid not in others]
    legends = [query.legend for made in boards_of_models for panel in made.board.panels for query in panel.queries]
    replicas = [legend for legend in legends if "{{target}}" in legend]
    assert len(replicas) > 12
    assert all("{{model_name}}" in legend for legend in replicas)
