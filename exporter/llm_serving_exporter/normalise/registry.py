"""Every runtime that has a table. A new one is its module in `runtimes/` and its line here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.mapping import Runtime

# in the order of the support matrix
_MODULES = (
    "vllm",
    "sglang",
    "tgi",
    "trtllm",
    "trtllm_json",
    "triton_trtllm",
    "triton_vllm",
    "triton",
    "llamacpp",
    "lmdeploy",
    "tei",
    "infinity",
    "dynamo_frontend",
    "dynamo_worker",
    "llm_d_epp",
    "envoy_ai_gateway",
    "litellm",
    "gen_ai",
    "vllm_stack_router",
    "vllm_router",
    "sglang_gateway",
    "sglang_router",
    "ray_vllm",
    "nim",
    "mistralrs",
    "xinference",
    "lightllm",
    "ollama",
    "deepspeed_mii",
    "gpu_only",
)  # fmt: skip


def _load(module: str) -> Runtime:
    runtime: Runtime = import_module(f"llm_serving_exporter.normalise.runtimes.{module}").RUNTIME
    return runtime


def together(configured: Iterable[Runtime]) -> dict[str, Runtime]:
    """The built-in tables and a configuration's, by name."""
    return {**RUNTIMES, **{runtime.name: runtime for runtime in configured}}


RUNTIMES: dict[str, Runtime] = {runtime.name: runtime for runtime in map(_load, _MODULES)}


def reads_otherwise(
    target: Target, current: Runtime | None, before: Iterable[Runtime], after: Iterable[Runtime]
) -> bool:
    """Whether a target's page may be read by another table than before, its runtime being set or recognised as `current`."""
    if target.runtime is not None:
        return together(before).get(target.runtime) != together(after).get(target.runtime)
    known = list(before)
    changed = [table for table in after if table.fingerprints and table not in known]
    if current is None:
        return bool(changed)
    if together(after).get(current.name) != current:
        return True
    # a fork that kept its engine's names may have been meant for this page
    others = (table for table in changed if table.name != current.name)
    return any(prefix in current.prefixes for table in others for prefix in table.prefixes)
