"""One target's roofline, limiter and model facts -> series."""

from __future__ import annotations

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.roofline import Limiter
from llm_serving_exporter.model.weights import ModelFacts

# free text about where facts come from may hold a path of any length
LONGEST_ORIGIN = 120


def engine(families: Families, derived: EngineDerived, labels: dict[str, str]) -> None:
    """Everything of one engine."""
    roof = derived.roofline
    families.by_label(names.ACHIEVED_BANDWIDTH, labels, "source", roof.achieved)
    families.value(names.BANDWIDTH_CEILING, labels, roof.bandwidth_ceiling)
    families.by_label(names.BANDWIDTH_RATIO, labels, "source", roof.ratio)
    if roof.model_ratio_range is not None:
        ends = {"lower": roof.model_ratio_range.lower, "upper": roof.model_ratio_range.upper}
        families.by_label(names.BANDWIDTH_RATIO_RANGE, labels, "bound", ends)
    families.value(names.DECODE_CEILING, labels, roof.decode_ceiling)
    families.by_label(names.PHASE_CEILING, labels, "phase", roof.phase_ceiling)
    families.value(names.DECODE_RATIO, labels, roof.decode_ratio)
    families.value(names.COMPUTE_RATIO, labels, roof.compute_ratio)
    families.value(names.INTENSITY, labels, roof.intensity_flops_per_byte)
    families.value(names.RIDGE, labels, roof.ridge_flops_per_byte)
    families.value(names.BATCH_RIDGE, {**labels, "part": "step"}, roof.batch_ridge)
    families.value(names.BATCH_RIDGE, {**labels, "part": "weights"}, roof.weights_ridge)
    how = "counted" if roof.steps_counted else "inter_token_latency"
    families.value(names.STEPS_PER_SECOND, {**labels, "source": how}, roof.steps_per_second)
    families.by_label(names.STEP_BYTES, labels, "part", roof.step_bytes)
    families.range(names.EXPERTS, labels, roof.experts)
    families.range(names.DECODE_CONTEXT, labels, roof.context)
    families.value(names.TOKENS_PER_STEP, labels, roof.tokens_per_sequence_step)
    families.by_label(names.PHASE_BUSY_RATIO, labels, "phase", roof.phase_busy_ratio)
    if derived.busy is not None:
        seconds = {name: getattr(derived.busy, name) for name in ("prefill", "decode", "unattributed")}
        families.by_label(names.PHASE_BUSY_SECONDS, labels, "phase", seconds)
    families.by_label(names.PHASE_REFERENCE, labels, "phase", derived.phase_reference_seconds_per_token)
    families.by_label(names.MEMORY, labels, "part", derived.gpu_memory_bytes)


def target(families: Families, reading: TargetReading, derived: Derived) -> None:
    """The limiter with its evidence, and what is suspect."""
    labels = {
        "target": reading.target.name,
        "model_name": reading.model_name or reading.target.model_name or "",
        "role": reading.role.value,
    }
    verdict = derived.verdict
    if verdict is not None:
        families.by_label(names.LIMITER, labels, "state", {state.value: state is verdict.state for state in Limiter})
        families.by_label(names.LIMITER_EVIDENCE, labels, "evidence", verdict.evidence)
    for signal, cause in derived.causes.items():
        families.value(names.SUSPECT, {"target": reading.target.name, "signal": signal, "cause": cause.value}, 1)


def model(families: Families, target_name: str, model_name: str, facts: ModelFacts) -> None:
    """What is known about one served model."""
    labels = {"target": target_name, "model_name": model_name}
    formats = sorted({group.format.name for group in facts.groups})
    geometry = facts.geometry
    families.info(
        names.MODEL_INFO,
        {
            **labels,
            "family": geometry.family,
            "weight_format": "+".join(formats),
            "kv_format": facts.kv_format,
            "origin": facts.origin[:LONGEST_ORIGIN],
        },
    )
    counts = {
        "total": geometry.parameters_total,
        "active": geometry.parameters_active,
        "decode_read": geometry.decode_read_parameters,
    }
    families.by_label(names.MODEL_PARAMETERS, labels, "kind", counts)
    families.value(names.MODEL_WEIGHT_BYTES, {**labels, "kind": "computed"}, facts.weight_bytes)
    families.value(names.MODEL_WEIGHT_BYTES, {**labels, "kind": "checkpoint"}, facts.checkpoint_bytes)
    families.value(names.MODEL_KV_BYTES, labels, facts.kv_bytes_per_token)
