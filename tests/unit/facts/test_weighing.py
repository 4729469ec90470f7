"""Bytes of weights, kept and read, against published sizes and facts model-math tables B.8, C and F."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quantisation import Assignment, assign, estimate_sound, uniform, weigh
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Geometry, ModelFacts, Part, RecurrentLayers, WeightFormat
from tests.support.models.modelfolders import step_bytes, stored_bytes
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

DEEPSEEK_V3 = shape_of("DeepSeek-V3")
GPT_OSS_20B = shape_of("gpt-oss-20b")
GPT_OSS_120B = shape_of("gpt-oss-120b")
LLAMA_1B = shape_of("Llama-3.2-1B")
LLAMA_8B = shape_of("Llama-3.1-8B")
LLAMA_70B = shape_of("Llama-3.1-70B")
MIXTRAL_8X7B = shape_of("Mixtral-8x7B")
QWEN3_30B = shape_of("Qwen3-30B-A3B")
QWEN3_235B = shape_of("Qwen3-235B-A22B")

GIB = 2**30
BF16 = {"torch_dtype": "bfloat16"}
# openai/gpt-oss config.json
GPT_OSS = {
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    }
}


def kept(geometry: Geometry, assignment: Assignment) -> float:
    return stored_bytes(weigh(geometry, assignment), geometry.experts)


def read(geometry: Geometry, assignment: Assignment, experts: float | None = None) -> float:
    return step_bytes(weigh(geometry, assignment), geometry.experts_per_token if experts is None else experts)


@check_rows("geometry", [LLAMA_8B, LLAMA_1B, MIXTRAL_8X7B, DEEPSEEK_V3, GPT_OSS_20B])
def test_bf16_bytes_are_two_a_parameter(geometry: Geometry) -> None:
    assignment = assign(BF16, None, geometry)
    assert kept(geometry, assignment) == 2 * geometry.parameters_total
    assert read(geometry, assignment) == 2 * geometry.decode_read_parameters


@check_rows(
    ("geometry", "config", "override", "batch_1", "all_experts"),
    # table C, GB: columns B=1 and "all experts"; its fp8 rows have lm_head in fp8 too
    [
        (MIXTRAL_8X7B, BF16, "bf16", 25.5, 93.1),
        (QWEN3_30B, BF16, "bf16", 6.08, 60.4),
        (QWEN3_235B, BF16, "fp8", 21.6, 234.5),
        (DEEPSEEK_V3, BF16, "fp8", 36.6, 670.1),
        (GPT_OSS_120B, GPT_OSS, None, 5.00, 64.0),
        (GPT_OSS_20B, GPT_OSS, None, 3.71, 12.6),
    ],
)
def test_weights_of_a_step_as_in_table_c(
    geometry: Geometry, config: dict[str, object], override: str | None, batch_1: float, all_experts: float
) -> None:
    assignment = assign(config, None, geometry) if override is None else uniform(geometry, formats.named(override))
    assert read(geometry, assignment) / 1e9 == pytest.approx(batch_1, rel=0.003)
    assert read(geometry, assignment, geometry.experts) / 1e9 == pytest.approx(all_experts, rel=0.003)


@pytest.mark.parametrize(("geometry", "gib"), [(GPT_OSS_120B, 60.77), (GPT_OSS_20B, 12.82)])
def test_gpt_oss_checkpoints_have_their_published_size(geometry: Geometry, gib: float) -> None:
    """B.8: 4.25-bit experts and everything else, expert biases among it, in bf16."""
    assert kept(geometry, assign(GPT_OSS, None, geometry)) / GIB == pytest.approx(gib, abs=0.005)


def test_llama_70b_fp8_reads_70_55_gb() -> None:
    """D.6's example, from the real files: nvidia/Llama-3.1-70B-Instruct-FP8, lm_head bf16."""
    quantised = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    assignment = assign(BF16, quantised, LLAMA_70B)
    assert read(LLAMA_70B, assignment) / 1e9 == pytest.approx(70.55, abs=0.01)
    assert kept(LLAMA_70B, assignment) / 1e9 == pytest.approx(70.55 + 2.10, abs=0.01)
    assert {group.format.name: group.lm_head_parameters for group in weigh(LLAMA_70B, assignment)} == {
        "bf16": 128256 * 8192,
        "fp8": 0,
    }


def test_deepseek_v3_checkpoint_reads_more_than_one_byte_a_parameter() -> None:
    """Real config: lm_head (0.93 B), routers and norms stay bf16, block scales add 0.02 %; table C counts one byte for each."""
    config = {
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
    }
    kept_16_bit = sum(
        module.parameters for module in DEEPSEEK_V3.modules if module.part in (Part.LM_HEAD, Part.ROUTER, Part.NORM)
    )
    quantised = 36_625_603_584 - kept_16_bit
    expected = 2 * kept_16_bit + quantised * (1 + 4 / 16384)
    assert read(DEEPSEEK_V3, assign(config, None, DEEPSEEK_V3)) == pytest.approx(expected, rel=1e-12)
    assert expected / 1e9 == pytest.approx(36.6 + 0.93 + 0.11, abs=0.05)


def test_deepseek_r1_nvfp4_reads_38_5_gb() -> None:
    """Table F row 34: nvfp4 experts (and dense and shared ones), bf16 attention."""
    excluded = ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(61)), "model.layers.61*"]
    quantised = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": excluded}}
    assert read(DEEPSEEK_V3, assign(BF16, quantised, DEEPSEEK_V3)) / 1e9 == pytest.approx(38.5, abs=0.05)


