"""Every dashboard, as files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from llm_serving_alerts.settings import Settings
from llm_serving_dashboards import cost, embedding, exporter, gpu, home, kv, latency, node_loss, phases, roofline
from llm_serving_dashboards.asking import Asking, recorded
from llm_serving_dashboards.grafana.document import dashboard
from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.happenings import happenings
from llm_serving_dashboards.nouns import Board

_MODULES: tuple[ModuleType, ...] = (home, phases, latency, kv, roofline, gpu, node_loss, cost, embedding, exporter)


@dataclass(frozen=True, slots=True)
class Made:
    """A dashboard and its queries' maker."""

    board: Board
    asking: Asking

    @property
    def document(self) -> Json:
        """As Grafana reads it."""
        return dashboard(self.board, self.asking, happenings(self.asking))


def boards(settings: Settings) -> tuple[Made, ...]:
    """All, with the user's thresholds and labels."""
    found, records = [], recorded(settings)
    for module in _MODULES:
        make: Callable[[Asking], Board] = module.board
        asking = Asking(settings, module.VARIABLES, records)
        found.append(Made(make(asking), asking))
    return tuple(found)
