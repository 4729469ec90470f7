"""SGLang's router up to sglang-router 0.2: the table. Made from its source, never met until recorded."""

from __future__ import annotations

from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

_SOURCE = (
    "https://github.com/sgl-project/sglang/blob/06261b2af99814657474f184c92427c64a4f0add/sgl-router/src/metrics.rs"
)
# as of vllm-router, which began as a copy of it: the recording of that shows it
_NO_TIME = "a stream's duration ends with its headers, before the first token"

_ROWS = (
    Row(
        "requests_finished_total",
        ("sgl_router_generate_duration_seconds_count",),
        named={"sgl_router_generate_duration_seconds_count": "answered"},
        by="outcome",
        source=_SOURCE,
        caveat="Booked when an answer begins, however it ends.",
    ),
)

RUNTIME = Runtime(
    name="sglang-router",
    title="SGLang router",
    born_at_first_event=True,
    prefixes=("sgl_router_",),
    fingerprints=(Fingerprint((Mark("sgl_router_*"),)),),
    rows=_ROWS,
    model_labels=("model",),
    ignored=("sgl_router_*", "sgl_tokenizer_*"),
    role=Role.FRONTEND,
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "how a request ended is not counted",
            "time_to_first_token_seconds": _NO_TIME,
            "e2e_request_latency_seconds": _NO_TIME,
        },
    ),
    versions="<0.3",
)
