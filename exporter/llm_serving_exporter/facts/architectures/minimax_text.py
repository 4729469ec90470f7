"""MiniMax-Text-01, MiniMax-M1 and MiniMax-VL-01: lightning attention in most layers, grouped-query attention in the others, experts in
each.

Verified against transformers 5.23.0 on the meta device; keys of the publisher's own configs beside the class's.
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
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import Geometry, Part, RecurrentLayers

# the config class's defaults
_MINIMAX: Mapping[str, Any] = {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
_NAMES = Names("block_sparse_moe.", "gate", ("experts.*.w1", "experts.*.w3", "experts.*.w2"))


def minimax(fields: Fields) -> Geometry:
    """All three."""
    fields = prepared(fields, _MINIMAX)
    shape = frame(fields)
    full, linear = _kinds(fields, shape)
    heads = grouped_query(fields, shape.hidden)
    width, prefix, hidden = heads.heads * heads.head_size, f"{shape.layer}self_attn.", shape.hidden
    experts = mixture(fields, shape, experts=("num_local_experts", "num_experts"), size="intermediate_size")
    modules = (
        *parts.grouped_query(hidden, heads.heads, heads.kv_heads, heads.head_size, full, prefix=prefix),
        parts.linear(f"{prefix}qkv_proj", Part.RECURRENT, 3 * width, hidden, linear),
        parts.linear(f"{prefix}output_gate", Part.RECURRENT, width, hidden, linear),
        parts.linear(f"{prefix}out_proj", Part.RECURRENT, hidden, width, linear),
        parts.vector(f"{prefix}norm", width, linear),
        *mlps(shape, experts, _NAMES),
    )
    attention = (parts.attention_layers(len(full), heads.heads, heads.kv_heads, heads.head_size),)
    states = (RecurrentLayers(len(linear), heads.heads * heads.head_size**2, 0),)
    return shape.geometry(fields, modules, attention, recurrent=states)


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """By `layer_types`, by the publisher's `attn_type_list` (1: full), else each other layer from the first on is full."""
    words = {"full_attention": "full", "linear_attention": "linear"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is None:
        marks = fields.listed("attn_type_list")
        if marks is not None and (len(marks) != shape.layers or not set(marks) <= {0, 1}):
            raise fields.refused("attn_type_list", f"is no list of 0 or 1 for each of {shape.layers} layers")
        chosen = {layer for layer in shape.every if (layer % 2 == 0 if marks is None else marks[layer] == 1)}
        listed = dict(zip(("full", "linear"), layering.split(frozenset(chosen), shape.layers), strict=True))
    if not listed["full"] or not listed["linear"]:
        raise fields.refused("layer_types", "has layers of one kind only, which no model of this family has")
    return listed["full"], listed["linear"]


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "minimax": minimax,
    "minimax_text_01": minimax,
    "minimax_m1": minimax,
}
