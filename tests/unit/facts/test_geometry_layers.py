"""What layers keep and read: windows, chunks, latents, indexers, recurrent states, overrides; encoders, which keep nothing."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import quantisation
from llm_serving_exporter.facts.architectures import embeds, geometry, without_lm_head
from llm_serving_exporter.model.shape import AttentionLayers, Geometry, Indexer, ModelFacts, Part, RecurrentLayers, Span
from tests.support.models.shapes import (
    Config,
    config_of,
    count_kv_read,
    count_layers,
    find_module,
    nested,
    odd,
    shape_of,
)
from tests.support.rows import check_rows


def reading(shape: Geometry, span: Span) -> AttentionLayers:
    (group,) = (group for group in shape.attention if group.span is span)
    return group


# --- windows and chunks


@check_rows(
    ("name", "megabytes"),
    [
        ("Mistral-7B-v0.1", [134.2, 536.9, 536.9, 536.9]),
        ("Gemma-3-27B", [520.1, 1107.3, 3120.6, 11173.6]),
        ("gpt-oss-120b", [42.5, 306.7, 1212.7, 4836.6]),
    ],
)
def test_kv_read_at_1k_8k_32k_128k(name: str, megabytes: list[float]) -> None:
    """Facts table B.9, rounded as there, bf16."""
    read = [count_kv_read(shape_of(name), context) * 2 / 1e6 for context in (1024, 8192, 32768, 131072)]
    assert [round(value, 1) for value in read] == megabytes


@check_rows(
    ("name", "spans"),
    [
        ("Gemma-3-4B", {(Span.FULL, 5, None), (Span.SLIDING, 29, 1024)}),
        ("GPT-Neo-2.7B", {(Span.FULL, 16, None), (Span.SLIDING, 16, 256)}),
        ("Mistral-7B-v0.2", {(Span.FULL, 32, None)}),
        # every third from the first attends to all; 128 tokens around mean 64 to either side and the token itself
        ("ModernBERT-base", {(Span.FULL, 8, None), (Span.SLIDING, 14, 129)}),
    ],
)
def test_which_layers_see_a_window(name: str, spans: set[tuple[Span, int, int | None]]) -> None:
    """Beside those of test_rows_of_the_catalogue."""
    assert {(group.span, group.layers, group.window_tokens) for group in shape_of(name).attention} == spans


@check_rows(
    ("name", "changes"),
    [
        ("gpt-oss-20b", {"layer_types": ["sliding_attention", "full_attention"] * 12}),
        ("K-EXAONE-236B", {"layer_types": None, "sliding_window_pattern": "LLLG"}),
        ("Llama-4-Scout", {"no_rope_layers": []}),
        ("Llama-4-Scout", {"no_rope_layers": [1, 1, 1, 0] * 12}),
        ("Llama-4-Scout", {"layer_types": [*["chunked_attention"] * 3, "full_attention"] * 12}),
        ("MiMo-V2-Flash", {"hybrid_layer_pattern": [0, *([1] * 4 + [0]), *([1] * 5 + [0]) * 7], "swa_num_key_value_heads": 8}),
    ],
)  # fmt: skip
def test_the_same_windows_in_other_words(name: str, changes: Config) -> None:
    said = {key: value for key, value in {**config_of(name), **changes}.items() if value is not None}
    assert geometry(said) == shape_of(name)


def test_llama_4_reads_chunks_in_three_layers_of_four() -> None:
    shape, per_layer = shape_of("Llama-4-Scout"), 2 * 8 * 128
    assert reading(shape, Span.CHUNKED).layers == 36
    # beyond a chunk its layers read no more than one, the full layers all of the context
    assert count_kv_read(shape, 8192) == 48 * per_layer * 8192
    assert count_kv_read(shape, 100_000) == per_layer * (12 * 100_000 + 36 * 8192)
    (alone,) = geometry(nested("Llama-4-Scout", "llama4", attention_chunk_size=None)).attention
    assert (alone.span, alone.layers) == (Span.FULL, 48)


def test_exaone_4_pattern_in_letters() -> None:
    config = {
        **config_of("EXAONE-4.0-32B"),
        "num_hidden_layers": 8,
        "layer_types": None,
        "sliding_window_pattern": "LLLG",
    }
    assert count_layers(geometry(config), Span.SLIDING) == 6
    assert count_layers(geometry({**config, "sliding_window": None}), Span.SLIDING) == 0


def test_full_layers_of_muse_are_counted_from_the_last() -> None:
    shape = geometry({"model_type": "muse_spark", "text_config": {"model_type": "muse_spark_text"}})
    assert {(group.span, group.layers) for group in shape.attention} == {(Span.FULL, 16), (Span.SLIDING, 46)}
    assert {it.columns for it in shape.modules if it.path.endswith("experts.*.gate_proj")} == {4096}


@check_rows(
    ("shape", "full", "sliding"),
    [
        # layers, KV heads, elements of a token; MiMo's values are smaller than its keys, Gemma 4 takes keys for values in full layers
        (shape_of("MiMo-V2-Flash"), (9, 4, 4 * (192 + 128)), (39, 8, 8 * (192 + 128))),
        (shape_of("gemma-4-26B-A4B"), (5, 2, 2 * 2 * 512), (25, 8, 2 * 8 * 256)),
        (geometry({**config_of("gemma-4-26B-A4B"), "attention_k_eq_v": False}), (5, 8, 2 * 8 * 512), (25, 8, 2 * 8 * 256)),
    ],
    ids=["MiMo", "Gemma 4", "Gemma 4 with values of their own"],
)  # fmt: skip
def test_window_layers_have_kv_heads_of_their_own(
    shape: Geometry, full: tuple[int, ...], sliding: tuple[int, ...]
) -> None:
    for span, expected in ((Span.FULL, full), (Span.SLIDING, sliding)):
        group = reading(shape, span)
        assert (group.layers, group.kv_heads, group.kv_elements) == expected


def test_decode_of_mimo_works_on_keys_and_values_of_their_own_sizes() -> None:
    for group in shape_of("MiMo-V2-Flash").attention:
        assert group.decode_flops == 2 * 64 * (192 + 128)


def test_gemma_4_has_values_in_the_window_layers_only() -> None:
    values = find_module(shape_of("gemma-4-26B-A4B"), "self_attn.v_proj")
    assert values.layers == tuple(layer for layer in range(30) if (layer + 1) % 6)


@check_rows(
    ("config", "own", "shared"),
    [(config_of("Gemma-3n-E4B"), 20, 15), (odd("gemma4-sharing"), 5, 7)],
    ids=["Gemma 3n", "Gemma 4"],
)
def test_last_layers_of_gemma_read_the_kv_of_earlier_ones(config: Config, own: int, shared: int) -> None:
    shape = geometry(config)
    kept, others = ([group for group in shape.attention if group.kept is value] for value in (True, False))
    assert (sum(group.layers for group in kept), sum(group.layers for group in others)) == (own, shared)
    stored, read = shape.kv_elements_stored(), count_kv_read(shape, 1.0)
    assert stored == sum(group.layers * group.kv_elements for group in kept)
    # kept once, read by each
    assert read - stored == sum(group.layers * group.kv_elements for group in others)


def test_cross_attention_reads_an_image_and_not_the_context() -> None:
    shape = shape_of("Llama-3.2-11B-Vision")
    cross, own = reading(shape, Span.CROSS), reading(shape, Span.FULL)
    assert (cross.layers, own.layers) == (8, 32)
    assert cross.encoder_tokens is None
    assert shape.kv_elements_stored() == 32 * 2 * 8 * 128
    assert count_kv_read(shape, 1000) == 1000 * 32 * 2 * 8 * 128


def test_one_kv_head_counts_as_one_for_tensor_parallel_ranks() -> None:
    (attention,) = shape_of("Falcon-7B").attention
    assert (attention.kv_heads, attention.kv_elements) == (1, 2 * 64)


# --- latents and indexers


def test_latent_attention_of_deepseek_v3() -> None:
    (group,) = shape_of("DeepSeek-V3").attention
    assert (group.layers, group.kv_elements, group.kv_heads) == (61, 512 + 64, 1)
    # absorbed: 2 x 128 x (576 + 512); prefill on the heads' own 192 and 128
    assert group.decode_flops == 278_528
    assert group.prefill_flops == 2 * 128 * (192 + 128)


def test_an_indexer_picks_what_deepseek_v3_2_reads() -> None:
    """vLLM 0.33, models/deepseek_v2.py: 128 FP8 elements and an fp32 scale a token and layer, whatever the KV cache's dtype."""
    shape = shape_of("DeepSeek-V3.2")
    (group,) = shape.attention
    assert (group.layers, group.kv_elements, group.kv_heads, group.top_entries) == (61, 576, 1, 2048)
    assert group.indexer == Indexer(61, 132, 2 * 64 * 128)
    assert shape.kv_elements_stored() == 61 * 576
    assert shape.index_bytes_stored() == 61 * 132
    assert count_kv_read(shape, 1024) == 61 * 576 * 1024
    assert count_kv_read(shape, 100_000) == count_kv_read(shape, 2048) == 61 * 576 * 2048


