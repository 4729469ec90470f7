"""The dashboard of one replica: everything about it, with its peers behind it in grey."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import one_of
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
from llm_serving_alerts.records.outliers import AGAINST, OUTLIER, OWN, PEERS, TTFT
from llm_serving_alerts.records.outliers import DECODE as DECODE_PACE
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.rules import Severity
from llm_serving_dashboards.exporter import NUMBERED, STATES
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.limiter import LIMITER_WORDS, find_replica_limiter
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Board,
    Colour,
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
from llm_serving_dashboards.replica_details import ITS_GPUS, make_engine_panels, make_gpu_panels, make_trust_panels
from llm_serving_dashboards.shared_panels import ABSENT, TARGET, make_stat, make_table, make_time_series

VARIABLES = CHOICES[REPLICA_UID]
# more lines than these are one grey surface: then only the band is behind
MOST_PEERS = 50
STATE = "target:llm_serving_state:max"
_ITS_MODEL = "its_model"
_LOWEST, _HIGHEST = EDGES
_SLOW = (TTFT, DECODE_PACE)
_FIRING = 'alertstate="firing"'
# a replica that serves and is unlike its peers is no plain ready one
_STATE_WORDS = tuple(
    ValueMapping(code, state, colour)
    for code, (state, colour) in enumerate(
        (*STATES, ("ready, slow", Colour.WARNING), ("ready, unlike its peers", Colour.WARNING))
    )
)
_NO_EXPORTER = len(_STATE_WORDS)


def build_board(queries: QueryBuilder) -> Board:
    """What it is and how it is, its figures and its peers', then what only its own page says."""
    return Board(
        REPLICA_UID,
        "LLM serving: one replica",
        "Everything about one replica; the worst one is chosen at first. In grey behind it: its peers, the replicas with the same model and role.",
        VARIABLES,
        (
            Row("", (make_firing(queries, REPLICA_UID),)),
            Row("Now", _make_now_panels(queries)),
            Row("Compared with its peers", (*_make_ceiling_panels(queries), *_make_work_panels(queries))),
            Row("Its engines", make_engine_panels(queries)),
            Row("Long contexts and GPUs", make_gpu_panels(queries)),
            Row("Cost, restarts and signals", make_trust_panels(queries)),
        ),
        choices=(("target", _find_worst_first(queries.drop_choice("target"))),),
        hidden=(
            (_ITS_MODEL, f"label_values({queries.select(DOWN)}, model_name)"),
            (ITS_GPUS, f"label_values({queries.select_scraped('gpu_target_info')}, gpu)"),
        ),
        single=("target",),
    )


def _find_worst_first(queries: QueryBuilder) -> str:
    """PromQL of all replicas: first those about which a page is open, then a ticket, then those that are unlike their peers, then by their pace."""
    by, on = queries.dialect.labels("target"), queries.match_on("target")
    known = queries.select(DOWN)

    def fire(severity: Severity) -> str:
        return queries.select_alerts("ALERTS", _FIRING, f'severity="{severity}"', 'target!=""')

    graver = (
        f"max by ({by}) ({fire(Severity.CRITICAL)}) * 1000000",
        f"max by ({by}) ({fire(Severity.WARNING)}) * 10000",
        f"max by ({by}) ({queries.select(OUTLIER)}) * 0 + 100",
        f"max by ({by}) ({queries.select(AGAINST)})",
        f"max by ({by}) ({known}) * 0",
    )
    return f"sort_desc(({f' or {on} '.join(graver)}) and {on} {known})"


