"""llm-d's endpoint picker, and that of the Gateway API inference extension which it grew from: the table.

Made from its source, never met until recorded. It watches the requests that Envoy shows it, to the end of their answers.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, FirstToken, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import CLASS_OF_STATUS, explain_missing

_REPOSITORY = "https://github.com/llm-d/llm-d-router/blob/ebab687927f5331c1b39defcb579a07951bce56c/pkg/epp"
_NEW = f"{_REPOSITORY}/metrics/llm_d_router_metrics.go"
_OLD = f"{_REPOSITORY}/metrics/metrics.go"
_RESPONSE = f"{_REPOSITORY}/handlers/response.go"

_FROM_USAGE = "From the answer's usage: a stream that was not asked for it is missing."
_STREAMS = "Streams only."
# an error is a status of the server behind it, or a word for one of its own
_CLASSES = {
    **CLASS_OF_STATUS,
    "BadRequest": "4xx", "Unauthorized": "4xx", "Forbidden": "4xx", "NotFound": "4xx",
    "InferencePoolResourceExhausted": "4xx", "ResourceExhausted": "4xx",
    "Internal": "5xx", "ServiceUnavailable": "5xx", "ModelServerError": "5xx", "BadConfiguration": "5xx", "Unknown": "5xx",
}  # fmt: skip


def _tokens(field: str, new: str, old: str) -> tuple[Row, ...]:
    """A field of a request's tokens by both names. Each page may have both, of one count: the first row that is there is read."""
    return tuple(
        Row(field, (f"{name}_sum",), quality=Quality.LAGGING, source=source, caveat=_FROM_USAGE)
        for name, source in ((f"llm_d_epp_{new}", _NEW), (f"inference_objective_{old}", _OLD))
    )


def _lengths(field: str, new: str, old: str) -> tuple[Row, ...]:
    return tuple(
        Row(field, (name,), reads=Reads.HISTOGRAM, quality=Quality.LAGGING, source=source, caveat=_FROM_USAGE)
        for name, source in ((f"llm_d_epp_{new}", _NEW), (f"inference_objective_{old}", _OLD))
    )


def _finished(name: str, source: str) -> Row:
    return Row(
        "requests_finished_total",
        (f"{name}_count",),
        by="outcome",
        named={f"{name}_count": "answered"},
        source=source,
        caveat="Answered to the end, whatever the status.",
    )


_DURATIONS = (("llm_d_epp_request_duration_seconds", _NEW), ("inference_objective_request_duration_seconds", _OLD))
_ROWS = (
    *_tokens("prompt_tokens_total", "request_input_tokens", "input_tokens"),
    *_tokens("cached_prompt_tokens_total", "request_cached_tokens", "prompt_cached_tokens"),
    *_tokens("decode_tokens_total", "request_output_tokens", "output_tokens"),
    *_lengths("request_prompt_tokens", "request_input_tokens", "input_tokens"),
    *_lengths("request_generation_tokens", "request_output_tokens", "output_tokens"),
    *(_finished(name, source) for name, source in _DURATIONS),
    *(
        Row(
            "http_responses_total",
            (name,),
            by="error_code",
            rename=_CLASSES,
            source=source,
            caveat="Errors only.",
        )
        for name, source in (("llm_d_epp_request_error_total", _NEW), ("inference_objective_request_error_total", _OLD))
    ),
    Row(
        "time_to_first_token_seconds",
        ("llm_d_epp_request_ttft_seconds",),
        where={"streaming": frozenset({"true"})},
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_RESPONSE,
        caveat=f"{_STREAMS} From the request's arrival at the picker, its queue included; booked when the answer ends.",
    ),
    Row(
        "inter_token_latency_seconds",
        ("llm_d_epp_request_streaming_itl_seconds",),
        reads=Reads.HISTOGRAM,
        source=_NEW,
        caveat=f"{_STREAMS} Between two parts of an answer.",
    ),
    Row(
        "time_per_output_token_seconds",
        ("llm_d_epp_request_streaming_tpot_seconds",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_NEW,
        caveat=_STREAMS,
    ),
    *(
        Row("e2e_request_latency_seconds", (name,), reads=Reads.HISTOGRAM, quality=Quality.LAGGING, source=source)
        for name, source in _DURATIONS
    ),
    Row(
        "requests_waiting",
        ("llm_d_epp_flow_control_queue_size",),
        source=_NEW,
        caveat="Held back by the picker; what waits in an engine is on the engine's page.",
    ),
)

RUNTIME = Runtime(
    name="llm-d-epp",
    title="llm-d endpoint picker",
    born_at_first_event=True,
    prefixes=("llm_d_epp_", "inference_objective_"),
    fingerprints=tuple(
        Fingerprint((Mark(name),))
        for name in (
            "llm_d_epp_*",
            "llm_d_router_epp_*",
            "llm_d_inference_scheduler_*",
            "inference_model_*",
            "inference_objective_*",
            "inference_pool_*",
            "inference_extension_*",
        )
    ),
    rows=_ROWS,
    # the name that the engine knows; the other is the client's
    model_labels=("target_model_name", "model_name"),
    unnamed=frozenset({""}),
    respelt=(("llm_d_epp_", "llm_d_router_epp_"), ("inference_objective_", "inference_model_")),
    ignored=("llm_d_epp_*", "inference_objective_*"),
    role=Role.FRONTEND,
    first_token=FirstToken.CLIENT_OF_STREAMS,
    # an adapter is asked for as a model, and the picker names it as it sends it on
    tenants={TenantKind.ADAPTER: ("target_model_name", "model_name")},
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "an answer that ended well is not told from another",
            "requests_rejected_total": "in http_responses_total",
        },
    ),
    versions=">=0.3,<=0.10",
)
