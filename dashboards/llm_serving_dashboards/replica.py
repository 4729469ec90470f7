"""The dashboard of one replica: everything about it, with its peers behind it in grey."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import GPUS, one_of
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
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Board,
    Colour,
    Column,
    Draw,
    Look,
    Panel,
    Query,
    Row,
    Unit,
    ValueMapping,
)
from llm_serving_dashboards.shared_panels import (
    ABSENT,
    LIMITER_WORDS,
    NO_PRICE,
    REASONS,
    SPENT_ON,
    TARGET,
    BoardBuilder,
)

# --- What only a replica's own page and GPUs say: the lower half of its dashboard.

_ENGINE = ("target", "model_name", "role", "engine")
_OF_ENGINE = "engine {{engine}}"
# a variable with the cards of the replica
ITS_GPUS = "its_gpus"


def make_engine_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    """Latencies, ceilings and the batch by engine."""
    latencies = board.select_one("window_latency_seconds", *_ENGINE, "latency", "rank", matchers='rank=~"p50|p99"')
    ceiling = board.select_one("decode_ceiling_tokens_per_second", *_ENGINE)
    decode = board.sum("engine:llm_serving_phase_tokens:rate5m", *_ENGINE, phase="decode")
    return (
        board.time_series(
            "Latency quantiles",
            "Over the exporter's window, one minute by default.",
            Look(Unit.SECONDS, width=6, logarithmic=True),
            Query(latencies, f"{{{{latency}}}} {{{{rank}}}} {_OF_ENGINE}"),
            may_be_empty="no request has ended",
        ),
        board.time_series(
            "Share of busy time by phase",
            "Share of time that each phase needs at its ceiling.",
            Look(Unit.RATIO, width=6),
            Query(board.select_one("phase_busy_ratio", *_ENGINE, "phase"), f"{{{{phase}}}} {_OF_ENGINE}"),
        ),
        board.time_series(
            "MBU by source",
            "Sources: gpm and dcgm are measured, model is computed from steps and context, runtime is the engine's own estimate.",
            Look(Unit.RATIO, width=6),
            board.line("engine:llm_serving_bandwidth_ceiling_ratio:max", f"{{{{source}}}} {_OF_ENGINE}"),
        ),
        board.time_series(
            "Memory traffic and its peak",
            "Sum over its GPUs, by source.",
            Look(Unit.BYTES_PER_SECOND, width=6),
            board.line("engine:llm_serving_achieved_bandwidth_bytes_per_second:max", f"{{{{source}}}} {_OF_ENGINE}"),
            Query(board.select_one("bandwidth_ceiling_bytes_per_second", *_ENGINE), f"peak {_OF_ENGINE}"),
        ),
        board.time_series(
            "Decode tokens/s and their ceiling",
            "Generated tokens, and the most that is possible at the present batch and context with one token per step.",
            Look(Unit.TOKENS_PER_SECOND, width=6),
            Query(decode, f"decode {_OF_ENGINE}"),
            Query(ceiling, f"ceiling {_OF_ENGINE}"),
        ),
        board.table(
            "Evidence of the limiter",
            "The present figures that decide what limits it.",
            Look(width=6),
            ("evidence", Column(0, "value", Unit.COUNT, decimals=2)),
            board.select_one("limiter_evidence", "target", "evidence"),
            may_be_empty="the limiter is not known",
        ),
        board.time_series(
            "Batch and its ridge",
            "Decoding sequences per step, and the batch from which decode is compute-bound.",
            Look(Unit.COUNT, width=6, logarithmic=True, from_zero=True),
            Query(board.select_one("batch_size_mean", *_ENGINE), f"batch {_OF_ENGINE}"),
            Query(board.select_one("batch_ridge_size", *_ENGINE, "part"), f"ridge ({{{{part}}}}) {_OF_ENGINE}"),
        ),
        board.time_series(
            "Finished requests/s by reason",
            "Stop and length are successes. Error is a failure. Abort: the client gave up.",
            Look(Unit.REQUESTS_PER_SECOND, width=6, stacked=True, series_colours=REASONS),
            Query(_rate(board, "requests_finished_total", "reason"), "{{reason}}"),
            may_be_empty="no exporter scrapes it",
        ),
    )


def _rate(board: BoardBuilder, counter: str, label: str) -> str:
    rate = board.dialect.one(f"rate({board.select_scraped(counter)}[$__rate_interval])", *_ENGINE, label)
    return board.aggregate("sum", rate, label)


def make_gpu_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    """The long-context tail, and the GPUs that work for it."""
    its = f'gpu=~"${ITS_GPUS}"'

    def of_its_gpus(name: str, *extra: str, **equal: str) -> str:
        return board.dialect.by_gpu(board.select_scraped(name, its, **equal), *extra, gpus=board.select(GPUS, its))

    def draw(title: str, about: str, unit: Unit, *drawn: Query, width: int = 8) -> Panel:
        return board.time_series(title, about, Look(unit, width=width, height=7), *drawn, may_be_empty="its GPUs are not known")  # fmt: skip

    fit = board.select_one("long_context_requests_fit", *_ENGINE, "bound")
    share = board.select_one("long_context_kv_share_ratio", *_ENGINE, "bound")
    return (
        board.time_series(
            "Long requests that fit",
            "Requests with a p99 prompt and a mean answer that fit at once. Both bounds come from bucket edges.",
            Look(Unit.COUNT, width=6, height=7),
            Query(fit, f"{{{{bound}}}} {_OF_ENGINE}"),
            may_be_empty="too few requests have ended",
        ),
        board.time_series(
            "KV cache share of the longest 1 %",
            "Share of the context tokens that the longest 1 % of requests hold, with both bounds.",
            Look(Unit.RATIO, width=6, height=7, maximum=1),
            Query(share, f"{{{{bound}}}} {_OF_ENGINE}"),
            may_be_empty="too few requests have ended",
        ),
        board.time_series(
            "Preemptions in 10m",
            "How often a running request lost its KV cache to others.",
            Look(Unit.COUNT, width=6, height=7),
            board.line("target:llm_serving_preemptions:increase10m", TARGET),
            may_be_empty="the engine does not count them",
        ),
        draw(
            "GPU memory bandwidth",
            "Memory traffic of each of its GPUs over the theoretical peak (GPM: Hopper and newer).",
            Unit.RATIO,
            Query(of_its_gpus("gpu_dram_bandwidth_ratio"), "{{gpu}}"),
            width=6,
        ),
        draw(
            "GPU power",
            "Power draw of each of its GPUs, and its limit.",
            Unit.WATTS,
            Query(of_its_gpus("gpu_power_watts"), "{{gpu}}"),
            Query(of_its_gpus("gpu_power_limit_watts"), "limit {{gpu}}"),
        ),
        draw(
            "GPU clock",
            "Clock of the streaming multiprocessors of each of its GPUs. A GPU with a lower clock than the others is too hot, or its power is capped.",
            Unit.HERTZ,
            Query(of_its_gpus("gpu_clock_hertz", domain="sm"), "{{gpu}}"),
        ),
        draw(
            "GPU temperature",
            "Temperature of each of its GPUs, by sensor.",
            Unit.CELSIUS,
            Query(of_its_gpus("gpu_temperature_celsius", "sensor"), "{{sensor}} {{gpu}}"),
        ),
    )


def make_trust_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    """What it costs, how it compares, and which of its signals can be trusted."""
    spent = board.sum("target:llm_serving_cost_usd:increase1h", "phase")
    missing = board.select_one("signal_available", "target", "signal", "reason", holds="== 0")
    suspect = board.select_one("signal_suspect", "target", "signal", "cause", holds="== 1")
    return (
        board.time_series(
            "USD per hour by use",
            "Prefill, decode, idle, down and unattributed time add up to all its GPU time.",
            Look(Unit.USD, width=8, stacked=True, series_colours=SPENT_ON),
            Query(spent, "{{phase}}"),
            may_be_empty=NO_PRICE,
        ),
        board.time_series(
            "Restarts",
            "Restarts of the server since its exporter first scraped it.",
            Look(Unit.COUNT, width=8, decimals=0),
            Query(board.select_one("target_restarts_total", "target"), TARGET),
            may_be_empty="no exporter scrapes it",
        ),
        board.time_series(
            "Age of the last good page",
            "Rises while it does not answer. After three scrape intervals its serving series are absent.",
            Look(Unit.SECONDS, width=8),
            Query(board.select_one("target_sample_age_seconds", "target"), TARGET),
            may_be_empty="no exporter scrapes it",
        ),
        board.table(
            "Missing signals, and why",
            "METRICS.md and the exporter's landing page explain the reasons. A missing signal is not zero.",
            Look(width=9, height=10),
            ("signal", Column("reason", "reason", width=200)),
            missing,
            may_be_empty="no exporter reports a missing signal",
        ),
        board.table(
            "Suspect signals",
            "Signals with impossible values, and the likely cause.",
            Look(width=6, height=10),
            ("signal", Column("cause", "likely cause", width=150)),
            suspect,
            may_be_empty="no exporter reports a suspect signal",
        ),
        board.time_series(
            "Failed scrapes by reason",
            "Failed scrapes in 5m by the stage at which they ended, with the reason of the last one.",
            Look(Unit.COUNT, width=9, height=10),
            board.line("target:llm_serving_scrape_failures:increase5m", "{{stage}} {{reason}}"),
            may_be_empty="no exporter reports a failed scrape",
        ),
    )


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


def build_board(board: BoardBuilder) -> Board:
    """What it is and how it is, its figures and its peers', then what only its own page says."""
    return Board(
        REPLICA_UID,
        "LLM serving: one replica",
        "Everything about one replica; the worst one is chosen at first. In grey behind it: its peers, the replicas with the same model and role.",
        VARIABLES,
        (
            Row("", (make_firing(board, REPLICA_UID),)),
            Row("Now", _make_now_panels(board)),
            Row("Compared with its peers", tuple(_compare(board, *row) for row in _COMPARED)),
            Row("Its engines", make_engine_panels(board), may_be_empty="its model's size or its GPU is not known"),
            Row("Long contexts and GPUs", make_gpu_panels(board)),
            Row("Cost, restarts and signals", make_trust_panels(board)),
        ),
        choices=(("target", _find_worst_first(board.drop_choice("target"))),),
        hidden=(
            (_ITS_MODEL, f"label_values({board.select(DOWN)}, model_name)"),
            (ITS_GPUS, f"label_values({board.select_scraped('gpu_target_info')}, gpu)"),
        ),
        single=("target",),
    )


