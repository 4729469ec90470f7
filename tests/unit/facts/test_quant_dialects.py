"""Formats of each module from quantisation configs, those of named models as published (ai-dynamo/aiconfigurator, HEAD 095f58a5)."""

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats, quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.quantisation import Assignment, assign
from llm_serving_exporter.model.shape import Part
from tests.support.models.modelfolders import by_modelopt, given_to, group, quantised, stored_bytes
from tests.support.models.published import KIMI_K3
from tests.support.models.shapes import Config, config_of, nested, shape_of
from tests.support.rows import check_rows

DEEPSEEK_V3 = shape_of("DeepSeek-V3")
GPT_OSS_20B = shape_of("gpt-oss-20b")
LLAMA_1B = shape_of("Llama-3.2-1B")
LLAMA_8B = shape_of("Llama-3.1-8B")
QWEN3_30B = shape_of("Qwen3-30B-A3B")

# --- compressed-tensors


@check_rows(
    ("weights", "activations", "name", "bits"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"num_bits": 8, "type": "float", "dynamic": True}, "fp8", 8.0),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, None, "fp8_w8a16", 8.0),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            {"num_bits": 8, "type": "float"},
            "fp8_block",
            8 + 32 / 16384,
        ),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "int"}, "int8", 8.0),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "int8_w8a16", 8.0),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}, None, "int4_g128", 4.125),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False}, None, "int4_g128_zp", 4.15625),
        ({"num_bits": 4, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "float"}, "int4_w4a8_fp8", 4.0),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, {"num_bits": 4, "type": "float"}, "nvfp4", 4.5),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, None, "nvfp4_w4a16", 4.5),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, None, "mxfp4", 4.25),
        ({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}, {"num_bits": 8, "type": "float"}, "mxfp8", 8.25),
    ],
)  # fmt: skip
def test_layouts_of_compressed_tensors(weights: dict[str, Any], activations: Any, name: str, bits: float) -> None:
    groups = {"group_0": {**group(**weights), "input_activations": activations}}
    assignment = quantised(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups, ignore=["lm_head"])
    (share,) = (share for share in assignment.shares if share.module.path.endswith("down_proj"))
    assert (share.format.name, share.format.bits) == (name, bits)
    assert given_to(assignment, "lm_head") == {"bf16": 1}


def test_kimi_k2_quantises_routed_experts_only() -> None:
    """moonshotai/Kimi-K2.5, whose language part has DeepSeek-V3's modules: expressions over names."""
    weights = {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"}
    assignment = quantised(
        DEEPSEEK_V3,
        quant_method="compressed-tensors",
        format="pack-quantized",
        config_groups={"group_0": {**group(**weights), "input_activations": None}},
        ignore=["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    )
    in_int4 = {share.module.part for share in assignment.shares if share.format.name == "int4_g32"}
    assert in_int4 == {Part.EXPERT}
    assert {share.format.name for share in assignment.shares if share.module.part is not Part.EXPERT} == {"bf16"}
    assert given_to(assignment, "experts.*.down_proj") == {"int4_g32": 58}


@check_rows("lead", [r"model\.language_model\.", r"language_model\.model\.", r"model\.", ""])
def test_expressions_match_from_the_start_of_a_name_with_any_lead(lead: str) -> None:
    groups = {"a": group(num_bits=4, type="int", strategy="group", group_size=128)}
    ignored = [rf"re:{lead}layers\.3\..*", "re:mlp"]
    assignment = quantised(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups, ignore=ignored)
    assert given_to(assignment, "up_proj") == {"int4_g128": 31, "bf16": 1}


def test_a_group_that_names_modules_goes_before_one_of_every_linear() -> None:
    groups = {
        "a": group(num_bits=4, type="int", strategy="group", group_size=128),
        "b": {"targets": [r"re:.*\.down_proj$"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}},
    }
    assignment = quantised(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups)
    assert given_to(assignment, "down_proj") == {"int8_w8a16": 32}
    assert given_to(assignment, "up_proj") == {"int4_g128": 32}
    # not in `ignore`: the checkpoint holds it quantised
    assert given_to(assignment, "lm_head") == {"int4_g128": 1}


# --- GPTQ, AWQ, AutoRound, bitsandbytes


@check_rows(
    ("settings", "name", "bits"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True},
            "int4_g128_zp",
            4.15625,
        ),
        ({"quant_method": "gptq_marlin", "bits": 8, "group_size": -1}, "int8_w8a16", 8.0),
        ({"quant_method": "gptq", "bits": 3, "group_size": 64}, "int3_g64_zp", 3 + 19 / 64),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
            "int4_g128_zp",
            4.15625,
        ),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, "int4_g64", 4.25),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int"},
            "int4_g128",
            4.125,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", 4.5),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            "nf4_double",
            4.126953125,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 8.0),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8", 8.0),
    ],
)
def test_dialects_of_one_format(settings: dict[str, Any], name: str, bits: float) -> None:
    assignment = quantised(LLAMA_8B, **settings)
    (share,) = (share for share in assignment.shares if share.module.path.endswith("o_proj"))
    assert (share.format.name, share.format.bits) == (name, bits)
    assert given_to(assignment, "lm_head") == {"bf16": 1}


