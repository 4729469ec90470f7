"""What grafanalib writes of the dashboards, and what is changed of it: the tables say neither more nor less than there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from grafanalib import core

from llm_serving_dashboards.grafana import document as writer
from llm_serving_dashboards.grafana.changes import PANEL_CHANGES, QUERY_CHANGES, ROW_CHANGES, Changes, apply_changes
from llm_serving_dashboards.panels import Look, Panel, Unit, Visualization
from tests.support.builders.default_boards import default_boards, default_documents, panels_of
from tests.support.rows import check_rows

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
