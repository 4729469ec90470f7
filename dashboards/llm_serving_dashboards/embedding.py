"""The dashboard of embedding and reranking servers, which have no decode phase."""

from __future__ import annotations

from llm_serving_alerts.records.bands import RUNNING, WAITING
from llm_serving_dashboards.bands import draw_parts, make_band, make_model_graph
from llm_serving_dashboards.panels import Board, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import QueryBuilder, Worst
from llm_serving_dashboards.shared_panels import MODEL, REASONS, make_time_series

UID = "llm-serving-embedding"
VARIABLES = ("model_name", "target")


def build_board(queries: QueryBuilder) -> Board:
    """Throughput, then latency and queue."""
    return Board(
        UID,
        "LLM serving: embedding servers",
        "Servers that compute prompts and generate no tokens: embedding, reranking, classification. Without such a server there is no data.",
        VARIABLES,
        (Row("Throughput", _make_throughput_panels(queries)), Row("Latency and queue", _make_latency_panels(queries))),
        model_query=queries.select_models_without_decode(),
    )


def _make_throughput_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_model_graph(
            queries,
            "Prompt tokens/s computed",
            "Prefill tokens/s of each model. There is no decode phase, so this is the throughput.",
            Unit.TOKENS_PER_SECOND,
            Worst.HIGHEST,
            Query(queries.select("model:llm_serving_phase_tokens:rate5m", phase="prefill"), MODEL),
            minimum=0,
        ),
        make_time_series(
            "Finished requests/s by reason",
            "Requests/s are the usual measure of an embedding server.",
            Unit.REQUESTS_PER_SECOND,
            *draw_parts(queries, queries.select("model:llm_serving_requests_finished:rate5m"), "reason"),
            minimum=0,
            stacked=True,
            series_colours=REASONS,
        ),
    )


def _make_latency_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_model_graph(
            queries,
            "Request latency",
            "Quantiles over 5m, interpolated between the server's bucket edges.",
            Unit.SECONDS,
            Worst.HIGHEST,
            *(
                Query(
                    queries.select("model:llm_serving_e2e_request_latency_seconds:quantile_rate5m", rank=rank),
                    f"{rank} {MODEL}",
                )
                for rank in ("p99", "p95", "p50")
            ),
            width=8,
            minimum=0,
        ),
        make_band(
            queries,
            "Running requests by replica",
            "Requests that each replica is computing.",
            Unit.COUNT,
            RUNNING,
            Worst.HIGHEST,
            width=8,
        ),
        make_band(
            queries,
            "Waiting requests by replica",
            "Requests in the queue of each replica.",
            Unit.COUNT,
            WAITING,
            Worst.HIGHEST,
            width=8,
        ),
    )
