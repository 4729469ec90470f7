"""Gemma 3n and Gemma 4: sliding and full layers of other head sizes, last layers that read the KV of earlier ones, and a token's own
embedding for each layer.

That table is looked up, a row a token, and kept in memory: no step streams it. Verified against transformers 5.23.0 on the meta device.
For layers whose values are their keys (`attention_k_eq_v`) vLLM 0.33 loads the one matrix twice; it counts once here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, frame, router
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part

# config classes' defaults
_GEMMA3N: Mapping[str, Any] = {
    "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "altup_num_inputs": 4, "num_kv_shared_layers": 15, "laurel_rank": 64,
}  # fmt: skip
_GEMMA4: Mapping[str, Any] = {
    "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
}  # fmt: skip
# an embedding of a token for each layer is not among its keys
_GEMMA4_UNIFIED: Mapping[str, Any] = {**_GEMMA4, "sliding_window": 1024, "hidden_size_per_layer_input": 0}
_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma3n(fields: Fields) -> Geometry:
    """Gemma 3n's language part: four residual streams (AltUp), a low-rank branch beside attention (LAuReL)."""
    fields = fields.with_defaults(_GEMMA3N)
    shape = _frame(fields)
    kind = Kind(*_heads(fields), fields.whole("sliding_window"))
    attending, reads = _attention(fields, shape, {"sliding": kind, "full": _full(kind)}, every=5, values=True)
    modules = (*attending, *_gemma3n_mlps(fields, shape), *_streams(fields, shape), *_layer_embeddings(fields, shape))
    return _geometry(fields, shape, modules, reads)


def gemma4(fields: Fields) -> Geometry:
    """Gemma 4's language part, dense or with experts beside each layer's MLP."""
    return _gemma4(fields.with_defaults(_GEMMA4))


def gemma4_unified(fields: Fields) -> Geometry:
    """Gemma 4 12B's language part, which takes pictures and sound without towers."""
    return _gemma4(fields.with_defaults(_GEMMA4_UNIFIED))


def _gemma4(fields: Fields) -> Geometry:
    shape = _frame(fields)
    heads, kv_heads, size, _ = _heads(fields)
    alike = fields.flag("attention_k_eq_v", default=False)
    wide = fields.whole("global_head_dim")
    fewer = fields.whole("num_global_key_value_heads", default=kv_heads) if alike else kv_heads
    kinds = {
        "sliding": Kind(heads, kv_heads, size, size, fields.whole("sliding_window")),
        "full": Kind(heads, fewer, wide, wide),
    }
    attending, reads = _attention(fields, shape, kinds, every=6, values=not alike)
    modules = [*attending, *_gemma4_mlps(fields, shape)]
    if fields.flag("enable_moe_block", default=False):
        modules += _gemma4_experts(fields, shape)
    if fields.whole("hidden_size_per_layer_input", least=0):
        modules += _layer_embeddings(fields, shape)
    return _geometry(fields, shape, tuple(modules), reads)


def _frame(fields: Fields) -> Frame:
    return frame(fields, "model.language_model.", "lm_head")


def _heads(fields: Fields) -> tuple[int, int, int, int]:
    size = fields.whole("head_dim")
    return fields.whole("num_attention_heads"), fields.whole("num_key_value_heads"), size, size


def _full(kind: Kind) -> Kind:
    return Kind(kind.heads, kind.kv_heads, kind.key_size, kind.value_size)


def _own_layers(fields: Fields, shape: Frame) -> int:
    """Layers that keep KV of their own: all but the last `num_kv_shared_layers`."""
    own = shape.layers - fields.whole("num_kv_shared_layers", least=0)
    if own < 1:
        raise fields.refused("num_kv_shared_layers", f"leaves none of {shape.layers} layers with KV of its own")
    return own


