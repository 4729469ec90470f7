"""Geometry of further families against exact counts."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import Part, Span
from tests.support.models.flagship_models import DEEPSEEK_V3_2, DEEPSEEK_V4_FLASH
from tests.support.models.hybrid_models import QWEN3_5_27B
from tests.support.models.later_models import BASE, LATER
from tests.support.rows import check_rows


@check_rows(
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


@check_rows(
    ("config", "total"),
    [
        # transformers 5.23.0's Glm4vTextModel, 8,779,522,048, and GlmOcrTextModel, 312,542,208, with an lm_head each
        ({"model_type": "glm4v", "text_config": {"model_type": "glm4v_text"}}, 8_779_522_048 + 151_552 * 4096),
        ({"model_type": "glm_ocr", "text_config": {"model_type": "glm_ocr_text"}}, 312_542_208 + 59_392 * 1024),
        # transformers 5.23.0's MuseGlimmerTextModel, 26,509,949,440, and MuseSparkTextModel, 818,335,358,976, with an lm_head each
        ({"model_type": "muse_glimmer", "text_config": {"model_type": "muse_glimmer_text"}}, 26_509_949_440 + 202_048 * 6656),
        ({"model_type": "muse_spark", "text_config": {"model_type": "muse_spark_text"}}, 818_335_358_976 + 202_048 * 8192),
        # AriaTextForCausalLM, PaddleOCRTextModel (tied), Granite4VisionTextModel, GraniteDoclingTextModel (tied), Emu3ForCausalLM
        ({"model_type": "aria", "text_config": {"model_type": "aria_text"}}, 18_517_069_824),
        ({"model_type": "paddleocr_vl", "text_config": {"model_type": "paddleocr_vl_text"}}, 360_748_032),
        ({"model_type": "granite4_vision", "text_config": {"model_type": "granite4_vision_text"}}, 6_607_343_616 + 32_000 * 4096),
        ({"model_type": "granite_docling", "text_config": {"model_type": "granite_docling_text"}}, 386_630_656),
        ({"model_type": "emu3", "text_config": {"model_type": "emu3_text_model"}}, 8_492_011_520),
        # transformers 5.23.0's Ernie4_5_VLMoeTextModel, tied: those for images included
        ({"model_type": "ernie4_5_vl_moe", "text_config": {"model_type": "ernie4_5_vl_moe_text"}}, 28_624_635_776),
        # Qwen2 of the same sizes: 7,615,616,512
        ({"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "x", "text_config": {"model_type": "qwen2_5_omni_text"}}},
         7_615_616_512),
    ],
    ids=["GLM-4.1V", "GLM-OCR", "Muse Glimmer", "Muse Spark", "Aria", "PaddleOCR-VL", "Granite 4 Vision", "Granite Docling",
         "Emu3", "ERNIE-4.5-VL-28B", "Qwen2.5-Omni-7B"],
)  # fmt: skip
def test_language_parts_that_leave_out_their_class_defaults(config: dict[str, Any], total: int) -> None:
    assert geometry(config).parameters_total == total


@check_rows("model_type", ["mimo", "dots_ocr", "keye", "KeyeVL1_5", "phi4mm", "internlm", "xverse", "aquila", "orion"])
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


MINIMAX_TEXT_01 = {
    "model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064, "num_local_experts": 32, "num_experts_per_tok": 2,
    "attn_type_list": [*[0] * 7, 1] * 10,
}  # fmt: skip
GROK = {"hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64, "num_attention_heads": 48, "num_key_value_heads": 8,
        "vocab_size": 131072, "num_local_experts": 8, "num_experts_per_tok": 2}  # fmt: skip


@check_rows(
    ("config", "total", "tolerance", "active"),
    [
        # published: 316B without the vision tower, 38B activated
        ({"model_type": "step3_vl", "text_config": {"model_type": "step3_text"}}, 316e9, 2e-3, 38e9),
        # published: 456B, 45.9B activated, tables of the vocabulary not counted
        (MINIMAX_TEXT_01, 456e9, 1e-3, 45.9e9 + 200_064 * 6144),
        # published: 314B, 86B activated; its sizes make 0.5 % more
        ({"model_type": "grok-1", **GROK}, 314e9, 6e-3, None),
        # counted tensor by tensor in its repository's discussion 6: 269,515,497,472, 115,019,056,768 of them activated
        ({"model_type": "git", "architectures": ["Grok1ForCausalLM"], **GROK, "hidden_size": 8192, "num_attention_heads": 64,
          "head_dim": 128, "moe_intermediate_size": 16384, "residual_moe": True, "tie_word_embeddings": False},
         269_515_497_472, 1e-9, 115_019_056_768 - 131_072 * 8192),
    ],
    ids=["Step 3", "MiniMax-Text-01", "Grok 1", "Grok 2"],
)  # fmt: skip
def test_families_without_a_class_as_their_makers_count_them(
    config: dict[str, Any], total: float, tolerance: float, active: float | None
) -> None:
    shape = geometry(config)
    assert shape.parameters_total == pytest.approx(total, rel=tolerance)
    if active is not None:
        assert shape.decode_read_parameters == pytest.approx(active, rel=max(tolerance, 3e-3))


def test_lightning_layers_keep_a_state_and_no_kv() -> None:
    shape = geometry(MINIMAX_TEXT_01)
    (full,) = shape.attention
    assert (full.layers, full.kv_elements) == (10, 2 * 8 * 128)
    (state,) = shape.recurrent
    assert (state.layers, state.ssm_elements, state.conv_elements) == (70, 64 * 128 * 128, 0)


def test_experts_for_images_are_kept_and_not_read() -> None:
    shape = geometry({"model_type": "ernie4_5_vl_moe", "text_config": {"model_type": "ernie4_5_vl_moe_text"}})
    kept = sum(module.parameters for module in shape.modules if module.part is Part.ENCODER_ONLY)
    assert kept == 27 * (64 * 2560 + 64 + 3 * 64 * 512 * 2560)
    assert (shape.experts, shape.experts_per_token) == (64, 6)


def test_window_layers_of_dots_3_have_latents_of_their_own() -> None:
    shape = geometry({"model_type": "dots3_note", **BASE, "num_hidden_layers": 7, "hidden_size": 512})
    sparse, window = (
        next(group for group in shape.attention if group.span is span) for span in (Span.SPARSE, Span.SLIDING)
    )
    assert (sparse.layers, sparse.kv_elements, sparse.top_entries) == (3, 512 + 64, 2048)
    assert (window.layers, window.kv_elements, window.window_tokens) == (4, 1024 + 64, 512)
    assert sparse.indexer is not None
    assert sparse.indexer.layers == 3


@pytest.mark.parametrize(("version", "biased"), [(2.6, True), ("4.5", False), (4, False)])
def test_minicpm_v_names_its_language_model_by_a_version(version: object, biased: bool) -> None:
    shape = geometry(
        {"model_type": "minicpmv", "version": version, **BASE, "num_hidden_layers": 2, "num_key_value_heads": 2}
    )
    assert any(module.vector for module in shape.modules if module.part is Part.ATTENTION) is biased


def test_ling_2_5_and_ring_linear_have_lightning_attention() -> None:
    """vLLM 0.33, models/bailing_moe_linear.py: as many KV heads as heads, a gate and a norm over all of them."""
    experts = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    }
    linear = {
        "num_hidden_layers": 8,
        "head_dim": 16,
        "num_key_value_heads": 2,
        "layer_group_size": 4,
        "use_qk_norm": True,
    }
    ring = geometry({"model_type": "bailing_moe_linear", **BASE, **experts, **linear})
    (full,) = ring.attention
    assert (full.layers, full.kv_elements) == (2, 2 * 2 * 16)
    (state,) = ring.recurrent
    assert (state.layers, state.ssm_elements) == (6, 6 * 16 * 16)
    latent = {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "q_lora_rank": 32}
    ling = geometry(
        {
            "model_type": "bailing_hybrid",
            "architectures": ["BailingMoeV2_5ForCausalLM"],
            **BASE,
            **experts,
            **linear,
            **latent,
        }
    )
    assert ling.mla
    assert (ling.attention[0].layers, ling.attention[0].kv_elements) == (2, 32)
    assert ling.recurrent == ring.recurrent
    lightning = {module.path.rpartition(".")[2] for module in ling.modules if module.part is Part.RECURRENT}
    assert lightning == {"query_key_value", "g_proj", "dense"}


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        # published: 16.26B, 1.43B activated, 789M of them without the tables of the vocabulary
        ({"hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
          "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "num_shared_experts": 1,
          "first_k_dense_replace": 1, "intermediate_size": 5120, "vocab_size": 157184, "use_qk_norm": True}, 16.26e9, 1.43e9),
        # published: 16.8B, 2.75B activated
        ({"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
          "num_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "num_shared_experts": 2,
          "first_k_dense_replace": 0, "intermediate_size": 5632, "vocab_size": 126464}, 16.8e9, 2.75e9),
    ],
    ids=["Ling-mini-2.0", "Ling-lite"],
)  # fmt: skip
def test_ling_as_published(config: dict[str, Any], total: float, active: float) -> None:
    """Sizes as remembered."""
    shape = geometry({"model_type": "bailing_moe", "use_bias": False, "use_qkv_bias": False, **config})
    assert shape.parameters_total == pytest.approx(total, rel=1e-3)
    assert shape.parameters_active == pytest.approx(active, rel=3e-3)


def test_deepseek_v2_without_mla_attends_as_the_first() -> None:
    """DeepSeek-OCR's language part."""
    said = {**BASE, "num_hidden_layers": 4, "num_key_value_heads": 6, "n_routed_experts": 8, "num_experts_per_tok": 2,
            "n_shared_experts": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "kv_lora_rank": None, "q_lora_rank": None,
            "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}  # fmt: skip
    ocr = geometry(
        {"model_type": "deepseekocr", "language_config": {"model_type": "deepseek_v2", "use_mla": False, **said}}
    )
    assert not ocr.mla
    (attention,) = ocr.attention
    assert (attention.kv_heads, attention.kv_elements) == (6, 2 * 96)


def test_inkling_keeps_the_last_inputs_of_its_convolutions() -> None:
    shape = geometry({"model_type": "inkling_text"})
    assert {(group.span, group.layers, group.kv_heads) for group in shape.attention} == {
        (Span.FULL, 11, 8),
        (Span.SLIDING, 55, 16),
    }
    assert {(state.layers, state.conv_elements) for state in shape.recurrent} == {
        (11, 2 * (8 * 128 + 6144) * 3),
        (55, 2 * (16 * 128 + 6144) * 3),
    }


@pytest.mark.parametrize(
    ("named", "family"),
    [("LlamaForCausalLM", "llama"), ("TeleChat3ForCausalLM", "llama"), ("Qwen3ForCausalLM", "qwen3")],
)
def test_a_class_that_engines_know_goes_for_an_unknown_model_type(named: str, family: str) -> None:
    config = {**BASE, "num_hidden_layers": 2, "num_key_value_heads": 2, "architectures": [named]}
    assert geometry({**config, "model_type": "other"}).modules == geometry({**config, "model_type": family}).modules
    with pytest.raises(FactsError, match="model_type is 'other'"):
        geometry({**config, "model_type": "other", "architectures": ["OtherForCausalLM"]})


def test_deepseek_v4_of_another_model_type() -> None:
    """sgl-project/DeepSeek-V4-Flash-FP8: model_type is "deepseek_ref", and it names no expert_dtype."""
    said = {**DEEPSEEK_V4_FLASH, "model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}
    assert geometry(said).attention == geometry(DEEPSEEK_V4_FLASH).attention
    assert quantisation.kv_hint(said, None) == "fp8_ds_mla"


def test_full_layers_of_muse_are_counted_from_the_last() -> None:
    shape = geometry({"model_type": "muse_spark", "text_config": {"model_type": "muse_spark_text"}})
    assert {(group.span, group.layers) for group in shape.attention} == {(Span.FULL, 16), (Span.SLIDING, 46)}
    (expert,) = {module.columns for module in shape.modules if module.path.endswith("experts.*.gate_proj")}
    assert expert == 4096


def test_qwen3_6_is_a_qwen3_5() -> None:
    """nvidia/Qwen3.6-27B-NVFP4 and Qwen/Qwen3.5-27B have the same fields."""
    assert geometry(QWEN3_5_27B).parameters_total == 26_895_998_464


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # transformers 5.24.0's BailingHybridForCausalLM with three layers, of which none is MLA's; the same and seven layers with eight
        # experts as it saves them, `head_dim` being MLA's rotary part by then
        ({"num_hidden_layers": 3}, 4_115_429_344),
        ({"num_hidden_layers": 3, "head_dim": 64, "linear_head_dim": 128}, 4_115_429_344),
        ({"num_hidden_layers": 7, "head_dim": 64, "linear_head_dim": 128, "num_local_experts": 8, "num_experts": None}, 1_574_980_544),
    ],
)  # fmt: skip
def test_ling_3_without_a_layer_of_a_kind_and_saved_again(config: dict[str, Any], total: int) -> None:
    sizes = {"hidden_size": 2560, "intermediate_size": 6144, "num_attention_heads": 32, "vocab_size": 157184}
    shape = geometry({"model_type": "bailing_hybrid", **sizes, **config})
    assert shape.parameters_total == total
    assert len(shape.attention) == (config["num_hidden_layers"] >= 6)


