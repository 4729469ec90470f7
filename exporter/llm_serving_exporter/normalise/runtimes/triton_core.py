"""What Triton itself says of every model, whatever back end serves it: rows that its tables share. Traps: docs/tensorrt-llm.md."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Reads, Row

CORE = "https://github.com/triton-inference-server/core/blob/73aad7c/src/metrics.cc"
_FIRST_RESPONSE = "https://github.com/triton-inference-server/core/blob/73aad7c/src/infer_response.cc"

VERSION = "version"  # the label that tells versions of a model apart: each is an engine
_MICROSECONDS, _MILLISECONDS = 1e-6, 1e-3

PENDING = "nv_inference_pending_request_count"
_SUCCESS, _FAILURE = "nv_inference_request_success", "nv_inference_request_failure"

REQUESTS = (
    Row(
        "requests_finished_total",
        (_SUCCESS, _FAILURE),
        by="reason",
        named={_SUCCESS: "success"},
        rename={"REJECTED": "", "CANCELED": "abort", "BACKEND": "error", "OTHER": "other", "": "failed"},
        source=CORE,
        caveat="Before 24.08 nothing says why: `failed` is errors, aborts and rejections. Of an ensemble, `other` is what became of a part of it, a client that left included; it is in the part's own counts too.",
    ),
    Row(
        "requests_rejected_total",
        (_FAILURE,),
        by="reason",
        where={"reason": frozenset({"REJECTED"})},
        rename={"REJECTED": "rejected"},
        source=CORE,
    ),
)

# means only: a sum of microseconds and a count
E2E = Row(
    "e2e_request_latency_seconds",
    ("nv_inference_request_duration_us", _SUCCESS),
    reads=Reads.MEAN,
    scale=_MICROSECONDS,
    quality=Quality.LAGGING,
    source=CORE,
    caveat="Sum and count only. Booked when a request succeeds.",
)
QUEUE = Row(
    "request_queue_time_seconds",
    ("nv_inference_queue_duration_us", _SUCCESS),
    reads=Reads.MEAN,
    scale=_MICROSECONDS,
    quality=Quality.LAGGING,
    source=CORE,
    caveat="Sum and count only. Triton's scheduler: waiting in the engine's own queue is not in it.",
)
FIRST_RESPONSE = Row(
    "time_to_first_token_seconds",
    ("nv_inference_first_response_histogram_ms",),
    reads=Reads.HISTOGRAM,
    scale=_MILLISECONDS,
    versions=">=24.11",
    source=_FIRST_RESPONSE,
    caveat="Only with --metrics-config histogram_latencies=true. Whole milliseconds; by default nothing above 5 s is resolved. "
    "Of an answer that is not streamed its end.",
)

UPPER_BOUND = "Upper bound: prompts as sent; tokens found in a cache are in it."
NO_HTTP = "HTTP answers are not counted"
NO_LIMIT = "in the model's configuration only"
NO_KV = "the back end does not report its KV cache"
NOT_OBSERVED = "not observed"
