"""Sparse attention over MLA with more around it: Hunyuan 4, dots 3 Note.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.mla_sparse import indexing_layers, sparse_attention
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, Names, frame, mixture, mlps, prepared
from llm_serving_exporter.facts.architectures.moe_shared import after_dense, shared_size
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, Span
from llm_serving_exporter.model.record import replace

# config classes' defaults
_HY_V4: Mapping[str, Any] = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "first_k_dense_replace": 1,
    "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 16, "hc_mult": 4, "index_topk_freq": 4, "index_skip_topk_offset": 2,
}  # fmt: skip
_DOTS3: Mapping[str, Any] = {
    "q_lora_rank": 1024, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
    "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64, "sliding_window": 512,
    "swa_num_attention_heads": 64, "swa_q_lora_rank": 1024, "swa_kv_lora_rank": 1024, "swa_head_dim": 256, "swa_qk_nope_head_dim": 192,
    "swa_v_head_dim": 128,
}  # fmt: skip
_KNOWN = ("attention_bias", "first_k_dense_replace", "index_topk", "kv_lora_rank", "n_shared_experts")


def hy_v4(fields: Fields) -> Geometry:
    """Hunyuan 4: an indexer in the first layer and each fourth from there, sinks, a gate on each head's output, several streams."""
    fields = prepared(fields, _HY_V4, *_KNOWN)
    shape = frame(fields)
    attending, attention = sparse_attention(fields, shape, indexing_layers(fields, shape))
    heads, inner = fields.whole("num_attention_heads"), f"{shape.layer}self_attn."
    modules = (
        *attending,
        parts.linear(
            f"{inner}gate_proj", Part.ATTENTION, heads * fields.whole("v_head_dim"), shape.hidden, shape.every
        ),
        parts.vector(f"{inner}sinks", heads, shape.every),
        *_experts(fields, shape, shared_size(fields, "n_shared_experts")),
        *_streams(fields, shape),
    )
    return shape.geometry(fields, modules, (attention,), mla=True)


def _experts(fields: Fields, shape: Frame, shared: int) -> tuple[Module, ...]:
    experts = mixture(
        fields,
        shape,
        experts=("n_routed_experts", "num_local_experts"),
        sparse=after_dense(fields, shape),
        shared=shared,
    )
    return mlps(shape, experts, Names())


def _streams(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """Residual streams, mixed before and after each half of a layer, and joined at the end."""
    streams = fields.whole("hc_mult")
    places = ((f"{shape.layer}attn_hc.", 2 * streams, 2, shape.every), (f"{shape.layer}ffn_hc.", 2 * streams, 2, shape.every),
              (f"{shape.root}hc_head.hc_", streams, 1, ()))  # fmt: skip
    modules: list[Module] = []
    for path, rows, scales, layers in places:
        width = streams * shape.hidden
        modules.append(Module(f"{path}fn", Part.FFN, rows * width, 0, rows, width, layers, linear=False))
        modules += (parts.vector(f"{path}base", rows, layers), parts.vector(f"{path}scale", scales, layers))
    return tuple(modules)


def dots3_note(fields: Fields) -> Geometry:
    """dots 3 Note: sparse layers, and between them layers of MLA over a window, with sizes of their own; a gate on each head's output."""
    fields = prepared(fields, _DOTS3, *_KNOWN)
    shape = frame(fields)
    full, sliding = _kinds(fields, shape)
    indexed, sparse = sparse_attention(fields, shape, full)
    # sparse_attention() puts its projections in every layer
    attending, window = _over_window(fields, shape, sliding)
    modules = (
        *(replace(module, layers=full) if module.layers else module for module in indexed),
        *attending,
        *_gates(fields, shape, full, sliding),
        parts.vector(f"{shape.layer}self_attn.k_rope_only_layernorm", fields.whole("qk_rope_head_dim"), shape.every),
        *_experts(fields, shape, _shared(fields)),
    )
    groups = (replace(sparse, layers=len(full)), *window)
    return shape.geometry(fields, modules, groups, mla=True)


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """By `layer_types`, else the first two layers and each fourth are sparse."""
    words = {"full_attention": "full", "indexed_attention": "full", "sliding_attention": "sliding"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["full"], listed["sliding"]
    return layering.split(frozenset(layer for layer in shape.every if layer < 2 or layer % 4 == 1), shape.layers)


def _over_window(
    fields: Fields, shape: Frame, layers: Layers
) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    if not layers:
        return (), ()
    plain = fields.whole("swa_qk_nope_head_dim")
    own = {
        "num_attention_heads": fields.whole("swa_num_attention_heads"),
        "q_lora_rank": fields.whole("swa_q_lora_rank"),
        "kv_lora_rank": fields.whole("swa_kv_lora_rank"),
        "qk_nope_head_dim": plain,
        "qk_rope_head_dim": fields.whole("swa_qk_rope_head_dim", default=fields.whole("swa_head_dim") - plain),
        "v_head_dim": fields.whole("swa_v_head_dim"),
    }
    inner = Fields({**fields.values, **own}, {"model_type": fields.model_type})
    modules, group = mla_attention(inner, shape, layers)
    return modules, (replace(group, span=Span.SLIDING, window_tokens=fields.whole("sliding_window")),)


def _gates(fields: Fields, shape: Frame, full: Layers, sliding: Layers) -> tuple[Module, ...]:
    heads = (("num_attention_heads", full), ("swa_num_attention_heads", sliding))
    return tuple(
        parts.linear(f"{shape.layer}self_attn.g_proj", Part.ATTENTION, fields.whole(key), shape.hidden, layers)
        for key, layers in heads
        if layers
    )


def _shared(fields: Fields) -> int:
    """Intermediate size of the shared experts, in one of two keys, else as the routed ones."""
    return fields.whole(
        "moe_shared_expert_intermediate_size", "shared_experts_intermediate_size", "moe_intermediate_size"
    ) * fields.whole("n_shared_experts", default=0, least=0)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "hy_v4": hy_v4,
    "dots3_note": dots3_note,
    "dots3_note_text": dots3_note,
}
