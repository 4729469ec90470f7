"""How replicas and models compare, in lines that can be counted whatever their number: median, the band from p10 to p90, and the worst few by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llm_serving_alerts.records.bands import EDGES, FEW_TARGETS, Figure, GpuFigure
from llm_serving_dashboards.annotations import MOST_CHOSEN
from llm_serving_dashboards.panels import REPLICA_UID, Draw, Panel, Query, Unit
from llm_serving_dashboards.queries import QueryBuilder, Worst
from llm_serving_dashboards.shared_panels import MODEL, REPLICA, make_time_series

_LOWEST, _HIGHEST = EDGES
# of replicas, or of more models than can be drawn one by one
MOST_NAMED = 5
_SHOWN = (
    f" Band: p10 to p90 of a model's replicas, where it has more than {FEW_TARGETS}; with more than {MOST_CHOSEN} models chosen, p10 to p90 of the models' medians. "
    f"By name: the {MOST_NAMED} replicas with the {{worst}} mean over the time range; a click on one opens its dashboard."
)
_OF_MODELS = f" With more than {MOST_CHOSEN} models chosen{{what}}: a band from p10 to p90 of the models, and by name the {MOST_NAMED} with the {{worst}} mean over the time range."
# of one node
MOST_GPUS = 8
_KIND, GPU = "{{gpu_name}}", "{{node}} {{gpu}}"


def make_band(
    queries: QueryBuilder, title: str, about: str, unit: Unit, figure: Figure, worst: Worst, **more: Any
) -> Panel:
    """A graph of a figure that each replica has. `more`: values of the figure's own labels, then arguments of the graph."""
    equal = {label: more.pop(label) for label in figure.labels}
    return make_time_series(
        title, about + _SHOWN.format(worst=worst.value), unit, *list_band_queries(queries, figure, worst, equal), minimum=0, **more
    )  # fmt: skip


def list_band_queries(queries: QueryBuilder, figure: Figure, worst: Worst, equal: dict[str, str]) -> tuple[Query, ...]:
    """Both edges, the median, and the worst few. Of few replicas only their own lines: their median is one of them, or between two."""
    upper, lower = (queries.select(figure.edges, rank=rank, **equal) for rank in (_HIGHEST, _LOWEST))
    median = queries.select(figure.median, **equal)
    middle = queries.hide_below(FEW_TARGETS + 1, "target", median)
    by_target = queries.select(figure.by_target, **equal)
    return (
        Query(hide_of_many(queries, upper), f"{_HIGHEST} {MODEL}", draw=Draw.TOP_EDGE),
        Query(hide_of_many(queries, lower), f"{_LOWEST} {MODEL}", draw=Draw.BOTTOM_EDGE),
        Query(hide_of_many(queries, middle), f"median {MODEL}", draw=Draw.MAIN),
        *_band_models(queries, median, "medians"),
        Query(queries.find_worst(by_target, worst, MOST_NAMED, "target"), REPLICA, replica_uid=REPLICA_UID),
    )


def make_model_graph(
    queries: QueryBuilder, title: str, about: str, unit: Unit, worst: Worst, *lines: Query, **more: Any
) -> Panel:
    """A graph of figures that each model has. `lines`: queries with a series a model; of many models the first alone is drawn."""
    word = lines[0].legend.partition("{{")[0].strip(" (") if len(lines) > 1 else ""
    said = _OF_MODELS.format(what=f", {word} alone" if word else "", worst=worst.value)
    return make_time_series(title, about + said, unit, *draw_models(queries, worst, *lines), **more)


def draw_models(queries: QueryBuilder, worst: Worst, *lines: Query) -> tuple[Query, ...]:
    """The lines of few models; of many the band of the first and the worst few by name."""
    first = lines[0]
    many = _hide_of_few(queries, first.expr)
    return (
        *(replace(line, expr=hide_of_many(queries, line.expr)) for line in lines),
        *_band_models(queries, first.expr, "models"),
        replace(first, expr=queries.find_worst(many, worst, MOST_NAMED, "model_name")),
    )


def draw_parts(queries: QueryBuilder, expression: str, part: str) -> tuple[Query, ...]:
    """What can be added up, by a label of its own (a reason, a state): of few models the parts of each, of many those of all together."""
    return (
        Query(hide_of_many(queries, expression), f"{{{{{part}}}}} {MODEL}"),
        Query(queries.aggregate("sum", _hide_of_few(queries, expression), part), f"{{{{{part}}}}}"),
    )


def _band_models(queries: QueryBuilder, expression: str, of: str) -> tuple[Query, Query]:
    upper, lower = (
        Query(f"quantile({EDGES[rank]:g}, {_hide_of_few(queries, expression)})", f"{rank} of {of}", draw=draw)
        for rank, draw in ((_HIGHEST, Draw.TOP_EDGE), (_LOWEST, Draw.BOTTOM_EDGE))
    )
    return upper, lower


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
        Query(queries.hide_below(MOST_GPUS + 1, "gpu", queries.find_worst(own, worst, FEW_TARGETS, "gpu")), GPU),
    )
    shown = (
        f" With more than {MOST_GPUS} GPUs chosen, only the {FEW_TARGETS} with the {worst.value} mean over the time range. Grey band: p10 to p90 of all GPUs of the same kind, where "
        f"there are more than {FEW_TARGETS}."
    )
    return make_time_series(title, about + shown, unit, *drawn, *others, **more)


def hide_of_many(queries: QueryBuilder, expression: str) -> str:
    """What is drawn beside a model's first line, of few chosen models only."""
    return queries.hide_above(MOST_CHOSEN, "model_name", expression)


def _hide_of_few(queries: QueryBuilder, expression: str) -> str:
    return queries.hide_below(MOST_CHOSEN + 1, "model_name", expression)
