"""Muse Glimmer and Muse Spark: a gate on what attention gives, sliding layers; Spark's experts work in a narrower space.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, Names, frame, grouped_query, mixture, mlps
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import replace

# config classes' defaults
_GLIMMER: Mapping[str, Any] = {
    "vocab_size": 202048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "sliding_window": 2048,
}  # fmt: skip
_SPARK: Mapping[str, Any] = {
    "vocab_size": 202048, "hidden_size": 8192, "num_hidden_layers": 62, "num_attention_heads": 128, "num_key_value_heads": 16,
    "head_dim": 64, "sliding_window": 2048, "moe_intermediate_size": 4096, "num_local_experts": 256, "num_experts_per_tok": 8,
    "moe_hidden_size": 4096,
}  # fmt: skip


def muse_glimmer(fields: Fields) -> Geometry:
    """Glimmer: dense, norms before and behind both halves."""
    fields = fields.with_defaults(_GLIMMER)
    shape = frame(fields, "model.language_model.", "lm_head")
    modules = (
        *_attention(fields, shape),
        *parts.gated_mlp(shape.hidden, fields.whole("intermediate_size"), shape.every, prefix=f"{shape.layer}mlp."),
        *_norms(shape, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    )
    reads = grouped_query(fields, shape.hidden).layers(fields, shape, _from_the_last)
    return shape.geometry(fields, modules, reads)


def muse_spark(fields: Fields) -> Geometry:
    """Spark: experts in every layer, behind matrices into and out of their space, and a gate on each residual."""
    fields = fields.with_defaults(_SPARK)
    shape = frame(fields, "model.language_model.", "lm_head")
    width = fields.whole("moe_hidden_size")
    experts = replace(mixture(fields, shape, experts=("num_local_experts", "num_experts")), width=width)
    block = f"{shape.layer}mlp."
    modules = (
        *_attention(fields, shape),
        *mlps(shape, experts, Names()),
        parts.linear(f"{block}pre_expert_proj", Part.FFN, width, shape.hidden, shape.every),
        parts.linear(f"{block}post_expert_proj", Part.FFN, shape.hidden, width, shape.every),
        parts.vector(f"{block}pre_expert_norm", width, shape.every),
        parts.vector(f"{block}experts.post_expert_norm", width, shape.every),
        *_norms(
            shape, "pre_feedforward_layernorm", "post_feedforward_layernorm",
            "post_attention_residual_gate", "post_feedforward_residual_gate",
        ),
    )  # fmt: skip
    reads = grouped_query(fields, shape.hidden).layers(fields, shape, _from_the_last)
    built = shape.geometry(fields, modules, reads)
    # the residual's gate stands where others have a norm
    held = tuple(module for module in built.modules if not module.path.endswith("post_attention_layernorm"))
    return replace(built, modules=held)


def _from_the_last(_: Fields, layers: int) -> list[bool]:
    """Every fourth layer is full, counted from the last one."""
    return [(layers - 1 - layer) % 4 != 0 for layer in range(layers)]


def _attention(fields: Fields, shape: Frame) -> tuple[Module, ...]:
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    rows = heads.heads * heads.head_size
    gate = parts.linear(f"{shape.layer}self_attn.gate_proj", Part.ATTENTION, rows, shape.hidden, shape.every)
    return (*heads.modules(shape, qkv_bias=bias, out_bias=bias), gate)


def _norms(shape: Frame, *names: str) -> tuple[Module, ...]:
    return tuple(parts.vector(shape.layer + name, shape.hidden, shape.every) for name in names)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "muse_glimmer_text": muse_glimmer, "muse_glimmer": muse_glimmer,
    "muse_spark_text": muse_spark, "muse_spark": muse_spark,
}  # fmt: skip
