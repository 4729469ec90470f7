"""LiteLLM's proxy: the table. Made from its source; its own collector was recorded, driven by a simulation, the proxy itself never.

Its time to first token begins when it calls the server behind it: what a request waited in the proxy is not in it.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.normalise.mapping import Fingerprint, FirstToken, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import CLASS_OF_STATUS, OUTCOME_OF_STATUS, explain_missing

_LOGGER = "https://github.com/BerriAI/litellm/blob/main/litellm/integrations/prometheus.py"
_LABELS = "https://github.com/BerriAI/litellm/blob/main/litellm/types/integrations/prometheus.py"

# routes that give tokens, by how they end or go on: OpenAI's, Anthropic's, Google's, Cohere's, Bedrock's, those of SDKs that are passed
# through (litellm/proxy/_types.py, LiteLLMRoutes). Of any other only what names a model is a user's request for one
_SERVES = (
    r"/(?:.*[/:])?(?:completions?|chat|embed(?:ding)?s?|responses|messages|(?:re)?rank|generations|edits|variations|speech|transcriptions|"
    r"translations|moderations|ocr|realtime|interactions|(?:streamR|r)?(?:P|p|awP)redict|invoke|invoke-with-response-stream|"
    r"converse|converse-stream|(?:streamG|g)enerateContent|batchEmbedContents)(?:/.*)?"
)
_NO_MODEL = "|None"
_NOT_USERS = (
    {"user_agent": "llm-serving-exporter/.*"},
    {"route": f"(?!(?:{_SERVES})$)/.*", "requested_model": _NO_MODEL, "model": _NO_MODEL},
)

_AT_END = "Booked when a request ends well, as the server behind it says it in the answer's usage; answers from the proxy's own cache too."
_FAILED = "litellm_proxy_failed_requests_metric_total"
_SUCCEEDED = "litellm_request_total_latency_metric_count"

_ROWS = (
    Row("prompt_tokens_total", ("litellm_input_tokens_metric_total",), quality=Quality.LAGGING, source=_LOGGER, caveat=_AT_END),
    Row(
        "cached_prompt_tokens_total",
        ("litellm_input_cached_tokens_metric_total",),
        quality=Quality.LAGGING,
        source=_LOGGER,
        caveat="Only where the server behind it says them.",
    ),
    Row("decode_tokens_total", ("litellm_output_tokens_metric_total",), quality=Quality.LAGGING, source=_LOGGER, caveat=_AT_END),
    Row(
        "requests_finished_total",
        (_FAILED, _SUCCEEDED),
        by="exception_status",
        named={_SUCCEEDED: "success"},
        rename={**OUTCOME_OF_STATUS, "None": "error", "": "error"},
        source=_LOGGER,
        caveat="Client mistakes are left out, and what asked for no model: lists of models, health, administration. A request that was "
        "tried again counts once.",
    ),
    Row(
        "http_responses_total",
        ("litellm_proxy_total_requests_metric_total",),
        by="status_code",
        rename=CLASS_OF_STATUS,
        source=_LOGGER,
        caveat="What asked for no model is left out.",
    ),
    Row(
        "time_to_first_token_seconds",
        ("litellm_llm_api_time_to_first_token_metric",),
        reads=Reads.HISTOGRAM,
        source=_LOGGER,
        caveat="Streams only, from the call to the server behind it: without what the request waited in the proxy.",
    ),
    Row(
        "e2e_request_latency_seconds",
        ("litellm_request_total_latency_metric",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_LOGGER,
        caveat="Requests that ended well. From the request's arrival at the proxy where it knows that, else from its authorisation.",
    ),
)  # fmt: skip

# budgets, limits, the state of the servers behind it, and second names of what is read
_NOT_READ = ("litellm_*",)

RUNTIME = Runtime(
    name="litellm",
    title="LiteLLM proxy",
    born_at_first_event=True,
    prefixes=("litellm_",),
    # with several workers an idle proxy has a few gauges alone
    fingerprints=(Fingerprint((Mark("litellm_*"),)),),
    rows=_ROWS,
    # what the client asked for, which alone every family has; the name that the server behind it knows is "model"
    model_labels=("requested_model", "model"),
    # "other" stands for names that the proxy does not know
    unnamed=frozenset({"None", "other", ""}),
    not_users=_NOT_USERS,
    # mounted as an application of its own: the path without the slash is a redirect
    paths=("/metrics/", "/metrics"),
    # /health asks every model
    health="/health/liveliness",
    ignored=_NOT_READ,
    role=Role.FRONTEND,
    first_token=FirstToken.UPSTREAM_OF_STREAMS,
    several_workers="set PROMETHEUS_MULTIPROC_DIR of the proxy to a folder that is empty at its start and that all its workers share",
    tenants={
        TenantKind.TEAM: ("team_alias", "team"),
        TenantKind.KEY: ("api_key_alias",),
        TenantKind.USER: ("end_user",),
    },
    no_tenant=frozenset({"", "None"}),
    missing=explain_missing(
        {row.field for row in _ROWS},
        {
            "requests_rejected_total": "refusals by a budget or limit stand under http_responses_total, 4xx",
            "time_per_output_token_seconds": "a request's whole time by its tokens, the first included",
            "request_queue_time_seconds": "litellm_request_queue_time_seconds is until the proxy begins, not until an engine does",
        },
    ),
    versions=">=1.80,<=1.110",
    covered="1.110.2, its collector (simulated)",
)