def test_a_kind_of_layer_that_no_layer_is_of_has_no_modules() -> None:
    """Whatever the family: a mixture of which every layer is dense, an indexer that no layer has."""
    for config in (QWEN3_5_27B, DEEPSEEK_V3_2):
        shape = geometry(config)
        assert all(module.layers for module in shape.modules if "{}" in module.path)
    listed = QWEN3_5_27B.get("text_config", QWEN3_5_27B)
    for kind in ("full_attention", "linear_attention"):
        shape = geometry({**listed, "layer_types": [kind] * listed["num_hidden_layers"]})
        assert all(module.layers for module in shape.modules if "{}" in module.path)
        assert all(group.layers for group in shape.attention)
        assert all(group.layers for group in shape.recurrent)


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # transformers 5.24.0's Qwen3VLMoeForConditionalGeneration and Qwen2_5OmniThinkerForConditionalGeneration without their towers, as
        # their config classes are saved: the language part's class default says tied, and the outer one is what counts
        ({"model_type": "qwen3_vl_moe", "text_config": {"model_type": "qwen3_vl_moe_text", "tie_word_embeddings": True}}, 13_485_121_536),
        ({"model_type": "qwen2_5_omni_thinker", "text_config": {"model_type": "qwen2_5_omni_text", "tie_word_embeddings": True}},
         7_615_616_512),
    ],
)  # fmt: skip
def test_transformers_5_unties_a_language_part_from_outside(config: dict[str, Any], total: int) -> None:
    outside = {"tie_word_embeddings": False, "transformers_version": "5.24.0"}
    assert geometry({**config, **outside}).parameters_total == total
    # of version 4 the language part's own word counts, as does version 5's that it is not tied
    tied = geometry({**config, **outside, "transformers_version": "4.57.1"})
    assert tied.tied
    assert tied.parameters_total < total
    own = {**config["text_config"], "tie_word_embeddings": False}
    assert geometry({**config, "text_config": own, "tie_word_embeddings": True}).parameters_total == total
