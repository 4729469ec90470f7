"""Step-3.5 and Step-3.7: sliding layers with query heads of their own, a gate on each head's output, experts beside a shared one.

Verified against transformers 5.23.0 on the meta device; names as in vLLM 0.33 (models/step3p5.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Names,
    frame,
    inner_fields,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part

# the config class's defaults
_STEP3P5: Mapping[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64, "vocab_size": 128815,
    "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 1280,
    "share_expert_dim": 1280, "first_k_dense_replace": 3,
}  # fmt: skip
_KNOWN = ("attention_bias", "first_k_dense_replace", "n_shared_experts")
_NAMES = Names("", "moe.gate", ("moe.gate_proj", "moe.up_proj", "moe.down_proj"), "share_expert.")


def step3p5(fields: Fields) -> Geometry:
    """Both; a config lists its prediction layers behind its own, and they are left out."""
    fields = prepared(fields, _STEP3P5, *_KNOWN)
    shape = frame(fields, "model.language_model.", "lm_head")
    attending, reads = _attention(fields, shape)
    experts = mixture(
        fields, shape, experts=("moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts"),
        per_token=("moe_top_k", "num_experts_per_tok"), sparse=_sparse(fields, shape),
        shared=fields.whole("share_expert_dim", "share_expert_dims"),
    )  # fmt: skip
    return shape.geometry(fields, (*attending, *mlps(shape, experts, _NAMES)), reads)


def _attention(fields: Fields, shape: Frame) -> tuple[tuple[Module, ...], tuple[AttentionLayers, ...]]:
    heads, size = fields.whole("num_attention_heads"), fields.whole("head_dim")
    kv_heads = fields.whole("num_attention_groups", "num_key_value_heads")
    other, other_kv = fields.whole("num_sliding_attention_heads", default=heads), kv_heads
    if fields.has("attention_other_setting"):
        setting = inner_fields(fields, "attention_other_setting")
        other = setting.whole("num_attention_heads", default=heads)
        other_kv = setting.whole("num_attention_groups", default=kv_heads)
    full, sliding = _kinds(fields, shape)
    kinds = [(Kind(heads, kv_heads, size, size), full)]
    if sliding:
        kinds.append((Kind(other, other_kv, size, size, fields.whole("sliding_window")), sliding))
    bias = fields.flag("attention_bias", default=False)
    gated = fields.flag("use_head_wise_attn_gate", default=True)
    prefix, hidden = f"{shape.layer}self_attn.", shape.hidden
    modules: list[Module] = []
    reads: list[AttentionLayers] = []
    for kind, layers in kinds:
        if not layers:
            continue
        modules += kind.queries(prefix, hidden, layers)
        modules += kind.keys(prefix, hidden, layers, bias=bias)
        if gated:
            modules.append(parts.linear(f"{prefix}g_proj", Part.ATTENTION, kind.heads, hidden, layers))
        modules += (parts.vector(f"{prefix}q_norm", size, layers), parts.vector(f"{prefix}k_norm", size, layers))
        reads += kind.reads(len(layers))
    return tuple(modules), tuple(reads)


def _own(fields: Fields, shape: Frame, key: str) -> Sequence[Any] | None:
    """A list with an entry for each layer, those of prediction layers behind it cut off."""
    listed = fields.listed(key)
    if listed is None:
        return None
    if len(listed) not in (shape.layers, shape.layers + fields.whole("num_nextn_predict_layers", default=0, least=0)):
        raise fields.refused(key, f"has {len(listed)} entries for {shape.layers} layers")
    return listed[: shape.layers]


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    listed = _own(fields, shape, "layer_types")
    if listed is None:
        return shape.every, ()
    found = layering.by_kind(fields, "layer_types", listed, {"full_attention": "full", "sliding_attention": "sliding"})
    return found["full"], found["sliding"]


def _sparse(fields: Fields, shape: Frame) -> list[bool]:
    """By `mlp_layer_types`, by the indices in `moe_layers_enum` (a text with commas), else all but the first ones."""
    listed = _own(fields, shape, "mlp_layer_types")
    if listed is not None:
        found = layering.by_kind(fields, "mlp_layer_types", listed, {"dense": "dense", "sparse": "sparse"})
        return [layer in found["sparse"] for layer in shape.every]
    if fields.has("moe_layers_enum"):
        said = fields.text("moe_layers_enum").split(",")
        if not all(entry.strip().isdigit() for entry in said):
            raise fields.refused("moe_layers_enum", "is not a list of layers' indices with commas")
        chosen = {int(entry) for entry in said}
        return [layer in chosen for layer in shape.every]
    first = fields.whole("first_k_dense_replace", least=0)
    return [layer >= first for layer in shape.every]


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"step3p5": step3p5, "step3p7": step3p5}