def _find_worst_first(board: BoardBuilder) -> str:
    """PromQL of all replicas: first those about which a page is open, then a ticket, then those that are unlike their peers, then by their pace."""
    by, on = board.dialect.labels("target"), board.match_on("target")
    known = board.select(DOWN)

    def fire(severity: Severity) -> str:
        return board.select_alerts("ALERTS", _FIRING, f'severity="{severity}"', 'target!=""')

    graver = (
        f"max by ({by}) ({fire(Severity.CRITICAL)}) * 1000000",
        f"max by ({by}) ({fire(Severity.WARNING)}) * 10000",
        f"max by ({by}) ({board.select(OUTLIER)}) * 0 + 100",
        f"max by ({by}) ({board.select(AGAINST)})",
        f"max by ({by}) ({known}) * 0",
    )
    return f"sort_desc(({f' or {on} '.join(graver)}) and {on} {known})"


def _make_now_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    states = _find_state(board)
    started = board.select_one("target_start_time_seconds", "target")
    facts = "model_name", "role", "runtime", "version"
    words = (*LIMITER_WORDS, *(replace(one, value=_AFTER + code) for code, one in enumerate(_STATE_WORDS)))
    return (
        board.stat(
            "State",
            "State of the replica now. Slow: its first tokens or its decode steps take much longer than its peers'. Loading and sleeping are neither ready nor down. "
            "No exporter: none scrapes it.",
            Look(width=4, height=4, mappings=(*_STATE_WORDS, ValueMapping(_NO_EXPORTER, "no exporter", Colour.DEAD))),
            Query(f"{states} or vector({_NO_EXPORTER})", "state", instant=True),
        ),
        board.stat(
            "Started",
            "When the server's process began.",
            Look(Unit.MILLISECONDS_SINCE, width=4, height=4),
            Query(f"max(1000 * {started})", "started", instant=True),
            may_be_empty="the engine does not report it",
        ),
        board.table(
            "What it is",
            "Model, role, runtime and version, as its page says them.",
            Look(width=16, height=4),
            (Column("target", "replica"), "model_name", "role", "runtime", "version"),
            board.select_one("target_info", "target", *facts),
            may_be_empty="no exporter scrapes it",
        ),
        _make_pace_panel(board),
        board.time_series(
            "Pace against its peers",
            "Time that its first tokens and its decode steps take, over the time that peers with the same GPU and runtime take for the same work. 1: as long as they, 2: twice as long.",
            Look(Unit.TIMES, height=6),
            board.line(AGAINST, "{{of}}"),
            may_be_empty="it has no comparable peers, or too few requests",
        ),
        board.timeline(
            "State and limiter over time",
            "The state of the replica, and what limited its throughput most over 5m: docs/limiter.md says what each limiter means.",
            Look(width=24, height=5, mappings=words),
            Query(_number_after(states), "state"),
            Query(board.find_replica_limiter(), "limiter"),
            may_be_empty="no exporter scrapes it",
        ),
    )


