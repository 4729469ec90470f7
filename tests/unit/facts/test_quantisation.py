"""What is served: dtype, override, fp8 and how its lists name modules, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quantisation import assign, dtype, kv_hint, uniform
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.quantising import given_to, group, quantised
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

LLAMA_1B = shape_of("Llama-3.2-1B")
LLAMA_8B = shape_of("Llama-3.1-8B")
MIXTRAL_8X7B = shape_of("Mixtral-8x7B")
QWEN3_30B = shape_of("Qwen3-30B-A3B")

# --- dtype and override


@check_rows(
    ("config", "name"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"torch_dtype": "torch.float16"}, "fp16"),
        ({}, "bf16"),
        ({"torch_dtype": "auto"}, "bf16"),
        ({"torch_dtype": None, "text_config": {"dtype": "float16"}}, "fp16"),
        # served in two bytes: vLLM's dtype auto
        ({"torch_dtype": "float32"}, "bf16"),
    ],
)
def test_dtype_of_unquantised_weights(config: dict[str, Any], name: str) -> None:
    assert dtype(config).name == name


def test_a_dtype_that_is_none_is_refused() -> None:
    with pytest.raises(FactsError, match="torch_dtype is 'int3', not a known dtype") as caught:
        dtype({"torch_dtype": "int3"})
    assert caught.value.reason == Absence.MODEL_UNKNOWN.value


def test_without_quantisation_all_is_in_the_models_dtype() -> None:
    assert {share.format for share in assign({"dtype": "float16"}, None, MIXTRAL_8X7B).shares} == {formats.FP16}


def test_a_served_quantisation_takes_linear_modules_but_lm_head_and_routers() -> None:
    assignment = assign({"torch_dtype": "bfloat16"}, None, MIXTRAL_8X7B, override=formats.FP8)
    assert given_to(assignment, "q_proj") == {"fp8": 32}
    assert given_to(assignment, "experts.*.w3") == {"fp8": 32}
    assert given_to(assignment, "block_sparse_moe.gate") == {"bf16": 32}
    assert given_to(assignment, "lm_head") == {"bf16": 1}
    assert given_to(assignment, "embed_tokens") == {"bf16": 1}


def test_a_served_dtype_wins_over_a_quantised_config_and_gguf_takes_embeddings_too() -> None:
    config = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    assert {s.format for s in assign(config, None, LLAMA_8B, override=formats.FP16).shares} == {formats.FP16}
    gguf = formats.named("Q4_K_M")
    assert assign(config, None, LLAMA_8B, override=gguf) == uniform(LLAMA_8B, gguf)


# --- fp8


def test_qwen3_fp8_blocks_leave_lm_head_and_listed_gates() -> None:
    """Qwen/Qwen3-30B-A3B-FP8."""
    kept = [
        "lm_head",
        *(f"model.layers.{layer}.{name}" for layer in range(48) for name in ("input_layernorm", "mlp.gate")),
    ]
    assignment = quantised(
        QWEN3_30B,
        activation_scheme="dynamic",
        quant_method="fp8",
        weight_block_size=[128, 128],
        modules_to_not_convert=kept,
    )
    assert given_to(assignment, "experts.*.gate_proj") == {"fp8_block": 48}
    assert given_to(assignment, "mlp.gate") == {"bf16": 48}
    assert given_to(assignment, "lm_head") == {"bf16": 1}


def test_a_bare_name_means_a_component_and_not_a_piece_of_a_word() -> None:
    """MiniMaxAI/MiniMax-M2.5 lists "gate"; gate_proj is quantised all the same."""
    assignment = quantised(
        LLAMA_8B, quant_method="fp8", modules_to_not_convert=["gate", "e_score_correction_bias", "lm_head"]
    )
    assert given_to(assignment, "gate_proj") == {"fp8": 32}
    assert given_to(quantised(LLAMA_8B, quant_method="fp8", ignored_layers=["mlp"]), "gate_proj") == {"bf16": 32}


def test_layers_may_differ() -> None:
    assignment = quantised(
        LLAMA_8B, quant_method="fp8", ignored_layers=["model.layers.1.mlp.down_proj", "model.layers.31"]
    )
    assert given_to(assignment, "down_proj") == {"fp8": 30, "bf16": 2}
    assert given_to(assignment, "up_proj") == {"fp8": 31, "bf16": 1}


def test_names_with_the_lead_of_a_multimodal_checkpoint_mean_the_language_part() -> None:
    for lead in ("model.language_model.layers", "language_model.model.layers", "model.layers", "layers"):
        assert given_to(quantised(LLAMA_8B, quant_method="fp8", ignored_layers=[f"{lead}.3.self_attn"]), "k_proj") == {
            "fp8": 31,
            "bf16": 1,
        }


def test_fused_names_mean_their_parts() -> None:
    listed = [f"model.layers.{layer}.self_attn.qkv_proj" for layer in range(32)]
    assignment = quantised(LLAMA_8B, quant_method="fp8", ignored_layers=listed)
    assert given_to(assignment, "v_proj") == {"bf16": 32}
    assert given_to(assignment, "o_proj") == {"fp8": 32}


# --- refusals


@check_rows(
    ("settings", "said"),
    [
        ({"quant_method": "aqlm", "in_group_size": 8}, "quant_method is 'aqlm'"),
        ({"quant_method": "torchao"}, "quant_method is 'torchao'"),
        ({"bits": 4}, "quant_method is missing"),
        ({"quant_method": "gptq", "group_size": 128}, r"\(gptq\): bits is missing"),
        ({"quant_method": "gptq", "bits": 1}, "bits is 1, not 2 to 8"),
        ({"quant_method": "gptq", "bits": "4"}, "bits is '4', not a whole number"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -2}, "group_size is -2, not a whole number of at least -1"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:(": {"bits": 8}}}, "no regular expression"),
        # Python would try these on one name for longer than anybody waits, and nothing else of the process would run meanwhile
        ({"quant_method": "gptq", "bits": 4, "dynamic": {r"-:(\w+\.?)+!": {}}}, "repeats too much to be tried"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {r"-:([a-z.]|[a-z_])*!": {}}}, "repeats too much to be tried"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {r"-:(.*x){9}": {}}}, "repeats too much to be tried"),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {"-:" + ".*.+" * 20 + "!": {}}},
            "repeats too much to be tried",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size is"),
        ({"quant_method": "fp8", "ignored_layers": "lm_head"}, "ignored_layers is not a list"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": group(num_bits=6, type="float")}},
            "float of 6 bits",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": group(num_bits=4)},
                "sparsity_config": {"format": "sparse-24-bitmask"},
            },
            "sparse-24-bitmask",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W3A3"}, "quant_algo is 'W3A3'"),
        ({"quant_method": "modelopt"}, "quant_algo is missing"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "quark"}, "global_quant_config is missing"),
    ],
)
def test_what_no_reader_knows_is_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(FactsError, match=said) as caught:
        quantised(LLAMA_8B, **settings)
    assert caught.value.reason == Absence.MODEL_UNKNOWN.value


_KEYS = st.sampled_from(
    [
        "bits", "group_size", "quant_algo", "config_groups", "ignore", "targets", "weights", "input_activations", "num_bits", "type",
        "strategy", "block_structure", "symmetric", "weight_block_size", "modules_to_not_convert", "quantization", "quantized_layers",
        "exclude_modules", "dynamic", "extra_config", "global_quant_config", "weight", "dtype", "exclude", "load_in_4bit", "format",
    ]
)  # fmt: skip
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.floats()
    | st.sampled_from(["FP8", "int", "float", "group", "re:(", "*", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_METHODS = st.sampled_from(
    [
        "fp8",
        "gptq",
        "awq",
        "auto-round",
        "compressed-tensors",
        "modelopt",
        "quark",
        "mxfp4",
        "bitsandbytes",
        "fbgemm_fp8",
        None,
        7,
    ]
)


@given(_METHODS, st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_any_config_is_read_or_refused(method: Any, settings: Mapping[str, Any]) -> None:
    """Nothing but FactsError comes out, and every module gets a format at each of its places."""
    try:
        assignment = quantised(LLAMA_1B, quant_method=method, **settings)
    except FactsError:
        return
    assert sum(share.places for share in assignment.shares) == sum(module.places for module in LLAMA_1B.modules)


@check_rows(
    "settings",
    [
        # a checkpoint of Mixtral's names, with Llama's sizes; targets that are classes of modules; MoE's experts in a dense model
        {"quant_method": "compressed-tensors", "config_groups": {"a": {**group(num_bits=4), "targets": ["re:.*block_sparse_moe.*"]}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {**group(num_bits=4), "targets": ["LlamaMLP"]}}},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.77.fc1": {"quant_algo": "FP8"}}},
        {"quant_method": "mxfp4"},
    ],
)  # fmt: skip
def test_a_quantisation_that_takes_nothing_is_not_served_as_unquantised(settings: dict[str, Any]) -> None:
    with pytest.raises(FactsError, match="names no matrix of a llama; name the format"):
        quantised(LLAMA_8B, **settings)


def test_a_quantisation_that_is_no_mapping_is_refused_unless_the_format_is_stated() -> None:
    config = {"torch_dtype": "bfloat16", "quantization_config": "awq"}
    with pytest.raises(FactsError, match="quantization_config is 'awq', not a mapping"):
        assign(config, None, LLAMA_8B)
    assert assign(config, None, LLAMA_8B, override=formats.named("awq")).method == "int4_g128_zp"


def test_only_the_kv_cache_is_quantised() -> None:
    """As llm-compressor writes it, with no groups of weights (RedHatAI's ...-FP8-KV checkpoints)."""
    settings = {
        "quant_method": "compressed-tensors",
        "config_groups": {},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }
    found = quantised(LLAMA_8B, **settings)
    assert {share.format.name for share in found.shares} == {"bf16"}
    assert kv_hint({"quantization_config": settings}, None) == "fp8_e4m3"
