"""How replicas compare, in lines that can be counted whatever their number: median, the band from p10 to p90, and the worst three by name."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from llm_serving_alerts.records.bands import EDGES, FEW_TARGETS, Figure
from llm_serving_alerts.records.gpu_bands import GpuFigure
from llm_serving_dashboards.annotations import MOST_CHOSEN
from llm_serving_dashboards.panels import REPLICA_UID, Draw, Panel, Query, Unit
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import MODEL, REPLICA, make_time_series

_LOWEST, _HIGHEST = EDGES
_SHOWN = (
    f" The band reaches from the p10 to the p90 of a model's replicas, of up to {MOST_CHOSEN} chosen models with more than {FEW_TARGETS} replicas each. "
    "By name the three that are {worst} over the time range; a click on one leads to its own dashboard."
)


_SELECTOR = re.compile(r"[\w:]+\{[^{}]*\}")
# of one node
MOST_GPUS = 8
_KIND, GPU = "{{gpu_name}}", "{{node}} {{gpu}}"


class Worst(StrEnum):
    """Which replicas are named."""

    LOWEST = "lowest"
    HIGHEST = "highest"


def make_band(
    queries: QueryBuilder, title: str, about: str, unit: Unit, figure: Figure, worst: Worst, **more: Any
) -> Panel:
    """A graph of a figure that each replica has. `more`: values of the figure's own labels, then arguments of the graph."""
    equal = {label: more.pop(label) for label in figure.labels}
    return make_time_series(
        title, about + _SHOWN.format(worst=worst.value), unit, *list_band_queries(queries, figure, worst, equal), minimum=0, **more
    )  # fmt: skip


def list_band_queries(queries: QueryBuilder, figure: Figure, worst: Worst, equal: dict[str, str]) -> tuple[Query, ...]:
    """Both edges, the median, and the worst three. Of few replicas only their own lines: their median is one of them, or between two."""
    upper, lower = (queries.select(figure.edges, rank=rank, **equal) for rank in (_HIGHEST, _LOWEST))
    median = queries.select(figure.median, **equal)
    middle = queries.hide_below(FEW_TARGETS + 1, "target", median)
    return (
        Query(hide_of_many(queries, upper), f"{_HIGHEST} {MODEL}", draw=Draw.TOP_EDGE),
        Query(hide_of_many(queries, lower), f"{_LOWEST} {MODEL}", draw=Draw.BOTTOM_EDGE),
        Query(middle, f"median {MODEL}", draw=Draw.MAIN),
        Query(find_worst(queries.select(figure.by_target, **equal), worst), REPLICA, replica_uid=REPLICA_UID),
    )


def find_worst(by_target: str, worst: Worst, most: int = FEW_TARGETS) -> str:
    """PromQL for the series with the lowest or highest mean over the time range: the same ones at each point of the graph."""
    chosen = "topk" if worst is Worst.HIGHEST else "bottomk"
    return f"{by_target} and {chosen}({most}, avg_over_time({_bracket(by_target)}[$__range:$__interval] @ end()))"


def make_gpu_band(
    queries: QueryBuilder,
    title: str,
    about: str,
    unit: Unit,
    figure: GpuFigure,
    worst: Worst,
    *others: Query,
    **more: Any,
) -> Panel:
    """A graph of a figure that each GPU has: a line each of few, else the worst three, before the median and the band of all GPUs of the kind.

    `others`: queries beside them.
    """
    upper, lower = (queries.select(figure.edges, rank=rank) for rank in (_HIGHEST, _LOWEST))
    own = queries.select(figure.by_gpu)
    drawn = (
        Query(upper, f"{_HIGHEST} {_KIND}", draw=Draw.TOP_EDGE),
        Query(lower, f"{_LOWEST} {_KIND}", draw=Draw.BOTTOM_EDGE),
        Query(
            queries.hide_below(FEW_TARGETS + 1, "gpu", queries.select(figure.median)), f"median {_KIND}", draw=Draw.MAIN
        ),
        Query(queries.hide_above(MOST_GPUS, "gpu", own), GPU),
        Query(queries.hide_below(MOST_GPUS + 1, "gpu", find_worst(own, worst)), GPU),
    )
    shown = (
        f" Of more than {MOST_GPUS} chosen GPUs only the three that are {worst.value} over the time range. Grey: from the p10 to the p90 of all GPUs of the kind, where there "
        f"are more than {FEW_TARGETS}."
    )
    return make_time_series(title, about + shown, unit, *drawn, *others, **more)


def _bracket(expression: str) -> str:
    """A selector is taken as it is."""
    return expression if _SELECTOR.fullmatch(expression) else f"({expression})"


def hide_of_many(queries: QueryBuilder, expression: str) -> str:
    """What is drawn beside a model's first line, of few chosen models only."""
    return queries.hide_above(MOST_CHOSEN, "model_name", expression)