def test_gptq_rules_leave_out_and_override_and_say_whether_lm_head_is_in() -> None:
    assignment = quantised(
        LLAMA_8B,
        quant_method="gptq",
        bits=4,
        group_size=128,
        lm_head=True,
        dynamic={r"+:.*\.(?:1[0-5])\..*": {"bits": 8}, r"-:.*\.(?:0|1)\.mlp\..*": {}},
    )
    assert given_to(assignment, "up_proj") == {"int4_g128_zp": 24, "int8_g128_zp_w8a16": 6, "bf16": 2}
    assert given_to(assignment, "lm_head") == {"int4_g128_zp": 1}


def test_gptq_may_name_the_modules_that_it_takes() -> None:
    taken = [["self_attn.q_proj"], ["self_attn.k_proj", "self_attn.v_proj"]]
    assignment = quantised(LLAMA_8B, quant_method="gptq", bits=4, group_size=128, modules_in_block_to_quantize=taken)
    assert given_to(assignment, "v_proj") == {"int4_g128_zp": 32}
    assert given_to(assignment, "o_proj") == {"bf16": 32}


def test_auto_round_overrides_by_module() -> None:
    extra = {"model.layers.4.mlp.down_proj": {"bits": 16, "data_type": "fp"}, "lm_head": {"bits": 8}}
    assignment = quantised(LLAMA_8B, quant_method="auto-round", bits=4, group_size=128, extra_config=extra)
    assert given_to(assignment, "down_proj") == {"int4_g128": 31, "bf16": 1}
    assert given_to(assignment, "lm_head") == {"int8_g128_w8a16": 1}


def test_auto_round_overrides_by_expression_behind_a_module_s_own() -> None:
    """Any of these signs makes an expression, which may match anywhere (vLLM, quantization/auto_round.py get_layer_config)."""
    extra = {
        ".*self_attn.*": {"bits": 16, "data_type": "fp"},
        r"layers\.[01]\.mlp": {"bits": 8},
        "model.layers.0.mlp.down_proj": {"bits": 2, "group_size": 32},
    }
    assignment = quantised(LLAMA_8B, quant_method="auto-round", bits=4, group_size=128, extra_config=extra)
    assert given_to(assignment, "q_proj") == {"bf16": 32}
    assert given_to(assignment, "gate_proj") == {"int8_g128_w8a16": 2, "int4_g128": 30}
    assert given_to(assignment, "down_proj") == {"int2_g32": 1, "int8_g128_w8a16": 1, "int4_g128": 30}


def test_a_tied_table_is_no_linear() -> None:
    assignment = quantised(LLAMA_1B, quant_method="gptq", bits=4, group_size=128, lm_head=True)
    assert given_to(assignment, "embed_tokens") == {"bf16": 1}


