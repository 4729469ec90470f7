"""A whole dashboard as Grafana reads it: its head, its variables, and its panels on the grid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from llm_serving_dashboards.grafana.changes import PANEL_CHANGES, QUERY_CHANGES, ROW_CHANGES, apply_changes
from llm_serving_dashboards.grafana.fields import (
    DATASOURCE,
    Json,
    choose_colour_mode,
    name_query,
    place_legend,
    write_hidden_variable,
    write_legend,
    write_legend_variables,
    write_line_overrides,
    write_overrides,
    write_threshold_steps,
    write_transformations,
    write_value_mappings,
    write_variable,
    write_xy_overrides,
    write_xy_transformations,
)
from llm_serving_dashboards.panels import COLUMNS, Board, Panel, Query, Row, Visualization
from llm_serving_dashboards.queries import QueryBuilder

# --- Panels, rows and queries as grafanalib's classes write them, brought to schema 42 by the tables in `changes`.


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
        "title": panel.title if panel.look.titled else "",
        "description": panel.description,
        "id": number,
        "gridPos": core.GridPos(**place),
        "dataSource": DATASOURCE,
        "targets": [
            _write_query(query, index, panel.visualization, identity) for index, query in enumerate(panel.queries)
        ],
        "thresholds": write_threshold_steps(panel.look.thresholds or panel.look.limits),
        "transformations": write_xy_transformations() if panel.marks else write_transformations(panel, identity),
    }
    overrides = [*write_overrides(panel), *write_xy_overrides(panel), *write_line_overrides(panel, identity)]
    written = encode(_WRITERS[panel.visualization](panel, common, overrides))
    return apply_changes(written, PANEL_CHANGES[panel.visualization], panel)


def _write_time_series(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.TimeSeries(
        **common,
        unit=panel.look.unit.value,
        valueMin=panel.minimum,
        valueMax=panel.look.maximum,
        valueDecimals=panel.look.decimals,
        mappings=write_value_mappings(panel),
        overrides=overrides,
        colorMode=choose_colour_mode(panel),
        showPoints="never",
        fillOpacity=25 if panel.look.stacked else 0,
        stacking={"mode": "normal" if panel.look.stacked else "none", "group": "A"},
        thresholdsStyleMode="dashed" if panel.look.limits else "off",
        legendDisplayMode="table",
        legendPlacement=place_legend(panel),
        legendCalcs=["lastNotNull"],
        tooltipMode="multi",
        tooltipSort="desc",
    ).to_json_data()


def _write_stat(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.Stat(
        **common,
        format=panel.look.unit.value,
        decimals=panel.look.decimals,
        mappings=write_value_mappings(panel),
        overrides=overrides,
        color={"mode": choose_colour_mode(panel)},
        colorMode="background" if panel.look.mappings else "value",
        textMode="name" if panel.look.named else "auto",
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
        showValue="auto" if panel.look.width == COLUMNS else "never",
    ).to_json_data()


def _write_table(panel: Panel, common: Json, overrides: list[Json]) -> Any:
    return core.Table(
        **common, unit=panel.look.unit.value, overrides=overrides, showHeader=panel.look.headings
    ).to_json_data()


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


# --- A whole dashboard as Grafana reads it: its head, its variables, and its panels on the grid.

# https://github.com/grafana/grafana/blob/main/apps/dashboard/pkg/migration/schemaversion: the latest of the model with panels in a grid
SCHEMA_VERSION = 42
TAG = "llm-serving"
_ROW_HEIGHT = 1
_REFRESH, _RANGE = "1m", "now-6h"


def render_dashboard(board: Board, queries: QueryBuilder, annotations: Iterable[Json]) -> Json:
    """A dashboard as Grafana reads it from a file."""
    marks = list(annotations)
    made = core.Dashboard(
        title=board.title,
        uid=board.uid,
        description=board.description,
        tags=[TAG],
        editable=False,
        refresh=_REFRESH,
        schemaVersion=SCHEMA_VERSION,
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        time=core.Time(_RANGE, "now"),
        timezone="browser",
        templating=core.Templating(list=_write_variables(board, queries, marks)),
        annotations=core.Annotations(list=marks),
        links=[
            core.DashboardLink(
                title="LLM serving", tags=[TAG], asDropdown=True, includeVars=True, keepTime=True, type="dashboards"
            )
        ],
        panels=list(_lay_out(board.rows, queries.settings.identity_labels)),
    )
    plain = encode(made.to_json_data())
    # a provisioned dashboard has no id, version or inputs; Grafana 12 knows none of the others
    for gone in ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version"):
        plain.pop(gone, None)
    plain["fiscalYearStartMonth"] = 0
    plain["timepicker"] = {}
    plain["links"] = [{name: value for name, value in link.items() if value is not None} for link in plain["links"]]
    return plain


def format_json(made: Json) -> str:
    """The text of the file. Keys are sorted, so that a diff shows only what changed."""
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


# --- variables -----------------------------------------------------------------------------------------------------


def _write_variables(board: Board, queries: QueryBuilder, marks: list[Json]) -> list[Json]:
    datasource: Json = {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
        "hide": 0, "includeAll": False, "multi": False, "options": [], "regex": "", "current": {}, "skipUrlSync": False,
    }  # fmt: skip
    asked = "".join(
        [*(query.expr for panel in board.panels for query in panel.queries), *(one["expr"] for one in marks)]
    )
    return [
        datasource,
        *(_write_variable(name, board, queries) for name in (*queries.settings.identity_labels, *board.variables)),
        *(write_variable(name, query, several=True, sort=1) for name, query in board.hidden),
        *write_legend_variables(board, queries),
        *(write_hidden_variable(one) for name, one in sorted(queries.hidden.items()) if f'"${name}"' in asked),
    ]


def _write_variable(name: str, board: Board, queries: QueryBuilder) -> Json:
    narrowed, several = dict(board.choices).get(name), name not in board.single
    return write_variable(
        name,
        f"query_result({narrowed})" if narrowed else queries.list_choices(name),
        several=several,
        hidden=False,
        sort=0 if narrowed and not several else 1,
        **({"label": name} if narrowed else {}),
    ) | {
        "label": name.replace("_", " "),
        # "All" is the listed values where these are narrowed to the models of the board. The targets of the chosen models are not listed, since a list
        # of hundreds would stand in each query: a selector says the model too, or is joined with what does
        **({} if narrowed else {"allValue": ".*"}),
    }


# --- the grid ------------------------------------------------------------------------------------------------------


def _lay_out(rows: Iterable[Row], identity: tuple[str, ...]) -> Iterable[Json]:
    number, top = 0, 0
    for row in rows:
        heading = number + 1
        number += bool(row.title)
        begin, top = top, top + (_ROW_HEIGHT if row.title else 0)
        left = line = 0
        panels = []
        for panel in row.panels:
            if left + panel.look.width > COLUMNS:
                left, top, line = 0, top + line, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.look.width, "h": panel.look.height}
            panels.append(render_panel(panel, number, place, identity))
            left, line = left + panel.look.width, max(line, panel.look.height)
        top += line
        if row.title:
            place = {"x": 0, "y": begin, "w": COLUMNS, "h": _ROW_HEIGHT}
            yield render_row(row.title, heading, place, panels if row.folded else None)
        if row.folded:
            # what stands below moves down when it is opened
            top = begin + _ROW_HEIGHT
        else:
            yield from panels