def _find_state(board: BoardBuilder) -> str:
    """PromQL of the replica's state by its place in _STATE_WORDS."""
    ready = f"max({board.select(STATE, state='ready')})"
    unlike = (
        f"(max({board.select(OUTLIER, one_of('of', _SLOW, negated=negated))}) and {ready}) * 0 + {len(STATES) + code}"
        for code, negated in enumerate((False, True))
    )
    return " or ".join((*unlike, f"min({board.select(STATE)} * 0 + {NUMBERED})"))


def _make_pace_panel(board: BoardBuilder) -> Panel:
    compared = one_of("of", _SLOW)
    own, peers, pace, unlike = (
        board.aggregate("max", board.select(record, compared), "of") for record in (OWN, PEERS, AGAINST, OUTLIER)
    )
    return board.table("Is it slower than its peers?", "Seconds to the first token and between two tokens over the last 15m (30m or 1h with few requests), and what peers with the same GPU and runtime would take for the same work. "
        "Slow: so much longer that ReplicaOutlier opens a ticket.", Look(height=6, sorted_by=0), (
            Column("of", "seconds for", mappings=(ValueMapping(TTFT, "a first token", "text"), ValueMapping(DECODE_PACE, "the next token", "text")), coloured=False),
            Column(0, "times as long", Unit.TIMES, decimals=2), Column(1, "its own", Unit.SECONDS), Column(2, "its peers'", Unit.SECONDS),
            Column(3, "slow", mappings=(ValueMapping(1, "yes", Colour.WARNING), ValueMapping(0, "no", Colour.FINE), ABSENT), width=80),
        ), pace, own, peers, f"{unlike} * 0 + 1 or {pace} * 0", may_be_empty="it has no comparable peers, or too few requests")  # fmt: skip