def _make_now_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    states = _find_state(queries)
    started = queries.select_one("target_start_time_seconds", "target")
    facts = "model_name", "role", "runtime", "version"
    return (
        make_stat(
            "State",
            "State of the replica now. Slow: its first tokens or its decode steps take much longer than its peers'. Loading and sleeping are neither ready nor down. "
            "No exporter: none scrapes it.",
            Unit.NONE,
            Query(f"{states} or vector({_NO_EXPORTER})", "state", instant=True),
            width=4,
            mappings=(*_STATE_WORDS, ValueMapping(_NO_EXPORTER, "no exporter", Colour.DEAD)),
        ),
        make_stat(
            "Started",
            "When the server's process began.",
            Unit.MILLISECONDS_SINCE,
            Query(f"max(1000 * {started})", "started", instant=True),
            width=4,
            may_be_empty="the engine does not report it",
        ),
        make_table(
            "What it is",
            "Model, role, runtime and version, as its page says them.",
            (
                Column("target", "replica"), Column("model_name", "model"), Column("role", "role"), Column("runtime", "runtime"),
                Column("version", "version"),
            ),
            queries.select_one("target_info", "target", *facts),
            width=16,
            height=4,
            may_be_empty="no exporter scrapes it",
        ),
        _make_pace_panel(queries),
        make_time_series(
            "Pace against its peers",
            "Time that its first tokens and its decode steps take, over the time that peers with the same GPU and runtime take for the same work. 1: as long as they, 2: twice as long.",
            Unit.TIMES,
            Query(queries.select(AGAINST), "{{of}}"),
            width=12,
            height=6,
            minimum=0,
            may_be_empty="it has no comparable peers, or too few requests",
        ),
        Panel(
            "State and limiter over time",
            "The state of the replica, and what limited its throughput most over 5m: docs/limiter.md says what each limiter means.",
            Visualization.STATE_TIMELINE,
            (Query(_number_after(states), "state"), Query(find_replica_limiter(queries), "limiter")),
            Unit.NONE,
            24,
            5,
            mappings=(
                *LIMITER_WORDS,
                *(replace(one, value=_AFTER + code) for code, one in enumerate(_STATE_WORDS)),
            ),
            may_be_empty="no exporter scrapes it",
        ),
    )  # fmt: skip


def _find_state(queries: QueryBuilder) -> str:
    """PromQL of the replica's state by its place in _STATE_WORDS."""
    ready = f"max({queries.select(STATE, state='ready')})"
    unlike = (
        f"(max({queries.select(OUTLIER, one_of('of', _SLOW, negated=negated))}) and {ready}) * 0 + {len(STATES) + code}"
        for code, negated in enumerate((False, True))
    )
    return " or ".join((*unlike, f"min({queries.select(STATE)} * 0 + {NUMBERED})"))


def _make_pace_panel(queries: QueryBuilder) -> Panel:
    compared = one_of("of", _SLOW)
    own, peers, pace, unlike = (
        queries.aggregate("max", queries.select(record, compared), "of") for record in (OWN, PEERS, AGAINST, OUTLIER)
    )
    return make_table(
        "Is it slower than its peers?",
        "Seconds to the first token and between two tokens over the last 15m (30m or 1h with few requests), and what peers with the same GPU and runtime would take for the same work. "
        "Slow: so much longer that ReplicaOutlier opens a ticket.",
        (
            Column("of", "seconds for", mappings=(ValueMapping(TTFT, "a first token", "text"), ValueMapping(DECODE_PACE, "the next token", "text")), coloured=False),
            Column(0, "times as long", Unit.TIMES, decimals=2), Column(1, "its own", Unit.SECONDS), Column(2, "its peers'", Unit.SECONDS),
            Column(3, "slow", mappings=(ValueMapping(1, "yes", Colour.WARNING), ValueMapping(0, "no", Colour.FINE), ABSENT), width=80),
        ),
        pace,
        own,
        peers,
        f"{unlike} * 0 + 1 or {pace} * 0",
        width=12,
        height=6,
        sorted_by=0,
        may_be_empty="it has no comparable peers, or too few requests",
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
        _compare(queries, "KV cache usage", "Of its fullest engine.", Unit.RATIO, KV_USAGE),
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
    """The replica's own line in front of its peers: a grey line each, and from four replicas on the band from p10 to p90."""
    everybody = queries.drop_choice("target")
    alone = f'model_name=~"${_ITS_MODEL}"'
    own, every = queries.select(figure.by_target, **equal), everybody.select(figure.by_target, alone, **equal)
    alike = queries.match_on("model_name", "role")
    peers = f"({every} and {alike} {own}) unless {queries.match_on('target')} {own}"
    siblings = f"count({everybody.select(DOWN, alone)} and {alike} {queries.select(DOWN)})"
    upper, lower = (
        f"{everybody.select(figure.edges, alone, rank=rank, **equal)} and {alike} {own}" for rank in (_HIGHEST, _LOWEST)
    )
    return make_time_series(
        title,
        f"{about} Grey: its peers, one line each where there are up to {MOST_PEERS}, and the band from p10 to p90 of all.",
        unit,
        Query(
            queries.hide_while("many_peers", f"{siblings} > {MOST_PEERS}", peers), f"peer {TARGET}", draw=Draw.BEHIND
        ),
        Query(upper, "p90 of all", draw=Draw.TOP_EDGE),
        Query(lower, "p10 of all", draw=Draw.BOTTOM_EDGE),
        Query(own, TARGET, draw=Draw.OWN),
        width=width,
        height=7,
        minimum=0,
        may_be_empty="its engine does not report it, or no request ran",
    )
