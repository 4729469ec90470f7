"""The roofline of one engine, as the limiter and the pages read it: out of the rows that its role shows."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive import bandwidth, compute, decode, ticks
from llm_serving_exporter.derive.signals import Shown
from llm_serving_exporter.model.derived import Cause, Roofline


def gather_limits(shown: Shown) -> Roofline:
    """As `gather_roofline`, as far as the limiter always reads it: of rows that are worked out at every tick."""
    return Roofline(
        ratio=shown.by_key(bandwidth.RATIOS),
        compute_ratio=shown.get(compute.RATIO),
        attended_kv_ratio=shown.get(bandwidth.ATTENDED),
    )


# what the limiter reads beside them where compute may be what binds
REST = (bandwidth.ACTIVATIONS, decode.CEILING, decode.RATIO, decode.RIDGE, decode.BATCH, ticks.BUSY_RATIO)


def gather_rest(shown: Shown) -> Roofline:
    """As `gather_roofline`, of the rows of `REST` alone."""
    ceiling = shown.get(decode.CEILING)
    return Roofline(
        decode_ratio=shown.get(decode.RATIO),
        activation_ratio=shown.get(bandwidth.ACTIVATIONS),
        batch_ridge=shown.get(decode.RIDGE),
        batch=shown.get(decode.BATCH),
        step_floor_seconds=ceiling.step_seconds if ceiling else None,
        phase_busy_ratio=shown.get(ticks.BUSY_RATIO) or {},
    )


def gather_roofline(shown: Shown, causes: Mapping[str, Cause]) -> Roofline:
    """The roofline of the values that are shown; what is not among them is None. `causes`: of the engine's suspect signals."""
    ceiling, done, context = shown.get(decode.CEILING), shown.get(decode.STEPS), shown.get(decode.CONTEXT)
    return Roofline(
        achieved=shown.by_key(bandwidth.ACHIEVED),
        ratio=shown.by_key(bandwidth.RATIOS),
        bandwidth_ceiling=shown.get(bandwidth.CEILING),
        model_ratio_range=shown.get(bandwidth.MODEL_RANGE),
        activation_ratio=shown.get(bandwidth.ACTIVATIONS),
        decode_ceiling=ceiling.tokens_per_second if ceiling else None,
        decode_ceiling_upper=ceiling.read_once_tokens_per_second if ceiling else None,
        decode_ratio=shown.get(decode.RATIO),
        attended_kv_ratio=shown.get(bandwidth.ATTENDED),
        compute_ratio=shown.get(compute.RATIO),
        flops_per_second=shown.get(compute.FLOPS_PER_SECOND),
        intensity_flops_per_byte=shown.get(compute.INTENSITY),
        ridge_flops_per_byte=ceiling.ridge_flops_per_byte if ceiling else None,
        batch_ridge=shown.get(decode.RIDGE),
        weights_ridge=shown.get(decode.WEIGHTS_RIDGE),
        steps_per_second=done.steps.count / done.elapsed_seconds if done else None,
        steps_counted=done.steps.counted if done else True,
        batch=shown.get(decode.BATCH),
        context=context[0] if context else None,
        context_source=context[1] if context else "",
        step_bytes=shown.get(bandwidth.STEP_BYTES) or {},
        experts=shown.get(bandwidth.EXPERTS),
        tokens_per_sequence_step=shown.get(decode.TOKENS_PER_STEP),
        step_floor_seconds=ceiling.step_seconds if ceiling else None,
        phase_ceiling=shown.by_key({"prefill": compute.PREFILL_CAPACITY, "decode": decode.CAPACITY}),
        phase_busy_ratio=shown.get(ticks.BUSY_RATIO) or {},
        causes=causes,
    )
