"""Geometry of dense decoders against exact counts (facts model-math B.1-B.4, B.8-B.10)."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import Geometry, Module, Part, Span
from tests.support.models.dense_models import (
    GEMMA3_4B,
    GEMMA3_27B,
    LLAMA_8B,
    MISTRAL_7B,
    PUBLISHED,
    TABLE,
    TIED,
    Config,
    dense,
)
from tests.support.models.dense_odd import BASE, CLASSIC, ODD
from tests.support.rows import check_rows


def module(shape: Geometry, path: str) -> Module:
    (found,) = (module for module in shape.modules if module.path == path)
    return found


def sliding(shape: Geometry) -> int:
    return sum(group.layers for group in shape.attention if group.span is Span.SLIDING)


@check_rows(("config", "total", "read", "kv_bytes"), TABLE.values(), ids=TABLE)
def test_table_of_dense_models(config: Config, total: int, read: int, kv_bytes: int) -> None:
    shape = geometry(config)
    assert shape.parameters_total == total
    assert shape.parameters_active == total
    assert shape.decode_read_parameters == read
    assert shape.kv_elements_stored() * 2 == kv_bytes
    assert shape.tied == (read == total)


@check_rows(("config", "total"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_models_as_transformers_counts_them(config: Config, total: int) -> None:
    assert geometry(config).parameters_total == total


@check_rows(("model_type", "changes", "total", "slide"), ODD)
def test_odd_sizes_and_switches_as_transformers_counts_them(
    model_type: str, changes: dict[str, Any], total: int, slide: int
) -> None:
    shape = geometry({"model_type": model_type, **BASE, **changes})
    assert shape.parameters_total == total
    assert sliding(shape) == slide
    assert sum(group.layers for group in shape.attention) == shape.layers == 5


@check_rows(("model_type", "fields", "total"), CLASSIC)
def test_odd_classic_models_as_transformers_counts_them(model_type: str, fields: dict[str, Any], total: int) -> None:
    assert geometry({"model_type": model_type, **fields}).parameters_total == total


@check_rows(
    ("config", "total"),
    [
        # no class in transformers; the counts are those that the authors' checkpoints carry
        ({**dense("qwen", 4096, 32, 32, 32, 22016, 151936), "num_key_value_heads": None, "no_bias": True}, 7_721_324_544),
        (
            {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32,
                "ffn_hidden_size": 13696, "kv_channels": 128,
             "padded_vocab_size": 65024, "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}, 6_243_584_000
        ),
        (dense("minicpm", 2304, 40, 36, 36, 5760, 122753), 2_724_880_896),
        (dense("baichuan", 4096, 32, 32, 32, 11008, 125696), 7_505_973_248),
        (dense("internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False), 7_737_708_544),
        ({**dense("exaone", 4096, 32, 32, 8, 14336, 102400), "num_layers": 32, "num_hidden_layers": None}, 7_818_448_896),
    ],
    ids=["Qwen-7B", "ChatGLM3-6B", "MiniCPM-2B", "Baichuan2-7B", "InternLM2-7B", "EXAONE-3-7.8B"],
)  # fmt: skip
def test_models_with_code_of_their_own(config: Config, total: int) -> None:
    assert geometry(config).parameters_total == total


@pytest.mark.parametrize(
    ("config", "megabytes"),
    [(MISTRAL_7B, (134.2, 536.9, 536.9, 536.9)), (GEMMA3_27B, (520.1, 1107.3, 3120.6, 11173.6))],
    ids=["Mistral-7B-v0.1", "Gemma-3-27B"],
)
def test_kv_read_at_1k_8k_32k_128k(config: Config, megabytes: tuple[float, ...]) -> None:
    """Table B.9, rounded as there, bf16."""
    shape = geometry(config)
    read = tuple(round(shape.kv_elements_read(context) * 2 / 1e6, 1) for context in (1024, 8192, 32768, 131072))
    assert read == megabytes


def test_gemma_3_layers_alternate_five_to_one_and_the_vision_tower_is_left_out() -> None:
    """Splits of facts B.9; sizes that the text part leaves out are the class's: vocabulary 262208, 8 and 4 heads of 256."""
    small, large = geometry(GEMMA3_4B), geometry(GEMMA3_27B)
    assert small.parameters_total == 3_880_263_168
    assert [(group.layers, group.span, group.window_tokens) for group in large.attention] == [
        (10, Span.FULL, None), (52, Span.SLIDING, 1024)
    ]  # fmt: skip
    assert sliding(small) == 34 - 5
    assert small.left_out == large.left_out == ("vision tower",)
    assert geometry(LLAMA_8B).left_out == ()


