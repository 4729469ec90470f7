"""SGLang's model gateway (sglang-router from 0.3, smg): the table. Made from its source, never met until recorded."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import Fingerprint, FirstToken, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import CLASS_OF_STATUS, OUTCOME_OF_STATUS, explain_missing

_METRICS = "https://github.com/sgl-project/sglang/blob/01b2d83aef500374fbff9e237792dc3298297103/sgl-model-gateway/src/observability/metrics.rs"
_GRPC = "Workers over gRPC only."
# the answers that count: what else it serves is asked for by machines
_ANSWERS = frozenset({
    "/generate", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/rerank", "/v1/responses",
})  # fmt: skip

# sglang-router 0.3 has no path, so that health checks are among its answers; what went well is counted where requests are routed
_NO_PATH = {"path": frozenset({""})}
_ROUTED = "smg_router_request_duration_seconds_count"
_WELL = [str(code) for code in range(200, 300)]
_03 = "sglang-router 0.3: errors are by the status of all answers, a failed readiness probe's too; an aborted stream is a success."

_ROWS = (
    Row(
        "prompt_tokens_total",
        ('smg_router_tokens_total{token_type="input"}',),
        quality=Quality.LAGGING,
        source=_METRICS,
        caveat=f"{_GRPC} Booked when a request ends.",
    ),
    Row(
        "decode_tokens_total",
        ('smg_router_tokens_total{token_type="output"}',),
        quality=Quality.LAGGING,
        source=_METRICS,
        caveat=f"{_GRPC} Booked when a request ends.",
    ),
    Row(
        "requests_finished_total",
        ("smg_http_responses_total",),
        where={"path": _ANSWERS},
        by="status_code",
        rename=OUTCOME_OF_STATUS,
        source=_METRICS,
        caveat="By the status of the answer, without a model. A client that closes right after the end counts as an abort.",
    ),
    Row(
        "requests_finished_total",
        (_ROUTED, "smg_http_responses_total"),
        where=_NO_PATH,
        by="status_code",
        named={_ROUTED: "success"},
        rename={**OUTCOME_OF_STATUS, **dict.fromkeys(_WELL, "")},
        source=_METRICS,
        caveat=_03,
    ),
    Row(
        "http_responses_total",
        ("smg_http_responses_total",),
        where={"path": _ANSWERS},
        by="status_code",
        rename=CLASS_OF_STATUS,
        source=_METRICS,
        caveat="No model label.",
    ),
    Row(
        "http_responses_total",
        (_ROUTED, "smg_http_responses_total"),
        where=_NO_PATH,
        by="status_code",
        named={_ROUTED: "2xx"},
        rename={**CLASS_OF_STATUS, **dict.fromkeys(_WELL, "")},
        source=_METRICS,
        caveat=_03,
    ),
    Row(
        "time_to_first_token_seconds",
        ("smg_router_ttft_seconds",),
        reads=Reads.HISTOGRAM,
        source=_METRICS,
        caveat=f"{_GRPC} Streams, from the moment that a worker has the request. sglang-router 0.3 has no buckets: absent.",
    ),
    Row(
        "time_per_output_token_seconds",
        ("smg_router_tpot_seconds",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_METRICS,
        caveat=_GRPC,
    ),
)

RUNTIME = Runtime(
    name="sglang-gateway",
    title="SGLang model gateway",
    born_at_first_event=True,
    prefixes=("smg_",),
    # its /engine_metrics joins its workers' pages and says from whom each series is: another page
    fingerprints=(Fingerprint((Mark("smg_*"),)),),
    rows=_ROWS,
    model_labels=("model",),
    unnamed=frozenset({"unknown"}),
    ignored=("smg_*",),
    role=Role.FRONTEND,
    first_token=FirstToken.UPSTREAM_OF_STREAMS,
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            "e2e_request_latency_seconds": "over HTTP a stream's duration ends with its headers",
            "inter_token_latency_seconds": "only a mean of each request",
            "requests_rejected_total": "what its rate limit refuses is in http_responses_total, 4xx",
        },
    ),
    versions=">=0.3,<=1.13",
)
