"""Quantisation configs as published, on the modules of the models: seen in copies that ai-dynamo/aiconfigurator holds, or on the hub."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.shape import Part
from tests.support.models.published import KIMI_K3
from tests.support.models.quantising import stored_bytes
from tests.support.models.shapes import Config, config_of, nested, shape_of

DEEPSEEK_V3_2, DEEPSEEK_V4_FLASH = config_of("DeepSeek-V3.2"), config_of("DeepSeek-V4-Flash")
NANO = "Nemotron-3-Nano-30B-A3B"


def assigned(config: Config) -> Assignment:
    return assign(config, None, geometry(config))


def of_part(assignment: Assignment, part: Part) -> set[str]:
    return {share.format.name for share in assignment.shares if share.module.part is part}


def gigabytes(config: Config) -> float:
    shape = geometry(config)
    return stored_bytes(quantisation.weigh(shape, assigned(config)), shape.experts) / 1e9


def v4(**settings: Any) -> Config:
    return {**DEEPSEEK_V4_FLASH, "quantization_config": {**DEEPSEEK_V4_FLASH["quantization_config"], **settings}}


def by_part(assignment: Assignment) -> dict[tuple[str, str], dict[str, int]]:
    """Places by format, of each part and last name."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for share in assignment.shares:
        if share.module.matrix:
            key = (share.module.part.value, share.module.path.rpartition(".")[2])
            found.setdefault(key, {})[share.format.name] = share.places
    return found


def test_expert_dtype_goes_beside_the_quantisation() -> None:
    """DeepSeek-V4: everything else in FP8 blocks, routers, norms, compressors and streams as they are."""
    found = assigned(DEEPSEEK_V4_FLASH)
    assert of_part(found, Part.EXPERT) == {"mxfp4_w4a8"}
    assert of_part(found, Part.FFN) == {"fp8_block", "bf16"}
    assert of_part(found, Part.ROUTER) == of_part(found, Part.LM_HEAD) == {"bf16"}
    compressors = {share.format.name for share in found.shares if "compressor" in share.module.path}
    assert compressors == {"bf16"}
    assert of_part(assigned({**DEEPSEEK_V4_FLASH, "expert_dtype": "fp8"}), Part.EXPERT) == {"fp8_block"}
    without = {key: value for key, value in DEEPSEEK_V4_FLASH.items() if key != "expert_dtype"}
    assert of_part(assigned(without), Part.EXPERT) == {"fp8_block"}
    # DeepSeek-V4.1 says it in the quantisation
    inside = {**without, **{"quantization_config": v4(expert_dtype="fp4")["quantization_config"]}}
    assert of_part(assigned(inside), Part.EXPERT) == {"mxfp4_w4a8"}


@pytest.mark.parametrize(("config", "published"), [(DEEPSEEK_V4_FLASH, 160), (config_of("DeepSeek-V4-Pro"), 865)])
def test_checkpoints_of_deepseek_v4_are_as_large_as_published(config: Config, published: float) -> None:
    """GB on the hub, with a prediction layer as large as another one, which is left out here."""
    layers = config["num_hidden_layers"]
    assert gigabytes(config) * (layers + 1) / layers == pytest.approx(published, rel=0.01)


def test_an_unknown_expert_dtype_is_refused() -> None:
    with pytest.raises(FactsError, match="expert_dtype is 'fp6', neither 'fp4' nor 'fp8'"):
        assigned({**DEEPSEEK_V4_FLASH, "expert_dtype": "fp6"})


def test_modelopt_names_experts_over_fp8() -> None:
    """nvidia/DeepSeek-V4-Flash-NVFP4: quant_method fp8, its experts listed in NVFP4, `ignore` of what ModelOpt left in FP8."""
    layers = {f"layers.{layer}.ffn.experts": {"group_size": 16, "quant_algo": "NVFP4"} for layer in range(43)}
    ignore = ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"]
    found = assigned(v4(quant_algo="MIXED_PRECISION", moe_quant_algo="NVFP4", quantized_layers=layers, ignore=ignore))
    assert of_part(found, Part.EXPERT) == {"nvfp4"}
    queries = {share.format.name for share in found.shares if share.module.path.endswith("attn.wq_b")}
    assert queries == {"fp8_block"}
    shared = {share.format.name for share in found.shares if "shared_experts" in share.module.path}
    assert shared == {"fp8_block"}


def test_a_quantisation_inside_the_language_part_is_read() -> None:
    """moonshotai/Kimi-K3: 1.56 TB on the hub, the vision tower and files that are no weights included."""
    found = assigned(KIMI_K3)
    assert of_part(found, Part.EXPERT) == {"mxfp4"}
    assert of_part(found, Part.ATTENTION) == of_part(found, Part.RECURRENT) == {"bf16"}
    # the matrices around the experts' narrower space are quantised, shared experts are not
    assert of_part(found, Part.FFN) == {"mxfp4", "bf16"}
    assert gigabytes(KIMI_K3) == pytest.approx(1560, rel=0.01)


def test_the_index_of_sparse_attention_is_half_quantised() -> None:
    """vLLM fuses wk and weights_proj into one matrix that stays as it is."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    found = assigned({**DEEPSEEK_V3_2, "quantization_config": fp8})
    index = {
        share.module.path.split(".")[-1]: share.format.name for share in found.shares if "indexer" in share.module.path
    }
    assert index == {"wq_b": "fp8_block", "wk": "bf16", "weights_proj": "bf16", "k_norm": "bf16"}


def test_deepseek_v4_keeps_its_cache_in_fp8() -> None:
    assert quantisation.kv_hint(DEEPSEEK_V4_FLASH, None) == "fp8_ds_mla"
    assert quantisation.kv_hint(DEEPSEEK_V3_2, None) is None


def test_nemotron_3_nano_nvfp4() -> None:
    """Layers before attention keep their Mamba projections in bf16, and attention all of its own."""
    mamba, attention = (4, 11, 18, 25, 32, 41), (5, 12, 19, 26, 33, 42)
    excluded = [
        "lm_head",
        *(f"backbone.layers.{layer}.mixer.{name}" for layer in mamba for name in ("in_proj", "out_proj")),
        *(f"backbone.layers.{layer}.mixer.{name}_proj" for layer in attention for name in "qkvo"),
    ]
    quantised = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": excluded}}
    found = by_part(assign(config_of(NANO), quantised, shape_of(NANO)))
    assert found["recurrent", "in_proj"] == {"nvfp4": 17, "bf16": 6}
    assert found["recurrent", "conv1d"] == {"bf16": 23}
    assert found["attention", "o_proj"] == {"bf16": 6}
    assert found["expert", "up_proj"] == {"nvfp4": 23}
    assert found["lm_head", "lm_head"] == {"bf16": 1}


def test_kimi_k2_5_as_served_by_its_own_config_and_by_nvidia() -> None:
    """Names behind language_model.model.; int4 and NVFP4 of the same experts both take 4.5 bits each."""
    config = nested("Kimi-K2.5", "kimi_k25")
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
    for settings, name in ((config_of("Kimi-K2.5")["quantization_config"], "int4_g32"), (nvidia, "nvfp4")):
        said = {**config, "quantization_config": settings}
        assert {it.module.part for it in assigned(said).shares if it.format.name == name} == {Part.EXPERT}
        # both have one scale of 16 bits per 32 weights or 8 bits per 16
        assert gigabytes(said) == pytest.approx(594.2, rel=0.001)
