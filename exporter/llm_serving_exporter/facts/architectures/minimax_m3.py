"""MiniMax-M3: grouped-query attention that reads the blocks of context which an indexer picks, in all but the first layers.

The indexer keeps one key a token, in bf16 unless vLLM is told otherwise (config/attention.py indexer_kv_dtype), and each KV head reads
blocks of its own. Verified against transformers 5.23.0 on the meta device; names as in vLLM 0.33 (models/minimax_m3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Names,
    frame,
    grouped_query,
    inner_fields,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.architectures.moe_shared import after_dense
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Indexer, Module, Part, Span
from llm_serving_exporter.model.record import replace

# the config class's defaults
_MINIMAX_M3: Mapping[str, Any] = {
    "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64, "vocab_size": 200064,
    "num_key_value_heads": 4, "head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 4, "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072,
}  # fmt: skip
_SPARSE: Mapping[str, Any] = {
    "sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_block_size": 128, "sparse_topk_blocks": 16
}  # fmt: skip
_KNOWN = ("first_k_dense_replace", "n_shared_experts", "shared_intermediate_size", "use_qk_norm")
_NAMES = Names("block_sparse_moe.", "gate", ("experts.*.w1", "experts.*.w3", "experts.*.w2"))
_KEY_BYTES = 2


def minimax_m3(fields: Fields) -> Geometry:
    """MiniMax-M3 and the language part of its multimodal kind."""
    fields = prepared(fields, _MINIMAX_M3, *_KNOWN)
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    indexing, reads = _sparse_attention(fields, shape)
    experts = mixture(
        fields, shape, experts=("num_local_experts", "n_routed_experts"), size="intermediate_size",
        dense_size="dense_intermediate_size", shared=fields.whole("shared_intermediate_size"),
        sparse=after_dense(fields, shape),
    )  # fmt: skip
    modules = (*heads.modules(shape, norms=("q_norm", "k_norm")), *indexing, *mlps(shape, experts, _NAMES))
    return shape.geometry(fields, modules, reads)


def _sparse_attention(fields: Fields, shape: Frame) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    heads = grouped_query(fields, shape.hidden)
    sparse, full = _kinds(fields, shape)
    alike = parts.attention_layers(len(full), heads.heads, heads.kv_heads, heads.head_size)
    groups = (alike,) if full else ()
    if not sparse:
        return (), groups
    inner = Fields({}, {"model_type": fields.model_type})
    if fields.has("sparse_attention_config"):
        inner = inner_fields(fields, "sparse_attention_config")
    inner = inner.with_defaults(_SPARSE)
    scorers, size = inner.whole("sparse_num_index_heads"), inner.whole("sparse_index_dim")
    picked = inner.whole("sparse_block_size") * inner.whole("sparse_topk_blocks")
    indexer = Indexer(len(sparse), _KEY_BYTES * size, 2 * scorers * size)
    prefix, hidden = f"{shape.layer}self_attn.", shape.hidden
    modules = (
        parts.linear(f"{prefix}index_q_proj", Part.ATTENTION, scorers * size, hidden, sparse),
        parts.linear(f"{prefix}index_k_proj", Part.ATTENTION, size, hidden, sparse),
        parts.vector(f"{prefix}index_q_norm", size, sparse),
        parts.vector(f"{prefix}index_k_norm", size, sparse),
    )
    reading = replace(alike, layers=len(sparse), span=Span.SPARSE, top_entries=picked, indexer=indexer)
    return modules, (*groups, reading)


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Sparse layers and full ones: by `layer_types`, else as `sparse_attention_freq` says for each layer, else all are full."""
    words = {"minimax_m3_sparse": "sparse", "full_attention": "full"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["sparse"], listed["full"]
    if not fields.has("sparse_attention_config"):
        return (), shape.every
    inner = inner_fields(fields, "sparse_attention_config")
    marks = inner.listed("sparse_attention_freq")
    if marks is None or len(marks) != shape.layers:
        raise inner.refused("sparse_attention_freq", f"is no list of {shape.layers} layers")
    return layering.split(frozenset(layer for layer in shape.every if marks[layer]), shape.layers)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "minimax_m3": minimax_m3,
    "minimax_m3_vl": minimax_m3,
    "minimax_m3_vl_text": minimax_m3,
}
