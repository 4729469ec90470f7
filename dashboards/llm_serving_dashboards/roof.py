"""The roofline as a picture: the roof with its ridge on logarithmic axes, where each model is now, and where it was over the last day.

Arithmetic intensity is drawn over the ridge's and work over the peak, so that GPUs of every kind and format have the same roof
(Williams, Waterman, Patterson 2009: attainable = min(peak, intensity x bandwidth); divided by the peak: min(intensity / ridge, 1)).
"""

from __future__ import annotations

from llm_serving_alerts.records.bands import COMPUTE
from llm_serving_dashboards.annotations import MOST_CHOSEN
from llm_serving_dashboards.panels import Axis, Colour, Mark, Panel, Query, Unit, Visualization, X
from llm_serving_dashboards.queries import QueryBuilder

ENGINE = ("target", "model_name", "role", "engine")
MODELS = ("model_name", "role")
INTENSITY, RIDGE = (f"model:llm_serving_{name}_flops_per_byte:avg" for name in ("arithmetic_intensity", "ridge"))
# a thousandth of the ridge and of the peak is an engine that does next to nothing
_LOWEST, _HIGHEST = 0.001, 10.0
_TRAIL, _STEP = "24h", "1h"


def make_roof(queries: QueryBuilder, width: int, height: int) -> Panel:
    """The picture of the chosen models."""
    return Panel(
        "Roofline",
        "Blue: each model now, its engines taken together. Orange: the same at each hour of the last day. Grey: its engines now, of up to "
        f"{MOST_CHOSEN} chosen models. Horizontal is the arithmetic intensity over the ridge's, vertical the FLOPs over the peak's (MFU). Left of the ridge memory bandwidth "
        "limits, right of it compute. A dot on the roof reaches what the hardware can do. A dot far below it waits for something else, or for requests. Idle engines have no dot.",
        Visualization.XY_CHART,
        (
            Query(_draw_line((_LOWEST, _LOWEST), (1.0, 1.0), (_HIGHEST, 1.0)), instant=True, table=True),
            # a line that is not quite upright: rows are in the order of their horizontal value
            Query(_draw_line((1.0, 1.0), (1.000001, _LOWEST)), instant=True, table=True),
            Query(queries.hide_above(MOST_CHOSEN, "model_name", _place_engines(queries)), instant=True, table=True),
            Query(_place_models(queries), table=True, step=_STEP),
            Query(_place_models(queries), instant=True, table=True),
        ),
        Unit.RATIO,
        width,
        height,
        axes=(
            Axis("arithmetic intensity over the ridge's", Unit.TIMES, _LOWEST, _HIGHEST),
            Axis("FLOPs over the peak's", Unit.RATIO, _LOWEST, 1.0),
        ),
        marks=(
            Mark("roof", "text"),
            Mark("ridge", Colour.UNKNOWN),
            Mark("engines now", Colour.UNKNOWN, 4),
            Mark("last day, by the hour", Colour.WARNING, 5),
            Mark("now", Colour.PLAIN, 12),
        ),
        time_from=_TRAIL,
    )


def _draw_line(*points: tuple[float, float]) -> str:
    """PromQL of points with their horizontal value as a label."""
    return " or ".join(f'label_replace(vector({y:g}), "{X}", "{x:.10g}", "", "")' for x, y in points)


def _place_engines(queries: QueryBuilder) -> str:
    """PromQL of the share of the peak of what is above the floor of the picture, with the intensity over the ridge as a label."""
    intensity, ridge, compute = (
        queries.select_one(name, *ENGINE)
        for name in ("arithmetic_intensity_flops_per_byte", "ridge_flops_per_byte", "compute_ceiling_ratio")
    )
    return _place(queries, f"{intensity} / {queries.match_on(*ENGINE)} {ridge}", compute, *ENGINE)


def _place_models(queries: QueryBuilder) -> str:
    """The same of models."""
    across = f"{queries.select(INTENSITY)} / {queries.select(RIDGE)}"
    return _place(queries, across, queries.select(COMPUTE.median), *MODELS)


def _place(queries: QueryBuilder, across: str, up: str, *level: str) -> str:
    placed = f'count_values by ({queries.dialect.labels(*level)}) ("{X}", {across})'
    return f"({up} > {_LOWEST:g}) * {queries.match_on(*level)} group_left ({X}) {placed}"
