"""What means something else on a replica that does one phase only, or on a front end (facts runtimes-others 18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llm_serving_exporter.derive.roofline import DECODE, NEEDS_WORK, PREFILL_CEILING
from llm_serving_exporter.model.roofline import Roofline
from llm_serving_exporter.model.target import Role

# prefill: a request's only token comes out of its prefill, and is not yet the user's first. decode: the prompt's KV arrives and is
# a hit by definition, and the clock starts when the request does here. The user's times are the front end's, which has no batch and no GPU.
SILENT: Mapping[Role, frozenset[str]] = {
    Role.UNIFIED: frozenset(),
    Role.PREFILL: frozenset({*DECODE, "slo_ttft", "slo_itl", "slo_e2e"}),
    Role.DECODE: frozenset({PREFILL_CEILING, "slo_ttft", "slo_e2e", "prefix_cache_hit_ratio"}),
    Role.FRONTEND: frozenset(
        {
            *NEEDS_WORK, "bandwidth_ceiling_bytes_per_second", "bandwidth_ceiling_ratio_gpm", "bandwidth_ceiling_ratio_dcgm",
            "bandwidth_ceiling_ratio_runtime", "batch_size_mean", "batch_utilization_ratio", "kv_cache_used_tokens", "context_tokens_mean",
            "phase_tokens_per_second_per_gpu", "phase_reference_seconds_per_token", "phase_busy_seconds_total", "gpu_memory_bytes_estimate",
            "limiter", "batch_limit_requests", "kv_cache_usage_ratio", "kv_cache_capacity_tokens", "requests_running",
            "long_context_kv_share_ratio", "long_context_requests_fit",
        }
    ),
}  # fmt: skip


def of_role(found: Roofline, role: Role) -> Roofline:
    """The roofline of a replica that does one phase only, without the other's ceilings: they are not what it works under."""
    if role is Role.DECODE:
        return replace(found, phase_ceiling=_without(found.phase_ceiling, "prefill"))
    if role is not Role.PREFILL:
        return found
    return replace(
        found,
        phase_ceiling=_without(found.phase_ceiling, "decode"),
        decode_ceiling=None,
        decode_ratio=None,
        batch_ridge=None,
        weights_ridge=None,
        step_floor_seconds=None,
        ridge_flops_per_byte=None,
    )


def _without(ceilings: Mapping[str, float], phase: str) -> Mapping[str, float]:
    return {name: value for name, value in ceilings.items() if name != phase}
