"""Formats that a config says beside its quantisation, or inside its language part: seen in published ones."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.shape import Part
from tests.support.models.flagship_models import DEEPSEEK_V3_2, DEEPSEEK_V4_FLASH, DEEPSEEK_V4_PRO, KIMI_K3
from tests.support.models.moe_models import Config
from tests.support.models.quantising import stored_bytes


def assigned(config: Config) -> Assignment:
    return assign(config, None, geometry(config))


def of_part(assignment: Assignment, part: Part) -> set[str]:
    return {share.format.name for share in assignment.shares if share.module.part is part}


def gigabytes(config: Config) -> float:
    shape = geometry(config)
    return stored_bytes(quantisation.weigh(shape, assigned(config)), shape.experts) / 1e9


def v4(**settings: Any) -> Config:
    return {**DEEPSEEK_V4_FLASH, "quantization_config": {**DEEPSEEK_V4_FLASH["quantization_config"], **settings}}


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


@pytest.mark.parametrize(("config", "published"), [(DEEPSEEK_V4_FLASH, 160), (DEEPSEEK_V4_PRO, 865)])
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
