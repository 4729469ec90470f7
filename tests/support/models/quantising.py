"""Shorthand of the tests of quantisation configs: what a config gives to which modules."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.geometry import Geometry


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
