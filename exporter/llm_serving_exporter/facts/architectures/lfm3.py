"""LFM3: gated short convolutions, with full and sliding attention in some layers, norms before and behind both halves.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, frame
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers

# the config class's defaults
_LFM3: Mapping[str, Any] = {"num_key_value_heads": 4, "head_dim": 128, "conv_L_cache": 7, "sliding_window": 256}


def lfm3(fields: Fields) -> Geometry:
    """LFM3, dense."""
    fields = fields.with_defaults(_LFM3)
    shape = frame(fields)
    kinds = _kinds(fields, shape)
    attending, reads = _attention(fields, shape, kinds)
    sandwich = ("post_operator_norm", "post_ffn_norm") if fields.flag("use_sandwich_norm", default=True) else ()
    size, block = fields.whole("intermediate_size"), f"{shape.layer}feed_forward."
    modules = (
        *parts.embeddings(shape.vocabulary, shape.hidden, tied=fields.flag("tie_word_embeddings", default=True)),
        *attending,
        *_convolutions(fields, shape, kinds["conv"]),
        parts.linear(f"{block}w1", Part.FFN, size, shape.hidden, shape.every),
        parts.linear(f"{block}w3", Part.FFN, size, shape.hidden, shape.every),
        parts.linear(f"{block}w2", Part.FFN, shape.hidden, size, shape.every),
        *(
            parts.vector(shape.layer + name, shape.hidden, shape.every)
            for name in ("operator_norm", "ffn_norm", *sandwich)
        ),
        parts.vector("model.embedding_norm", shape.hidden),
    )
    kernel = fields.whole("conv_L_cache")
    state = (RecurrentLayers(len(kinds["conv"]), 0, shape.hidden * (kernel - 1)),) if kinds["conv"] else ()
    return Geometry(
        fields.model_type, modules, reads, shape.hidden, shape.layers, shape.vocabulary, state, left_out=fields.left_out
    )


def _kinds(fields: Fields, shape: Frame) -> Mapping[str, Layers]:
    words = {"full_attention": "full", "sliding_attention": "sliding", "conv": "conv"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed
    kinds = ["full" if layer % 4 == 2 else "sliding" if layer % 4 == 0 and layer else "conv" for layer in shape.every]
    return {kind: tuple(layer for layer in shape.every if kinds[layer] == kind) for kind in words.values()}


def _attention(
    fields: Fields, shape: Frame, kinds: Mapping[str, Layers]
) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    heads, kv_heads, size = (fields.whole(key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    gated, bias = fields.flag("use_attention_gate", default=True), fields.flag("attention_bias", default=False)
    prefix = f"{shape.layer}self_attn."
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for name in ("full", "sliding"):
        layers = kinds[name]
        kind = Kind(heads, kv_heads, size, size, fields.whole("sliding_window") if name == "sliding" else None)
        if not layers:
            continue
        modules += kind.queries(prefix, shape.hidden, layers, bias=bias)
        modules += kind.keys(prefix, shape.hidden, layers, bias=bias)
        modules += (parts.vector(prefix + norm, size, layers) for norm in ("q_norm", "k_norm"))
        if gated:
            modules.append(parts.linear(f"{prefix}g_proj", Part.ATTENTION, heads, shape.hidden, layers))
        reads += kind.reads(len(layers))
    return tuple(modules), tuple(reads)


def _convolutions(fields: Fields, shape: Frame, layers: Layers) -> tuple[Module, ...]:
    if not layers:
        return ()
    bias, prefix, hidden = fields.flag("conv_bias", default=False), f"{shape.layer}conv.", shape.hidden
    return (
        parts.linear(f"{prefix}in_proj", Part.RECURRENT, 3 * hidden, hidden, layers, bias=bias),
        convolution(f"{prefix}conv", hidden, fields.whole("conv_L_cache"), layers, bias=bias),
        parts.linear(f"{prefix}out_proj", Part.RECURRENT, hidden, hidden, layers, bias=bias),
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"lfm3": lfm3}
