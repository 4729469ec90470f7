"""Decoders whose layers attend in more ways than one, against exact counts; what their layers keep and read."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.model.shape import AttentionLayers, Geometry, Indexer, Module, Part, RecurrentLayers, Span
from tests.support.models.flagship_models import (
    CLASSES,
    DEEPSEEK_V3_2,
    DEEPSEEK_V4_FLASH,
    DEEPSEEK_V4_PRO,
    GEMMA_3N_E4B,
    GEMMA_4_26B_A4B,
    GEMMA_4_SHARING,
    GLM_5_2,
    KIMI_K3,
    KIMI_LINEAR_48B,
    LLAMA_3_2_11B_VISION,
    LONGCAT_FLASH,
    MIMO_V2_FLASH,
    MINIMAX_M3,
    NEMOTRON_SUPER_49B,
)
from tests.support.models.moe_models import Config
from tests.support.rows import check_rows

ALL: dict[str, Config] = {
    **{name: row[0] for name, row in CLASSES.items()},
    "Kimi-K3": KIMI_K3,
    "LongCat-Flash": LONGCAT_FLASH,
    "Nemotron-Super-49B": NEMOTRON_SUPER_49B,
}


def reading(shape: Geometry, span: Span) -> AttentionLayers:
    (found,) = (group for group in shape.attention if group.span is span)
    return found


def module(shape: Geometry, path: str) -> Module:
    (found,) = (module for module in shape.modules if module.path.endswith(path))
    return found


def text(config: Config, **changes: Any) -> Config:
    return {**config, "text_config": {**config["text_config"], **changes}}


@check_rows(("config", "total", "active", "read", "experts", "k"), CLASSES.values(), ids=CLASSES)
def test_published_models_as_transformers_counts_them(
    config: Config, total: int, active: int, read: int, experts: int, k: int
) -> None:
    shape = geometry(config)
    assert shape.parameters_total == total
    assert shape.parameters_active == active
    assert shape.decode_read_parameters == read
    assert (shape.experts, shape.experts_per_token) == (experts, k)


@check_rows("config", ALL.values(), ids=ALL)
def test_what_holds_for_each_of_them(config: Config) -> None:
    shape = geometry(config)
    assert not shape.reads_unknown
    assert len({(module.path, module.layers) for module in shape.modules}) == len(shape.modules)
    for module in shape.modules:
        assert module.matrix == module.rows * module.columns
        assert max(module.layers, default=0) < shape.layers
    for group in shape.attention:
        assert group.heads >= group.kv_heads
        assert (group.top_entries is not None) == (group.span is Span.SPARSE)
        assert (group.window_tokens is not None) == (group.span is Span.SLIDING)
    assert shape.kv_elements_read(1_000_000) >= shape.kv_elements_read(1_000)


def test_an_indexer_picks_what_deepseek_v3_2_reads() -> None:
    """vLLM 0.33, models/deepseek_v2.py: 128 FP8 elements and an fp32 scale a token and layer, whatever the KV cache's dtype."""
    shape = geometry(DEEPSEEK_V3_2)
    (group,) = shape.attention
    assert (group.layers, group.kv_elements, group.kv_heads, group.top_entries) == (61, 576, 1, 2048)
    assert group.indexer == Indexer(61, 132, 2 * 64 * 128)
    assert shape.mla
    assert shape.kv_elements_stored() == 61 * 576
    assert shape.index_bytes_stored() == 61 * 132
    assert shape.kv_elements_read(1024) == 61 * 576 * 1024
    assert shape.kv_elements_read(100_000) == shape.kv_elements_read(2048) == 61 * 576 * 2048
    assert shape.left_out == ("MTP module",)


def test_layers_of_glm_5_2_share_indexers() -> None:
    shape = geometry(GLM_5_2)
    (group,) = shape.attention
    assert group.layers == 78
    assert group.indexer is not None
    assert group.indexer.layers == 21
    scorers = module(shape, "self_attn.indexer.wq_b")
    assert scorers.layers == (0, 1, 2, *range(6, 78, 4))
    assert not module(shape, "self_attn.indexer.weights_proj").linear
    # the lists follow from the period where a config leaves them out, and from letters
    lists = ("indexer_types", "mlp_layer_types")
    bare = {key: value for key, value in GLM_5_2.items() if key not in lists}
    assert geometry(bare) == shape
    letters = "".join("F" if layer in scorers.layers else "S" for layer in range(78))
    assert geometry({**bare, "index_topk_pattern": letters}) == shape