def test_llama_module_by_module() -> None:
    """Names as in the checkpoint: quantisation configs are matched against them."""
    shape = geometry(LLAMA_8B)
    layer = "model.layers.{}."
    assert {(item.path, item.part, item.rows, item.columns) for item in shape.modules if item.matrix} == {
        ("model.embed_tokens", Part.EMBEDDING, 128256, 4096),
        ("lm_head", Part.LM_HEAD, 128256, 4096),
        (layer + "self_attn.q_proj", Part.ATTENTION, 4096, 4096),
        (layer + "self_attn.k_proj", Part.ATTENTION, 1024, 4096),
        (layer + "self_attn.v_proj", Part.ATTENTION, 1024, 4096),
        (layer + "self_attn.o_proj", Part.ATTENTION, 4096, 4096),
        (layer + "mlp.gate_proj", Part.FFN, 14336, 4096),
        (layer + "mlp.up_proj", Part.FFN, 14336, 4096),
        (layer + "mlp.down_proj", Part.FFN, 4096, 14336),
    }
    (attention,) = shape.attention
    assert (attention.layers, attention.kv_elements, attention.kv_heads, attention.span) == (32, 2048, 8, Span.FULL)
    assert attention.decode_flops == attention.prefill_flops == 4 * 32 * 128  # facts B.10: query heads
    assert not module(shape, "model.embed_tokens").linear
    assert module(shape, layer + "mlp.down_proj").layers == tuple(range(32))


def test_fused_and_renamed_matrices_keep_the_names_of_the_checkpoint() -> None:
    phi = geometry(PUBLISHED["Phi-4"][0])
    fused = module(phi, "model.layers.{}.self_attn.qkv_proj")
    assert (fused.rows, fused.columns) == ((40 + 2 * 10) * 128, 5120)
    assert module(phi, "model.layers.{}.mlp.gate_up_proj").rows == 2 * 17920
    neox = geometry(PUBLISHED["GPT-NeoX-20B"][0])
    assert module(neox, "embed_out").part is Part.LM_HEAD
    assert module(neox, "gpt_neox.layers.{}.attention.query_key_value").rows == 3 * 6144


def test_gpt_j_head_has_a_bias_and_gpt_2_positions_are_not_read() -> None:
    gptj = geometry(PUBLISHED["GPT-J-6B"][0])
    assert module(gptj, "lm_head.bias").vector == 50400
    assert gptj.decode_read_parameters == 6_050_882_784 - 50400 * 4096
    assert geometry(PUBLISHED["GPT-2"][0]).decode_read_parameters == 124_439_808 - 1024 * 768


def test_one_kv_head_counts_as_one_for_tensor_parallel_ranks() -> None:
    (attention,) = geometry(PUBLISHED["Falcon-7B"][0]).attention
    assert (attention.kv_heads, attention.kv_elements) == (1, 2 * 64)


@check_rows("outer", [None, True, False])
@check_rows("inner", [None, True, False])
def test_tie_flag_on_either_level(outer: bool | None, inner: bool | None) -> None:
    """The language part's own word first, then the outer config's, then the class default (untied for Mistral)."""
    text = dense("mistral", 5120, 40, 32, 8, 32768, 131072, head_dim=128, tie_word_embeddings=inner)
    shape = geometry(
        {"model_type": "mistral3", "text_config": text, "tie_word_embeddings": outer, "vision_config": {"depth": 1}}
    )
    assert shape.tied == (inner if inner is not None else bool(outer))


def test_language_parts_of_vision_models() -> None:
    """Qwen2-VL as published has all fields on one level; LLaVA's Llama states only what is not its class default."""
    flat = dense(
        "qwen2_5_vl",
        3584,
        28,
        28,
        4,
        18944,
        152064,
        **TIED,
        vision_config={"depth": 32},
        use_sliding_window=False,
        sliding_window=32768,
    )
    assert geometry({**flat, "tie_word_embeddings": False}).parameters_total == TABLE["Qwen2.5-7B"][1]
    assert geometry(flat).parameters_total == TABLE["Qwen2.5-7B"][1] - 152064 * 3584
    assert geometry(flat).left_out == ("vision tower",)
    llava = geometry(
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "vocab_size": 32064},
            "vision_config": {"depth": 1},
        }
    )
    assert llava.parameters_total == TABLE["Llama-2-7B"][1] + 2 * 64 * 4096


def test_exaone_4_pattern_in_letters() -> None:
    config = {**dense("exaone4", 512, 8, 4, 2, 256, 1000, sliding_window=4096), "sliding_window_pattern": "LLLG"}
    assert sliding(geometry(config)) == 6
    assert sliding(geometry({**config, "sliding_window": None})) == 0


def test_gpt_neo_local_layers_see_256_tokens() -> None:
    shape = geometry(PUBLISHED["GPT-Neo-2.7B"][0])
    assert [(group.layers, group.window_tokens) for group in shape.attention] == [(16, None), (16, 256)]