# codes of states beside those of limiters, in one timeline
_AFTER = 100


def _number_after(states: str) -> str:
    return f"({states}) + {_AFTER}"


# title, what it is, unit, figure, values of the figure's own labels
_COMPARED: tuple[tuple[str, str, Unit, Figure, dict[str, str]], ...] = (
    ("First tokens, p99", "Over the exporter's window.", Unit.SECONDS, LATENCY, {"latency": "ttft"}),
    ("Between tokens, p99", "Over the exporter's window.", Unit.SECONDS, LATENCY, {"latency": "itl"}),
    ("Bandwidth ceiling ratio (MBU)", "From the best source that is not suspect.", Unit.RATIO, BANDWIDTH, {}),
    ("Compute ceiling ratio (MFU)", "FLOPs over the dense tensor peak.", Unit.RATIO, COMPUTE, {}),
    ("Decode ceiling ratio", "Decode steps over what its hardware allows at the present batch and context.", Unit.RATIO, DECODE, {}),
    ("Prefill tokens/s", "Prompt tokens that it computed, over 5m.", Unit.TOKENS_PER_SECOND, TOKENS, {"phase": "prefill"}),
    ("Decode tokens/s", "Tokens that it generated, over 5m.", Unit.TOKENS_PER_SECOND, TOKENS, {"phase": "decode"}),
    ("Running requests", "Requests in its batch.", Unit.COUNT, RUNNING, {}),
    ("Waiting requests", "Requests in its queue.", Unit.COUNT, WAITING, {}),
    ("Batch size", "Decoding sequences per step over the exporter's window.", Unit.COUNT, BATCH, {}),
    ("KV cache usage", "Of its fullest engine.", Unit.RATIO, KV_USAGE, {}),
    ("Mean context of a running request", "KV cache tokens per running request.", Unit.TOKENS, CONTEXT, {}),
)  # fmt: skip


def _compare(board: BoardBuilder, title: str, about: str, unit: Unit, figure: Figure, equal: dict[str, str]) -> Panel:
    """The replica's own line in front of its peers: a grey line each, and from four replicas on the band from p10 to p90."""
    everybody = board.drop_choice("target")
    alone = f'model_name=~"${_ITS_MODEL}"'
    own, every = board.select(figure.each, **equal), everybody.select(figure.each, alone, **equal)
    alike = board.match_on("model_name", "role")
    peers = f"({every} and {alike} {own}) unless {board.match_on('target')} {own}"
    siblings = f"count({everybody.select(DOWN, alone)} and {alike} {board.select(DOWN)})"
    upper, lower = (
        f"{everybody.select(figure.edges, alone, rank=rank, **equal)} and {alike} {own}" for rank in (_HIGHEST, _LOWEST)
    )
    return board.time_series(
        title,
        f"{about} Grey: its peers, one line each where there are up to {MOST_PEERS}, and the band from p10 to p90 of all.",
        Look(unit, width=6, height=7),
        Query(board.hide_while("many_peers", f"{siblings} > {MOST_PEERS}", peers), f"peer {TARGET}", draw=Draw.BEHIND),
        Query(upper, "p90 of all", draw=Draw.TOP_EDGE),
        Query(lower, "p10 of all", draw=Draw.BOTTOM_EDGE),
        Query(own, TARGET, draw=Draw.OWN),
        may_be_empty="its engine does not report it, or no request ran",
    )
