"""Grafana's JSON of a dashboard: the only module that knows grafanalib, and what has to be done to what it writes.

grafanalib 0.7.1 writes some panels in a form that Grafana has left behind, and defaults that mislead: a value that is the mean of the range,
a heatmap of cumulative buckets, a hundred points a graph. Panels are made by its classes and brought to the form of schema 42.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import COLUMNS, Board, Column, Look, Panel, Query, Row, Says, Step, Unit

# https://github.com/grafana/grafana/blob/main/apps/dashboard/pkg/migration/schemaversion: the latest of the model with panels in a grid
SCHEMA_VERSION = 42
# whose options these are: a panel that does not say takes them for old ones and changes them
PLUGIN_VERSION = "12.0.0"
TAG = "llm-serving"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ROW_HEIGHT = 1
_REFRESH, _RANGE = "1m", "now-6h"

Json = dict[str, Any]


def dashboard(board: Board, asking: Asking, annotations: Iterable[Json]) -> Json:
    """The dashboard as Grafana reads it from a file."""
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
        templating=core.Templating(list=_variables(board, asking)),
        annotations=core.Annotations(list=list(annotations)),
        links=[
            core.DashboardLink(
                title="LLM serving", tags=[TAG], asDropdown=True, includeVars=True, keepTime=True, type="dashboards"
            )
        ],
        panels=list(_placed(board.rows, asking.settings.identity_labels)),
    )
    plain: Json = json.loads(json.dumps(made.to_json_data(), cls=DashboardEncoder))
    # what a provisioned dashboard has none of, and what Grafana has forgotten
    for gone in ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version"):
        plain.pop(gone, None)
    plain["fiscalYearStartMonth"] = 0
    plain["timepicker"] = {}
    plain["links"] = [_without_nothing(link) for link in plain["links"]]
    return plain


def text_of(made: Json) -> str:
    """As it is written: keys in order, so that a change shows as one."""
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


# --- variables -----------------------------------------------------------------------------------------------------


def _variables(board: Board, asking: Asking) -> list[Json]:
    datasource: Json = {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
        "hide": 0, "includeAll": False, "multi": False, "options": [], "regex": "", "current": {}, "skipUrlSync": False,
    }  # fmt: skip
    return [
        datasource,
        *(_variable(name, board, asking) for name in (*asking.settings.identity_labels, *board.variables)),
    ]


def _variable(name: str, board: Board, asking: Asking) -> Json:
    some = name == "model_name" and board.models_of
    query = f"query_result({board.models_of})" if some else asking.choices(name)
    return {
        "name": name, "label": name.replace("_", " "), "type": "query", "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "definition": query,
        # at each change of the range: models come and go
        "refresh": 2, "sort": 1, "hide": 0, "includeAll": True, "multi": True, "options": [],
        "regex": f'/{name}="([^"]*)"/' if some else "", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "skipUrlSync": False,
        # all targets: those of the chosen models; all models: those that may be chosen
        **({} if name == "target" or some else {"allValue": ".*"}),
    }  # fmt: skip


# --- the grid ------------------------------------------------------------------------------------------------------


def _placed(rows: Iterable[Row], identity: tuple[str, ...]) -> Iterable[Json]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield _row(row.title, number, top)
        top += _ROW_HEIGHT
        left = line = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, line = 0, top + line, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {**_panel(panel, identity), "id": number, "gridPos": place}
            left, line = left + panel.width, max(line, panel.height)
        top += line


def _row(title: str, number: int, top: int) -> Json:
    made = core.RowPanel(title=title, collapsed=False, panels=[]).to_json_data()
    return {
        "type": made["type"], "title": title, "collapsed": False, "panels": [], "id": number,
        "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": _ROW_HEIGHT},
    }  # fmt: skip


# --- panels --------------------------------------------------------------------------------------------------------

_CLASSES: Mapping[Look, type] = {
    Look.LINES: core.TimeSeries,
    Look.VALUE: core.Stat,
    Look.STATES: core.StateTimeline,
    Look.TABLE: core.Table,
    Look.BARS: core.BarGauge,
    Look.HEATMAP: core.Heatmap,
    # grafanalib has none: the base of all
    Look.POINTS: core.Panel,
}
_LEGEND_ROWS = 3


def _panel(panel: Panel, identity: tuple[str, ...]) -> Json:
    base = _CLASSES[panel.look](title=panel.title, description=panel.description, dataSource=DATASOURCE, targets=[])
    # of what the classes write, only what every panel has: the rest is of older schemas
    made = base.panel_json({}) if panel.look is Look.POINTS else base.to_json_data()
    found: Json = {
        "type": panel.look.value,
        "pluginVersion": PLUGIN_VERSION,
        "title": made["title"],
        "description": made["description"],
        "datasource": made["datasource"],
        "targets": [_target(query, number, panel.look, identity) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": _overrides(panel)},
        "options": _OPTIONS[panel.look](panel),
        "transformations": _transformations(panel),
    }
    if panel.detail:
        # a click on the value, with the variables and the time of here
        url = f"/d/{panel.detail}?${{__url_time_range}}&${{__all_variables}}"
        found["fieldConfig"]["defaults"]["links"] = [{"title": "Details", "url": url, "targetBlank": False}]
    return found


_WHO = ("{{model_name}}", "{{target}}", "{{node}}")


def _target(query: Query, number: int, look: Look, identity: tuple[str, ...]) -> Json:
    named = any(who in query.legend for who in _WHO)
    where = " ".join(f"{{{{{label}}}}}" for label in identity) if named else ""
    return {
        "refId": _ref(number),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "heatmap" if look is Look.HEATMAP else "table" if query.table else "time_series",
        "instant": query.instant,
        "range": not query.instant,
        "legendFormat": f"{query.legend} {where}".strip() or "__auto",
    }


def _ref(number: int) -> str:
    return chr(ord("A") + number)


def _field(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit.value, "mappings": _mappings(panel.says), "thresholds": _thresholds(panel.steps)}
    if panel.may_be_empty:
        # what stands there in place of "No data"
        found["noValue"] = panel.may_be_empty
    found["color"] = {"mode": "thresholds" if panel.steps and not panel.lines else "palette-classic"}
    for name, value in (("min", panel.least), ("max", panel.most), ("decimals", panel.decimals)):
        if value is not None:
            found[name] = value
    if panel.look is Look.LINES:
        found["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 25 if panel.stacked else 0, "showPoints": "never",
            # a gap is a gap
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "scaleDistribution": _scale(panel),
            "thresholdsStyle": {"mode": "dashed" if panel.lines else "off"},
        }  # fmt: skip
        if panel.unit in _SOFT_MOST and panel.most is None and not panel.logarithmic:
            found["custom"]["axisSoftMax"] = _SOFT_MOST[panel.unit]
    elif panel.look is Look.STATES:
        found["custom"] = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    elif panel.look is Look.TABLE:
        found["custom"] = {"minWidth": 80, "align": "auto", "cellOptions": {"type": "auto"}}
    elif panel.look is Look.POINTS:
        found["custom"] = {
            "show": "points", "pointSize": {"fixed": 8}, "fillOpacity": 60, "scaleDistribution": _scale(panel),
        }  # fmt: skip
    return found


# how high an axis goes at least: one that is 0 all the time would else go to 100, which is 10,000 %
_SOFT_MOST = {Unit.RATIO: 0.05, Unit.COUNT: 1.0, Unit.TIMES: 1.0}


def _scale(panel: Panel) -> Json:
    return {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"}


def _thresholds(steps: tuple[Step, ...]) -> Json:
    shown = steps or (Step("text"),)
    return {"mode": "absolute", "steps": [{"color": str(step.colour), "value": step.from_value} for step in shown]}


def _mappings(says: tuple[Says, ...]) -> list[Json]:
    found: list[Json] = []
    values = {
        f"{one.value:g}": {"text": one.text, "color": str(one.colour), "index": number}
        for number, one in enumerate(says)
        if one.value is not None
    }
    if values:
        found.append({"type": "value", "options": values})
    for number, one in enumerate(says):
        if one.value is None:
            result = {"text": one.text, "color": str(one.colour), "index": number}
            found.append({"type": "special", "options": {"match": "null+nan", "result": result}})
    return found


# --- options by look -----------------------------------------------------------------------------------------------

_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _of_lines(panel: Panel) -> Json:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc", "hideZeros": False},
    }


def _of_value(panel: Panel) -> Json:
    return {
        "reduceOptions": _LAST, "colorMode": "background" if panel.says else "value", "graphMode": "none", "textMode": "auto",
        "justifyMode": "auto", "orientation": "auto", "wideLayout": True, "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }  # fmt: skip


def _of_states(panel: Panel) -> Json:
    return {
        "mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.85,
        # rows that can be read; the others are a click away
        "perPage": panel.height - 1,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
    }  # fmt: skip


def _of_table(panel: Panel) -> Json:
    return {"showHeader": True, "cellHeight": "sm", "sortBy": []}


def _of_bars(panel: Panel) -> Json:
    return {
        "reduceOptions": _LAST, "displayMode": "basic", "orientation": "horizontal", "showUnfilled": True,
        "valueMode": "color", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300, "namePlacement": "auto", "sizing": "auto",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    }  # fmt: skip


def _of_heatmap(panel: Panel) -> Json:
    return {
        "calculate": False, "cellGap": 1, "legend": {"show": True}, "showValue": "never",
        # the engine's own edges: a cell is what lies between two of them
        "rowsFrame": {"layout": "le"}, "yAxis": {"unit": panel.unit.value, "axisPlacement": "left", "reverse": False},
        "color": {"mode": "scheme", "scheme": "Turbo", "steps": 64, "scale": "exponential", "exponent": 0.5, "fill": "dark-orange",
                  "reverse": False},
        "filterValues": {"le": 1e-9}, "cellValues": {"unit": Unit.EVENTS_PER_SECOND.value}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
    }  # fmt: skip


def _of_points(panel: Panel) -> Json:
    return {
        "mapping": "manual", "series": [_series(panel, column) for column in panel.columns[1:]],
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
    }  # fmt: skip


def _series(panel: Panel, column: Column) -> Json:
    def by_name(column: Column) -> Json:
        return {"matcher": {"id": "byName", "options": column.title}}

    return {
        "frame": {"matcher": {"id": "byIndex", "options": 0}}, "name": {"fixed": column.title},
        "x": by_name(panel.columns[0]), "y": by_name(column),
    }  # fmt: skip


_OPTIONS = {
    Look.LINES: _of_lines,
    Look.VALUE: _of_value,
    Look.STATES: _of_states,
    Look.TABLE: _of_table,
    Look.BARS: _of_bars,
    Look.HEATMAP: _of_heatmap,
    Look.POINTS: _of_points,
}


# --- tables --------------------------------------------------------------------------------------------------------


def _transformations(panel: Panel) -> list[Json]:
    """A table has a row for each set of labels, and no column but those that are named; so have points."""
    if any("{{gpu}}" in query.legend for query in panel.queries):
        # a UUID's beginning is enough to tell cards apart
        return [
            {
                "id": "renameByRegex",
                "options": {"regex": r"(.*)((?:GPU|MIG)-\w{8})[-\w]*(.*)", "renamePattern": "$1$2$3"},
            }
        ]
    if not panel.columns:
        return []
    names = [_field_name(column, panel) for column in panel.columns]
    first = panel.columns[0]
    return [
        {"id": "labelsToFields", "options": {"mode": "columns"}},
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
        {
            "id": "organize",
            "options": {
                "indexByName": {name: place for place, name in enumerate(names)},
                "renameByName": {name: column.title for name, column in zip(names, panel.columns, strict=True)},
            },
        },
        # names from A on, values from the largest on
        {"id": "sortBy", "options": {"sort": [{"field": first.title, "desc": isinstance(first.source, int)}]}},
    ]


def _field_name(column: Column, panel: Panel) -> str:
    if isinstance(column.source, str):
        return column.source
    return "Value" if len(panel.queries) == 1 else f"Value #{_ref(column.source)}"


def _overrides(panel: Panel) -> list[Json]:
    found: list[Json] = [
        {
            "matcher": {"id": "byRegexp", "options": f"/^{word}\\b/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": str(colour)}}],
        }
        for word, colour in panel.colours
    ]
    for column in panel.columns:
        if isinstance(column.source, str):
            continue
        properties: list[Json] = [{"id": "unit", "value": column.unit.value}]
        if column.unit is Unit.MILLISECONDS_SINCE:
            # words, not a number
            properties += [{"id": "custom.align", "value": "left"}, {"id": "custom.width", "value": 120}]
        if column.decimals is not None:
            properties.append({"id": "decimals", "value": column.decimals})
        if column.steps:
            properties.append({"id": "thresholds", "value": _thresholds(column.steps)})
            properties.append({"id": "color", "value": {"mode": "thresholds"}})
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        found.append({"matcher": {"id": "byName", "options": column.title}, "properties": properties})
    return found


def _without_nothing(found: Json) -> Json:
    return {name: value for name, value in found.items() if value is not None}
