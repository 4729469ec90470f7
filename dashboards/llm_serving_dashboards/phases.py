"""The dashboard of throughput and phases: how much is served, in which phase, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.alerting.phases import choose_itl_threshold
from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.records.bands import BATCH, RUNNING, TOKENS, WAITING
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Look, Panel, Query, Row, Unit, Worst
from llm_serving_dashboards.queries import RATE
from llm_serving_dashboards.shared_panels import MODEL, REASONS, BoardBuilder, warn_above, warn_below

VARIABLES = CHOICES[Check.PHASES.dashboard]
PHASES = ("prefill", "decode")
_ITL = "model:llm_serving_inter_token_latency_seconds:quantile_rate10m"


def build_board(board: BoardBuilder) -> Board:
    """Models first, then replicas."""
    return Board(
        Check.PHASES.dashboard,
        "LLM serving: throughput and phases",
        "How many tokens are computed and generated, how full the batch is, which phase takes the time, and what limits throughput.",
        VARIABLES,
        (
            Row("", (make_firing(board, Check.PHASES.dashboard),)),
            Row("Models", _make_model_panels(board)),
            Row("Against the baseline", _make_baseline_panels(board)),
            Row("Phases", _make_phase_panels(board)),
            Row("Requests", _make_request_panels(board)),
            Row("Replicas", _make_replica_panels(board)),
        ),
    )


def _make_model_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    tokens = "model:llm_serving_phase_tokens:rate5m"
    return (
        *(
            board.model_graph(
                f"{phase.capitalize()} tokens/s",
                f"{what} on all replicas of a model, averaged over 5m.",
                Look(Unit.TOKENS_PER_SECOND, width=8),
                board.line(tokens, MODEL, phase=phase),
            )
            for phase, what in (
                ("prefill", "Prompt tokens that were computed (without cache hits)"),
                ("decode", "Generated tokens"),
            )
        ),
        board.limiter(8, 8),
        board.model_graph(
            "Prompt tokens/s: computed and cached",
            "Prompt tokens that clients sent, and those of them that came from the prefix cache. The cache saved the prefill of the latter.",
            Look(Unit.TOKENS_PER_SECOND),
            board.line("model:llm_serving_prompt_tokens:rate5m", f"sent {MODEL}"),
            board.line("model:llm_serving_cached_prompt_tokens:rate5m", f"cached {MODEL}"),
        ),
        board.model_graph(
            "Tokens/s per GPU",
            "Tokens/s of each phase over the GPUs of the ready replicas.",
            Look(Unit.TOKENS_PER_SECOND),
            *_list_phases(board, "model:llm_serving_phase_tokens_per_gpu:rate5m", *reversed(PHASES)),
        ),
    )


def _make_baseline_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    own = board.settings.alerts["ThroughputBelowBaseline"]
    work, usual = (
        board.select(f"model:llm_serving_reference_work_per_replica:{name}") for name in ("rate5m_waiting", "p90_7d")
    )
    return (
        board.model_graph(
            "Work per replica with a queue, against the baseline",
            "Prefill and decode tokens, weighted by their reference seconds, while requests wait. The baseline is the 90th percentile of the last 7 days. "
            "There is no data while no requests wait or the history is too short.",
            Look(Unit.RATIO, worst=Worst.LOWEST, limits=warn_below(own["warning_below"], own["critical_below"])),
            Query(f"{work} / {board.match_on('model_name', 'role')} {usual}", MODEL),
            may_be_empty="no requests waited",
        ),
        board.model_graph(
            "Tokens/s against the same hour of other days",
            "Both phases together. Usual: the median of the same hour on the last seven days. A drop without a queue means less traffic, not a slower server.",
            Look(Unit.TOKENS_PER_SECOND),
            board.line("model:llm_serving_tokens:rate5m", f"now {MODEL}"),
            board.line("model:llm_serving_tokens:same_hour_median7d", f"usual {MODEL}"),
        ),
    )


def _make_phase_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    starved = board.settings.alerts["PrefillStarvesDecode"]
    return (
        board.model_graph(
            "Share of busy time by phase",
            "Share of time that each phase needs at its ceiling, averaged over the replicas. With a high prefill share, decode may stall while prompts are computed.",
            Look(Unit.RATIO, width=6, maximum=1, limits=warn_above(starved["prefill_above"])),
            *_list_phases(board, "model:llm_serving_phase_busy_ratio:avg", *PHASES),
        ),
        board.model_graph(
            "Inter-token latency beside prefill",
            "95th percentile over 10m of servers that do both phases. Above the line, with a high prefill share of busy time, answers stutter while prompts are computed.",
            Look(Unit.SECONDS, width=6, limits=warn_above(choose_itl_threshold(board.settings, starved))),
            board.line(_ITL, MODEL, rank="p95", role="unified"),
            may_be_empty="no server does both phases, or no token was generated",
        ),
        board.model_graph(
            "Reference seconds per token",
            "Time per token at the ceilings, with a fixed batch and context. These weights add up prefill and decode work. They change only with the model, GPU or format.",
            Look(Unit.SECONDS, width=6),
            *_list_phases(board, "model:llm_serving_phase_reference_seconds_per_token:avg", *reversed(PHASES)),
        ),
        board.model_graph(
            "Batch utilisation",
            "Running requests over the engines' limit. If the batch is at its limit, requests wait and decode is bandwidth-bound, a higher limit gives more throughput.",
            Look(Unit.RATIO, width=6, maximum=1),
            board.line("model:llm_serving_batch_utilization:ratio", MODEL),
        ),
    )


def _list_phases(board: BoardBuilder, record: str, *phases: str) -> Iterator[Query]:
    return (board.line(record, f"{phase} {MODEL}", phase=phase) for phase in phases)


def _make_request_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Running requests",
            "Requests in the batches of all replicas.",
            Look(Unit.COUNT, width=6),
            board.line("model:llm_serving_requests_running:sum", MODEL),
        ),
        board.model_graph(
            "Waiting requests",
            "Requests that are not yet in a batch.",
            Look(Unit.COUNT, width=6),
            board.line("model:llm_serving_requests_waiting:sum", MODEL),
        ),
        board.time_series(
            "Finished requests/s by reason",
            "Stop and length are successes. Error is a failure. Abort: the client gave up.",
            Look(Unit.REQUESTS_PER_SECOND, width=6, stacked=True, series_colours=REASONS),
            *board.draw_parts(board.select("model:llm_serving_requests_finished:rate5m"), "reason"),
        ),
        board.time_series(
            "Rejected requests/s by reason",
            "Requests refused at admission. The objectives count them neither as good nor as bad, but each one is an error for its client.",
            Look(Unit.REQUESTS_PER_SECOND, width=6, stacked=True),
            *board.draw_parts(board.select("model:llm_serving_requests_rejected:rate5m"), "reason"),
            may_be_empty="the engine does not count rejections",
        ),
    )


def _make_replica_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    drafts, accepted = (
        board.aggregate(
            "sum",
            board.dialect.one(
                f"rate({board.select_scraped(f'speculative_{what}_tokens_total')}[{RATE}])",
                "target",
                "model_name",
                "engine",
                "role",
            ),
            "model_name",
            "role",
        )
        for what in ("draft", "accepted")
    )
    return (
        *(
            board.band(
                f"{phase.capitalize()} tokens/s by replica",
                "A replica with fewer tokens/s than its peers is slow, or the router prefers the others.",
                Look(Unit.TOKENS_PER_SECOND, worst=Worst.LOWEST, width=8),
                TOKENS,
                phase=phase,
            )
            for phase in PHASES
        ),
        board.band(
            "Batch size by replica",
            "Decoding sequences per step, averaged over the exporter's window, on the replica's fullest engine.",
            Look(Unit.COUNT, width=8),
            BATCH,
        ),
        board.band(
            "Running requests by replica", "Requests in the batch of each replica.", Look(Unit.COUNT, width=8), RUNNING
        ),
        board.band(
            "Waiting requests by replica",
            "Requests in the queue of each replica. If one replica has a queue while others are idle, check the router.",
            Look(Unit.COUNT, width=8),
            WAITING,
        ),
        board.model_graph(
            "Speculative tokens accepted",
            "Share of a model's draft tokens that were accepted. With a low share, most of the draft work is wasted.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=8, maximum=1),
            Query(f"{accepted} / ({drafts} > 0)", MODEL),
            may_be_empty="speculative decoding is off",
        ),
    )
