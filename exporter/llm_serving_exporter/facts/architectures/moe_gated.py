"""Mixture-of-experts decoders with a gate on what attention gives: Trinity, Beam, Laguna.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Names,
    frame,
    grouped_query,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.architectures.moe_shared import after_dense, shared_size
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part

_EXPERTS = ("num_experts", "num_local_experts")
_QK_NORMS = ("q_norm", "k_norm")
# config classes' defaults
_AFMOE: Mapping[str, Any] = {
    "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408,
    "num_dense_layers": 1, "global_attn_every_n_layers": 4, "sliding_window": 1024,
}  # fmt: skip
_LAGUNA: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "sliding_window": 512, "first_k_dense_replace": 1,
}  # fmt: skip
_BEAM: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2560,
    "sliding_window": 512, "first_k_dense_replace": 3,
}  # fmt: skip


def afmoe(fields: Fields) -> Geometry:
    """Arcee Trinity: a gate on the output of attention, norms before and behind both halves, the expert's bias a parameter."""
    fields = prepared(fields, _AFMOE, "attention_bias", "num_shared_experts")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    first = fields.whole("num_dense_layers", least=0)
    experts = mixture(
        fields, shape, experts=_EXPERTS, shared=shared_size(fields, "num_shared_experts"),
        sparse=[layer >= first for layer in shape.every],
    )  # fmt: skip
    width = heads.heads * heads.head_size
    modules = (
        *heads.modules(shape, norms=_QK_NORMS),
        parts.linear(f"{shape.layer}self_attn.gate_proj", Part.ATTENTION, width, shape.hidden, shape.every),
        *mlps(shape, experts, Names(router="router.gate")),
        parts.vector(f"{shape.layer}mlp.expert_bias", experts.experts, experts.sparse),
        *(
            parts.vector(shape.layer + name, shape.hidden, shape.every)
            for name in ("pre_mlp_layernorm", "post_mlp_layernorm")
        ),
    )
    rule = windows.all_but_every(4, "global_attn_every_n_layers")
    return shape.geometry(fields, modules, heads.layers(fields, shape, rule))


def beam(fields: Fields) -> Geometry:
    """Beam: as Trinity, without shared experts, the gate with a bias for each head; the last layer is full too."""
    fields = prepared(fields, _BEAM, "attention_bias", "first_k_dense_replace")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    experts = mixture(fields, shape, experts=_EXPERTS, sparse=after_dense(fields, shape))
    width, inner = heads.heads * heads.head_size, f"{shape.layer}self_attn."
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=_QK_NORMS),
        parts.linear(f"{inner}gate_proj", Part.ATTENTION, width, shape.hidden, shape.every),
        parts.vector(f"{inner}gate_bias", heads.heads, shape.every),
        *mlps(shape, experts, Names()),
        *(
            parts.vector(shape.layer + name, shape.hidden, shape.every)
            for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm")
        ),
    )

    def sliding(_: Fields, layers: int) -> Sequence[bool]:
        return [(layer + 1) % 6 != 0 and layer + 1 < layers for layer in range(layers)]

    return shape.geometry(fields, modules, heads.layers(fields, shape, sliding))


def laguna(fields: Fields) -> Geometry:
    """Laguna: query heads of its own for each layer, a gate on each head's output, the expert's bias a parameter."""
    fields = prepared(fields, _LAGUNA, "attention_bias", "first_k_dense_replace", "shared_expert_intermediate_size")
    shape = frame(fields)
    attending, reads = _laguna_attention(fields, shape)
    shared = fields.whole("shared_expert_intermediate_size")
    experts = mixture(fields, shape, experts=_EXPERTS, shared=shared, sparse=after_dense(fields, shape))
    bias = parts.vector(f"{shape.layer}mlp.gate.e_score_correction_bias", experts.experts, experts.sparse)
    return shape.geometry(fields, (*attending, *mlps(shape, experts, Names()), bias), reads)


def _laguna_attention(fields: Fields, shape: Frame) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    usual, size, kv_heads = (
        fields.whole("num_attention_heads"),
        fields.whole("head_dim"),
        fields.whole("num_key_value_heads"),
    )
    counts = fields.listed("num_attention_heads_per_layer") or [usual] * shape.layers
    words = {"full_attention": "full", "sliding_attention": "sliding"}
    kinds = layering.listed(fields, "layer_types", shape.layers, words) or {"full": shape.every, "sliding": ()}
    if len(counts) != shape.layers or not all(isinstance(heads, int) and heads > 0 for heads in counts):
        raise fields.refused("num_attention_heads_per_layer", f"is no list of {shape.layers} numbers")
    per_head = fields.found("gating") in (None, True, "per-head")
    bias = fields.flag("attention_bias", default=False)
    prefix, hidden = f"{shape.layer}self_attn.", shape.hidden
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for name, heads in dict.fromkeys((kind, counts[layer]) for kind in kinds for layer in kinds[kind]):
        layers = tuple(layer for layer in kinds[name] if counts[layer] == heads)
        alike = Kind(heads, kv_heads, size, size, fields.whole("sliding_window") if name == "sliding" else None)
        modules += alike.queries(prefix, hidden, layers, bias=bias)
        modules += alike.keys(prefix, hidden, layers, bias=bias)
        modules.append(
            parts.linear(f"{prefix}g_proj", Part.ATTENTION, heads if per_head else heads * size, hidden, layers)
        )
        modules += (parts.vector(prefix + norm, size, layers) for norm in _QK_NORMS)
        reads += alike.reads(len(layers))
    return tuple(modules), tuple(reads)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"afmoe": afmoe, "beam": beam, "laguna": laguna}
