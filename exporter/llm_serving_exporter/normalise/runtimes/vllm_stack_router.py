"""The router of vLLM's production-stack: the table. Made from its source, never met until recorded.

Gauges that it re-exports have vLLM's own names and are of the engines behind it: they are not read.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

_REPOSITORY = (
    "https://github.com/vllm-project/production-stack/blob/a6c01db05f65f556235413ba8dbcfb0c01132fff/src/vllm_router"
)
_REQUEST = f"{_REPOSITORY}/services/request_service/request.py"
_LATENCY = "vllm:request_latency_seconds"
_UNARY = "counted of answers that are not streamed only"

_ROWS = (
    Row(
        "requests_finished_total",
        (f"{_LATENCY}_count",),
        by="status",
        rename={"success": "success", "error": "failed"},
        source=_REQUEST,
        caveat="`failed` has a client's mistakes too.",
    ),
    Row(
        "e2e_request_latency_seconds",
        (_LATENCY,),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_REQUEST,
        caveat="From the call to the engine to the answer's end, failed requests too.",
    ),
)

RUNTIME = Runtime(
    name="vllm-stack-router",
    title="vLLM production-stack router",
    born_at_first_event=True,
    prefixes=("vllm:",),
    # vLLM's own names as gauges with a label for the server behind it (facts runtimes-vllm-sglang 1.7)
    fingerprints=(
        Fingerprint((Mark("vllm:healthy_pods_total"),)),
        Fingerprint((Mark("vllm:*", "server"),)),
    ),
    rows=_ROWS,
    model_labels=("model",),
    unnamed=frozenset({"unknown"}),
    ignored=("vllm:*",),
    role=Role.FRONTEND,
    several_workers="run the router with one worker, or each worker on a port and as a target of its own",
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "a client's mistake and a failure have one status",
            "prompt_tokens_total": _UNARY,
            "decode_tokens_total": _UNARY,
            "time_to_first_token_seconds": "gauges of a mean only",
            "inter_token_latency_seconds": "gauges of a mean only",
            "requests_waiting": "what it shows under that name is each engine's",
        },
    ),
    versions=">=0.1.8",
)
