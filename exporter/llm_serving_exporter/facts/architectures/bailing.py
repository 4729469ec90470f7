"""Ling and Ring: grouped-query attention with experts (Ling 2), lightning attention in most layers (Ring-linear, Ling 2.5), Kimi Delta
Attention and MLA (Ling 3).

Ling 3 is verified against transformers 5.23.0 on the meta device; the others as in vLLM 0.33 (models/bailing_moe.py,
bailing_moe_linear.py, layers/mamba/linear/bailing_linear_attn.py) and SGLang 0.5.23 (models/bailing_moe_linear.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.architectures.mla import mla_attention
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Mixture,
    Names,
    grouped_query,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.architectures.moe_shared import after_dense
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import replace

# the config class's defaults (Ling 3)
_HYBRID: Mapping[str, Any] = {
    "hidden_size": 2560, "intermediate_size": 6144, "num_hidden_layers": 42, "num_attention_heads": 32, "vocab_size": 157184,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 128,
    "num_experts": 512, "num_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "first_k_dense_replace": 2,
    "layer_group_size": 6,
}  # fmt: skip
_KNOWN = ("first_k_dense_replace", "num_shared_experts", "use_bias", "use_qkv_bias", "use_qk_norm", "kv_lora_rank",
          "qkv_bias", "attention_bias")  # fmt: skip
_ATTENTION = "attention."


def bailing_moe(fields: Fields) -> Geometry:
    """Ling 1 and 2: grouped-query attention in every layer."""
    fields = prepared(fields, {"first_k_dense_replace": 0}, *_KNOWN)
    shape = _frame(fields)
    attending, attention = _grouped(fields, shape, shape.every)
    return _geometry(fields, shape, attending, (attention,))


def bailing_linear(fields: Fields) -> Geometry:
    """Ring-linear 2: lightning attention, and every `layer_group_size`th layer grouped-query attention."""
    fields = prepared(fields, {"first_k_dense_replace": 0}, *_KNOWN)
    shape = _frame(fields)
    full, linear = _kinds(fields, shape)
    attending, attention = _grouped(fields, shape, full)
    lightning, state = _lightning(fields, shape, linear)
    return _geometry(fields, shape, (*attending, *lightning), (attention,) if full else (), (state,) if linear else ())


def bailing_hybrid(fields: Fields) -> Geometry:
    """Ling 2.5 and 3: MLA in every `layer_group_size`th layer; between them delta attention where the config has its convolution (Ling 3),
    else lightning attention."""
    third = fields.has("short_conv_kernel_size") or "v3" in fields.architecture.lower() or not fields.architecture
    defaults = _HYBRID if third else {"q_lora_rank": None, "first_k_dense_replace": 0}
    fields = prepared(fields, defaults, *_KNOWN)
    shape = Frame(fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")) if third else _frame(fields)
    full, linear = _kinds(fields, shape)
    inner = "self_attn." if third else _ATTENTION
    attending, attention = mla_attention(fields, shape, full, inner=inner)
    if third:
        gate = parts.linear(
            f"{shape.layer}{inner}g_proj", Part.ATTENTION, fields.whole("num_attention_heads"), shape.hidden, full
        )
        attending = (*attending, gate)
    recurrent, state = (_delta if third else _lightning)(fields, shape, linear)
    groups, states = (attention,) if full else (), (state,) if linear else ()
    return _geometry(fields, shape, (*attending, *recurrent), groups, states, mla=True, embed=None if third else _WORDS)


_WORDS = "model.word_embeddings"


def _frame(fields: Fields) -> Frame:
    return Frame(fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size"))


def _kinds(fields: Fields, shape: Frame) -> tuple[Layers, Layers]:
    """Layers of full attention and of the other kind; a last group that is not whole ends in other layers."""
    words = {"full_attention": "full", "linear_attention": "linear"}
    listed = layering.listed(fields, "layer_types", shape.layers, words)
    if listed is not None:
        return listed["full"], listed["linear"]
    period = fields.whole("layer_group_size", default=1)
    return layering.split(frozenset(range(period - 1, shape.layers, period)), shape.layers)


def _grouped(fields: Fields, shape: Frame, layers: Layers) -> tuple[tuple[Module, ...], AttentionLayers]:
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("use_bias", default=False)
    qkv_bias = bias or fields.flag("use_qkv_bias", default=False)
    rows, prefix = (heads.heads + 2 * heads.kv_heads) * heads.head_size, shape.layer + _ATTENTION
    modules = [
        parts.linear(f"{prefix}query_key_value", Part.ATTENTION, rows, shape.hidden, layers, bias=qkv_bias),
        parts.linear(f"{prefix}dense", Part.ATTENTION, shape.hidden, heads.heads * heads.head_size, layers, bias=bias),
        *_norms(fields, prefix, heads.head_size, layers),
    ]
    return tuple(modules), parts.attention_layers(len(layers), heads.heads, heads.kv_heads, heads.head_size)


def _norms(fields: Fields, prefix: str, size: int, layers: Layers) -> tuple[Module, ...]:
    if not fields.flag("use_qk_norm", default=False):
        return ()
    return tuple(parts.vector(prefix + name, size, layers) for name in ("query_layernorm", "key_layernorm"))


def _lightning(fields: Fields, shape: Frame, layers: Layers) -> tuple[tuple[Module, ...], RecurrentLayers]:
    """A key x value matrix a head, as many KV heads as heads, and a gate on the output."""
    heads, size = fields.whole("num_attention_heads"), grouped_query(fields, shape.hidden).head_size
    width, prefix = heads * size, shape.layer + _ATTENTION
    bias = fields.flag("use_bias", default=False)
    qkv_bias = bias or fields.flag("use_qkv_bias", default=False)
    modules = (
        parts.linear(f"{prefix}query_key_value", Part.RECURRENT, 3 * width, shape.hidden, layers, bias=qkv_bias),
        parts.linear(f"{prefix}g_proj", Part.RECURRENT, width, shape.hidden, layers),
        parts.linear(f"{prefix}dense", Part.RECURRENT, shape.hidden, width, layers, bias=bias),
        parts.vector(f"{prefix}g_norm", width, layers),
        *_norms(fields, prefix, size, layers),
    )
    return modules, RecurrentLayers(len(layers), heads * size * size, 0)


def _delta(fields: Fields, shape: Frame, layers: Layers) -> tuple[tuple[Module, ...], RecurrentLayers]:
    """Kimi Delta Attention whose gates are one matrix each. Saved by transformers 5, `head_dim` is MLA's rotary part, and the size of these
    heads stands in a key of its own."""
    heads, size = fields.whole("num_attention_heads"), fields.whole("linear_head_dim", "head_dim")
    kernel = fields.whole("short_conv_kernel_size", default=4)
    width, hidden, prefix = heads * size, shape.hidden, f"{shape.layer}self_attn."
    rows = {"q_proj": width, "k_proj": width, "v_proj": width, "b_proj": heads, "f_proj": width, "g_proj": width}
    modules = (
        *(parts.linear(prefix + name, Part.RECURRENT, size_, hidden, layers) for name, size_ in rows.items()),
        parts.linear(f"{prefix}o_proj", Part.RECURRENT, hidden, width, layers),
        *(convolution(f"{prefix}{name}_conv1d", width, kernel, layers, bias=False) for name in "qkv"),
        parts.vector(f"{prefix}A_log", heads, layers),
        parts.vector(f"{prefix}dt_bias", width, layers),
        parts.vector(f"{prefix}o_norm", size, layers),
    )
    return modules, RecurrentLayers(len(layers), heads * size * size, 3 * width * (kernel - 1), float32_by_default=True)


def _experts(fields: Fields, shape: Frame) -> Mixture:
    """Shared experts have a size of their own where the config states one."""
    size = fields.whole("moe_shared_expert_intermediate_size", "moe_intermediate_size")
    shared = size * fields.whole("num_shared_experts", default=0, least=0)
    return mixture(
        fields, shape, experts=("num_experts", "num_local_experts"), shared=shared, sparse=after_dense(fields, shape),
        per_token=("num_experts_per_tok", "num_experts_per_token"),
    )  # fmt: skip


def _geometry(
    fields: Fields, shape: Frame, attending: tuple[Module, ...], groups: tuple[AttentionLayers, ...],
    states: tuple[RecurrentLayers, ...] = (), *, mla: bool = False, embed: str | None = _WORDS,
) -> Geometry:  # fmt: skip
    modules = (*attending, *mlps(shape, _experts(fields, shape), Names()))
    built = shape.geometry(fields, modules, groups, mla=mla, recurrent=states)
    if embed is None:
        return built
    (table, *others) = built.modules
    return replace(built, modules=(replace(table, path=embed), *others))


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "bailing_moe": bailing_moe,
    "bailing_moe_v2": bailing_moe,
    "bailing_moe_linear": bailing_linear,
    "bailing_hybrid": bailing_hybrid,
}
