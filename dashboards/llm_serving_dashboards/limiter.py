"""What limits the throughput of models: the panel over time, and its state now."""

from __future__ import annotations

from llm_serving_dashboards.panels import Colour, Panel, Query, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import MODEL

# in the order of docs/limiter.md
LIMITERS = (
    ("starved", "super-light-blue"),
    ("bandwidth", Colour.GOOD),
    ("compute", Colour.PLAIN),
    ("attention", "light-orange"),
    ("power", "dark-orange"),
    ("batch_limit", "yellow"),
    ("kv_capacity", Colour.WARNING),
    ("prefill_interference", Colour.BAD),
    ("transfer", "purple"),
    ("blocked", "super-light-orange"),
    ("overhead", Colour.DEAD),
    ("stalled", "dark-red"),
    ("unknown", Colour.UNKNOWN),
)
LIMITER_WORDS = tuple(
    ValueMapping(code, state.replace("_", " "), colour) for code, (state, colour) in enumerate(LIMITERS)
)


def find_limiter(queries: QueryBuilder) -> str:
    """PromQL of what limits most replicas of each model, as its place in LIMITERS."""
    counted = "model:llm_serving_limiter:count"
    most = queries.aggregate("max", queries.select(counted), "model_name", "role")
    states = [
        f"(({queries.aggregate('max', queries.select(counted, state=state), 'model_name', 'role')} == {queries.match_on('model_name', 'role')} {most}) * 0 + {code})"
        for code, (state, _) in enumerate(LIMITERS)
    ]
    return " or ".join(states)


def make_limiter(queries: QueryBuilder, width: int, height: int = 6) -> Panel:
    """What limits the throughput of each model, over time."""
    return Panel(
        "Limiter",
        "What limits most replicas of a model. Bandwidth and compute: the server is well used. Power: a cap on watts or heat holds the clock down. Batch limit and KV capacity: throughput rises with a "
        "higher limit or more memory. Prefill interference: reduce the prefill budget or use separate pools. Overhead: kernel launches or the network. "
        "See docs/limiter.md.",
        Visualization.STATE_TIMELINE,
        (Query(find_limiter(queries), MODEL),),
        Unit.NONE,
        width,
        height,
        mappings=LIMITER_WORDS,
    )