def test_kimi_k3_as_its_paper_counts_it() -> None:
    """Table 1 of its report (arXiv 2607.24653): 2.78T parameters, 401M of them in the vision tower, 104.2B activated for a token."""
    shape = geometry(KIMI_K3)
    assert shape.parameters_total + 401e6 == pytest.approx(2.78e12, rel=1e-3)
    assert shape.decode_read_parameters == pytest.approx(104.2e9, rel=5e-4)
    assert (shape.experts, shape.experts_per_token) == (896, 16)
    # routed experts work in a narrower space than the shared ones
    assert module(shape, "experts.*.w1").columns == 3584
    assert module(shape, "shared_experts.gate_proj").columns == 7168
    (latent,) = shape.attention
    assert (latent.layers, latent.kv_elements) == (24, 576)
    assert shape.recurrent == (RecurrentLayers(69, 96 * 128 * 128, 3 * 96 * 128 * 3, float32_by_default=True),)
    assert shape.left_out == ("vision tower",)


def test_kimi_linear_keeps_a_state_in_most_layers() -> None:
    shape = geometry(KIMI_LINEAR_48B)
    (latent,) = shape.attention
    assert (latent.layers, latent.kv_elements, latent.kv_heads) == (7, 576, 1)
    assert shape.recurrent == (RecurrentLayers(20, 32 * 128 * 128, 3 * 32 * 128 * 3, float32_by_default=True),)
    assert module(shape, "self_attn.kv_b_proj").layers == (3, 7, 11, 15, 19, 23, 26)


def test_window_layers_of_mimo_have_kv_heads_of_their_own_and_values_smaller_than_keys() -> None:
    shape = geometry(MIMO_V2_FLASH)
    full, sliding = reading(shape, Span.FULL), reading(shape, Span.SLIDING)
    assert (full.layers, full.kv_heads, full.kv_elements) == (9, 4, 4 * (192 + 128))
    assert (sliding.layers, sliding.kv_heads, sliding.kv_elements) == (39, 8, 8 * (192 + 128))
    assert sliding.window_tokens == 128
    assert full.decode_flops == sliding.decode_flops == 2 * 64 * (192 + 128)
    # by the class's own keys and defaults
    said = {**MIMO_V2_FLASH, "layer_types": None, "hybrid_layer_pattern": None, "swa_num_key_value_heads": None}
    assert geometry(said) == shape


def test_gemma_4_takes_keys_for_values_in_full_layers() -> None:
    shape = geometry(GEMMA_4_26B_A4B)
    full, sliding = reading(shape, Span.FULL), reading(shape, Span.SLIDING)
    assert (full.layers, full.kv_heads, full.kv_elements) == (5, 2, 2 * 2 * 512)
    assert (sliding.layers, sliding.kv_heads, sliding.kv_elements) == (25, 8, 2 * 8 * 256)
    assert module(shape, "self_attn.v_proj").layers == tuple(layer for layer in range(30) if (layer + 1) % 6)
    own = geometry(text(GEMMA_4_26B_A4B, attention_k_eq_v=False))
    # without it, values have a matrix of their own and the full layers the usual KV heads
    assert reading(own, Span.FULL).kv_heads == 8


@pytest.mark.parametrize(
    ("config", "own", "shared"),
    [(GEMMA_3N_E4B, 20, 15), (GEMMA_4_SHARING, 5, 7)],
    ids=["Gemma 3n", "Gemma 4"],
)
def test_last_layers_of_gemma_read_the_kv_of_earlier_ones(config: Config, own: int, shared: int) -> None:
    shape = geometry(config)
    assert sum(group.layers for group in shape.attention if group.kept) == own
    assert sum(group.layers for group in shape.attention if not group.kept) == shared
    stored, read = shape.kv_elements_stored(), shape.kv_elements_read(1.0)
    assert stored == sum(group.layers * group.kv_elements for group in shape.attention if group.kept)
    # kept once, read by each
    assert read - stored == sum(group.layers * group.kv_elements for group in shape.attention if not group.kept)


