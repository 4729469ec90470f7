"""Which runtime speaks on a page. Never a guess on generic names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llm_serving_exporter.model.samples import Layout
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Runtime
from llm_serving_exporter.normalise.vllm import VLLM

RUNTIMES: dict[str, Runtime] = {VLLM.name: VLLM}

# families of processes that route to engines and speak about them in similar words
_ROUTERS = {
    "vllm_router_": "a vLLM router",
    "vllm:healthy_pods_total": "the vLLM production-stack router",
    "smg_": "an SGLang model gateway",
    "sgl_router_": "an SGLang router",
    "dynamo_frontend_": "a Dynamo frontend",
}


# engines that there is no table for yet: said by name, never read by guess
_OTHERS = {
    "sglang:": "SGLang",
    "llamacpp:": "llama.cpp",
    "lmdeploy:": "LMDeploy",
    "trtllm_": "TensorRT-LLM",
    "tgi_": "Text Generation Inference",
    "te_": "Text Embeddings Inference",
    "nv_trt_llm_": "Triton with TensorRT-LLM",
    "dynamo_component_": "a Dynamo worker",
    "ray_vllm": "Ray Serve LLM",
}


@dataclass(frozen=True, slots=True)
class Detection:
    """`runtime` where the page is an engine's; `router` names what it is where it routes to engines; else both None.

    `other` names an engine that cannot be read yet. `families` are a few of those seen, for the message.
    """

    runtime: Runtime | None
    router: str | None
    families: tuple[str, ...]
    other: str | None = None


def _named(titles: Mapping[str, str], seen: Iterable[str]) -> str | None:
    for prefix, title in titles.items():
        if any(name.startswith((prefix, prefix.replace(":", "_"))) for name in seen):
            return title
    return None


def detect(layout: Layout) -> Detection:
    """Recognises a page by samples that only one runtime has. A router's page is never taken for an engine's."""
    seen = layout.names | set(layout.types)
    families = tuple(sorted(clean(name) for name in layout.types if not name.startswith(("python_", "process_"))))[:12]
    if (router := _named(_ROUTERS, seen)) is not None:
        return Detection(None, router, families)
    if (other := _named(_OTHERS, seen)) is not None:
        return Detection(None, None, families, other)
    for runtime in RUNTIMES.values():
        for name in runtime.fingerprint:
            if not seen.isdisjoint((name, f"{name}_total", name.replace(":", "_"), f"{name}_total".replace(":", "_"))):
                return Detection(runtime, None, families)
    return Detection(None, None, families)
