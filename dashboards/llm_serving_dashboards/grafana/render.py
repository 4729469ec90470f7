"""Panels, rows and queries as grafanalib's classes write them, brought to schema 42 by the tables in `changes`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from llm_serving_dashboards.grafana.changes import PANEL_CHANGES, QUERY_CHANGES, ROW_CHANGES
from llm_serving_dashboards.grafana.fields import (
    Json,
    choose_colour_mode,
    name_query,
    place_legend,
    write_overrides,
    write_threshold_steps,
    write_transformations,
    write_value_mappings,
)
from llm_serving_dashboards.grafana.legends import write_legend
from llm_serving_dashboards.grafana.lines import write_line_overrides
from llm_serving_dashboards.grafana.patch import apply_changes
from llm_serving_dashboards.grafana.xy import write_xy_overrides, write_xy_transformations
from llm_serving_dashboards.panels import COLUMNS, Panel, Query, Visualization

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def encode(made: Any) -> Json:
    """The JSON of one of grafanalib's objects, as plain dicts and lists."""
    plain: Json = json.loads(json.dumps(made, cls=DashboardEncoder))
    return plain


def render_row(title: str, number: int, place: Mapping[str, int], folded: list[Json] | None) -> Json:
    """A heading. `place`: x, y, w, h on the grid. `folded`: the panels that it hides until it is opened; None: it hides none."""
    made = core.RowPanel(
        title=title, id=number, gridPos=core.GridPos(**place), collapsed=folded is not None, panels=folded or []
    )
    return apply_changes(encode(made.to_json_data()), ROW_CHANGES, None)


def render_panel(panel: Panel, number: int, place: Mapping[str, int], identity: tuple[str, ...]) -> Json:
    """A panel. `place`: x, y, w, h on the grid. `identity`: labels that the legends of models, replicas and nodes have too."""
    common = {
        "title": panel.title if panel.titled else "",
        "description": panel.description,
        "id": number,
        "gridPos": core.GridPos(**place),
        "dataSource": DATASOURCE,
        "targets": [
            _write_query(query, index, panel.visualization, identity) for index, query in enumerate(panel.queries)
        ],
        "thresholds": write_threshold_steps(panel.thresholds),
        "transformations": write_xy_transformations() if panel.marks else write_transformations(panel, identity),
    }
    overrides = [*write_overrides(panel), *write_xy_overrides(panel), *write_line_overrides(panel, identity)]
    written = encode(_WRITERS[panel.visualization](panel, common, overrides))
    return apply_changes(written, PANEL_CHANGES[panel.visualization], panel)


def _write_time_series(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.TimeSeries(
        **common,
        unit=panel.unit.value,
        valueMin=panel.minimum,
        valueMax=panel.maximum,
        valueDecimals=panel.decimals,
        mappings=write_value_mappings(panel),
        overrides=overrides,
        colorMode=choose_colour_mode(panel),
        showPoints="never",
        fillOpacity=25 if panel.stacked else 0,
        stacking={"mode": "normal" if panel.stacked else "none", "group": "A"},
        thresholdsStyleMode="dashed" if panel.draw_thresholds else "off",
        legendDisplayMode="table",
        legendPlacement=place_legend(panel),
        legendCalcs=["lastNotNull"],
        tooltipMode="multi",
        tooltipSort="desc",
    ).to_json_data()


def _write_stat(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.Stat(
        **common,
        format=panel.unit.value,
        decimals=panel.decimals,
        mappings=write_value_mappings(panel),
        overrides=overrides,
        color={"mode": choose_colour_mode(panel)},
        colorMode="background" if panel.mappings else "value",
        textMode="name" if panel.named else "auto",
        orientation="auto",
        graphMode="none",
        noValue=None,
        # the class would show the mean of the range
        reduceCalc="lastNotNull",
    ).to_json_data()


def _write_state_timeline(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.StateTimeline(
        **common,
        mappings=write_value_mappings(panel),
        overrides=overrides,
        colorMode=choose_colour_mode(panel),
        fillOpacity=80,
        rowHeight=0.85,
        # Grafana cuts a state's word to what there is of it; beside other panels only the legend has words
        showValue="auto" if panel.width == COLUMNS else "never",
    ).to_json_data()


def _write_table(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.Table(**common, unit=panel.unit.value, overrides=overrides, showHeader=panel.headings).to_json_data()


def _write_base(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    """What every panel has; the rest is ours."""
    return core.Panel(**common).panel_json({"fieldConfig": {"overrides": overrides}})


_WRITERS: Mapping[Visualization, Callable[[Panel, Json, list[Json]], Any]] = {
    Visualization.TIME_SERIES: _write_time_series,
    Visualization.STAT: _write_stat,
    Visualization.STATE_TIMELINE: _write_state_timeline,
    Visualization.TABLE: _write_table,
    Visualization.HEATMAP: _write_base,
    Visualization.XY_CHART: _write_base,
    Visualization.TEXT: _write_base,
}


def _write_query(query: Query, number: int, visualization: Visualization, identity: tuple[str, ...]) -> Json:
    if visualization is Visualization.STAT:
        # it shows the last value, and a range would be asked for hundreds
        query = replace(query, instant=True)
    made = core.Target(
        refId=name_query(number),
        datasource=DATASOURCE,
        expr=query.expr,
        format="heatmap" if visualization is Visualization.HEATMAP else "table" if query.table else "time_series",
        instant=query.instant,
        legendFormat=write_legend(query.legend, identity),
    )
    return apply_changes(made.to_json_data(), QUERY_CHANGES, query)
