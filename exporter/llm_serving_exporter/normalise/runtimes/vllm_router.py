"""vLLM's router in Rust (package vllm-router): the table, from a recording.

It counts requests, and nothing of them: the one time that it measures is a stream's until its headers, an answer's that is not streamed
until its end. In the recording that is 5 ms where the client had its first token after 22 ms and its last after 192.
"""

from __future__ import annotations

from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

SOURCE = "https://pypi.org/project/vllm-router/0.1.17/"
NO_TIME = "a stream's duration ends with its headers, before the first token"

_ROWS = (
    Row(
        "requests_finished_total",
        ("vllm_router_generate_duration_seconds_count",),
        named={"vllm_router_generate_duration_seconds_count": "answered"},
        by="outcome",
        source=SOURCE,
        caveat="Booked when an answer begins, however it ends; what it refuses itself is not in it.",
    ),
)

RUNTIME = Runtime(
    name="vllm-router",
    title="vLLM router",
    born_at_first_event=True,
    prefixes=("vllm_router_",),
    fingerprints=(Fingerprint((Mark("vllm_router_*"),)),),
    rows=_ROWS,
    model_labels=("model",),
    ignored=("vllm_router_*",),
    role=Role.FRONTEND,
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "how a request ended is not counted",
            "time_to_first_token_seconds": NO_TIME,
            "e2e_request_latency_seconds": NO_TIME,
        },
    ),
    versions=">=0.1,<=0.1.17",
    covered="0.1.17",
)
