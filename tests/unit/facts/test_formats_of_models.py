"""Real quantisation configs on the builders' modules: that both call a matrix by the same name.

Configs as in ai-dynamo/aiconfigurator's model_configs (HEAD 095f58a5); the same models written out by hand are the second opinion.
"""

from __future__ import annotations

import pytest

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.quantisation import Assignment, assign, weigh
from llm_serving_exporter.model.shape import Geometry, Part
from tests.support.models import weightmodels
from tests.support.models.hybrid_models import NEMOTRON_3_NANO
from tests.support.models.moe_models import PUBLISHED, TABLE
from tests.support.models.quantising import step_bytes, stored_bytes
from tests.support.rows import check_rows

BY_HAND = {
    "Mixtral-8x7B": weightmodels.MIXTRAL_8X7B,
    "Qwen3-30B-A3B": weightmodels.QWEN3_30B,
    "Qwen3-235B-A22B": weightmodels.QWEN3_235B,
    "DeepSeek-V3": weightmodels.DEEPSEEK_V3,
    "gpt-oss-120b": weightmodels.GPT_OSS_120B,
    "gpt-oss-20b": weightmodels.GPT_OSS_20B,
}
NAMED = ("lm_head", "model.layers.1.*", "model.layers.*.self_attn", "model.layers.4.mlp.experts")


def kept(shape: Geometry, assignment: Assignment) -> float:
    return stored_bytes(weigh(shape, assignment), shape.experts)


def by_part(assignment: Assignment) -> dict[tuple[str, str], dict[str, int]]:
    """Places by format, of each part and last name."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for share in assignment.shares:
        if share.module.matrix:
            key = (share.module.part.value, share.module.path.rpartition(".")[2])
            found.setdefault(key, {})[share.format.name] = share.places
    return found


@check_rows("model", BY_HAND)
@check_rows("served", [formats.BF16, formats.FP8, formats.NVFP4, formats.named("q4_k_m")])
def test_builders_and_hand_agree_on_what_is_quantised(model: str, served: formats.WeightFormat) -> None:
    built, by_hand = (
        step_bytes(weigh(shape, assign({}, None, shape, override=served)), shape.experts_per_token)
        for shape in (geometry(TABLE[model][0]), BY_HAND[model])
    )
    assert built == pytest.approx(by_hand, rel=1e-12)


@check_rows("model", BY_HAND)
def test_builders_and_hand_agree_on_what_a_list_leaves_out(model: str) -> None:
    quantised = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": list(NAMED)}}
    built, by_hand = geometry(TABLE[model][0]), BY_HAND[model]
    found = kept(built, assign({}, quantised, built))
    assert found == pytest.approx(kept(by_hand, assign({}, quantised, by_hand)), rel=1e-12)


def test_nemotron_3_nano_nvfp4() -> None:
    """Layers before attention keep their Mamba projections in bf16, and attention all of its own."""
    mamba, attention = (4, 11, 18, 25, 32, 41), (5, 12, 19, 26, 33, 42)
    excluded = [
        "lm_head",
        *(f"backbone.layers.{layer}.mixer.{name}" for layer in mamba for name in ("in_proj", "out_proj")),
        *(f"backbone.layers.{layer}.mixer.{name}_proj" for layer in attention for name in "qkvo"),
    ]
    quantised = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": excluded}}
    found = by_part(assign(NEMOTRON_3_NANO, quantised, geometry(NEMOTRON_3_NANO)))
    assert found["recurrent", "in_proj"] == {"nvfp4": 17, "bf16": 6}
    assert found["recurrent", "conv1d"] == {"bf16": 23}
    assert found["attention", "o_proj"] == {"bf16": 6}
    assert found["expert", "up_proj"] == {"nvfp4": 23}
    assert found["lm_head", "lm_head"] == {"bf16": 1}


def test_kimi_k2_5_as_served_by_its_own_config_and_by_nvidia() -> None:
    """Names behind language_model.model.; int4 and NVFP4 of the same experts both take 4.5 bits each."""
    config = PUBLISHED["Kimi-K2.5"][0]
    shape = geometry(config)
    weights = {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"}
    own = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"input_activations": None, "targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    }
    trees = [f"language_model.model.layers.{layer}" for layer in range(61)]
    nvidia = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": [
            "language_model.lm_head",
            "language_model.model.layers.0*",
            *(f"{tree}.{name}*" for tree in trees for name in ("mlp.shared_experts", "self_attn")),
            "mm_projector*",
            "vision_tower*",
        ],
    }
    sizes = []
    for settings, name in ((own, "int4_g32"), (nvidia, "nvfp4")):
        assignment = assign({**config, "quantization_config": settings}, None, shape)
        assert {s.module.part for s in assignment.shares if s.format.name == name} == {Part.EXPERT}
        sizes.append(kept(shape, assignment))
    # both have one scale of 16 bits per 32 weights or 8 bits per 16
    assert sizes[0] == sizes[1] == pytest.approx(594.2e9, rel=0.001)
