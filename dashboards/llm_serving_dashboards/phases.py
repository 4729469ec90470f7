"""Throughput and phases: how much is served, by which phase, and what holds it."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.asking import RATE, Asking
from llm_serving_dashboards.home import limiter
from llm_serving_dashboards.nouns import Board, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import ENGINE, MODEL, REASONS, REPLICA, above, below, lines, threshold

VARIABLES = ("model_name", "role", "target")
PHASES = ("prefill", "decode")


def board(asking: Asking) -> Board:
    """By model above, by replica below."""
    return Board(
        Check.PHASES.dashboard,
        "LLM serving: throughput and phases",
        "How many tokens are computed and generated, how full the batch is, which phase takes the time, and what limits.",
        VARIABLES,
        (
            Row("Models", _models(asking)),
            Row("Against the usual", _usual(asking)),
            Row("Phases", _phases(asking)),
            Row("Requests", _requests(asking)),
            Row("Replicas", _replicas(asking)),
        ),
    )


def _models(asking: Asking) -> tuple[Panel, ...]:
    tokens = "model:llm_serving_phase_tokens:rate5m"
    return (
        *(
            lines(
                f"{phase.capitalize()} tokens/s",
                f"{what} by all replicas of a model, mean of 5m.",
                Unit.TOKENS_PER_SECOND,
                Query(asking.of(tokens, phase=phase), MODEL),
                width=8,
                least=0,
            )
            for phase, what in (
                ("prefill", "Prompt tokens really computed (no cache hits)"),
                ("decode", "Tokens generated"),
            )
        ),
        limiter(asking, 8, 8),
        lines(
            "Prompt tokens/s: computed and cached",
            "What clients sent, and what of it the prefix cache had. The distance is prefill that was spared.",
            Unit.TOKENS_PER_SECOND,
            Query(asking.of("model:llm_serving_prompt_tokens:rate5m"), f"sent {MODEL}"),
            Query(asking.of("model:llm_serving_cached_prompt_tokens:rate5m"), f"cached {MODEL}"),
            least=0,
        ),
        lines(
            "Tokens/s per GPU",
            "By phase, over the GPUs of the ready replicas.",
            Unit.TOKENS_PER_SECOND,
            Query(asking.of("model:llm_serving_phase_tokens_per_gpu:rate5m"), f"{{{{phase}}}} {MODEL}"),
            least=0,
        ),
    )


def _usual(asking: Asking) -> tuple[Panel, ...]:
    own = asking.settings.alerts["ThroughputBelowBaseline"]
    work, usual = (
        asking.of(f"model:llm_serving_reference_work_per_replica:{name}") for name in ("rate5m_waiting", "p90_7d")
    )
    return (
        lines(
            "Work of a replica under a queue, against its usual",
            "Prefill and decode weighed by their reference seconds, at moments when requests waited, over the 90th percentile of 7 days. Absent while "
            "nothing waits or there is no history.",
            Unit.RATIO,
            Query(f"{work} / {asking.on('model_name', 'role')} {usual}", MODEL),
            least=0,
            may_be_empty="nothing waited",
            **threshold(below(own["warning_below"], own["critical_below"])),
        ),
        lines(
            "Tokens/s against the same hour of other days",
            "Both phases together; usual: median of the same hour on the last seven days. A fall without a queue is traffic that went elsewhere.",
            Unit.TOKENS_PER_SECOND,
            Query(asking.of("model:llm_serving_tokens:rate5m"), f"now {MODEL}"),
            Query(asking.of("model:llm_serving_tokens:same_hour_median7d"), f"usual {MODEL}"),
            least=0,
        ),
    )


def _phases(asking: Asking) -> tuple[Panel, ...]:
    starved = asking.settings.alerts["PrefillStarvesDecode"]
    busy = asking.by(
        "avg",
        asking.one("phase_busy_ratio", "target", "model_name", "role", "engine", "phase"),
        "model_name",
        "role",
        "phase",
    )
    reference = asking.by(
        "avg",
        asking.one("phase_reference_seconds_per_token", "target", "model_name", "role", "engine", "phase"),
        "model_name",
        "role",
        "phase",
    )
    return (
        lines(
            "Share of busy time by phase",
            "What each phase needs at its ceiling, mean of the replicas. Above half of it in prefill, answers may stutter while prompts are computed.",
            Unit.RATIO,
            Query(busy, f"{{{{phase}}}} {MODEL}"),
            width=8,
            least=0,
            most=1,
            **threshold(above(starved["prefill_above"])),
        ),
        lines(
            "Reference seconds per token",
            "Time of a token at the ceilings, at a fixed batch and context: the weights by which mixed work is added up. Changes with model, GPU or format only.",
            Unit.SECONDS,
            Query(reference, f"{{{{phase}}}} {MODEL}"),
            width=8,
            least=0,
        ),
        lines(
            "Batch utilisation",
            "Running requests over the engines' limit. At the limit with a queue, a higher limit gives more while bandwidth binds.",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_batch_utilization:ratio"), MODEL),
            width=8,
            least=0,
            most=1,
        ),
    )


def _requests(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Running requests",
            "In the batch of all replicas.",
            Unit.COUNT,
            Query(asking.of("model:llm_serving_requests_running:sum"), MODEL),
            width=6,
            least=0,
        ),
        lines(
            "Waiting requests",
            "Not yet in a batch.",
            Unit.COUNT,
            Query(asking.of("model:llm_serving_requests_waiting:sum"), MODEL),
            width=6,
            least=0,
        ),
        lines(
            "Finished requests/s by reason",
            "stop and length are good ends; error is not; abort is the client's.",
            Unit.REQUESTS_PER_SECOND,
            Query(asking.of("model:llm_serving_requests_finished:rate5m"), f"{{{{reason}}}} {MODEL}"),
            width=6,
            least=0,
            stacked=True,
            colours=REASONS,
        ),
        lines(
            "Rejected requests/s by reason",
            "Refused at admission: neither good nor bad for the objectives, and still somebody's error.",
            Unit.REQUESTS_PER_SECOND,
            Query(asking.of("model:llm_serving_requests_rejected:rate5m"), f"{{{{reason}}}} {MODEL}"),
            width=6,
            least=0,
            stacked=True,
            may_be_empty="the engine's page counts no rejections",
        ),
    )


def _replicas(asking: Asking) -> tuple[Panel, ...]:
    tokens = "target:llm_serving_phase_tokens:rate5m"
    drafts, accepted = (
        asking.by(
            "sum",
            asking.dialect.one(
                f"rate({asking.of(f'speculative_{what}_tokens_total')}[{RATE}])", "target", "model_name", "engine"
            ),
            "target",
            "model_name",
        )
        for what in ("draft", "accepted")
    )
    return (
        *(
            lines(
                f"{phase.capitalize()} tokens/s by replica",
                "A replica that does less than its peers under the same load is slow, or the router favours others.",
                Unit.TOKENS_PER_SECOND,
                Query(asking.of(tokens, phase=phase), REPLICA),
                width=8,
                least=0,
            )
            for phase in PHASES
        ),
        lines(
            "Batch size by replica",
            "Decoding sequences in a step, mean of the exporter's window.",
            Unit.COUNT,
            Query(asking.one("batch_size_mean", "target", "model_name", "engine"), ENGINE),
            width=8,
            least=0,
        ),
        lines(
            "Running requests by replica",
            "In the batch.",
            Unit.COUNT,
            Query(asking.of("target:llm_serving_requests_running:sum"), REPLICA),
            width=8,
            least=0,
        ),
        lines(
            "Waiting requests by replica",
            "A queue at one replica while others are idle is the router's.",
            Unit.COUNT,
            Query(asking.of("target:llm_serving_requests_waiting:sum"), REPLICA),
            width=8,
            least=0,
        ),
        lines(
            "Speculative tokens accepted",
            "Share of proposed tokens that were kept. Low acceptance computes tokens for nothing.",
            Unit.RATIO,
            Query(f"{accepted} / ({drafts} > 0)", REPLICA),
            width=8,
            least=0,
            most=1,
            may_be_empty="no speculative decoding",
        ),
    )
