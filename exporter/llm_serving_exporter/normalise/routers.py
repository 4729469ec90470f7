"""Processes that route to engines and speak about them in similar words: recognised, and never read as an engine."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.normalise.mapping import Fingerprint, Mark


@dataclass(frozen=True, slots=True)
class Router:
    """`title` with its article; `instead`: what to point a target at."""

    title: str
    fingerprints: tuple[Fingerprint, ...]
    instead: str = "point url at the engines behind it"


def _any(*names: str) -> tuple[Fingerprint, ...]:
    return tuple(Fingerprint((Mark(name),)) for name in names)


_DYNAMO_FRONTEND = (Mark("dynamo_frontend_*"), Mark("nv_llm_http_service_*"))
_ENGINES_NAMES = (Mark("vllm:*"), Mark("sglang:*"), Mark("trtllm_*"), Mark("trtllm:*"), Mark("lmdeploy:*"))

ROUTERS = (
    Router("a vLLM router", _any("vllm_router_*")),
    # it has vLLM's own names as gauges with a label for the server behind it (facts runtimes-vllm-sglang 1.7)
    Router(
        "the vLLM production-stack router",
        (*_any("vllm:healthy_pods_total"), Fingerprint((Mark("vllm:*", "server"),))),
    ),
    Router("an SGLang model gateway", _any("smg_*")),
    Router("an SGLang router", _any("sgl_router_*")),
    # its /engine_metrics joins its workers' pages and says from whom each series is (facts runtimes-vllm-sglang 2.6)
    Router(
        "an SGLang model gateway (its workers' pages in one)",
        tuple(Fingerprint((Mark(name, "worker_addr"),)) for name in ("sglang:*", "vllm:*", "trtllm_*")),
    ),
    # on a system port of its own; a frontend has these families too
    Router(
        "a Dynamo router",
        (Fingerprint((Mark("dynamo_component_router_*"),), (*_DYNAMO_FRONTEND, *_ENGINES_NAMES)),),
        "point url at the Dynamo frontend, and at its workers' system ports",
    ),
    Router(
        "the llm-d endpoint picker",
        _any(
            "llm_d_epp_*", "llm_d_router_epp_*", "llm_d_inference_scheduler_*", "inference_model_*",
            "inference_objective_*", "inference_pool_*", "inference_extension_*",
        ),
    ),
    # the role of the workers behind it stands in the names (facts runtimes-others 5.5)
    Router(
        "TensorRT-LLM's disaggregated server",
        (Fingerprint((Mark("ctx_total_requests*"), Mark("gen_total_requests*"))),),
        "point url at its context and generation servers",
    ),
)  # fmt: skip
