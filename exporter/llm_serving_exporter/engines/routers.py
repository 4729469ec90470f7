"""Pages of processes that route to engines and say nothing that has a table: recognised, and never read as an engine's."""

from __future__ import annotations

from llm_serving_exporter.engines.mapping import Fingerprint, Mark
from llm_serving_exporter.model.record import Struct


class Router(Struct, frozen=True):
    """A page that is no engine's but a router's or gateway's."""

    title: str  # with its article
    fingerprints: tuple[Fingerprint, ...]  # any of them identifies it
    instead: str = "point url at the engines behind it"  # what to point a target at


_DYNAMO_FRONTEND = (Mark("dynamo_frontend_*"), Mark("nv_llm_http_service_*"))
_DYNAMO_WORKER = tuple(
    Mark(name)
    for name in (
        "dynamo_component_requests*", "dynamo_work_handler_*", "dynamo_component_total_blocks", "dynamo_component_gpu_cache_*",
        "dynamo_component_kvstats_*", "dynamo_component_model_load_*",
    )
)  # fmt: skip
_RENAMED_FRONTEND = (
    "if it is a frontend, unset DYN_METRICS_PREFIX there, or write a table based_on dynamo-frontend (docs/dynamo.md)"
)
_ENGINES_NAMES = (Mark("vllm:*"), Mark("sglang:*"), Mark("trtllm_*"), Mark("trtllm:*"), Mark("lmdeploy:*"))

ROUTERS = (
    # its /engine_metrics joins its workers' pages and says from whom each series is (facts runtimes-vllm-sglang 2.6)
    Router(
        "an SGLang model gateway (its workers' pages in one)",
        tuple(Fingerprint((Mark(name, "worker_addr"),)) for name in ("sglang:*", "vllm:*", "trtllm_*")),
        "point url at the engines behind it, or at its own metrics port, which is a front door's page",
    ),
    # on a system port of its own; a frontend has these families too, and where its own are renamed nothing tells it from a router
    Router(
        "a Dynamo router, or of a Dynamo frontend under another DYN_METRICS_PREFIX",
        (Fingerprint((Mark("dynamo_component_router_*"),), (*_DYNAMO_FRONTEND, *_ENGINES_NAMES)),),
        f"point url at the Dynamo frontend, and at its workers' system ports; {_RENAMED_FRONTEND}",
    ),
    # without the KV router a frontend has the uptime only; a worker has its endpoint's families before the first request
    Router(
        "a Dynamo process that serves no endpoint (a frontend under another DYN_METRICS_PREFIX?)",
        (Fingerprint((Mark("dynamo_component_*"),), (*_DYNAMO_FRONTEND, *_ENGINES_NAMES, *_DYNAMO_WORKER)),),
        f"point url at the Dynamo frontend, or at a worker that is ready; {_RENAMED_FRONTEND}",
    ),
    # the role of the workers behind it stands in the names (facts runtimes-others 5.5)
    Router(
        "TensorRT-LLM's disaggregated server",
        (Fingerprint((Mark("ctx_total_requests*"), Mark("gen_total_requests*"))),),
        "point url at its context and generation servers",
    ),
)  # fmt: skip
