"""The dashboard of embedding and reranking servers, which have no decode phase."""

from __future__ import annotations

from llm_serving_alerts.promql import MODEL as BY_MODEL
from llm_serving_alerts.records.bands import RUNNING, WAITING
from llm_serving_dashboards.panels import Board, Column, Look, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import (
    MODEL,
    REASONS,
    draw_parts,
    make_band,
    make_model_graph,
    make_table,
    make_time_series,
)

UID = "llm-serving-embedding"
VARIABLES = ("model_name", "target")
_NONE = "no embedding server"


def build_board(queries: QueryBuilder) -> Board:
    """Each of them as it is now, then throughput, latency and queue over time."""
    return Board(
        UID,
        "LLM serving: embedding servers",
        "Servers that compute prompts and generate no tokens: embedding, reranking, classification.",
        VARIABLES,
        (
            Row("", (_make_list(queries),)),
            # most fleets have none, and Grafana 12 folds a row of this kind of board by its file alone, never by what there is to draw
            Row(
                "Over time",
                (*_make_throughput_panels(queries), *_make_latency_panels(queries)),
                folded=True,
                may_be_empty=_NONE,
            ),
        ),
        choices=(("model_name", queries.select_models_without_decode()),),
    )


def _make_list(queries: QueryBuilder) -> Panel:
    by_model, on = queries.dialect.labels("model_name", "role"), queries.match_on("model_name")
    theirs = queries.select_models_without_decode()

    def of_them(expression: str) -> str:
        return f"max by ({by_model}) ({expression}) and {on} ({theirs})"

    latency = "model:llm_serving_e2e_request_latency_seconds:quantile_rate5m"
    requests = queries.aggregate("sum", queries.select("model:llm_serving_requests_finished:rate5m"), *BY_MODEL)
    return make_table("Embedding servers", "Models whose servers have finished requests and have never generated a token, as they are now; those with the longest queue first.", Look(width=24, height=6, sorted_by=0), (
            "model_name", "role", Column(0, "waiting", Unit.COUNT), Column(1, "ready", Unit.COUNT),
            Column(2, "requests/s", Unit.COUNT, decimals=1), Column(3, "prompt tokens/s", Unit.COUNT), Column(4, "p99 latency", Unit.SECONDS),
        ), of_them(queries.select("model:llm_serving_requests_waiting:sum")), of_them(queries.select("model:llm_serving_ready_replicas:sum")), of_them(requests), of_them(queries.select("model:llm_serving_phase_tokens:rate5m", phase="prefill")), of_them(queries.select(latency, rank="p99")), may_be_empty=_NONE)  # fmt: skip


def _make_throughput_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_model_graph(
            queries,
            "Prompt tokens/s computed",
            "Prefill tokens/s of each model. There is no decode phase, so this is the throughput.",
            Look(Unit.TOKENS_PER_SECOND),
            Query(queries.select("model:llm_serving_phase_tokens:rate5m", phase="prefill"), MODEL),
        ),
        make_time_series(
            "Finished requests/s by reason",
            "Requests/s are the usual measure of an embedding server.",
            Look(Unit.REQUESTS_PER_SECOND, stacked=True, series_colours=REASONS),
            *draw_parts(queries, queries.select("model:llm_serving_requests_finished:rate5m"), "reason"),
        ),
    )


def _make_latency_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_model_graph(
            queries,
            "Request latency",
            "Quantiles over 5m, interpolated between the server's bucket edges.",
            Look(Unit.SECONDS, width=8),
            *(
                Query(
                    queries.select("model:llm_serving_e2e_request_latency_seconds:quantile_rate5m", rank=rank),
                    f"{rank} {MODEL}",
                )
                for rank in ("p99", "p95", "p50")
            ),
        ),
        make_band(
            queries,
            "Running requests by replica",
            "Requests that each replica is computing.",
            Look(Unit.COUNT, width=8),
            RUNNING,
        ),
        make_band(
            queries,
            "Waiting requests by replica",
            "Requests in the queue of each replica.",
            Look(Unit.COUNT, width=8),
            WAITING,
        ),
    )
