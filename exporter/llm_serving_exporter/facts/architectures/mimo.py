"""MiMo-V2: most layers look back over a short window, with KV heads of their own; values are smaller than keys.

Verified against transformers 5.23.0 on the meta device; the keys of published configs as in vLLM 0.33 (models/mimo_v2.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, Names, frame, mixture, mlps, prepared
from llm_serving_exporter.facts.architectures.moe_shared import after_dense
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module

# the config class's defaults; its window counts the token itself
_MIMO_V2: Mapping[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48, "num_attention_heads": 64, "vocab_size": 152576,
    "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 1,
}  # fmt: skip
# its layers by default
_FULL_EVERY = 6


def mimo_v2(fields: Fields) -> Geometry:
    """MiMo-V2, with or without experts."""
    fields = prepared(fields, _MIMO_V2, "attention_bias", "first_k_dense_replace")
    shape = frame(fields, "model.", "lm_head")
    full, sliding = _kinds(fields, shape)
    bias = fields.flag("attention_bias", default=False)
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for prefix, layers, window in (("", full, None), ("swa_", sliding, "sliding_window")):
        kind = _kind(fields, prefix, window)
        attention = f"{shape.layer}self_attn."
        if layers:
            modules += kind.queries(attention, shape.hidden, layers, bias=bias)
            modules += kind.keys(attention, shape.hidden, layers, bias=bias)
        reads += kind.reads(len(layers))
        if layers and fields.flag(f"add_{prefix or 'full_'}attention_sink_bias", default=bool(prefix)):
            modules.append(parts.vector(f"{attention}attention_sink_bias", kind.heads, layers))
    experts = mixture(
        fields, shape, experts=("n_routed_experts", "num_local_experts"), sparse=after_dense(fields, shape)
    )
    return shape.geometry(fields, (*modules, *mlps(shape, experts, Names())), reads)


def _kind(fields: Fields, prefix: str, window: str | None) -> Kind:
    """The heads of one kind of layer; those of sliding layers under keys of their own, else as the others'."""
    values = fields.whole("v_head_dim", default=fields.whole("head_dim"))
    return Kind(
        fields.whole(f"{prefix}num_attention_heads", "num_attention_heads"),
        # the config class doubles the KV heads of sliding layers; configs state them
        fields.whole(
            f"{prefix}num_key_value_heads", default=(2 if prefix else 1) * fields.whole("num_key_value_heads")
        ),
        fields.whole(f"{prefix}head_dim", "head_dim"),
        fields.whole(f"{prefix}v_head_dim", default=values),
        fields.whole("sliding_window_size", window) if window is not None else None,
    )


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Full layers and sliding ones: by `layer_types`, by `hybrid_layer_pattern` (1: sliding), else the first and each sixth are full."""
    words = {"full_attention": "full", "sliding_attention": "sliding"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["full"], listed["sliding"]
    pattern = fields.listed("hybrid_layer_pattern")
    if pattern is None:
        every = frozenset(layer for layer in shape.every if layer == 0 or (layer + 1) % _FULL_EVERY == 0)
        return layering.split(every, shape.layers)
    if len(pattern) != shape.layers:
        raise fields.refused("hybrid_layer_pattern", f"has {len(pattern)} entries for {shape.layers} layers")
    return layering.split(frozenset(layer for layer in shape.every if pattern[layer] != 1), shape.layers)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"mimo_v2_flash": mimo_v2, "mimo_v2": mimo_v2}
