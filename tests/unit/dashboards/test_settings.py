"""The user's thresholds and labels in the dashboards, and what grafanalib writes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafanalib import core

from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_dashboards.boards import Dashboard, build_dashboards
from llm_serving_dashboards.grafana import document as writer
from llm_serving_dashboards.grafana.changes import PANEL_CHANGES, QUERY_CHANGES, ROW_CHANGES, Changes, apply_changes
from llm_serving_dashboards.panels import Look, Panel, Unit, Visualization
from llm_serving_dashboards.queries import NOTHING, list_record_labels
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PLACE_LABELS
from tests.support.builders.askedpanels import default_boards, default_documents, panels_of
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


# --- what grafanalib writes of the dashboards, and what is changed of it ---


# of each visualization the class that writes its panels; the base of all where the visualization is ours
CLASSES = {
    Visualization.TIME_SERIES: "TimeSeries",
    Visualization.STAT: "Stat",
    Visualization.STATE_TIMELINE: "StateTimeline",
    Visualization.TABLE: "Table",
    Visualization.HEATMAP: "Panel",
    Visualization.XY_CHART: "Panel",
    Visualization.TEXT: "Panel",
}
VISUALIZATIONS = check_rows("visualization", list(Visualization))
ABSENT = object()


class Empty:
    """Stands in for a class of grafanalib: takes every argument and writes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def to_json_data(self) -> dict[str, Any]:
        return {}

    def panel_json(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}


def rendered(visualization: Visualization) -> Iterator[dict[str, Any]]:
    for document in default_documents().values():
        yield from (panel for panel in panels_of(document) if panel.get("type") == visualization.value)


def value_at(document: dict[str, Any], path: str) -> Any:
    found: Any = document
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return ABSENT
        found = found[name]
    return found


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Changes[Any], Any]]:
    """What grafanalib wrote for every panel, query and row, and what it was changed by."""
    found: list[tuple[dict[str, Any], Changes[Any], Any]] = []

    def apply(written: dict[str, Any], changes: Changes[Any], drawn: Any) -> dict[str, Any]:
        found.append((written, changes, drawn))
        return apply_changes(written, changes, drawn)

    monkeypatch.setattr(writer, "apply_changes", apply)
    for made in default_boards().values():
        assert made.document
    return found


@VISUALIZATIONS
def test_without_grafanalibs_class_a_panel_is_empty(
    monkeypatch: pytest.MonkeyPatch, visualization: Visualization
) -> None:
    before = list(rendered(visualization))
    assert before
    monkeypatch.setattr(core, CLASSES[visualization], Empty)
    found = [panel for made in default_boards().values() for panel in panels_of(made.document) if "title" not in panel]
    assert len(found) >= len(before)
    for panel in found:
        assert not {"title", "description", "targets", "datasource", "gridPos", "transformations"} & set(panel)
        assert value_at(panel, "fieldConfig.defaults.thresholds") is ABSENT
        assert value_at(panel, "fieldConfig.overrides") is ABSENT


@check_rows(
    ("visualization", "written"),
    [
        (Visualization.TIME_SERIES, ["fieldConfig.defaults.unit", "fieldConfig.defaults.custom.showPoints", "options.legend.placement"]),
        (Visualization.STAT, ["fieldConfig.defaults.unit", "options.reduceOptions", "options.colorMode", "options.graphMode"]),
        (Visualization.STATE_TIMELINE, ["fieldConfig.defaults.custom.fillOpacity", "options.rowHeight", "options.showValue"]),
        (Visualization.TABLE, ["fieldConfig.defaults.unit", "fieldConfig.defaults.custom.align", "options.showHeader"]),
    ],
)  # fmt: skip
def test_grafanalibs_class_writes_the_options(
    monkeypatch: pytest.MonkeyPatch, visualization: Visualization, written: list[str]
) -> None:
    assert all(value_at(panel, path) is not ABSENT for panel in rendered(visualization) for path in (*written, "type"))
    monkeypatch.setattr(core, CLASSES[visualization], Empty)
    left = [panel for made in default_boards().values() for panel in panels_of(made.document) if "type" not in panel]
    assert left
    assert all(value_at(panel, path) is ABSENT for panel in left for path in written)