def _attention(
    fields: Fields, shape: Frame, kinds: Mapping[str, Kind], *, every: int, values: bool
) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    """Both kinds of layers by `layer_types`, else one of `every` is full, and the last; `values`: whether full layers have a matrix for
    values."""
    words = {"sliding_attention": "sliding", "full_attention": "full"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is None:
        full = frozenset(layer for layer in shape.every if (layer + 1) % every == 0)
        listed = dict(zip(("full", "sliding"), layering.split(full, shape.layers), strict=True))
    own = _own_layers(fields, shape)
    bias = fields.flag("attention_bias", default=False)
    prefix = f"{shape.layer}self_attn."
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for name, kind in kinds.items():
        layers = listed[name]
        keeping = tuple(layer for layer in layers if layer < own)
        if not layers:
            continue
        modules += kind.queries(prefix, shape.hidden, layers, bias=bias)
        modules.append(parts.vector(f"{prefix}q_norm", kind.key_size, layers))
        if keeping:
            modules += kind.keys(prefix, shape.hidden, keeping, bias=bias, values=values or name == "sliding")
            modules.append(parts.vector(f"{prefix}k_norm", kind.key_size, keeping))
        reads += (*kind.reads(len(keeping)), *kind.reads(len(layers) - len(keeping), kept=False))
    return tuple(modules), tuple(reads)


def _gemma3n_mlps(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """`intermediate_size` is one number, or one for each layer."""
    listed = fields.found("intermediate_size")
    if not isinstance(listed, list):
        return _mlp(shape, fields.whole("intermediate_size"), shape.every)
    if len(listed) != shape.layers or not all(isinstance(size, int) and size > 0 for size in listed):
        raise fields.refused("intermediate_size", f"is no list of {shape.layers} sizes")
    by_size = {size: tuple(layer for layer in shape.every if listed[layer] == size) for size in dict.fromkeys(listed)}
    return tuple(module for size, layers in by_size.items() for module in _mlp(shape, size, layers))


def _gemma4_mlps(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """`use_double_wide_mlp`: layers that keep no KV have twice the width."""
    size, own = fields.whole("intermediate_size"), _own_layers(fields, shape)
    if own == shape.layers or not fields.flag("use_double_wide_mlp", default=False):
        return _mlp(shape, size, shape.every)
    return (*_mlp(shape, size, shape.every[:own]), *_mlp(shape, 2 * size, shape.every[own:]))


def _mlp(shape: Frame, size: int, layers: Layers) -> tuple[Module, ...]:
    return parts.gated_mlp(shape.hidden, size, layers, prefix=f"{shape.layer}mlp.")


def _gemma4_experts(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """A router with a scale for its input and one for each expert, and the experts; the checkpoint keeps a layer's as one tensor."""
    count, passed = fields.whole("num_experts"), fields.whole("top_k_experts")
    if passed > count:
        raise fields.refused("top_k_experts", f"is {passed}, more than the {count} experts")
    size, hidden, every = fields.whole("moe_intermediate_size"), shape.hidden, shape.every

    def expert(name: str, rows: int, columns: int) -> Module:
        path = f"{shape.layer}experts.{name}"
        return Module(path, Part.EXPERT, rows * columns, 0, rows, columns, every, copies=count, per_token=passed)

    return (
        router(f"{shape.layer}router.proj", count, hidden, every),
        parts.vector(f"{shape.layer}router.scale", hidden, every),
        parts.vector(f"{shape.layer}router.per_expert_scale", count, every),
        expert("gate_up_proj", 2 * size, hidden),
        expert("down_proj", hidden, size),
        *(
            parts.vector(f"{shape.layer}{name}", hidden, every)
            for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
        ),
    )


def _streams(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """AltUp: predicts and corrects the other streams in each layer, and makes them at the start of one and joins them at the end."""
    inputs, rank, hidden, every = (
        fields.whole("altup_num_inputs"),
        fields.whole("laurel_rank"),
        shape.hidden,
        shape.every,
    )
    altup, laurel = f"{shape.layer}altup.", f"{shape.layer}laurel."
    around = tuple(range(inputs - 1))
    return (
        parts.vector(f"{altup}correct_output_scale", hidden, every),
        parts.linear(f"{altup}correction_coefs", Part.FFN, inputs, inputs, every),
        parts.linear(f"{altup}prediction_coefs", Part.FFN, inputs * inputs, inputs, every),
        parts.linear(f"{altup}modality_router", Part.FFN, inputs, hidden, every),
        parts.vector(f"{altup}router_norm", hidden, every),
        parts.linear(f"{laurel}linear_left", Part.FFN, rank, hidden, every),
        parts.linear(f"{laurel}linear_right", Part.FFN, hidden, rank, every),
        parts.vector(f"{laurel}post_laurel_norm", hidden, every),
        parts.linear(f"{shape.root}altup_projections.{{}}", Part.FFN, hidden, hidden, around),
        parts.linear(f"{shape.root}altup_unembed_projections.{{}}", Part.FFN, hidden, hidden, around),
    )


def _layer_embeddings(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """A token's embedding for each layer: one table, looked up; what mixes it into the layers is computed by every token."""
    size, rows, hidden = (
        fields.whole("hidden_size_per_layer_input"),
        fields.whole("vocab_size_per_layer_input"),
        shape.hidden,
    )
    width, every = size * shape.layers, shape.every
    return (
        Module(
            f"{shape.root}embed_tokens_per_layer", Part.EMBEDDING, rows * width, rows=rows, columns=width, linear=False
        ),
        parts.linear(f"{shape.root}per_layer_model_projection", Part.FFN, width, hidden),
        parts.vector(f"{shape.root}per_layer_projection_norm", size),
        parts.linear(f"{shape.layer}per_layer_input_gate", Part.FFN, size, hidden, every),
        parts.linear(f"{shape.layer}per_layer_projection", Part.FFN, hidden, size, every),
        parts.vector(f"{shape.layer}post_per_layer_input_norm", hidden, every),
    )


def _geometry(
    fields: Fields, shape: Frame, modules: tuple[Module, ...], reads: tuple[AttentionLayers, ...]
) -> Geometry:
    tied = fields.flag("tie_word_embeddings", default=True)
    tables = parts.embeddings(shape.vocabulary, shape.hidden, tied=tied, embed=f"{shape.root}embed_tokens")
    norms = (*(parts.vector(shape.layer + name, shape.hidden, shape.every) for name in _NORMS),
             parts.vector(f"{shape.root}norm", shape.hidden))  # fmt: skip
    return Geometry(
        fields.model_type, (*tables, *modules, *norms), reads, shape.hidden, shape.layers, shape.vocabulary,
        left_out=fields.left_out,
    )  # fmt: skip


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "gemma3n": gemma3n, "gemma3n_text": gemma3n,
    "gemma4": gemma4, "gemma4_text": gemma4, "gemma4_unified": gemma4_unified,
    "gemma4_unified_text": gemma4_unified,
}  # fmt: skip
