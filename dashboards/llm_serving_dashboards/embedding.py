"""Embedding and reranking servers: no decode, so requests and prompt tokens are what there is."""

from __future__ import annotations

from llm_serving_dashboards.panels import Board, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import MODEL, REASONS, REPLICA, make_time_series

UID = "llm-serving-embedding"
VARIABLES = ("model_name", "target")


def build_board(queries: QueryBuilder) -> Board:
    """Work, then waiting."""
    return Board(
        UID,
        "LLM serving: embedding servers",
        "Servers that compute prompts and generate nothing: embeddings, reranking, classification. Without one, this page is empty.",
        VARIABLES,
        (Row("Work", _make_work_panels(queries)), Row("Waiting", _make_waiting_panels(queries))),
        model_query=queries.select_models_without_decode(),
    )


def _make_work_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Prompt tokens/s computed",
            "By model. There is no other phase: tokens/s of prefill are the throughput.",
            Unit.TOKENS_PER_SECOND,
            Query(queries.select("model:llm_serving_phase_tokens:rate5m", phase="prefill"), MODEL),
            minimum=0,
        ),
        make_time_series(
            "Finished requests/s by reason",
            "An embedding server's natural measure.",
            Unit.REQUESTS_PER_SECOND,
            Query(queries.select("model:llm_serving_requests_finished:rate5m"), f"{{{{reason}}}} {MODEL}"),
            minimum=0,
            stacked=True,
            series_colours=REASONS,
        ),
    )


def _make_waiting_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Request latency",
            "Over 5m, by rank, interpolated between the server's bucket edges.",
            Unit.SECONDS,
            *(
                Query(
                    queries.select("model:llm_serving_e2e_request_latency_seconds:quantile_rate5m", rank=rank),
                    f"{rank} {MODEL}",
                )
                for rank in ("p50", "p95", "p99")
            ),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Running requests",
            "By replica.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_requests_running:sum"), REPLICA),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Waiting requests",
            "By replica.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_requests_waiting:sum"), REPLICA),
            width=8,
            minimum=0,
        ),
    )