def test_grafanalibs_classes_write_the_queries_the_mappings_and_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(value_at(panel, "fieldConfig.defaults.mappings") for panel in rendered(Visualization.STAT))
    for name in ("Target", "StatValueMappings", "RowPanel"):
        monkeypatch.setattr(core, name, Empty)
    for made in default_boards().values():
        for panel in panels_of(made.document):
            assert panel.get("type") != "row"
            assert all(set(target) - {"interval"} == {"editorMode", "range"} for target in panel.get("targets", ()))
            for mapping in panel.get("fieldConfig", {}).get("defaults", {}).get("mappings", ()):
                assert mapping.get("type") in (None, "special")


def test_every_table_is_true_of_what_grafanalib_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that a newer grafanalib makes needless, or that never did anything, is seen here."""
    found = recorded(monkeypatch)
    for changes in (*PANEL_CHANGES.values(), QUERY_CHANGES, ROW_CHANGES):
        cases = [(written, drawn) for written, used, drawn in found if used is changes]
        assert cases
        for path in changes.removed:
            assert all(value_at(written, path) is not ABSENT for written, _ in cases), path
        for path, value in changes.added.items():
            assert all(value_at(written, path) in (ABSENT, None) for written, _ in cases), path
            if path.rpartition(".")[2] not in ("min", "max", "decimals", "links", "noValue"):
                assert any(_value(value, drawn) is not None for _, drawn in cases), path
        for path, value in changes.replaced.items():
            assert all(value_at(written, path) not in (ABSENT, _value(value, drawn)) for written, drawn in cases), path


def _value(value: Any, drawn: Any) -> Any:
    return value(drawn) if callable(value) else value


def test_absent_stays_absent_and_null_in_a_list_stays_null() -> None:
    written = {"a": None, "b": {"c": None, "d": 1}, "steps": [{"value": None}]}
    changes: Changes[None] = Changes(added={"b.e": None, "f.g": 2}, removed=("b.d", "x.y"))
    assert apply_changes(written, changes, None) == {"b": {}, "steps": [{"value": None}], "f": {"g": 2}}
    # what grafanalib wrote is not touched
    assert written["b"] == {"c": None, "d": 1}


# https://github.com/grafana/grafana/blob/main/packages/grafana-schema/src/raw/dashboard/x/dashboard_types.gen.ts: Panel
PANEL_KEYS = {
    "datasource", "description", "fieldConfig", "gridPos", "id", "options", "pluginVersion", "targets", "title", "transformations", "type",
}  # fmt: skip
QUERY_KEYS = {"datasource", "editorMode", "expr", "format", "instant", "legendFormat", "range", "refId"}


def test_no_other_key_is_rendered() -> None:
    for made in default_boards().values():
        for panel in panels_of(made.document):
            if panel["type"] == "row":
                assert set(panel) == {"type", "title", "collapsed", "panels", "id", "gridPos"}
            elif panel["type"] == "text":
                assert set(panel) == PANEL_KEYS - {"fieldConfig", "targets", "transformations"}
            else:
                # a range and a step of its own, where it has one
                assert set(panel) - {"timeFrom"} == PANEL_KEYS
                assert all(set(target) - {"interval"} == QUERY_KEYS for target in panel["targets"])


def test_a_panel_that_has_nothing_of_its_own_is_drawn() -> None:
    bare = Panel("Title", "Says what it is.", Visualization.STAT, Look(Unit.COUNT))
    found = writer.render_panel(bare, 1, {"x": 0, "y": 0, "w": 4, "h": 4}, ())
    assert found["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
    assert found["fieldConfig"]["defaults"]["thresholds"]["steps"] == [{"color": "text", "value": None}]
    assert "noValue" not in found["fieldConfig"]["defaults"]