def test_embeddings_for_each_layer_are_looked_up_and_not_read() -> None:
    shape = geometry(GEMMA_3N_E4B)
    table = module(shape, "embed_tokens_per_layer")
    assert (table.part, table.parameters) == (Part.EMBEDDING, 262_144 * 35 * 256)
    assert shape.parameters_total - shape.decode_read_parameters == table.parameters
    assert shape.tied is False
    assert set(shape.left_out) == {"vision tower", "audio tower"}


def test_blocks_of_context_are_picked_in_most_layers_of_minimax_m3() -> None:
    shape = geometry(MINIMAX_M3)
    full, sparse = reading(shape, Span.FULL), reading(shape, Span.SPARSE)
    assert (full.layers, sparse.layers, sparse.top_entries) == (3, 57, 16 * 128)
    # vLLM 0.33, config/attention.py: bf16 unless it is told otherwise
    assert sparse.indexer == Indexer(57, 2 * 128, 2 * 4 * 128)
    assert sparse.kv_elements == full.kv_elements == 2 * 4 * 128


@pytest.mark.parametrize(
    ("config", "picked", "whole", "top"), [(DEEPSEEK_V4_FLASH, 21, 20, 512), (DEEPSEEK_V4_PRO, 30, 31, 1024)]
)
def test_layers_of_deepseek_v4_compress_the_context(config: Config, picked: int, whole: int, top: int) -> None:
    shape = geometry(config)
    window, sparse, rest = reading(shape, Span.SLIDING), reading(shape, Span.SPARSE), reading(shape, Span.FULL)
    assert (window.layers, window.window_tokens, window.kv_elements) == (shape.layers, 128, 512)
    assert (sparse.layers, sparse.compress_ratio, sparse.top_entries) == (picked, 4, top)
    assert (rest.layers, rest.compress_ratio) == (whole, 128)
    # an index key for each entry, not for each token
    assert shape.index_bytes_stored() == picked * 132 / 4
    # beyond what is picked only the heavily compressed layers' reads grow
    assert sparse.tokens_read(10**6) == 4 * top
    grown = shape.kv_elements_read(10**6 + 128) - shape.kv_elements_read(10**6)
    assert grown == whole * 512


def test_two_attentions_and_experts_that_do_nothing_in_longcat() -> None:
    """transformers' class counts 741,053,585,408: it keeps rows of gate and up for the 256 experts that do nothing in each of 28 layers.

    Published: 560B, 18.6B to 31.3B activated, 27B in the mean.
    """
    shape = geometry(LONGCAT_FLASH)
    assert shape.parameters_total == 741_053_585_408 - 28 * 256 * 2 * 2048 * 6144 == 560_664_958_976
    assert shape.decode_read_parameters == pytest.approx(27e9, rel=0.01)
    assert sum(group.layers for group in shape.attention) == 2 * 28
    # 12 of 768 are picked, of which 512 are experts
    assert (shape.experts, shape.experts_per_token) == (512, 8)
    assert module(shape, "router.classifier").rows == 768


def test_cross_attention_reads_an_image_and_not_the_context() -> None:
    shape = geometry(LLAMA_3_2_11B_VISION)
    cross, own = reading(shape, Span.CROSS), reading(shape, Span.FULL)
    assert (cross.layers, own.layers) == (8, 32)
    assert cross.encoder_tokens is None
    assert shape.kv_elements_stored() == 32 * 2 * 8 * 128
    assert shape.kv_elements_read(1000) == 1000 * 32 * 2 * 8 * 128
    assert shape.left_out == ("vision tower", "KV of images")


def test_each_layer_of_nemotron_super_is_as_listed() -> None:
    """Composed layer by layer of transformers 5.23.0's LlamaAttention and LlamaMLP on the meta device: 49,867,145,216."""
    shape = geometry(NEMOTRON_SUPER_49B)
    assert shape.parameters_total == shape.parameters_active == 49_867_145_216
    (group,) = shape.attention
    assert (group.layers, group.kv_heads) == (49, 8)
    assert module(shape, "input_layernorm").places == 49
    widths = {found.rows for found in shape.modules if found.path.endswith("mlp.up_proj")}
    assert widths == {2816, 5632, 7168, 14336, 17920, 28672}
