"""What a table cannot say in YAML: a module of Python for each family of runtimes. A table names its hooks by `hooks:`."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.hooks import huggingface, llamacpp, others, passed_on, sglang, trtllm, vllm
from llm_serving_exporter.engines.mapping import Hooks

HOOKS: Mapping[str, Hooks] = {
    "vllm": vllm.VLLM,
    "sglang": sglang.SGLANG,
    "tgi": huggingface.TGI,
    "trtllm": trtllm.TRTLLM,
    "trtllm-json": trtllm.TRTLLM_JSON,
    "llamacpp": llamacpp.LLAMACPP,
    "lmdeploy": others.LMDEPLOY,
    "tei": huggingface.TEI,
    "infinity": others.INFINITY,
    "dynamo-frontend": passed_on.DYNAMO_FRONTEND,
    "dynamo-worker": passed_on.DYNAMO_WORKER,
    "ray-vllm": passed_on.RAY_VLLM,
    "mistralrs": others.MISTRALRS,
    "lightllm": others.LIGHTLLM,
    "ollama": llamacpp.OLLAMA,
}
