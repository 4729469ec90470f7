"""Geometry of further families against exact counts."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.facts.architectures.registry import geometry
from llm_serving_exporter.model.geometry import Part, Span
from tests.support.models.hybrid_models import QWEN3_5_27B
from tests.support.models.later_models import BASE, LATER


@pytest.mark.parametrize(
    ("model_type", "changes", "total", "active", "read", "full"),
    LATER,
    ids=[f"{row[0]}-{index}" for index, row in enumerate(LATER)],
)
def test_odd_sizes_and_switches_as_transformers_counts_them(
    model_type: str, changes: dict[str, Any], total: int, active: int, read: int, full: int
) -> None:
    shape = geometry({"model_type": model_type, **BASE, **changes})
    assert shape.parameters_total == total
    assert shape.parameters_active == active
    assert shape.decode_read_parameters == read
    assert sum(group.layers for group in shape.attention if group.span is Span.FULL) == full
    for module in shape.modules:
        assert max(module.layers, default=0) < shape.layers
        assert ("{}" in module.path) == bool(module.layers)


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # transformers 5.23.0's Glm4vTextModel, 8,779,522,048, and GlmOcrTextModel, 312,542,208, with an lm_head each
        ({"model_type": "glm4v", "text_config": {"model_type": "glm4v_text"}}, 8_779_522_048 + 151_552 * 4096),
        ({"model_type": "glm_ocr", "text_config": {"model_type": "glm_ocr_text"}}, 312_542_208 + 59_392 * 1024),
        # Qwen2 of the same sizes: 7,615,616,512
        ({"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "x", "text_config": {"model_type": "qwen2_5_omni_text"}}},
         7_615_616_512),
    ],
    ids=["GLM-4.1V", "GLM-OCR", "Qwen2.5-Omni-7B"],
)  # fmt: skip
def test_language_parts_that_leave_out_their_class_defaults(config: dict[str, Any], total: int) -> None:
    assert geometry(config).parameters_total == total


@pytest.mark.parametrize(
    "model_type", ["mimo", "dots_ocr", "keye", "KeyeVL1_5", "phi4mm", "internlm", "xverse", "aquila", "orion"]
)
def test_families_with_code_of_their_own_are_rows(model_type: str) -> None:
    config = {
        "model_type": model_type,
        **BASE,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "bias": True,
        "sliding_window": None,
    }
    shape = geometry({key: value for key, value in config.items() if key != "bias" or model_type == "internlm"})
    biased = {
        module.path.rpartition(".")[2] for module in shape.modules if module.vector and module.part is Part.ATTENTION
    }
    qwen2 = {"q_proj", "k_proj", "v_proj"}
    assert biased == {"mimo": qwen2, "dots_ocr": qwen2, "internlm": {*qwen2, "o_proj"}}.get(model_type, set())


def test_qwen3_6_is_a_qwen3_5() -> None:
    """nvidia/Qwen3.6-27B-NVFP4 and Qwen/Qwen3.5-27B have the same fields."""
    assert geometry(QWEN3_5_27B).parameters_total == 26_895_998_464
