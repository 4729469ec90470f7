"""Inkling: sliding layers with KV heads of their own, short convolutions on keys, values and what both halves give, relative positions.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Mixture,
    Names,
    frame,
    mlps,
    router,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers

# the config class's defaults
_INKLING: Mapping[str, Any] = {
    "vocab_size": 201024, "hidden_size": 6144, "num_hidden_layers": 66, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "sliding_window_size": 512,
    "d_rel": 16, "rel_extent": 1024, "conv_kernel_size": 4, "intermediate_size": 24576, "moe_intermediate_size": 3072,
    "n_routed_experts": 256, "num_experts_per_tok": 6, "n_shared_experts": 2,
}  # fmt: skip


def inkling(fields: Fields) -> Geometry:
    """Its language part."""
    fields = fields.with_defaults(_INKLING)
    shape = frame(fields, "model.language_model.", "lm_head")
    attending, reads, states = _attention(fields, shape)
    kernel = fields.whole("conv_kernel_size")
    modules = (
        *attending,
        *_experts(fields, shape),
        *(
            convolution(shape.layer + name, shape.hidden, kernel, shape.every, bias=False)
            for name in ("attn_sconv", "mlp_sconv")
        ),
        parts.vector(f"{shape.root}embed_tokens.embed_norm", shape.hidden),
    )
    return shape.geometry(fields, modules, reads, recurrent=states)


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Full layers and sliding ones: by `layer_types`, by `local_layer_ids`, else each sixth is full."""
    words = {"hybrid": "full", "hybrid_sliding": "sliding"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["full"], listed["sliding"]
    local = frozenset(layer for layer in shape.every if (layer + 1) % 6)
    if fields.has("local_layer_ids"):
        local = layering.indices(fields, "local_layer_ids", shape.layers)
    sliding, full = layering.split(local, shape.layers)
    return full, sliding


def _attention(
    fields: Fields, shape: Frame
) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...], tuple[RecurrentLayers, ...]]:
    """`d_rel` elements a head score how far back a token is, up to `rel_extent` tokens or the window."""
    relative, kernel, prefix = fields.whole("d_rel"), fields.whole("conv_kernel_size"), f"{shape.layer}self_attn."
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    states: list[RecurrentLayers] = []
    full, sliding = _kinds(fields, shape)
    for lead, layers, window in (("", full, None), ("swa_", sliding, fields.whole("sliding_window_size"))):
        size = fields.whole(f"{lead}head_dim")
        kind = Kind(
            fields.whole(f"{lead}num_attention_heads"), fields.whole(f"{lead}num_key_value_heads"), size, size, window
        )
        if not layers:
            continue
        extent, width = window or fields.whole("rel_extent"), kind.kv_heads * size
        modules += (
            *kind.queries(prefix, shape.hidden, layers),
            *kind.keys(prefix, shape.hidden, layers),
            parts.linear(f"{prefix}r_proj", Part.ATTENTION, kind.heads * relative, shape.hidden, layers),
            Module(
                f"{prefix}rel_logits_proj.proj",
                Part.ATTENTION,
                relative * extent,
                0,
                relative,
                extent,
                layers,
                linear=False,
            ),
            *(convolution(prefix + name, width, kernel, layers, bias=False) for name in ("k_sconv", "v_sconv")),
            *(parts.vector(prefix + name, size, layers) for name in ("q_norm", "k_norm")),
        )
        reads += kind.reads(len(layers))
        states.append(RecurrentLayers(len(layers), 0, 2 * (width + shape.hidden) * (kernel - 1)))
    return tuple(modules), tuple(reads), tuple(states)


def _experts(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    """The router scores shared experts too. Where a config names the dense layers' width apart, `intermediate_size` is the experts'."""
    apart = fields.has("dense_intermediate_size")
    dense_size = fields.whole("dense_intermediate_size" if apart else "intermediate_size")
    size = fields.whole("intermediate_size" if apart else "moe_intermediate_size")
    listed = layering.listed(fields, "mlp_layer_types", shape.layers, {"dense": "dense", "sparse": "sparse"})
    if listed is None:
        first = fields.whole("dense_mlp_idx", default=0, least=0)
        listed = dict(
            zip(("dense", "sparse"), layering.split(frozenset(shape.every[:first]), shape.layers), strict=True)
        )
    count, passed, shared = (
        fields.whole("n_routed_experts"),
        fields.whole("num_experts_per_tok"),
        fields.whole("n_shared_experts", least=0),
    )
    if passed > count:
        raise fields.refused("num_experts_per_tok", f"is {passed}, more than the {count} experts")
    routed = Mixture(
        listed["sparse"], listed["dense"], count, passed, size, shared * size, dense_size if listed["dense"] else None
    )
    gate = router(f"{shape.layer}mlp.gate", count + shared, shape.hidden, listed["sparse"])
    modules = mlps(shape, routed, Names())
    places = {"mlp.gate.global_scale": listed["sparse"], "mlp.global_scale": listed["dense"]}
    scales = (parts.vector(shape.layer + name, 1, layers) for name, layers in places.items() if layers)
    return (*(gate if module.path == gate.path else module for module in modules), *scales)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"inkling_text": inkling, "inkling_mm_model": inkling}
