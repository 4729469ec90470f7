"""Shorthand of the tests of quantisation configs: what a config gives to which modules."""

from collections.abc import Iterable
from typing import Any

from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import Geometry, WeightGroup


def given_to(assignment: Assignment, leaf: str) -> dict[str, int]:
    """Places by format of the modules whose path ends so."""
    return {
        share.format.name: share.places
        for share in assignment.shares
        if share.module.path.split(".{}.")[-1].endswith(leaf)
    }


def quantised(geometry: Geometry, **settings: Any) -> Assignment:
    return assign({"torch_dtype": "bfloat16", "quantization_config": settings}, None, geometry)


def by_modelopt(geometry: Geometry, **quantization: Any) -> Assignment:
    return assign(
        {"torch_dtype": "bfloat16"}, {"producer": {"name": "modelopt"}, "quantization": quantization}, geometry
    )


def group(**weights: Any) -> dict[str, Any]:
    return {"targets": ["Linear"], "weights": weights}


def stored_bytes(groups: Iterable[WeightGroup], experts: int) -> float:
    """All weights as kept in GPU memory; `experts` of a layer (geometry.experts)."""
    return add_up(
        group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
        for group in groups
    )


def step_bytes(groups: Iterable[WeightGroup], experts_touched: float) -> float:
    """Weights that one decode step reads with so many routed experts of each layer touched; the experts of one token at batch 1."""
    return add_up(group.fixed_bytes + group.lm_head_bytes + experts_touched * group.expert_bytes for group in groups)
