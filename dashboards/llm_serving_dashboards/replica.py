"""The dashboard of one replica: everything about it, with its peers behind it in grey."""

from __future__ import annotations

from llm_serving_alerts.records.bands import (
    BANDWIDTH,
    BATCH,
    COMPUTE,
    CONTEXT,
    DECODE,
    EDGES,
    KV_USAGE,
    LATENCY,
    RUNNING,
    TOKENS,
    WAITING,
    Figure,
)
from llm_serving_alerts.records.targets import DOWN
from llm_serving_dashboards.exporter import STATES
from llm_serving_dashboards.limiter import LIMITERS
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Board,
    Column,
    Draw,
    Panel,
    Query,
    Row,
    Unit,
    ValueMapping,
    Visualization,
)
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.replica_details import make_engine_panels, make_gpu_panels, make_trust_panels
from llm_serving_dashboards.shared_panels import TARGET, make_stat, make_table, make_time_series

VARIABLES = ("model_name", "target")
# more lines than these are one grey surface: then only the band is behind
MOST_PEERS = 50
_LOWEST, _HIGHEST = EDGES


def build_board(queries: QueryBuilder) -> Board:
    """What it is and how it is, its figures before its peers', then what only its own page says."""
    return Board(
        REPLICA_UID,
        "LLM serving: one replica",
        "Everything about one replica. Behind it in grey are its peers: the replicas with the same model and role.",
        VARIABLES,
        (
            Row("Now", _make_now_panels(queries)),
            Row("Before its peers", (*_make_work_panels(queries), *_make_ceiling_panels(queries))),
            Row("Its engines", make_engine_panels(queries)),
            Row("Long contexts and GPUs", make_gpu_panels(queries)),
            Row("Cost and trust", make_trust_panels(queries)),
        ),
        single=("target",),
    )


def _make_now_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    states = " or ".join(
        f"max({queries.select('target:llm_serving_state:max', state=state)}) * 0 + {code}"
        for code, (state, _) in enumerate(STATES)
    )
    limits = " or ".join(
        f"max({queries.select_one('limiter', 'target', 'state', state=state)} == 1) * 0 + {code}"
        for code, (state, _) in enumerate(LIMITERS)
    )
    started = queries.select_one("target_start_time_seconds", "target")
    facts = "model_name", "role", "runtime", "version"
    return (
        make_stat(
            "State",
            "Of the replica now. Loading and sleeping are neither ready nor down. No exporter: none looks at it.",
            Unit.NONE,
            Query(f"{states} or vector({len(STATES)})", "state"),
            width=3,
            mappings=(
                *(ValueMapping(code, state, colour) for code, (state, colour) in enumerate(STATES)),
                ValueMapping(len(STATES), "no exporter", "purple"),
            ),
        ),
        make_stat(
            "Started",
            "When the server's process began.",
            Unit.MILLISECONDS_SINCE,
            Query(f"max(1000 * {started})", "started"),
            width=3,
            may_be_empty="the engine does not say",
        ),
        make_table(
            "What it is",
            "Model, role, runtime and version, as its page says them.",
            (
                Column("target", "replica"), Column("model_name", "model"), Column("role", "role"), Column("runtime", "runtime"),
                Column("version", "version"),
            ),
            queries.select_one("target_info", "target", *facts),
            width=18,
            height=4,
        ),
        Panel(
            "State and limiter over time",
            "The state of the replica, and what limits its throughput: docs/limiter.md says what each limiter means.",
            Visualization.STATE_TIMELINE,
            (Query(limits, "limiter"), Query(_number_after(states), "state")),
            Unit.NONE,
            24,
            5,
            mappings=(
                *(ValueMapping(code, state.replace("_", " "), colour) for code, (state, colour) in enumerate(LIMITERS)),
                *(ValueMapping(_AFTER + code, state, colour) for code, (state, colour) in enumerate(STATES)),
            ),
        ),
    )  # fmt: skip


# codes of states beside those of limiters, in one timeline
_AFTER = 100


def _number_after(states: str) -> str:
    return f"({states}) + {_AFTER}"


def _make_work_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        _compare(
            queries, "Prefill tokens/s", "Prompt tokens that it computed, over 5m.", Unit.TOKENS_PER_SECOND, TOKENS, phase="prefill"
        ),
        _compare(queries, "Decode tokens/s", "Tokens that it generated, over 5m.", Unit.TOKENS_PER_SECOND, TOKENS, phase="decode"),
        _compare(queries, "Running requests", "Requests in its batch.", Unit.COUNT, RUNNING),
        _compare(queries, "Waiting requests", "Requests in its queue.", Unit.COUNT, WAITING),
        _compare(queries, "Batch size", "Decoding sequences per step over the exporter's window.", Unit.COUNT, BATCH),
        _compare(queries, "KV cache usage", "On its fullest engine.", Unit.RATIO, KV_USAGE),
        _compare(queries, "Mean context of a running request", "KV cache tokens per running request.", Unit.TOKENS, CONTEXT),
    )  # fmt: skip


def _make_ceiling_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        _compare(queries, "First tokens, p99", "Over the exporter's window.", Unit.SECONDS, LATENCY, latency="ttft"),
        _compare(queries, "Between tokens, p99", "Over the exporter's window.", Unit.SECONDS, LATENCY, latency="itl"),
        _compare(
            queries, "Bandwidth ceiling ratio (MBU)", "From the best source that is not suspect.", Unit.RATIO, BANDWIDTH
        ),
        _compare(queries, "Compute ceiling ratio (MFU)", "FLOPs over the dense tensor peak.", Unit.RATIO, COMPUTE),
        _compare(
            queries, "Decode ceiling ratio", "Decode steps over what its hardware allows at the present batch and context.", Unit.RATIO, DECODE
        ),
    )  # fmt: skip


def _compare(
    queries: QueryBuilder, title: str, about: str, unit: Unit, figure: Figure, width: int = 6, **equal: str
) -> Panel:
    """The replica's own line before its peers: a grey line each, and from four replicas on the band from p10 to p90."""
    everybody = queries.drop_choice("target")
    own, every = (one.select(figure.by_target, **equal) for one in (queries, everybody))
    alike = queries.match_on("model_name", "role")
    peers = f"({every} and {alike} {own}) unless {queries.match_on('target')} {own}"
    siblings = f"count({everybody.select(DOWN)} and {alike} {queries.select(DOWN)})"
    upper, lower = (
        f"{everybody.select(figure.edges, rank=rank, **equal)} and {alike} {own}" for rank in (_HIGHEST, _LOWEST)
    )
    return make_time_series(
        title,
        f"{about} In grey: its peers, a line each of up to {MOST_PEERS}, and the band from their p10 to their p90.",
        unit,
        Query(f"({peers}) unless on () {siblings} > {MOST_PEERS}", f"peer {TARGET}", draw=Draw.BEHIND),
        Query(upper, "p90 of all", draw=Draw.TOP_EDGE),
        Query(lower, "p10 of all", draw=Draw.BOTTOM_EDGE),
        Query(own, TARGET, draw=Draw.OWN),
        width=width,
        height=7,
        minimum=0,
        may_be_empty="its engine does not say it, or no request ran",
    )
