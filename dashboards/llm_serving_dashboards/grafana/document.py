"""A whole dashboard as Grafana reads it: its head, its variables, and its panels on the grid."""

from __future__ import annotations

import json
from collections.abc import Iterable

from grafanalib import core

from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.grafana.legends import write_hidden_variable, write_legend_variables
from llm_serving_dashboards.grafana.render import DATASOURCE, encode, render_panel, render_row
from llm_serving_dashboards.panels import COLUMNS, Board, Row
from llm_serving_dashboards.queries import QueryBuilder

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
        *(_write_hidden(name, query) for name, query in board.hidden),
        *write_legend_variables(board, queries),
        *(write_hidden_variable(one) for name, one in sorted(queries.hidden.items()) if f'"${name}"' in asked),
    ]


def _write_variable(name: str, board: Board, queries: QueryBuilder) -> Json:
    narrowed, several = dict(board.choices).get(name), name not in board.single
    query = f"query_result({narrowed})" if narrowed else queries.list_choices(name)
    return {
        "name": name, "label": name.replace("_", " "), "type": "query", "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "definition": query,
        # 2: whenever the time range changes, since models come and go
        "refresh": 2, "sort": 0 if narrowed and not several else 1, "hide": 0, "includeAll": several, "multi": several, "options": [],
        "regex": f'/{name}="([^"]*)"/' if narrowed else "",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {}, "skipUrlSync": False,
        # "All" is the listed values where these are narrowed to the models of the board. The targets of the chosen models are not listed, since a list
        # of hundreds would stand in each query: a selector says the model too, or is joined with what does
        **({} if narrowed else {"allValue": ".*"}),
    }  # fmt: skip


def _write_hidden(name: str, query: str) -> Json:
    return {
        "name": name, "type": "query", "datasource": DATASOURCE, "query": {"query": query, "refId": name}, "definition": query,
        "refresh": 2, "sort": 1, "hide": 2, "includeAll": True, "multi": True, "options": [], "regex": "",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "skipUrlSync": True,
    }  # fmt: skip


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
            if left + panel.width > COLUMNS:
                left, top, line = 0, top + line, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append(render_panel(panel, number, place, identity))
            left, line = left + panel.width, max(line, panel.height)
        top += line
        if row.title:
            place = {"x": 0, "y": begin, "w": COLUMNS, "h": _ROW_HEIGHT}
            yield render_row(row.title, heading, place, panels if row.folded else None)
        if row.folded:
            # what stands below moves down when it is opened
            top = begin + _ROW_HEIGHT
        else:
            yield from panels
