"""One target's limiter and model facts -> series."""

from __future__ import annotations

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.model.derived import Derived, Limiter
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import Target

# free text about where facts come from may hold a path of any length
LONGEST_ORIGIN = 120
# with their codes: `.value` of an enum takes several times as long as a line
_STATES = tuple((state, state.value) for state in Limiter)


def add_limiter(families: Families, reading: TargetReading, derived: Derived) -> None:
    """The limiter with its evidence, and what is suspect."""
    of_target = families.of_target(reading.target)
    model_name = reading.server.model_name or reading.target.model_name or ""
    labels = of_target.with_labels(model_name=model_name, role=reading.role.value)
    verdict = derived.verdict
    if verdict is not None:
        families.add_by_label(names.LIMITER, labels, "state", {code: state is verdict.state for state, code in _STATES})
        families.add_by_label(names.LIMITER_EVIDENCE, labels, "evidence", verdict.evidence)
    for signal, cause in derived.causes.items():
        families.add_value(names.SUSPECT, of_target, 1, signal=signal, cause=cause.value)


def add_model_facts(families: Families, target: Target, model_name: str, facts: ModelFacts) -> None:
    """What is known about one served model."""
    labels = families.of_target(target).with_labels(model_name=model_name)
    families.add_unchanged(labels, facts, _add_facts)


def _add_facts(families: Families, labels: SharedLabels, facts: ModelFacts) -> None:
    formats = sorted({group.format.name for group in facts.groups})
    geometry = facts.geometry
    families.add_info(
        names.MODEL_INFO,
        labels,
        family=geometry.family,
        weight_format="+".join(formats),
        kv_format=facts.kv_format,
        origin=facts.origin[:LONGEST_ORIGIN],
    )
    counts = {
        "total": geometry.parameters_total,
        "active": geometry.parameters_active,
        "decode_read": geometry.decode_read_parameters,
    }
    families.add_by_label(names.MODEL_PARAMETERS, labels, "kind", counts)
    families.add_value(names.MODEL_WEIGHT_BYTES, labels, facts.weight_bytes, kind="computed")
    families.add_value(names.MODEL_WEIGHT_BYTES, labels, facts.checkpoint_bytes, kind="checkpoint")
    families.add_value(names.MODEL_KV_BYTES, labels, facts.kv_bytes_per_token)
