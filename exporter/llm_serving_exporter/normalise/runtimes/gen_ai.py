"""Any page with OpenTelemetry's names for generative AI: the table. Made from the conventions, never met until recorded.

Who wrote it is not known: whether a time is the user's is not either.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Runtime
from llm_serving_exporter.normalise.runtimes import gen_ai_rows
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

_ITSELF = "Whose clock it is, the page does not say."
_CLIENT = "gen_ai_client_operation_duration"

_ROWS = (
    *gen_ai_rows.make_token_rows(gen_ai_rows.CONVENTIONS),
    *gen_ai_rows.make_finished_rows(gen_ai_rows.DURATION, gen_ai_rows.CONVENTIONS),
    *gen_ai_rows.make_finished_rows(_CLIENT, gen_ai_rows.CONVENTIONS),
    *gen_ai_rows.make_histogram_rows(
        "time_to_first_token_seconds", "gen_ai_server_time_to_first_token", gen_ai_rows.CONVENTIONS, _ITSELF
    ),
    *gen_ai_rows.make_histogram_rows(
        "time_to_first_token_seconds",
        "gen_ai_client_operation_time_to_first_chunk",
        gen_ai_rows.CONVENTIONS,
        f"Streams only. {_ITSELF}",
    ),
    *gen_ai_rows.make_histogram_rows(
        "time_per_output_token_seconds",
        "gen_ai_server_time_per_output_token",
        gen_ai_rows.CONVENTIONS,
        "",
        Quality.LAGGING,
    ),
    *gen_ai_rows.make_histogram_rows(
        "e2e_request_latency_seconds", gen_ai_rows.DURATION, gen_ai_rows.CONVENTIONS, _ITSELF, Quality.LAGGING
    ),
    *gen_ai_rows.make_histogram_rows(
        "e2e_request_latency_seconds", _CLIENT, gen_ai_rows.CONVENTIONS, _ITSELF, Quality.LAGGING
    ),
)

RUNTIME = Runtime(
    name="gen-ai",
    title="OpenTelemetry gen_ai",
    born_at_first_event=True,
    prefixes=("gen_ai_",),
    fingerprints=tuple(
        Fingerprint((Mark(name, "gen_ai_operation_name"),), (Mark("gen_ai_*", "gen_ai_original_model"), Mark("smg_*")))
        for name in ("gen_ai_server_*", "gen_ai_client_*")
    ),
    rows=_ROWS,
    # the name under which it was asked for is a required attribute where it is known
    model_labels=("gen_ai_request_model", "gen_ai_response_model"),
    unnamed=frozenset({"unknown", ""}),
    ignored=("gen_ai_*",),
    role=Role.FRONTEND,
    no_tenant=frozenset({"", "unknown"}),
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            ERRORS: "which types are the client's mistakes is left to whoever writes the page",
            "inter_token_latency_seconds": "only a mean of each request",
        },
    ),
    versions="",
)
