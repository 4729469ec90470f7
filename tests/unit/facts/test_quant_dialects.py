"""Formats of each module from quantisation configs; those of named models are as in ai-dynamo/aiconfigurator (HEAD 095f58a5)."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quantisation import assign
from llm_serving_exporter.model.shape import Part
from tests.support.models.quantising import by_modelopt, given_to, group, quantised
from tests.support.models.shapes import shape_of
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