# --- mxfp4, ModelOpt, Quark


def test_gpt_oss_keeps_all_but_experts() -> None:
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    assignment = quantised(GPT_OSS_20B, quant_method="mxfp4", modules_to_not_convert=kept)
    assert {share.module.part for share in assignment.shares if share.format is formats.MXFP4} == {Part.EXPERT}
    assert given_to(assignment, "gate_up_proj") == {"mxfp4": 24}
    # as vLLM's method, which takes nothing else however short the list
    assert quantised(GPT_OSS_20B, quant_method="mxfp4") == assignment


def test_deepseek_v3_1_nvfp4_quantises_o_proj_but_not_the_other_projections() -> None:
    """nvidia/DeepSeek-V3.1-NVFP4 hf_quant_config.json; layer 61 is the MTP layer, and layer 6 is not of its tree."""
    projections = ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")
    excluded = ["lm_head", *(f"model.layers.{layer}.self_attn.{name}" for layer in range(61) for name in projections)]
    assignment = by_modelopt(
        DEEPSEEK_V3,
        quant_algo="NVFP4",
        kv_cache_quant_algo="FP8",
        group_size=16,
        exclude_modules=[*excluded, "model.layers.61*"],
    )
    assert {name: given_to(assignment, name) for name in projections} == {name: {"bf16": 61} for name in projections}
    assert given_to(assignment, "o_proj") == {"nvfp4": 61}
    assert given_to(assignment, "experts.*.up_proj") == {"nvfp4": 58}
    assert given_to(assignment, "shared_experts.up_proj") == {"nvfp4": 58}
    assert given_to(assignment, "mlp.gate") == {"bf16": 58}
    assert given_to(assignment, "lm_head") == {"bf16": 1}


def test_a_star_at_the_end_means_the_tree_and_no_neighbour() -> None:
    """nvidia/GLM-5.1-NVFP4 lists model.layers.1.*, model.layers.0* and so on; layer 1 is not layer 10."""
    for pattern in ("model.layers.1*", "model.layers.1.*"):
        assignment = by_modelopt(LLAMA_8B, quant_algo="NVFP4", exclude_modules=[pattern])
        assert given_to(assignment, "o_proj") == {"nvfp4": 31, "bf16": 1}


def test_a_star_in_front_means_any_lead() -> None:
    """nvidia/Qwen3.5-397B-A17B-NVFP4 lists *.mlp.shared_expert.*"""
    assignment = by_modelopt(DEEPSEEK_V3, quant_algo="NVFP4", exclude_modules=["*.mlp.shared_experts.*"])
    assert given_to(assignment, "shared_experts.up_proj") == {"bf16": 58}
    assert given_to(assignment, "experts.*.up_proj") == {"nvfp4": 58}


def test_modelopt_in_config_json_with_and_without_quant_method() -> None:
    """nvidia/MiniMax-M2.5-NVFP4, and Qwen/Qwen3-32B-FP8-Static-PerTensor, whose quantization_config has none."""
    ignored = ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(32))]
    assignment = quantised(LLAMA_8B, quant_method="modelopt", quant_algo="NVFP4", ignore=ignored)
    assert (given_to(assignment, "q_proj"), given_to(assignment, "up_proj")) == ({"bf16": 32}, {"nvfp4": 32})
    assignment = quantised(
        LLAMA_8B, quant_algo="FP8", ignore=["lm_head"], producer={"name": "modelopt", "version": "0.31.0"}
    )
    assert given_to(assignment, "q_proj") == {"fp8": 32}


