"""The dashboard of latency and objectives: how long users wait, against the objectives."""

from __future__ import annotations

from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.bands import LATENCY
from llm_serving_alerts.records.slo import BAD, BASE_SECONDS, EVENTS, RATIO
from llm_serving_alerts.records.traffic import LATENCIES, RANKS
from llm_serving_alerts.settings import LATENCY_SLOS, Settings
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Column, Look, Panel, Query, Row, Unit, Visualization
from llm_serving_dashboards.shared_panels import MODEL, BoardBuilder, warn_above, warn_below

UID = "llm-serving-latency"
VARIABLES = CHOICES[UID]
TITLES = {
    "time_to_first_token_seconds": ("Time to first token", "TTFT"),
    "inter_token_latency_seconds": ("Inter-token latency", "ITL"),
    "e2e_request_latency_seconds": ("Request latency, end to end", "E2E"),
    "request_queue_time_seconds": ("Queue time", "Queue"),
}
_SAY_CLOCK = " The legend says who measured: the front door, where it sees the client and has covered half of the engines' requests for long enough, else the engines."
# of objectives whose records need minutes of requests, and exporters that count for them
_NO_EVENTS = "no events have been counted"
# as many as can be read
_BURNING = 20
_OBJECTIVE = {
    "time_to_first_token_seconds": "ttft",
    "inter_token_latency_seconds": "itl",
    "e2e_request_latency_seconds": "e2e",
}


def build_board(board: BoardBuilder) -> Board:
    """Objectives first, then each latency: its quantiles, its distribution, and the share above the top bucket edge."""
    return Board(
        UID,
        "LLM serving: latency and objectives",
        "Are first tokens, tokens and responses in time, how fast is the error budget spent, and how much of it is left?",
        VARIABLES,
        (
            Row("", (make_firing(board, UID),)),
            Row("Objectives", (_make_burning(board), *_make_objective_panels(board))),
            *(Row(TITLES[name][0], _make_latency_panels(board, name)) for name in LATENCIES),
            Row("Replicas", _make_replica_panels(board)),
        ),
    )


def list_set_objectives(settings: Settings) -> tuple[str, ...]:
    """Names of the objectives that the settings define."""
    return tuple(
        name for name, one in settings.slo.items() if name not in LATENCY_SLOS or one.threshold_seconds is not None
    )


def _make_burning(board: BoardBuilder) -> Panel:
    """How fast each model spends each objective's budget, the fastest first: over the long window of each pair by which alerts go."""
    burn = board.settings.burn
    loudest = max(burn["fast"], key=lambda window: window.factor)
    colours = {window.long_seconds: warn_above(window.factor) for window in burn["slow"]}
    colours |= {window.long_seconds: warn_above(1, window.factor) for window in burn["fast"]}
    spans = sorted(colours, key=lambda seconds: (seconds != loudest.long_seconds, seconds))
    rates = [_find_burns(board, seconds_text(span)) for span in spans]
    on = board.match_on("model_name", "role", "slo")
    return board.table("Objectives that burn", f"How many times faster than allowed each error budget is spent, the fastest over {seconds_text(spans[0])} first. At 1 it lasts "
        f"{seconds_text(board.settings.period_seconds)}. Red: fast enough for a page, if the short window of the pair agrees; orange: for a ticket.{_SAY_CLOCK}", Look(width=24, height=6, sorted_by=0), (
            Column("model_name", "model", least_width=200), Column("role", "role", width=120), Column("slo", "objective", width=100),
            Column("clock", "clock", width=140),
            *(
                Column(number, f"burn over {seconds_text(span)}", Unit.TIMES, colours[span], 2, width=140)
                for number, span in enumerate(spans)
            ),
        ), f"topk({_BURNING}, {rates[0]})", *(f"({rate}) and {on} topk({_BURNING}, {rates[0]})" for rate in rates[1:]), may_be_empty=_NO_EVENTS)  # fmt: skip


def _find_burns(board: BoardBuilder, span: str) -> str:
    """PromQL of the burn rate of each objective over a span."""
    return " or ".join(
        f'label_replace({board.name_clock(RATIO.format(window=span), slo)} / {board.settings.slo[slo].budget:.6g}, "slo", "{slo}", "", "")'
        for slo in list_set_objectives(board.settings)
    )


