"""The dashboard of embedding and reranking servers, which have no decode phase."""

from __future__ import annotations

from llm_serving_alerts.promql import MODEL as BY_MODEL
from llm_serving_alerts.records.bands import RUNNING, WAITING
from llm_serving_dashboards.panels import Board, Column, Look, Panel, Row, Unit
from llm_serving_dashboards.shared_panels import MODEL, REASONS, BoardBuilder

UID = "llm-serving-embedding"
VARIABLES = ("model_name", "target")
_NONE = "no embedding server"


def build_board(board: BoardBuilder) -> Board:
    """Each of them as it is now, then throughput, latency and queue over time."""
    return Board(
        UID,
        "LLM serving: embedding servers",
        "Servers that compute prompts and generate no tokens: embedding, reranking, classification.",
        VARIABLES,
        (
            Row("", (_make_list(board),)),
            # most fleets have none, and Grafana 12 folds a row of this kind of board by its file alone, never by what there is to draw
            Row(
                "Over time",
                (*_make_throughput_panels(board), *_make_latency_panels(board)),
                folded=True,
                may_be_empty=_NONE,
            ),
        ),
        choices=(("model_name", board.select_models_without_decode()),),
    )


def _make_list(board: BoardBuilder) -> Panel:
    by_model, on = board.dialect.labels("model_name", "role"), board.match_on("model_name")
    theirs = board.select_models_without_decode()

    def of_them(expression: str) -> str:
        return f"max by ({by_model}) ({expression}) and {on} ({theirs})"

    latency = "model:llm_serving_e2e_request_latency_seconds:quantile_rate5m"
    requests = board.sum("model:llm_serving_requests_finished:rate5m", *BY_MODEL)
    return board.table("Embedding servers", "Models whose servers have finished requests and have never generated a token, as they are now; those with the longest queue first.", Look(width=24, height=6, sorted_by=0), (
            "model_name", "role", Column(0, "waiting", Unit.COUNT), Column(1, "ready", Unit.COUNT),
            Column(2, "requests/s", Unit.COUNT, decimals=1), Column(3, "prompt tokens/s", Unit.COUNT), Column(4, "p99 latency", Unit.SECONDS),
        ), of_them(board.select("model:llm_serving_requests_waiting:sum")), of_them(board.select("model:llm_serving_ready_replicas:sum")), of_them(requests), of_them(board.select("model:llm_serving_phase_tokens:rate5m", phase="prefill")), of_them(board.select(latency, rank="p99")), may_be_empty=_NONE)  # fmt: skip


def _make_throughput_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Prompt tokens/s computed",
            "Prefill tokens/s of each model. There is no decode phase, so this is the throughput.",
            Look(Unit.TOKENS_PER_SECOND),
            board.line("model:llm_serving_phase_tokens:rate5m", MODEL, phase="prefill"),
        ),
        board.time_series(
            "Finished requests/s by reason",
            "Requests/s are the usual measure of an embedding server.",
            Look(Unit.REQUESTS_PER_SECOND, stacked=True, series_colours=REASONS),
            *board.draw_parts(board.select("model:llm_serving_requests_finished:rate5m"), "reason"),
        ),
    )


def _make_latency_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Request latency",
            "Quantiles over 5m, interpolated between the server's bucket edges.",
            Look(Unit.SECONDS, width=8),
            *(
                board.line(
                    "model:llm_serving_e2e_request_latency_seconds:quantile_rate5m", f"{rank} {MODEL}", rank=rank
                )
                for rank in ("p99", "p95", "p50")
            ),
        ),
        board.band(
            "Running requests by replica",
            "Requests that each replica is computing.",
            Look(Unit.COUNT, width=8),
            RUNNING,
        ),
        board.band(
            "Waiting requests by replica", "Requests in the queue of each replica.", Look(Unit.COUNT, width=8), WAITING
        ),
    )
