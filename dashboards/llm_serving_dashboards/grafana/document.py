"""A whole dashboard as Grafana reads it: its head, its variables, and its panels on the grid."""

from __future__ import annotations

import json
from collections.abc import Iterable

from grafanalib import core

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.grafana.panels import DATASOURCE, encode, render_panel, render_row
from llm_serving_dashboards.nouns import COLUMNS, Board, Row

# https://github.com/grafana/grafana/blob/main/apps/dashboard/pkg/migration/schemaversion: the latest of the model with panels in a grid
SCHEMA_VERSION = 42
TAG = "llm-serving"
_ROW_HEIGHT = 1
_REFRESH, _RANGE = "1m", "now-6h"


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
    plain = encode(made.to_json_data())
    # what a provisioned dashboard has none of, and what Grafana has forgotten
    for gone in ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version"):
        plain.pop(gone, None)
    plain["fiscalYearStartMonth"] = 0
    plain["timepicker"] = {}
    plain["links"] = [{name: value for name, value in link.items() if value is not None} for link in plain["links"]]
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
        yield render_row(row.title, number, {"x": 0, "y": top, "w": COLUMNS, "h": _ROW_HEIGHT})
        top += _ROW_HEIGHT
        left = line = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, line = 0, top + line, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield render_panel(panel, number, place, identity)
            left, line = left + panel.width, max(line, panel.height)
        top += line
