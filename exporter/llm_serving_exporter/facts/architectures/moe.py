"""Mixture-of-experts decoders with grouped-query attention whose layers, or all but listed ones, have routed experts.

Verified against transformers 5.23.0 on the meta device; facts model-math B.2, B.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import (
    dense_windows as windows,
)
from llm_serving_exporter.facts.architectures import (
    layering,
    mla,
    mla_sparse,
    mla_sparse_later,
    moe_fused,
    moe_gated,
    moe_later,
    moe_named,
    moe_shared,
)
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Names,
    frame,
    grouped_query,
    mixture,
    mlps,
    prepared,
    router,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part

_MIXTRAL_NAMES = Names("block_sparse_moe.", "gate", ("experts.*.w1", "experts.*.w3", "experts.*.w2"))
_LOCAL_EXPERTS = ("num_local_experts", "num_experts")
_EXPERTS = ("num_experts", "num_local_experts")
_QK_NORMS = ("q_norm", "k_norm")
# published configs carry use_qk_norm for norms that the family always has
_QWEN3_KNOWN = ("attention_bias", "use_qk_norm")

# config classes' defaults
_MIXTRAL: Mapping[str, Any] = {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
_PHIMOE: Mapping[str, Any] = {"num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2}
_MINIMAX_M2: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8, "use_qk_norm": True,
}  # fmt: skip
_QWEN2_MOE: Mapping[str, Any] = {
    "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 5632, "qkv_bias": True, "use_sliding_window": False,
}  # fmt: skip
_QWEN3_MOE: Mapping[str, Any] = {
    "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
    "use_sliding_window": False,
}  # fmt: skip
_QWEN3_VL_MOE: Mapping[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 151936,
    "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "decoder_sparse_step": 1,
}  # fmt: skip
_QWEN3_OMNI_MOE: Mapping[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "vocab_size": 3584,
    "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
}  # fmt: skip
_OLMOE: Mapping[str, Any] = {"num_experts": 64, "num_experts_per_tok": 8}
_GRANITE: Mapping[str, Any] = {"num_local_experts": 8, "num_experts_per_tok": 2}


def mixtral(fields: Fields) -> Geometry:
    """Mixtral: experts in every layer, no biases."""
    fields = prepared(fields, _MIXTRAL)
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    experts = mixture(fields, shape, experts=_LOCAL_EXPERTS, size="intermediate_size")
    modules = (*heads.modules(shape), *mlps(shape, experts, _MIXTRAL_NAMES))
    return shape.geometry(fields, modules, heads.layers(fields, shape, windows.always))


def minimax_m2(fields: Fields) -> Geometry:
    """MiniMax-M2: as Mixtral, with norms over all heads' queries and keys."""
    fields = prepared(fields, _MINIMAX_M2, "use_qk_norm")
    if not fields.flag("use_qk_norm", default=True):
        raise fields.refused("use_qk_norm", "is false, for which there is no formula here")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    experts = mixture(fields, shape, experts=_LOCAL_EXPERTS, size="intermediate_size")
    modules = (*heads.modules(shape, norms=_QK_NORMS, norm_whole=True), *mlps(shape, experts, _MIXTRAL_NAMES))
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def phimoe(fields: Fields) -> Geometry:
    """Phi-3.5-MoE: layer norms with bias, biases in attention and at lm_head where the config says so."""
    fields = prepared(fields, _PHIMOE, "attention_bias", "lm_head_bias")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    modules = [*heads.modules(shape, qkv_bias=bias, out_bias=bias)]
    modules += mlps(shape, mixture(fields, shape, experts=_LOCAL_EXPERTS, size="intermediate_size"), _MIXTRAL_NAMES)
    if fields.flag("lm_head_bias", default=False):
        modules.append(Module(f"{shape.head}.bias", Part.LM_HEAD, 0, shape.vocabulary, linear=False))
    groups = heads.layers(fields, shape, windows.always)
    return shape.geometry(fields, modules, groups, norm_vectors=2)


