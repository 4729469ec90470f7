"""Envoy AI Gateway: the table, over OpenTelemetry's names. Made from its source, never met until recorded."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, FirstToken, Mark, Runtime
from llm_serving_exporter.normalise.runtimes import gen_ai_rows
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

_SOURCE = "https://github.com/envoyproxy/ai-gateway/blob/c217da8a539570ba3f6014a60c2687c29a945f1f/internal/metrics/metrics_impl.go"

_ROWS = (
    *gen_ai_rows.make_token_rows(_SOURCE),
    *gen_ai_rows.make_finished_rows(gen_ai_rows.DURATION, _SOURCE),
    *gen_ai_rows.make_histogram_rows(
        "time_to_first_token_seconds",
        "gen_ai_server_time_to_first_token",
        _SOURCE,
        "Streams only, from the request's headers to the first part of the answer: what the user waits for at this gateway.",
    ),
    *gen_ai_rows.make_histogram_rows(
        "time_per_output_token_seconds",
        "gen_ai_server_time_per_output_token",
        _SOURCE,
        "Streams only.",
        Quality.LAGGING,
    ),
    *gen_ai_rows.make_histogram_rows(
        "e2e_request_latency_seconds",
        gen_ai_rows.DURATION,
        _SOURCE,
        "Failed requests too.",
        Quality.LAGGING,
    ),
)

RUNTIME = Runtime(
    name="envoy-ai-gateway",
    title="Envoy AI Gateway",
    born_at_first_event=True,
    prefixes=("gen_ai_",),
    # what the client wrote before the gateway chose a model: an attribute of its own
    fingerprints=(Fingerprint((Mark("gen_ai_*", "gen_ai_original_model"),)),),
    rows=_ROWS,
    # what is sent on to the server, which knows the model by it
    model_labels=("gen_ai_request_model", "gen_ai_original_model"),
    unnamed=frozenset({"unknown", ""}),
    ignored=("gen_ai_*",),
    role=Role.FRONTEND,
    first_token=FirstToken.CLIENT_OF_STREAMS,
    no_tenant=frozenset({"", "unknown"}),
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "every failure has one type, a mistake of the client's too",
            "inter_token_latency_seconds": "only a mean of each request",
        },
    ),
    versions=">=0.3,<=1.1",
)
