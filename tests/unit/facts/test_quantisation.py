"""What is served: dtype, override, fp8 and how its lists name modules, refusals; bits per stored weight, and the KV cache's dtype."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.formats import kv_format, kv_names
from llm_serving_exporter.facts.quantisation import assign, dtype, kv_hint, uniform, weigh
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.modelfolders import given_to, group, quantised, stored_bytes
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
        "fp8", "gptq", "awq", "auto-round", "compressed-tensors", "modelopt", "quark", "mxfp4", "bitsandbytes",
        "fbgemm_fp8", None, 7,
    ]
)  # fmt: skip


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


# --- bits per stored weight (facts model-math D.5) and the names that people write ---


GIB = 2**30


@check_rows(
    ("name", "bits", "multiplied"),
    [
        ("bf16", 16.0, Precision.BF16), ("fp16", 16.0, Precision.BF16), ("fp32", 32.0, Precision.FP32),
        ("fp8", 8.0, Precision.FP8), ("fp8-block", 8.002, Precision.FP8), ("fp8_w8a16", 8.0, Precision.BF16),
        ("int8", 8.0, Precision.INT8), ("int8_w8a16", 8.0, Precision.BF16), ("mxfp8", 8.25, Precision.FP8),
        ("mxfp4", 4.25, Precision.BF16), ("nvfp4", 4.5, Precision.FP4), ("nvfp4_w4a16", 4.5, Precision.BF16),
        ("int4", 4.125, Precision.BF16), ("w4a8", 4.125, Precision.FP8), ("awq", 4.156, Precision.BF16),
        ("gptq", 4.156, Precision.BF16), ("gpt-fast-int4", 5.0, Precision.BF16), ("nf4", 4.5, Precision.BF16),
        ("nf4_double", 4.127, Precision.BF16), ("q4_0", 4.5, Precision.INT8), ("q4_1", 5.0, Precision.INT8),
        ("q5_0", 5.5, Precision.INT8), ("q5_1", 6.0, Precision.INT8), ("q8_0", 8.5008, Precision.INT8),
        ("q6_k", 6.5633, Precision.INT8), ("q4_k_m", 4.8944, Precision.INT8), ("q4_k_s", 4.6672, Precision.INT8),
        ("q5_k_m", 5.7036, Precision.INT8), ("iq4_xs", 4.4597, Precision.INT8),
    ],
)  # fmt: skip
def test_named_formats_have_the_bits_of_table_d5(name: str, bits: float, multiplied: Precision) -> None:
    found = formats.named(name)
    assert found.bits == pytest.approx(bits, abs=0.0005)
    assert found.multiplied is multiplied


@check_rows(
    ("name", "bits"), [("Q2_K", 2.625), ("Q3_K", 3.4375), ("Q4_K", 4.5), ("Q5_K", 5.5), ("Q6_K", 6.5625), ("Q8_0", 8.5)]
)
def test_gguf_blocks_have_the_bits_of_table_d5(name: str, bits: float) -> None:
    assert formats.GGUF_BLOCK_BITS[name.lower()] == bits


@check_rows(
    ("name", "gib"),
    # llama.cpp tools/quantize/README.md, Llama-3.1-8B: "size (GiB)"
    [
        ("Q4_K_M", 4.58), ("Q8_0", 7.95), ("F16", 14.96), ("IQ1_S", 1.87), ("IQ2_XS", 2.42), ("IQ3_M", 3.52), ("IQ4_NL", 4.38),
        ("IQ4_XS", 4.17), ("Q2_K", 2.95), ("Q3_K_L", 4.02), ("Q4_K_S", 4.36), ("Q5_K_M", 5.33), ("Q6_K", 6.14),
    ],
)  # fmt: skip
def test_gguf_files_of_llama_8b_have_their_published_size(name: str, gib: float) -> None:
    groups = weigh(LLAMA_8B, uniform(LLAMA_8B, formats.named(name)))
    assert stored_bytes(groups, 0) / GIB == pytest.approx(gib, abs=0.006)


@check_rows(
    ("bits", "group_size", "zero_point", "stored"),
    [
        (4, 128, False, 4.125), (4, 128, True, 4.15625), (3, 128, True, 3.1484375), (8, 32, False, 8.5),
        (2, 64, True, 2.28125), (4, -1, True, 4.0),
    ],
)  # fmt: skip
def test_integers_add_scale_and_zero_point_per_group(
    bits: int, group_size: int, zero_point: bool, stored: float
) -> None:
    assert formats.integer(bits, group_size, zero_point=zero_point).bits == stored


@given(st.integers(2, 8), st.integers(-1, 4096), st.booleans(), st.sampled_from(Precision))
def test_one_name_never_means_two_layouts(bits: int, size: int, zero_point: bool, rate: Precision) -> None:
    """A group of weights is keyed by format; equal names with other bits or rates would hide one of them."""
    made = formats.integer(bits, size, zero_point=zero_point, multiplied=rate)
    for other in (formats.INT8, formats.INT8_WEIGHT_ONLY, formats.integer(bits, size, multiplied=rate)):
        assert (made.name == other.name) == (made == other)


@check_rows("text", ["BF16", " bfloat16 ", "torch.bfloat16", "BFloat16"])
def test_names_are_taken_in_any_spelling(text: str) -> None:
    assert formats.named(text) is formats.BF16


def test_a_format_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(FactsError, match=r"'int5' is not known; known are .*awq.*q4_k_m") as caught:
        formats.named("int5")
    assert caught.value.reason == Absence.MODEL_UNKNOWN.value


def test_every_format_listed_is_taken() -> None:
    assert all(0 < formats.named(name).bits <= 32 for name in formats.names())


# --- the KV cache's own dtype ---


@check_rows(
    ("text", "name", "size"),
    [
        ("auto", "bf16", 2.0),
        ("bfloat16", "bf16", 2.0),
        ("FP16", "fp16", 2.0),
        ("float32", "fp32", 4.0),
        ("fp8", "fp8_e4m3", 1.0),
        ("fp8-e4m3", "fp8_e4m3", 1.0),
        ("fp8_e5m2", "fp8_e5m2", 1.0),
        ("int8", "int8", 1.0),
        ("nvfp4", "nvfp4", 0.5625),
        ("q8_0", "q8_0", 1.0625),
        ("q4_0", "q4_0", 0.5625),
        ("fp8_ds_mla", "fp8_ds_mla", 656 / 576),
        # vLLM's and SGLang's own layouts: bytes of a token as their code says them
        ("nvfp4_ds_mla", "nvfp4_ds_mla", 352 / 576),
        ("nvfp4_4over6", "nvfp4_4over6", 0.5625),
        ("mxfp8", "mxfp8", 33 / 32),
        ("fp4_mx_block16", "fp4_mx_block16", 9 / 16),
        ("fp4_e2m1", "fp4_mx_block16", 9 / 16),
        ("int8_per_token_head", "int8_per_token_head", 1.0),
    ],
)
def test_names_and_bytes_per_element(text: str, name: str, size: float) -> None:
    found = kv_format(text, formats.BF16)
    assert (found.name, found.bytes) == (name, size)


def test_auto_is_the_models_dtype() -> None:
    assert kv_format("auto", formats.FP16).name == "fp16"


def test_scales_per_token_and_head_weigh_by_head_size() -> None:
    assert kv_format("fp8_per_token_head", formats.BF16, head_size=128).bytes == 1 + 4 / 128


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(FactsError, match=r"'fp5' is not known; known are auto, .*fp8_e5m2"):
        kv_format("fp5", formats.BF16)


def test_every_name_listed_is_taken() -> None:
    assert all(0 < kv_format(name, formats.BF16).bytes <= 4 for name in kv_names())


@check_rows(
    ("config", "hf_quant_config", "expected"),
    [
        # nvidia/Llama-3.1-70B-Instruct-FP8
        ({}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
        # nvidia/MiniMax-M2.5-NVFP4
        (
            {"quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}},
            None,
            "fp8_e4m3",
        ),
        # Qwen/Qwen3-32B-FP8-Static-PerTensor
        ({"quantization_config": {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}}, None, "fp8_e4m3"),
        # nvidia/DeepSeek-V4-Flash-NVFP4; moonshotai/Kimi-K2.5
        ({}, {"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None}}, None),
        ({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": None}}, None, None),
        ({}, {"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "fp8"}}, None, None),
        ({"quantization_config": {"kv_cache_scheme": {"type": [], "num_bits": 8}}}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_what_the_checkpoint_was_calibrated_for(
    config: dict[str, Any], hf_quant_config: Any, expected: str | None
) -> None:
    assert kv_hint(config, hf_quant_config) == expected
