"""A worker of NVIDIA Dynamo: the engine's own families, passed through on the worker's system port, beside Dynamo's.

One table for vLLM, SGLang and TensorRT-LLM: a page has the families of one of them, and rows whose samples are not there are passed over.
"""

from __future__ import annotations

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.normalise.mapping import Aggregate, Fingerprint, Flags, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.sglang import RUNTIME as SGLANG
from llm_serving_exporter.normalise.runtimes.trtllm import RUNTIME as TRTLLM
from llm_serving_exporter.normalise.runtimes.vllm import RUNTIME as VLLM

_CATALOG = "https://docs.nvidia.com/dynamo/v1.6.0/reference/observability/metrics-catalog"
_NAMES = "https://github.com/ai-dynamo/dynamo/blob/main/lib/runtime/src/metrics/prometheus_names.rs"
_ROLES = "https://github.com/ai-dynamo/dynamo/blob/main/components/src/dynamo/vllm/args.py"

# requests for KV events and cache clearing are counted in the same families
_GENERATE = '{dynamo_endpoint="generate"}'
_CANCELLED = f"dynamo_component_cancellation_total{_GENERATE}"
# an error of publishing is what a client that goes away leaves behind, too: the cancelled would be counted twice
_FAILED = 'dynamo_component_errors_total{dynamo_endpoint="generate",error_type="deserialization|invalid_message|response_stream|generate"}'
_MOCKED = "vllm:e2e_request_latency_seconds"


def _gauge(field: str, sample: str, **more: object) -> Row:
    return Row(field, (sample,), **{"aggregate": Aggregate.MAX, "source": _CATALOG, **more})  # type: ignore[arg-type]  # keyword passthrough


# used where the engine's own families say nothing
_DYNAMO = (
    Row(
        "requests_finished_total",
        (f"{_MOCKED}_count", _CANCELLED, _FAILED),
        named={f"{_MOCKED}_count": "success", _CANCELLED: "abort", _FAILED: "error"},
        when=(f"{_MOCKED}_bucket", "le", "+Inf"),
        source=_NAMES,
        caveat="Of Dynamo's mocker, which has no count of its own: finished by its end-to-end times, the rest by Dynamo's counters.",
    ),
    _gauge("kv_cache_usage_ratio", "dynamo_component_gpu_cache_usage_percent", caveat="0 to 1 in spite of its name."),
    _gauge(
        "kv_cache_usage_ratio",
        "dynamo_component_kvstats_gpu_cache_usage_percent",
        versions="<1.0",
        caveat="Its older name. 0 to 1 in spite of it.",
    ),
    Row(
        "role",
        (f"dynamo_component_requests_total{_GENERATE}",),
        reads=Reads.TEXT,
        labels=("dynamo_component",),
        source=_ROLES,
        caveat='"prefill" is a prefill worker; "backend" a decode or a whole one: set role for a decode worker.',
    ),
)

_NOT_READ = ("dynamo_component_*", "trtllm_kv_transfer_*", "trtllm_request_type_*")
_ENGINES = (VLLM, SGLANG, TRTLLM)
# Dynamo's worker counts them beside TensorRT-LLM's own families
_ABORTED = "trtllm_num_aborted_requests_total"


def _with_aborts(row: Row) -> Row:
    if row.field != "requests_finished_total" or row.samples[0] != "trtllm_request_success_total":
        return row
    return replace(row, samples=(*row.samples, _ABORTED), named={**row.named, _ABORTED: "abort"})


# its SGLang ends no request itself, so that what is booked then is never there
_LIVE_DECODE = tuple(
    replace(row, field="decode_tokens_total") for row in SGLANG.rows if row.field == "decode_tokens_live"
)

RUNTIME = Runtime(
    name="dynamo-worker",
    title="NVIDIA Dynamo worker",
    born_at_first_event=True,
    prefixes=("dynamo_component_", *(prefix for engine in _ENGINES for prefix in engine.prefixes)),
    fingerprints=(
        Fingerprint((Mark("dynamo_component_*"),), (Mark("dynamo_frontend_*"), Mark("nv_llm_http_service_*"))),
    ),
    rows=(*(_with_aborts(row) for engine in _ENGINES for row in engine.rows), *_LIVE_DECODE, *_DYNAMO),
    model_labels=("model_name", "model"),
    engine_labels=("dp_rank", "engine"),
    rank_labels=tuple(dict.fromkeys(label for engine in _ENGINES for label in engine.rank_labels)),
    only={label: values for engine in _ENGINES for label, values in engine.only.items()},
    unnamed=TRTLLM.unnamed,
    # Dynamo 0.7 put its own prefix before TensorRT-LLM's names
    respelt=(("trtllm_", "trtllm:"),),
    ignored=(*_NOT_READ, *(pattern for engine in _ENGINES for pattern in engine.ignored)),
    # the version that it says is Dynamo's own
    kv_as_calibrated={method: "" for engine in _ENGINES for method in engine.kv_as_calibrated},
    # the worker hands its arguments to the engine
    flags=Flags(
        tuple(dict.fromkeys(flag for engine in _ENGINES if engine.flags for flag in engine.flags.batch_limit)),
        tuple(dict.fromkeys(flag for engine in _ENGINES if engine.flags for flag in engine.flags.unless)),
    ),
    default_edges=VLLM.default_edges,
    missing={"model_gpu_memory_bytes": "in the worker's log only"},
    versions=">=0.8,<=1.6",
    covered="1.6.1 (engine mocked)",
)
