"""The list of all dashboards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

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
from llm_serving_dashboards.annotations import build_annotations
from llm_serving_dashboards.grafana.document import render_dashboard
from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.panels import Board
from llm_serving_dashboards.queries import QueryBuilder, list_record_labels

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

    # its panels
    board: Board
    # what built its queries
    queries: QueryBuilder

    @property
    def document(self) -> Json:
        """As Grafana reads it from a file."""
        return render_dashboard(self.board, self.queries, build_annotations(self.board, self.queries))


def build_dashboards(settings: Settings) -> tuple[Dashboard, ...]:
    """Every dashboard, with the thresholds and labels of the settings."""
    found, records = [], list_record_labels(settings)
    for module in _MODULES:
        build_board: Callable[[QueryBuilder], Board] = module.build_board
        queries = QueryBuilder(settings, module.VARIABLES, records)
        found.append(Dashboard(build_board(queries), queries))
    return tuple(found)