def test_mixed_precision_by_layer_and_by_tree() -> None:
    """As nvidia/Qwen3.6-35B-A3B-NVFP4: FP8 attention, NVFP4 weights in experts (named as a tree) and lm_head."""
    layers: dict[str, Any] = {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    for layer in range(48):
        layers[f"model.language_model.layers.{layer}.self_attn.q_proj"] = {"quant_algo": "FP8"}
        layers[f"model.language_model.layers.{layer}.mlp.experts"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    assignment = by_modelopt(QWEN3_30B, quant_algo="MIXED_PRECISION", quantized_layers=layers, exclude_modules=["mtp*"])
    assert assignment.method == "modelopt_mixed"
    assert given_to(assignment, "q_proj") == {"fp8": 48}
    assert given_to(assignment, "k_proj") == {"bf16": 48}
    assert given_to(assignment, "experts.*.gate_proj") == {"nvfp4_w4a16": 48}
    assert given_to(assignment, "lm_head") == {"nvfp4_w4a16": 1}


def test_the_nearest_tree_that_mixed_precision_names_holds() -> None:
    layers = {"model.layers.0": {"quant_algo": "FP8"}, "model.layers.0.mlp": {"quant_algo": "NVFP4"}}
    assignment = by_modelopt(LLAMA_8B, quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert given_to(assignment, "o_proj") == {"fp8": 1, "bf16": 31}
    assert given_to(assignment, "down_proj") == {"nvfp4": 1, "bf16": 31}


def test_mixed_precision_by_expert_in_the_checkpoints_own_names() -> None:
    """As nvidia/MiniMax-M3-NVFP4: block_sparse_moe.experts.0.w1; expert 0 stands for all."""
    layers = {
        f"language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}.{name}": {
            "quant_algo": "NVFP4",
            "group_size": 16,
        }
        for layer in range(48)
        for expert in range(2)
        for name in ("w1", "w2", "w3")
    }
    assignment = by_modelopt(QWEN3_30B, quant_algo="MIXED_PRECISION", quantized_layers=layers)
    for name in ("gate_proj", "up_proj", "down_proj"):
        assert given_to(assignment, f"experts.*.{name}") == {"nvfp4": 48}


@check_rows(
    ("algorithm", "name"),
    [("FP8_PB_WO", "fp8_block"), ("W4A16_AWQ", "int4_g128"), ("W4A8_AWQ", "int4_g128_w4a8_fp8"), ("mxfp8", "mxfp8")],
)
def test_modelopt_algorithms(algorithm: str, name: str) -> None:
    assert given_to(by_modelopt(LLAMA_8B, quant_algo=algorithm, exclude_modules=["lm_head"]), "o_proj") == {name: 32}


def test_modelopt_leaves_lm_head_out_without_a_list_and_follows_a_list() -> None:
    assert given_to(by_modelopt(LLAMA_8B, quant_algo="FP8"), "lm_head") == {"bf16": 1}
    assert given_to(by_modelopt(LLAMA_8B, quant_algo="NVFP4", exclude_modules=["*.self_attn.*"]), "lm_head") == {
        "nvfp4": 1
    }


def test_a_checkpoint_of_which_only_the_kv_cache_is_quantised_has_plain_weights() -> None:
    assignment = by_modelopt(LLAMA_8B, quant_algo=None, kv_cache_quant_algo="FP8")
    assert {share.format.name for share in assignment.shares} == {"bf16"}


def test_config_json_goes_before_hf_quant_config() -> None:
    config = {"quantization_config": {"quant_method": "fp8"}}
    assert assign(config, {"quantization": {"quant_algo": "NVFP4"}}, LLAMA_8B).method == "fp8"


def test_quark_by_default_and_by_pattern() -> None:
    fp8 = {
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"},
        "input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": True},
    }
    mxfp4 = {
        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32},
        "input_tensors": {"dtype": "fp4", "group_size": 32},
    }
    assignment = quantised(
        LLAMA_8B,
        quant_method="quark",
        global_quant_config=mxfp4,
        layer_quant_config={"*self_attn*": fp8},
        exclude=["lm_head", "re:model.layers.31.*"],
    )
    assert given_to(assignment, "q_proj") == {"fp8": 31, "bf16": 1}
    assert given_to(assignment, "up_proj") == {"mxfp4_w4a4": 31, "bf16": 1}


# --- quantisation configs as published, on the modules of the models ---


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