def test_layers_of_glm_5_2_share_indexers() -> None:
    shape = shape_of("GLM-5.2")
    (group,) = shape.attention
    assert group.layers == 78
    assert group.indexer.layers == 21
    scorers = find_module(shape, "self_attn.indexer.wq_b")
    assert scorers.layers == (0, 1, 2, *range(6, 78, 4))
    assert not find_module(shape, "self_attn.indexer.weights_proj").linear
    # the lists follow from the period where a config leaves them out, and from letters
    lists = {"indexer_types": None, "mlp_layer_types": None, "index_skip_topk_offset": 3, "index_topk_freq": 4}
    assert geometry({**config_of("GLM-5.2"), **lists}) == shape
    letters = "".join("F" if layer in scorers.layers else "S" for layer in range(78))
    assert geometry({**config_of("GLM-5.2"), **lists, "index_topk_pattern": letters}) == shape


def test_blocks_of_context_are_picked_in_most_layers_of_minimax_m3() -> None:
    shape = shape_of("MiniMax-M3")
    full, sparse = reading(shape, Span.FULL), reading(shape, Span.SPARSE)
    assert (full.layers, sparse.layers, sparse.top_entries) == (3, 57, 16 * 128)
    # vLLM 0.33, config/attention.py: bf16 unless it is told otherwise
    assert sparse.indexer == Indexer(57, 2 * 128, 2 * 4 * 128)
    assert sparse.kv_elements == full.kv_elements == 2 * 4 * 128


