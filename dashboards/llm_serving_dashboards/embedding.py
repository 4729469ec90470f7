"""Embedding and reranking servers: no decode, so requests and prompt tokens are what there is."""

from __future__ import annotations

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import MODEL, REASONS, REPLICA, lines

UID = "llm-serving-embedding"
VARIABLES = ("model_name", "target")


def board(asking: Asking) -> Board:
    """Work, then waiting."""
    return Board(
        UID,
        "LLM serving: embedding servers",
        "Servers that compute prompts and generate nothing: embeddings, reranking, classification. Without one, this page is empty.",
        VARIABLES,
        (Row("Work", _work(asking)), Row("Waiting", _waiting(asking))),
        models_of=asking.readers(),
    )


def _work(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Prompt tokens/s computed",
            "By model. There is no other phase: tokens/s of prefill are the throughput.",
            Unit.TOKENS_PER_SECOND,
            Query(asking.of("model:llm_serving_phase_tokens:rate5m", phase="prefill"), MODEL),
            least=0,
        ),
        lines(
            "Finished requests/s by reason",
            "An embedding server's natural measure.",
            Unit.REQUESTS_PER_SECOND,
            Query(asking.of("model:llm_serving_requests_finished:rate5m"), f"{{{{reason}}}} {MODEL}"),
            least=0,
            stacked=True,
            colours=REASONS,
        ),
    )


def _waiting(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Request latency",
            "Over 5m, by rank, interpolated between the server's bucket edges.",
            Unit.SECONDS,
            *(
                Query(
                    asking.of("model:llm_serving_e2e_request_latency_seconds:quantile_rate5m", rank=rank),
                    f"{rank} {MODEL}",
                )
                for rank in ("p50", "p95", "p99")
            ),
            width=8,
            least=0,
        ),
        lines(
            "Running requests",
            "By replica.",
            Unit.COUNT,
            Query(asking.of("target:llm_serving_requests_running:sum"), REPLICA),
            width=8,
            least=0,
        ),
        lines(
            "Waiting requests",
            "By replica.",
            Unit.COUNT,
            Query(asking.of("target:llm_serving_requests_waiting:sum"), REPLICA),
            width=8,
            least=0,
        ),
    )
