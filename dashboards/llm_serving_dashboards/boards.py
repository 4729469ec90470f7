"""The list of all dashboards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.promql_tree import list_selectors, parse
from llm_serving_alerts.settings import Settings
from llm_serving_dashboards import (
    cost,
    embedding,
    exporter,
    gpu,
    home,
    kv,
    latency,
    node_loss,
    phases,
    replica,
    roofline,
    runbooks,
)
from llm_serving_dashboards.firing import build_annotations
from llm_serving_dashboards.grafana.document import render_dashboard
from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.panels import Board, Panel, Visualization
from llm_serving_dashboards.queries import list_record_labels, list_record_seconds
from llm_serving_dashboards.shared_panels import BoardBuilder

_MODULES: tuple[ModuleType, ...] = (
    home,
    phases,
    latency,
    kv,
    roofline,
    replica,
    gpu,
    node_loss,
    cost,
    embedding,
    exporter,
    runbooks,
)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard of the user's settings."""

    board: Board  # its panels
    queries: BoardBuilder  # what built its queries

    @property
    def document(self) -> Json:
        """As Grafana reads it from a file."""
        return render_dashboard(self.board, self.queries, build_annotations(self.board, self.queries))


def build_dashboards(settings: Settings) -> tuple[Dashboard, ...]:
    """Every dashboard, with the thresholds and labels of the settings."""
    dashboards, records, seconds = [], list_record_labels(settings), list_record_seconds(settings)
    for module in _MODULES:
        build_board: Callable[[BoardBuilder], Board] = module.build_board
        queries = BoardBuilder(settings, module.VARIABLES, records)
        dashboards.append(Dashboard(space_points(build_board(queries), seconds), queries))
    return tuple(dashboards)


def space_points(board: Board, seconds: Mapping[str, float]) -> Board:
    """A board whose graphs have no more points than the records that they draw: each point costs as much, and those between two evaluations
    repeat the first. `seconds`: between two evaluations, by record. What is scraped, or recorded as often, keeps Grafana's step."""

    def space(panel: Panel) -> Panel:
        drawn = [query for query in panel.queries if not query.instant and not query.step]
        names = {leaf.text.partition("{")[0] for query in drawn for leaf in list_selectors(parse(query.expr))}
        if panel.visualization is Visualization.STAT or not names or not names <= {*seconds}:
            return panel
        step = seconds_text(min(seconds[name] for name in names))
        return replace(panel, queries=tuple(replace(one, step=step) if one in drawn else one for one in panel.queries))

    return replace(
        board, rows=tuple(replace(row, panels=tuple(space(panel) for panel in row.panels)) for row in board.rows)
    )