def qwen2_moe(fields: Fields) -> Geometry:
    """Qwen1.5-MoE and Qwen2-MoE: a shared expert behind a gate of its own, biases on q, k and v."""
    fields = prepared(fields, _QWEN2_MOE, "qkv_bias", "shared_expert_intermediate_size")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    shared = fields.whole("shared_expert_intermediate_size")
    experts = mixture(fields, shape, experts=_EXPERTS, shared=shared, sparse=_stepped(fields, shape))
    modules = (
        *heads.modules(shape, qkv_bias=fields.flag("qkv_bias", default=True)),
        *mlps(shape, experts, Names(shared="shared_expert.")),
        router(f"{shape.layer}mlp.shared_expert_gate", 1, shape.hidden, experts.sparse),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def qwen3_moe(fields: Fields) -> Geometry:
    """Qwen3-MoE: norms on each head's queries and keys, no shared expert."""
    return _qwen3(prepared(fields, _QWEN3_MOE, *_QWEN3_KNOWN), Names())


def qwen3_vl_moe(fields: Fields) -> Geometry:
    """The language part of Qwen3-VL-MoE; its checkpoints keep a layer's experts as one tensor."""
    fields = prepared(fields, _QWEN3_VL_MOE, *_QWEN3_KNOWN)
    names = Names(experts=("experts.gate_up_proj", "experts.down_proj"))
    return _qwen3(fields, names, "model.language_model.", "lm_head")


def qwen3_omni_moe(fields: Fields) -> Geometry:
    """The thinker's language part of Qwen3-Omni-MoE."""
    fields = prepared(fields, _QWEN3_OMNI_MOE, *_QWEN3_KNOWN)
    return _qwen3(fields, Names(), "thinker.model.", "thinker.lm_head")


def _qwen3(fields: Fields, names: Names, *nested: str) -> Geometry:
    shape = frame(fields, *nested)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    experts = mixture(fields, shape, experts=_EXPERTS, sparse=_stepped(fields, shape))
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=_QK_NORMS),
        *mlps(shape, experts, names),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def _stepped(fields: Fields, shape: Frame) -> list[bool]:
    """Experts in every `decoder_sparse_step`th layer, but for those that `mlp_only_layers` lists."""
    step = fields.whole("decoder_sparse_step", default=1)
    dense = layering.indices(fields, "mlp_only_layers", shape.layers)
    return [(layer + 1) % step == 0 and layer not in dense for layer in shape.every]


def olmoe(fields: Fields) -> Geometry:
    """OLMoE: norms over all heads' queries and keys; `attention_bias` on all four projections."""
    fields = prepared(fields, _OLMOE, "attention_bias")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    experts = mixture(fields, shape, experts=_EXPERTS, size="intermediate_size")
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=_QK_NORMS, norm_whole=True),
        *mlps(shape, experts, Names()),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def granitemoe(fields: Fields) -> Geometry:
    """Granite 3 MoE: a layer's experts are one tensor; some have an MLP that every token passes."""
    fields = prepared(fields, _GRANITE, "attention_bias", "shared_intermediate_size")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    experts = mixture(fields, shape, experts=_LOCAL_EXPERTS, size="intermediate_size")
    names = Names("block_sparse_moe.", "router.layer", ("input_linear", "output_linear"))
    modules = [*heads.modules(shape, qkv_bias=bias, out_bias=bias), *mlps(shape, experts, names)]
    shared = fields.whole("shared_intermediate_size", default=0, least=0)
    if shared:
        prefix = f"{shape.layer}shared_mlp."
        modules.append(parts.linear(f"{prefix}input_linear", Part.FFN, 2 * shared, shape.hidden, shape.every))
        modules.append(parts.linear(f"{prefix}output_linear", Part.FFN, shape.hidden, shared, shape.every))
    return shape.geometry(fields, modules, heads.layers(fields, shape))


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "mixtral": mixtral,
    "minimax_m2": minimax_m2,
    "phimoe": phimoe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe": qwen3_vl_moe,
    "qwen3_vl_moe_text": qwen3_vl_moe,
    "qwen3_omni_moe_text": qwen3_omni_moe,
    "olmoe": olmoe,
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    **moe_shared.BUILDERS,
    **mla.BUILDERS,
    **mla_sparse.BUILDERS,
    **mla_sparse_later.BUILDERS,
    **moe_fused.BUILDERS,
    **moe_gated.BUILDERS,
    **moe_later.BUILDERS,
    **moe_named.BUILDERS,
}