@check_rows(("name", "picked", "whole", "top"), [("DeepSeek-V4-Flash", 21, 20, 512), ("DeepSeek-V4-Pro", 30, 31, 1024)])
def test_layers_of_deepseek_v4_compress_the_context(name: str, picked: int, whole: int, top: int) -> None:
    shape = shape_of(name)
    window, sparse, rest = reading(shape, Span.SLIDING), reading(shape, Span.SPARSE), reading(shape, Span.FULL)
    assert (window.layers, window.window_tokens, window.kv_elements) == (shape.layers, 128, 512)
    assert (sparse.layers, sparse.compress_ratio, sparse.top_entries) == (picked, 4, top)
    assert (rest.layers, rest.compress_ratio) == (whole, 128)
    # an index key for each entry, not for each token
    assert shape.index_bytes_stored() == picked * 132 / 4
    # beyond what is picked only the heavily compressed layers' reads grow
    assert sparse.tokens_read(10**6) == 4 * top
    grown = count_kv_read(shape, 10**6 + 128) - count_kv_read(shape, 10**6)
    assert grown == whole * 512


def test_deepseek_v4_of_another_model_type() -> None:
    """sgl-project/DeepSeek-V4-Flash-FP8: model_type is "deepseek_ref", and it names no expert_dtype."""
    row = config_of("DeepSeek-V4-Flash")
    said = {**row, "model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}
    assert geometry(said).attention == geometry(row).attention
    assert quantisation.kv_hint(said, None) == "fp8_ds_mla"


def test_window_layers_of_dots_3_have_latents_of_their_own() -> None:
    small = {"intermediate_size": 70, "num_attention_heads": 6, "vocab_size": 101}
    shape = geometry({"model_type": "dots3_note", **small, "num_hidden_layers": 7, "hidden_size": 512})
    sparse, window = reading(shape, Span.SPARSE), reading(shape, Span.SLIDING)
    assert (sparse.layers, sparse.kv_elements, sparse.top_entries) == (3, 512 + 64, 2048)
    assert (window.layers, window.kv_elements, window.window_tokens) == (4, 1024 + 64, 512)
    assert sparse.indexer.layers == 3


def test_deepseek_v2_without_mla_attends_as_the_first() -> None:
    """DeepSeek-OCR's language part."""
    ranks = ("kv_lora_rank", "q_lora_rank"), ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    none = {**dict.fromkeys(ranks[0]), **dict.fromkeys(ranks[1], 0), "attention_bias": None}
    text = odd("v2-odd", use_mla=False, num_key_value_heads=6, **none)
    ocr = geometry({"model_type": "deepseekocr", "language_config": text})
    assert not ocr.mla
    (attention,) = ocr.attention
    assert (attention.kv_heads, attention.kv_elements) == (6, 2 * 96)


# --- recurrent layers


@check_rows(
    ("name", "attention", "states"),
    [
        # layers and KV elements of attention; layers, elements of the state and of the convolution
        ("Jamba-v0.1", [(4, 2048)], [(28, 8192 * 16, 8192 * 3)]),
        ("Nemotron-3-Nano-30B-A3B", [(6, 2 * 2 * 128)], [(23, 524_288, 18_432)]),
        ("Qwen3-Next-80B-A3B", [(12, 2 * 2 * 256)], [(36, 32 * 128 * 128, 8192 * 3)]),
        ("Kimi-Linear-48B-A3B", [(7, 576)], [(20, 32 * 128 * 128, 3 * 32 * 128 * 3)]),
        ("Kimi-K3", [(24, 576)], [(69, 96 * 128 * 128, 3 * 96 * 128 * 3)]),
        ("Mamba-Codestral-7B-v0.1", [], [(64, 8192 * 128, (8192 + 2 * 8 * 128) * 3)]),
        # short convolutions keep their last inputs and no other state
        ("LFM2-1.2B", [(6, 2 * 8 * 64)], [(10, 0, 2048 * 2)]),
    ],
)
def test_what_recurrent_models_keep(
    name: str, attention: list[tuple[int, int]], states: list[tuple[int, int, int]]
) -> None:
    shape = shape_of(name)
    assert [(group.layers, group.kv_elements) for group in shape.attention] == attention
    assert [(state.layers, state.ssm_elements, state.conv_elements) for state in shape.recurrent] == states


def test_a_state_is_in_float32_where_the_class_says_so() -> None:
    states = {name: shape_of(name).recurrent[0].float32_by_default for name in ("Kimi-K3", "Jamba-v0.1")}
    assert states == {"Kimi-K3": True, "Jamba-v0.1": False}


@check_rows(
    ("name", "bytes_per_element", "megabytes"),
    [("Nemotron-3-Nano-30B-A3B", 4, 49.1), ("Nemotron-H-56B", 4, 912.6), ("Qwen3-Next-80B-A3B", 4, 77.3),
     ("Qwen3-Next-80B-A3B", 2, 39.5)],
)  # fmt: skip
def test_the_state_of_a_sequence_is_that_of_the_facts(name: str, bytes_per_element: int, megabytes: float) -> None:
    """Facts B.9: what is stored; a step reads it and writes it."""
    facts = ModelFacts("a model", "a test", shape_of(name), (), 2.0, "bf16", bytes_per_element)
    assert round(facts.state_bytes_per_sequence() / 1e6, 1) == megabytes


def test_jamba_keeps_the_published_4_gib_for_256k_tokens() -> None:
    assert shape_of("Jamba-v0.1").kv_elements_stored() * 2 * 262_144 == 4 * 2**30


def test_a_token_passes_only_its_experts() -> None:
    """Nemotron-3-Nano: 23 MoE layers, 6 of 128 experts of two matrices; published 31.6B in all, 3.2 to 3.6B active.

    Facts F row 22: 3.2 GB per step in FP8 at batch 1.
    """
    shape = shape_of("Nemotron-3-Nano-30B-A3B")
    assert shape.parameters_total - shape.parameters_active == 23 * (128 - 6) * 2 * 2688 * 1856
    assert 3.2e9 < shape.decode_read_parameters < shape.parameters_active < 3.6e9
    assert shape.decode_read_parameters == pytest.approx(3.2e9, rel=0.02)


def test_a_mamba_block_is_the_formula_of_the_facts() -> None:
    """Facts B.6, Mamba-1 with inner norms and Mamba-2, on Jamba's and Nemotron-3-Nano's sizes; B.6 counts the norm before the block."""

    def block(config: Config, prefix: str) -> int:
        modules = (module for module in geometry(config).modules if module.path.startswith(prefix))
        return sum(module.matrix + module.vector for module in modules)

    h, di, ds, dt, conv = 4096, 8192, 16, 256, 4
    mamba1 = h * 2 * di + di * conv + di + di * (dt + 2 * ds) + dt * di + di + di * ds + di + di * h + dt + 2 * ds
    assert block(config_of("Jamba-v0.1"), "model.layers.{}.mamba.") == mamba1

    h, heads, p, n, g = 2688, 64, 64, 128, 8
    di = heads * p
    mamba2 = h * (2 * di + 2 * g * n + heads) + (di + 2 * g * n) * conv + (di + 2 * g * n) + 3 * heads + di + di * h
    only_mamba = {**config_of("Nemotron-3-Nano-30B-A3B"), "hybrid_override_pattern": "M", "num_hidden_layers": 1}
    assert block(only_mamba, "backbone.layers.{}.mixer.") == mamba2


@check_rows(
    ("name", "path", "layers"),
    [
        ("Qwen3-Next-80B-A3B", "self_attn.q_proj", tuple(range(3, 48, 4))),
        ("Kimi-Linear-48B-A3B", "self_attn.kv_b_proj", (3, 7, 11, 15, 19, 23, 26)),
    ],
)
def test_which_layers_attend(name: str, path: str, layers: tuple[int, ...]) -> None:
    assert find_module(shape_of(name), path).layers == layers


@check_rows("kind", ["full_attention", "linear_attention"])
def test_a_kind_of_layer_that_no_layer_is_of_has_no_modules(kind: str) -> None:
    row = config_of("Qwen3.5-27B")
    shape = geometry({**row, "layer_types": [kind] * row["num_hidden_layers"]})
    assert all(module.layers for module in shape.modules if "{}" in module.path)
    assert all(group.layers for group in (*shape.attention, *shape.recurrent))


def test_lightning_layers_keep_a_state_and_no_kv() -> None:
    """MiniMax-Text-01: seven of eight layers."""
    shape = geometry({
        "model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "vocab_size": 200064,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2,
        "attn_type_list": [*[0] * 7, 1] * 10,
    })  # fmt: skip
    (full,) = shape.attention
    assert (full.layers, full.kv_elements) == (10, 2 * 8 * 128)
    assert shape.recurrent == (RecurrentLayers(70, 64 * 128 * 128, 0, shape.recurrent[0].float32_by_default),)


def test_ling_2_5_and_ring_linear_have_lightning_attention() -> None:
    """vLLM 0.33, models/bailing_moe_linear.py: as many KV heads as heads, a gate and a norm over all of them."""
    fields = {
        "hidden_size": 96, "intermediate_size": 70, "num_attention_heads": 6, "vocab_size": 101, "num_hidden_layers": 8, "head_dim": 16,
        "num_key_value_heads": 2, "layer_group_size": 4, "use_qk_norm": True, "num_experts": 8, "num_experts_per_tok": 2,
        "num_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
    }  # fmt: skip
    ring = geometry({"model_type": "bailing_moe_linear", **fields})
    (full,) = ring.attention
    assert (full.layers, full.kv_elements) == (2, 2 * 2 * 16)
    (state,) = ring.recurrent
    assert (state.layers, state.ssm_elements) == (6, 6 * 16 * 16)
    latent = {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "q_lora_rank": 32}
    ling = geometry(
        {"model_type": "bailing_hybrid", "architectures": ["BailingMoeV2_5ForCausalLM"], **fields, **latent}
    )
    assert ling.mla
    assert (ling.attention[0].layers, ling.attention[0].kv_elements) == (2, 32)
    assert ling.recurrent == ring.recurrent
    lightning = {module.path.rpartition(".")[2] for module in ling.modules if module.part is Part.RECURRENT}
    assert lightning == {"query_key_value", "g_proj", "dense"}


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


# --- encoders and embedders


def test_bert_costs_a_token_what_the_facts_say() -> None:
    """Facts B.7: 2 N_mat + 4 L h s; tables and pooler are not passed by each token."""
    shape = geometry({**config_of("bge-base-en-v1.5"), "architectures": ["BertForMaskedLM"]})
    passed = [it for it in shape.modules if it.part not in (Part.EMBEDDING, Part.ENCODER_ONLY)]
    assert sum(module.matrix * module.places for module in passed) == 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert sum(group.layers * group.prefill_flops for group in shape.attention) == 4 * 12 * 768
    assert shape.left_out == ("head of BertForMaskedLM",)
    assert shape.encoder
    assert shape.bidirectional


def test_nv_embed_is_mistral_without_lm_head_and_a_latent_pooler() -> None:
    """Seed oracle O5 (000_77ecca03ee8f65da.txt:142): 15.7 GB in FP16.

    The facts' 7,850,991,616 leaves out the pooler's three LayerNorms, which the checkpoint holds (cross_attend_blocks.0.norm,
    .0.norm_context and .1.norm, weight and bias of 4096 each).
    """
    shape = shape_of("NV-Embed-v2")
    assert shape.parameters_total == 7_850_991_616 + 3 * 2 * 4096
    assert round(shape.parameters_total * 2 / 1e9, 3) == 15.702
    pooler = sum(each.parameters for each in shape.modules if each.path.startswith("latent_attention_model."))
    assert shape.parameters_total - pooler == 7_110_660_096
    assert shape.encoder
    assert shape.bidirectional
    # what its config leaves out
    bare = {**config_of("NV-Embed-v2"), "latent_attention_config": {"model_type": "latent_attention"}}
    assert geometry(bare) == shape


def test_a_bare_decoder_stack_is_an_embedder() -> None:
    """e5-mistral class, facts B.7: causal, without lm_head."""
    shape = geometry({**config_of("Mistral-7B-v0.1"), "architectures": ["MistralModel"]})
    assert shape.parameters_total == 7_110_660_096
    assert shape.encoder
    assert not shape.bidirectional
    assert shape.kv_elements_stored() == 0
    assert shape.attention[0].prefill_flops == 4 * 32 * 128


def test_a_tied_stack_keeps_its_table_as_input_embedding() -> None:
    tied = geometry({**config_of("Llama-3.1-8B"), "tie_word_embeddings": True})
    bare = without_lm_head(tied)
    assert bare.parameters_total == tied.parameters_total
    assert bare.decode_read_parameters == tied.decode_read_parameters - 128256 * 4096
    assert without_lm_head(bare) == bare


@check_rows(
    ("architecture", "embedder"),
    [
        ("MistralModel", True), ("Qwen2Model", True), ("LlamaForCausalLM", False), ("GPT2LMHeadModel", False),
        ("InternVLChatModel", False), ("NVLM_D_Model", False), ("", False),
    ],
)  # fmt: skip
def test_only_bare_stacks_are_taken_for_embedders(architecture: str, embedder: bool) -> None:
    assert embeds(architecture) is embedder


@check_rows("named", [None, [], [None], "MistralModel", {"0": "MistralModel"}])
def test_architectures_that_name_nothing_leave_a_decoder_a_decoder(named: object) -> None:
    assert not geometry({**config_of("Mistral-7B-v0.1"), "architectures": named}).encoder


def test_a_language_part_names_its_own_architecture() -> None:
    """A multimodal model's own class may end in Model although its language part decodes."""
    inner = {**config_of("Llama-3.1-8B"), "architectures": ["LlamaForCausalLM"]}
    assert not geometry({"architectures": ["SomeVisionModel"], "llm_config": inner}).encoder


# --- `per_layer_config`, as transformers 5.24.0 writes it on saving ---


FULL = [f"{layer:02}" for layer in range(5, 60, 6)]
# Gemma-4-31B's text_config with global_head_dim 512 and num_global_key_value_heads 4, saved by Gemma4TextConfig: both keys are gone
GEMMA_4_31B: Config = {
    "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 256, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "vocab_size": 262144,
    "sliding_window": 1024, "num_kv_shared_layers": 0, "tie_word_embeddings": True,
    "layer_types": ["sliding_attention"] * 60,
    "per_layer_config": {layer: {"head_dim": 512, "num_key_value_heads": 4} for layer in FULL},
}  # fmt: skip
for _layer in FULL:
    GEMMA_4_31B["layer_types"][int(_layer)] = "full_attention"
# Dots3NoteTextConfig's own defaults with six layers and eight experts
DOTS_3: Config = {
    "model_type": "dots3_note_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 512, "moe_intermediate_size": 32, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "shared_experts_intermediate_size": 1536, "q_lora_rank": 32, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "sliding_window": 512, "attention_bias": False,
    "layer_types": ["indexed_attention", "indexed_attention", *["sliding_attention"] * 3, "indexed_attention"],
    "mlp_layer_types": ["dense", *["sparse"] * 5],
    "per_layer_config": {
        layer: {"kv_lora_rank": 48, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 1024, "qk_nope_head_dim": 192}
        for layer in ("2", "3", "4")
    },
}  # fmt: skip


def changed(config: Config, **changes: Any) -> Config:
    return {**config, **changes}


def test_gemma_4_saved_again_has_the_full_layers_heads_of_its_override() -> None:
    shape = geometry(GEMMA_4_31B)
    assert shape.parameters_total == 30_697_345_280
    (full,) = [group for group in shape.attention if group.span is Span.FULL]
    assert (full.layers, full.kv_heads, full.kv_elements) == (10, 4, 2 * 4 * 512)


def test_what_every_layer_states_is_the_same_as_what_only_the_others_state() -> None:
    """`serialize_explicit_per_layer_config`."""
    explicit = {
        f"{layer:02}": {"head_dim": 512, "num_key_value_heads": 4}
        if f"{layer:02}" in FULL
        else {"head_dim": 256, "num_key_value_heads": 16}
        for layer in range(60)
    }
    assert geometry(changed(GEMMA_4_31B, per_layer_config=explicit)) == geometry(GEMMA_4_31B)


def test_an_empty_override_means_layers_that_are_all_alike() -> None:
    """Gemma4TextConfig with global_head_dim equal to head_dim, 16, writes {}."""
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 4,
             "head_dim": 16, "vocab_size": 512, "attention_k_eq_v": False, "per_layer_config": {},
             "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}  # fmt: skip
    assert geometry(changed(GEMMA_4_31B, **small)).parameters_total == 280_320


def test_dots_3_saved_again_has_the_sliding_layers_sizes_of_its_override() -> None:
    assert geometry(DOTS_3).parameters_total == 6_438_192


def test_gemma_4_unified_has_no_embedding_for_each_layer() -> None:
    """Gemma4UnifiedTextConfig's defaults; Gemma4TextConfig's have one: 5,077,177,856 parameters."""
    config = {"model_type": "gemma4_unified", "text_config": {"model_type": "gemma4_unified_text"}}
    assert geometry(config).parameters_total == 3_010_758_400


@check_rows(
    ("config", "named"),
    [
        # any class of transformers 5 takes it
        ({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
          "vocab_size": 512, "per_layer_config": {"3": {"intermediate_size": 64}}}, "gives layer 3 sizes of its own"),
        (changed(GEMMA_4_31B, per_layer_config={"03": {"head_dim": 512}}), "gives layer 3 other sizes"),
        (changed(GEMMA_4_31B, per_layer_config={"05": {"head_dim": 512}}), "other sizes than the full_attention layers"),
        (changed(GEMMA_4_31B, per_layer_config={layer: {"intermediate_size": 64} for layer in FULL}), "intermediate_size"),
        (changed(GEMMA_4_31B, per_layer_config={"99": {"head_dim": 512}}), "gives layer 99 other sizes"),
        (changed(GEMMA_4_31B, per_layer_config={"ü": {"head_dim": 512}}), "gives layer"),
        (changed(GEMMA_4_31B, per_layer_config=[{"head_dim": 512}]), "is not a mapping"),
        (changed(GEMMA_4_31B, per_layer_config={"05": 512}), "has no mapping for layer 05"),
        (changed(GEMMA_4_31B, per_layer_config={"05": {"head_dim": "512"}}), "per_layer_config"),
        (changed(GEMMA_4_31B, layer_types=None), "layer_types is missing"),
    ],
)  # fmt: skip
def test_an_override_that_no_formula_reads_is_refused_by_name(config: Config, named: str) -> None:
    with pytest.raises(FactsError, match=named) as refused:
        geometry(config)
    assert refused.value.reason == "architecture_unknown"


def test_an_override_that_changes_nothing_refuses_no_family() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
              "vocab_size": 512}  # fmt: skip
    for nothing in ({}, {"3": {"intermediate_size": 128}}, None):
        assert geometry({**config, "per_layer_config": nothing}) == geometry(config)
