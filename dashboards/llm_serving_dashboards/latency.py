"""Latency and objectives: what users wait for, against what was promised."""

from __future__ import annotations

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.slo import BAD, BASE_SECONDS, EVENTS, RATIO
from llm_serving_alerts.records.traffic import LATENCIES, RANKS
from llm_serving_alerts.settings import LATENCY_SLOS, Settings
from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Look, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import ENGINE, MODEL, above, below, lines, threshold, value

UID = "llm-serving-latency"
VARIABLES = ("model_name", "role", "target")
TITLES = {
    "time_to_first_token_seconds": ("Time to first token", "TTFT"),
    "inter_token_latency_seconds": ("Inter-token latency", "ITL"),
    "e2e_request_latency_seconds": ("Request latency, end to end", "E2E"),
    "request_queue_time_seconds": ("Queue time", "Queue"),
}
_OBJECTIVE = {
    "time_to_first_token_seconds": "ttft",
    "inter_token_latency_seconds": "itl",
    "e2e_request_latency_seconds": "e2e",
}


def board(asking: Asking) -> Board:
    """Objectives first, then each latency: quantiles, where its events lie, and how much of it nobody can see."""
    return Board(
        UID,
        "LLM serving: latency and objectives",
        "Are first tokens, tokens and answers in time, how fast is the error budget spent, and how much of it is left.",
        VARIABLES,
        (
            Row("Objectives", _objectives(asking)),
            *(Row(TITLES[name][0], _latency(asking, name)) for name in LATENCIES),
            Row("Replicas", _replicas(asking)),
        ),
    )


def counted(settings: Settings) -> tuple[str, ...]:
    """Objectives that are set."""
    return tuple(
        name for name, one in settings.slo.items() if name not in LATENCY_SLOS or one.threshold_seconds is not None
    )


def _objectives(asking: Asking) -> tuple[Panel, ...]:
    found: list[Panel] = []
    settings = asking.settings
    period = seconds_text(settings.period_seconds)
    # the windows that page, and the shortest there is
    spans = [
        seconds_text(one) for one in sorted({BASE_SECONDS, *(window.long_seconds for window in settings.burn["fast"])})
    ]
    loudest = max(settings.burn["fast"], key=lambda window: window.factor)
    for slo in counted(settings):
        objective = settings.slo[slo]
        bad = asking.of(BAD.format(window=period), slo=slo)
        events = asking.of(EVENTS.format(window=period), slo=slo)
        attained = f"1 - sum({bad}) / (sum({events}) > 0)"
        when = "" if objective.threshold_seconds is None else f" (threshold {objective.threshold_seconds:g} s)"
        found += [
            value(
                f"{slo} attained",
                f"Share of good events in {period}, of all that were chosen{when}. The objective is {objective.objective:.4g}.",
                Unit.RATIO,
                Query(attained, slo),
                steps=below(objective.objective),
                decimals=3,
                height=6,
            ),
            value(
                f"{slo} budget left",
                f"Share of the error budget of {period} that is left; below 0 the objective is missed.",
                Unit.RATIO,
                Query(f"1 - (sum({bad}) / (sum({events}) > 0)) / {objective.budget:.6g}", slo),
                steps=below(0.25, 0.0),
                decimals=1,
                height=6,
            ),
            lines(
                f"{slo}: how fast the budget is spent",
                f"Share of bad events over the share that may be bad: at 1 the budget lasts {period}, at {loudest.factor:g} over {seconds_text(loudest.long_seconds)} somebody is paged.",
                Unit.TIMES,
                *(
                    Query(
                        f"{asking.of(RATIO.format(window=span), slo=slo)} / {objective.budget:.6g}",
                        f"{span} {MODEL}",
                    )
                    for span in spans
                ),
                width=16,
                height=6,
                least=0,
                **threshold(above(1, loudest.factor)),
            ),
        ]
    return tuple(found)


def _latency(asking: Asking, histogram: str) -> tuple[Panel, ...]:
    _, short = TITLES[histogram]
    objective = asking.settings.slo.get(_OBJECTIVE.get(histogram, ""))
    limit = objective.threshold_seconds if objective is not None else None
    edges = f"model:llm_serving_{histogram}_bucket:rate5m"
    return (
        lines(
            f"{short}: quantiles",
            "Over 5m, interpolated between the engine's bucket edges. p99 may truly be as high as the edge above it, which is drawn too; at the top edge both "
            "mean at least so much: see the share above it.",
            Unit.SECONDS,
            *(
                Query(asking.of(f"model:llm_serving_{histogram}:quantile_rate5m", rank=rank), f"{rank} {MODEL}")
                for rank in ("p50", "p95", "p99")
            ),
            Query(_edge_above(asking, asking.of(edges), RANKS["p99"]), f"edge above p99 {MODEL}"),
            width=10,
            logarithmic=True,
            **threshold(above(limit) if limit is not None else ()),
        ),
        Panel(
            f"{short}: where the events lie",
            "Events per second between two edges of the engine's buckets, of all that were chosen. No quantile is sharper than a cell.",
            Look.HEATMAP,
            (Query(asking.by("sum", asking.of(edges), "le"), "{{le}}"),),
            Unit.SECONDS,
            8,
        ),
        lines(
            f"{short}: above the top edge",
            "Events longer than the engine's largest bucket edge: nobody can tell how long. Above 1 % the p99 is such a one.",
            Unit.RATIO,
            Query(asking.of(f"model:llm_serving_{histogram}:above_top_edge_ratio_rate5m"), MODEL),
            width=6,
            least=0,
            most=1,
            **threshold(above(0.01)),
        ),
    )


def _edge_above(asking: Asking, buckets: str, quantile: float) -> str:
    """The upper edge of the bucket that a quantile lies in: of buckets that hold no more than its share, the last one is full there."""
    on = asking.on("model_name", "role")
    share = f"{quantile:g} * {asking.by('max', buckets, 'model_name', 'role')}"
    cut = f"{buckets} * 1 < {on} group_left () {share} or {buckets} * 0 + {on} group_left () {share}"
    return f"histogram_quantile(1, {cut})"


def _replicas(asking: Asking) -> tuple[Panel, ...]:
    return tuple(
        lines(
            f"{title} by replica, p99",
            "Of each replica over the exporter's window, a minute by default: for a glance at who differs, not for an objective.",
            Unit.SECONDS,
            Query(
                asking.one("window_latency_seconds", "target", "model_name", "engine", latency=latency, rank="p99"),
                ENGINE,
            ),
            logarithmic=True,
        )
        for latency, title in (
            ("ttft", "Time to first token"),
            ("itl", "Inter-token latency"),
        )
    )