def _make_objective_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    panels: list[Panel] = []
    settings = board.settings
    period = seconds_text(settings.period_seconds)
    loudest = max(settings.burn["fast"], key=lambda window: window.factor)
    # the windows of the paging alerts, that of the loudest first, and the shortest window
    others = {BASE_SECONDS, *(window.long_seconds for window in settings.burn["fast"])} - {loudest.long_seconds}
    spans = [seconds_text(one) for one in (loudest.long_seconds, *sorted(others))]
    for slo in list_set_objectives(settings):
        objective = settings.slo[slo]
        bad, events = (
            f"({board.count_once(record.format(window=period), slo, settings.period_seconds)})"
            for record in (BAD, EVENTS)
        )
        attained = f"1 - sum({bad}) / (sum({events}) > 0)"
        when = "" if objective.threshold_seconds is None else f" (threshold {objective.threshold_seconds:g} s)"
        none = f" No events are counted without some minutes of requests, or where the exporter has `slo.{slo}` off."
        panels += [
            board.stat(
                f"{slo} attained",
                f"Share of good events in {period} over the selection{when}. The objective is {objective.objective:.4g}.{none}",
                Look(Unit.RATIO, width=4, height=6, decimals=3, thresholds=warn_below(objective.objective)),
                Query(attained, slo),
                may_be_empty=_NO_EVENTS,
            ),
            board.stat(
                f"{slo} budget left",
                f"Share of the error budget of {period} that is left. Below 0, the objective is missed.{none}",
                Look(Unit.RATIO, width=4, height=6, decimals=1, thresholds=warn_below(0.25, 0.0)),
                Query(f"1 - (sum({bad}) / (sum({events}) > 0)) / {objective.budget:.6g}", slo),
                may_be_empty=_NO_EVENTS,
            ),
            board.model_graph(
                f"{slo} burn rate",
                f"Share of bad events over the share that the objective allows. At 1, the budget lasts {period}. At {loudest.factor:g} over {seconds_text(loudest.long_seconds)}, the alert pages.{_SAY_CLOCK if slo == 'ttft' else ''}{none}",
                Look(Unit.TIMES, width=16, height=6, limits=warn_above(1, loudest.factor)),
                *(
                    Query(
                        f"{board.name_clock(RATIO.format(window=span), slo)} / {objective.budget:.6g}",
                        f"{span} {MODEL}{' by {{clock}}' if slo == 'ttft' else ''}",
                    )
                    for span in spans
                ),
                may_be_empty=_NO_EVENTS,
            ),
        ]
    return tuple(panels)


def _make_latency_panels(board: BoardBuilder, histogram: str) -> tuple[Panel, ...]:
    _, short = TITLES[histogram]
    objective = board.settings.slo.get(_OBJECTIVE.get(histogram, ""))
    limit = objective.threshold_seconds if objective is not None else None
    edges, quantile = f"model:llm_serving_{histogram}_bucket:rate5m", f"model:llm_serving_{histogram}:quantile_rate5m"
    return (
        board.model_graph(
            f"{short}: quantiles",
            "Over 5m, interpolated between the engine's bucket edges. The true p99 can be as high as the edge above it, which the graph shows too. At the top "
            "edge both are lower bounds: see the share above the top edge.",
            Look(Unit.SECONDS, width=10, logarithmic=True, limits=warn_above(limit) if limit is not None else ()),
            *(board.line(quantile, f"{rank} {MODEL}", rank=rank) for rank in ("p99", "p95", "p50")),
            Query(_find_edge_above(board, board.select(edges), RANKS["p99"]), f"edge above p99 {MODEL}"),
        ),
        Panel(
            f"{short}: distribution",
            "Events per second between two bucket edges of the engine, over the selection. Of a front door only where none of its engines is scraped. No quantile is more precise than a cell.",
            Visualization.HEATMAP,
            Look(Unit.SECONDS, width=8),
            (Query(board.aggregate("sum", board.engines_first(edges), "le"), "{{le}}"),),
        ),
        board.model_graph(
            f"{short}: above the top edge",
            "Share of events above the engine's largest bucket edge. Their length is unknown. Above 1 %, the p99 is among them.",
            Look(Unit.RATIO, width=6, maximum=1, limits=warn_above(0.01)),
            board.line(f"model:llm_serving_{histogram}:above_top_edge_ratio_rate5m", MODEL),
        ),
    )


def _find_edge_above(board: BoardBuilder, buckets: str, quantile: float) -> str:
    """PromQL for the upper edge of the bucket that holds a quantile. `buckets`: a selector of cumulative bucket rates.

    Buckets are cut off at the quantile's share of all events, so that quantile 1 of the rest is that edge.
    """
    on = board.match_on("model_name", "role")
    share = f"{quantile:g} * {board.aggregate('max', buckets, 'model_name', 'role')}"
    cut = f"{buckets} * 1 < {on} group_left () {share} or {buckets} * 0 + {on} group_left () {share}"
    return f"histogram_quantile(1, {cut})"


def _make_replica_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return tuple(
        board.band(
            f"{title} by replica, p99",
            "Over the exporter's window, one minute by default. Use it to find replicas that differ, not to judge an objective.",
            Look(Unit.SECONDS),
            LATENCY,
            latency=latency,
        )
        for latency, title in (("ttft", "Time to first token"), ("itl", "Inter-token latency"))
    )
