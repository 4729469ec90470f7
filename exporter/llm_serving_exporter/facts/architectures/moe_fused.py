"""Mixture-of-experts decoders whose checkpoints keep a layer's experts as one tensor: gpt-oss, Llama 4, DBRX.

Verified against transformers 5.23.0 on the meta device; facts model-math B.2, B.5, B.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    GroupedQuery,
    Names,
    frame,
    grouped_query,
    inner_fields,
    mixture,
    mlps,
    prepared,
    router,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, Span
from llm_serving_exporter.model.record import replace

_EXPERTS = ("num_local_experts", "num_experts")
_FUSED = ("experts.gate_up_proj", "experts.down_proj")

# config classes' defaults
_GPT_OSS: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
    "attention_bias": True,
}  # fmt: skip
_LLAMA4: Mapping[str, Any] = {
    "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
    "vocab_size": 202048, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 1, "no_rope_layer_interval": 4, "attention_chunk_size": 8192,
}  # fmt: skip


def gpt_oss(fields: Fields) -> Geometry:
    """gpt-oss: biases everywhere, a sink for each head, every other layer slides."""
    fields = prepared(fields, _GPT_OSS, "attention_bias")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=True)
    experts = mixture(fields, shape, experts=_EXPERTS, size="intermediate_size")
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias),
        parts.vector(f"{shape.layer}self_attn.sinks", heads.heads, shape.every),
        *mlps(shape, experts, Names(router="router", experts=_FUSED), bias=True),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape, windows.all_but_every(2)))


def llama4(fields: Fields) -> Geometry:
    """The language part of Llama 4: experts in some layers, a shared one beside them, attention within chunks where there is RoPE."""
    # its norms on queries and keys have no weights
    fields = prepared(fields, _LLAMA4, "attention_bias", "use_qk_norm")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    modules = (*heads.modules(shape, qkv_bias=bias, out_bias=bias), *_llama4_mlps(fields, shape))
    return shape.geometry(fields, modules, _llama4_attention(fields, shape, heads))


def _llama4_mlps(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """Experts where there are any: Llama Guard 4 has none in any layer, and says so by a step of 0 and no experts."""
    sparse = _llama4_sparse(fields, shape)
    if not any(sparse):
        size = fields.whole("intermediate_size_mlp")
        return parts.gated_mlp(shape.hidden, size, shape.every, prefix=f"{shape.layer}feed_forward.")
    experts = mixture(
        fields, shape, experts=_EXPERTS, size="intermediate_size", dense_size="intermediate_size_mlp",
        shared=fields.whole("intermediate_size"), sparse=sparse,
    )  # fmt: skip
    return mlps(shape, experts, Names("feed_forward.", "router", _FUSED, "shared_expert.", "feed_forward."))


def _llama4_sparse(fields: Fields, shape: Frame) -> list[bool]:
    if fields.has("moe_layers"):
        listed = layering.indices(fields, "moe_layers", shape.layers)
        return [layer in listed for layer in shape.every]
    step = fields.whole("interleave_moe_layer_step", least=0)
    return [step > 0 and (layer + 1) % step == 0 for layer in shape.every]


def _llama4_attention(fields: Fields, shape: Frame, heads: GroupedQuery) -> tuple[AttentionLayers, ...]:
    """Chunked layers and full ones: by `layer_types`, else chunked where `no_rope_layers` is 1, else all but every fourth."""
    chunked = _llama4_chunked(fields, shape) if fields.has("attention_chunk_size") else ()
    full = shape.layers - len(chunked)
    alike = parts.attention_layers(full, heads.heads, heads.kv_heads, heads.head_size)
    groups = [alike] if full else []
    if chunked:
        tokens = fields.whole("attention_chunk_size")
        groups.append(replace(alike, layers=len(chunked), span=Span.CHUNKED, window_tokens=tokens))
    return tuple(groups)


def _llama4_chunked(fields: Fields, shape: Frame) -> Layers:
    words = {"chunked_attention": "chunked", "full_attention": "full"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["chunked"]
    # an empty list stands for the default, as for the config class
    rope = fields.listed("no_rope_layers")
    if not rope:
        interval = fields.whole("no_rope_layer_interval")
        rope = [(layer + 1) % interval != 0 for layer in shape.every]
    if len(rope) != shape.layers:
        raise fields.refused("no_rope_layers", f"has {len(rope)} entries for {shape.layers} layers")
    return tuple(layer for layer in shape.every if rope[layer])


def dbrx(fields: Fields) -> Geometry:
    """DBRX, whose config has names of its own and keeps attention and experts in parts of it."""
    hidden, count, heads = fields.whole("d_model"), fields.layers("n_layers"), fields.whole("n_heads")
    vocabulary = fields.whole("vocab_size")
    if fields.flag("tie_word_embeddings", default=False):
        raise fields.refused("tie_word_embeddings", "is true, for which there is no formula here")
    attention, ffn = inner_fields(fields, "attn_config"), inner_fields(fields, "ffn_config")
    kv_heads, head_size = attention.whole("kv_n_heads"), hidden // heads
    size, experts, per_token = ffn.whole("ffn_hidden_size"), ffn.whole("moe_num_experts"), ffn.whole("moe_top_k")
    if per_token > experts:
        raise ffn.refused("moe_top_k", f"is {per_token}, more than the {experts} experts")
    every = tuple(range(count))
    block = "transformer.blocks.{}."
    around = f"{block}norm_attn_norm."
    modules = (
        *parts.embeddings(vocabulary, hidden, tied=False, embed="transformer.wte"),
        parts.linear(f"{around}attn.Wqkv", Part.ATTENTION, hidden + 2 * kv_heads * head_size, hidden, every),
        parts.linear(f"{around}attn.out_proj", Part.ATTENTION, hidden, hidden, every),
        parts.vector(f"{around}norm_1", hidden, every),
        parts.vector(f"{around}norm_2", hidden, every),
        router(f"{block}ffn.router.layer", experts, hidden, every),
        *(
            Module(
                f"{block}ffn.experts.mlp.{name}", Part.EXPERT, size * hidden, 0, size, hidden, every,
                copies=experts, per_token=per_token,
            )
            for name in ("w1", "v1", "w2")
        ),
        parts.vector("transformer.norm_f", hidden),
    )  # fmt: skip
    groups = (parts.attention_layers(count, heads, kv_heads, head_size),)
    return Geometry(fields.model_type, modules, groups, hidden, count, vocabulary, left_out=fields.left_out)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "gpt_oss": gpt_oss,
    "llama4": llama4,
    "llama4_text": llama4,
    "dbrx": dbrx,
}
