"""What limits the throughput of models: the panel over time, and its state now."""

from __future__ import annotations

from llm_serving_dashboards.panels import Colour, Panel, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import list_worst_first, number_states

# in the order of docs/limiter.md
LIMITERS = (
    # muted, like everything that is fine: nothing is to be repaired
    ("starved", "#46494f"),
    ("bandwidth", Colour.FINE),
    ("compute", "#35506b"),
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
_CODES = {state: code for code, (state, _) in enumerate(LIMITERS)}
_FIRST_TO_REPAIR = _CODES["attention"]
# more than there are limiters
_PLACES = 100


def find_limiter(queries: QueryBuilder) -> str:
    """PromQL of what limits most replicas of each model, as its place in LIMITERS."""
    return _find_most(queries, queries.select("model:llm_serving_limiter:count"), "model_name", "role")


def find_replica_limiter(queries: QueryBuilder) -> str:
    """PromQL of what limited the chosen replica for most of five minutes, as its place in LIMITERS: of a minute each it would be a flicker."""
    held = f"avg_over_time({queries.select_scraped('limiter')}[5m])"
    return _find_most(queries, f"round(100 * {queries.dialect.one(held, 'target', 'state')})", "target")


def _find_most(queries: QueryBuilder, counted: str, *level: str) -> str:
    """Of whole numbers by state the place of the highest; of several that are as high, of the first."""
    last = len(LIMITERS)
    # hundreds are what is counted, the rest is the place from behind: the greatest says both, and each series is read once
    places = number_states((state, last - code) for state, code in _CODES.items())
    ranked = f"{counted} * {_PLACES} + on (state) group_left () ({places})"
    return f"{last} - {queries.aggregate('max', ranked, *level)} % {_PLACES}"


def make_limiter(queries: QueryBuilder, width: int, height: int = 6) -> Panel:
    """What limits the throughput of each model, over time: first those of which there is something to repair."""
    return Panel(
        "Limiter",
        "What limits most replicas of a model. Muted, at the bottom: bandwidth and compute use the server well, a starved one lacks requests. Models with something to repair come first. Power: a "
        "cap on watts or heat holds the clock down. Batch limit, KV capacity: throughput rises with a higher limit or more memory. Prefill interference: reduce the prefill budget or use "
        "separate pools. Overhead: kernel launches or the network. See docs/limiter.md.",
        Visualization.STATE_TIMELINE,
        list_worst_first(queries, "limited", find_limiter(queries), _FIRST_TO_REPAIR),
        Unit.NONE,
        width,
        height,
        mappings=LIMITER_WORDS,
        may_be_empty="no exporter reports a limiter",
    )