@check_rows(
    ("geometry", "override", "gigabytes"),
    # table F rows 2, 3, 5, 9: gpt-fast, which quantises lm_head with the rest
    [(LLAMA_8B, "bf16", 15.01), (LLAMA_8B, "int8", 7.49), (LLAMA_70B, "int8", 69.50), (MIXTRAL_8X7B, "int8", 12.75)],
)
def test_published_rows_where_all_is_one_format(geometry: Geometry, override: str, gigabytes: float) -> None:
    assert read(geometry, uniform(geometry, formats.named(override))) / 1e9 == pytest.approx(gigabytes, rel=0.003)


def test_embeddings_are_kept_but_not_read_and_a_tied_table_is_read() -> None:
    (untied,) = weigh(LLAMA_8B, assign(BF16, None, LLAMA_8B))
    (tied,) = weigh(LLAMA_1B, assign(BF16, None, LLAMA_1B))
    assert (untied.embedding_bytes, untied.lm_head_bytes) == (2 * 128256 * 4096, 2 * 128256 * 4096)
    assert (tied.embedding_bytes, tied.lm_head_bytes) == (0.0, 2 * 128256 * 2048)


def test_a_tied_table_stays_in_the_models_dtype() -> None:
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}}
    by_format = {group.format.name: group for group in weigh(LLAMA_1B, assign(config, None, LLAMA_1B))}
    assert by_format["bf16"].lm_head_bytes == 2 * 128256 * 2048
    assert by_format["int4_g128_zp"].lm_head_bytes == 0


def test_the_sums_are_those_of_model_facts() -> None:
    groups = weigh(GPT_OSS_20B, assign(GPT_OSS, None, GPT_OSS_20B))
    facts = ModelFacts("gpt-oss-20b", "test", GPT_OSS_20B, groups, 2.0, "bf16")
    assert facts.weight_bytes == stored_bytes(groups, 32)


def test_expert_bytes_are_of_one_expert_over_all_layers() -> None:
    (group,) = weigh(MIXTRAL_8X7B, assign(BF16, None, MIXTRAL_8X7B))
    assert group.expert_parameters == 32 * 3 * 4096 * 14336
    assert group.expert_bytes == 2 * group.expert_parameters


@given(
    st.sampled_from([LLAMA_1B, MIXTRAL_8X7B, GPT_OSS_20B]),
    st.lists(st.integers(0, 40)),
    st.sampled_from(["fp8", "nvfp4", "awq", "int8", "bf16"]),
)
def test_no_parameter_is_lost_or_counted_twice(geometry: Geometry, left_out: list[int], name: str) -> None:
    """Whatever layers stay unquantised: matrix parameters add up, and bytes lie between all-quantised and all-bf16."""
    excluded = ["lm_head", *(f"model.layers.{layer}.*" for layer in left_out)]
    algorithm = {"fp8": "FP8", "nvfp4": "NVFP4", "awq": "W4A16_AWQ", "int8": "W8A16", "bf16": None}[name]
    quantised = {"quantization": {"quant_algo": algorithm, "exclude_modules": excluded}}
    assignment = assign(BF16, quantised, geometry)
    groups = weigh(geometry, assignment)
    counted = sum(
        group.fixed_parameters + group.lm_head_parameters + geometry.experts * group.expert_parameters
        for group in groups
    )
    in_matrices = sum(
        module.matrix * module.copies * module.places
        for module in geometry.modules
        if module.part is not Part.EMBEDDING
    )
    assert counted == in_matrices
    smallest = kept(geometry, uniform(geometry, WeightFormat("4", 4.0, formats.BF16.multiplied)))
    assert smallest <= stored_bytes(groups, geometry.experts) <= 2 * geometry.parameters_total
    assert all(sum(s.places for s in assignment.shares if s.module is m) == m.places for m in geometry.modules)


@check_rows(
    ("geometry", "config", "sound"),
    [
        (LLAMA_8B, BF16, True),
        (LLAMA_8B, {"torch_dtype": "float16"}, True),
        (QWEN3_30B, BF16, True),
        (LLAMA_8B, {"quantization_config": {"quant_method": "fp8"}}, True),
        (DEEPSEEK_V3, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, True),
        (LLAMA_8B, {"quantization_config": {"quant_method": "fp8", "ignored_layers": ["self_attn"]}}, False),
        (
            LLAMA_8B,
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}},
            True,
        ),
        (
            LLAMA_8B,
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}},
            False,
        ),
        (LLAMA_8B, {"quantization_config": {"quant_method": "awq", "bits": 4}}, False),
        (GPT_OSS_20B, GPT_OSS, False),
        (replace(LLAMA_8B, recurrent=(RecurrentLayers(1, 1024, 64),)), BF16, False),
    ],
)
def test_vllms_estimate_is_trusted_where_facts_e5_allows(
    geometry: Geometry, config: dict[str, object], sound: bool
) -> None:
    assert estimate_sound(geometry, assign(config, None, geometry)) is sound


def test_vllms_estimate_of_fp8_by_compressed_tensors_is_not_trusted() -> None:
    """E.5 defect 1: it takes half a byte for each of its weights."""
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        "input_activations": {"num_bits": 8, "type": "float"},
    }
    config = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "ignore": ["lm_head"],
            "config_groups": {"g": group},
        }
    }
    assignment = assign(config, None, LLAMA_8B)
    assert not estimate_sound(LLAMA_8B, assignment)
    assert estimate_sound(LLAMA_8B, assign(BF16, None, LLAMA_8B, override=formats.FP8))
