"""Mixture-of-experts decoders with grouped-query attention, shared experts in the sparse layers and often dense layers first.

Verified against transformers 5.23.0 on the meta device, except `deepseek`, whose code its publisher ships with the model;
facts model-math B.2, B.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.moe_decoder import (
    Frame,
    Mixture,
    Names,
    frame,
    grouped_query,
    mixture,
    mlps,
    prepared,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry

_ROUTED = ("n_routed_experts", "num_local_experts")
_QK_NORMS = ("q_norm", "k_norm")

# config classes' defaults
_GLM4_MOE: Mapping[str, Any] = {
    "num_key_value_heads": 8, "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
_GLM4V_MOE: Mapping[str, Any] = {
    **_GLM4_MOE, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
    "vocab_size": 151424, "attention_bias": True,
}  # fmt: skip
_SOLAR: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1280,
    "n_shared_experts": 1,
}  # fmt: skip
_DOTS1: Mapping[str, Any] = {"num_key_value_heads": 32, "moe_intermediate_size": 1408, "max_window_layers": 62}
_ERNIE: Mapping[str, Any] = {
    "num_key_value_heads": 4, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1, "moe_layer_interval": 1,
}  # fmt: skip
_EXAONE_MOE: Mapping[str, Any] = {
    "num_key_value_heads": 32, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "sliding_window": 4096, "sliding_window_pattern": 4,
}  # fmt: skip


def after_dense(fields: Fields, shape: Frame) -> list[bool]:
    """Which layers have experts: as `mlp_layer_types` or `moe_layer_freq` lists them, else all from `first_k_dense_replace` on, each
    `moe_layer_freq`th."""
    listed = layering.listed(fields, "mlp_layer_types", shape.layers, {"dense": "dense", "sparse": "sparse"})
    if listed is not None:
        return [layer in listed["sparse"] for layer in shape.every]
    marks = fields.found("moe_layer_freq")
    if isinstance(marks, list):
        if len(marks) != shape.layers:
            raise fields.refused("moe_layer_freq", f"has {len(marks)} entries for {shape.layers} layers")
        return [bool(mark) for mark in marks]
    first = fields.whole("first_k_dense_replace", default=0, least=0)
    period = fields.whole("moe_layer_freq", default=1)
    return [layer >= first and layer % period == 0 for layer in shape.every]


def shared_size(fields: Fields, *keys: str) -> int:
    """Intermediate size of all shared experts, each as large as a routed one; 0 where there are none."""
    return fields.whole(*keys, default=0, least=0) * fields.whole("moe_intermediate_size")


def deepseek(fields: Fields) -> Geometry:
    """DeepSeekMoE-16B, the family's first: plain attention."""
    fields = prepared(fields, {}, "attention_bias", "n_shared_experts", "first_k_dense_replace")
    return _grouped(fields, frame(fields), out_bias=True)


def glm4_moe(fields: Fields) -> Geometry:
    """GLM-4.5 and GLM-4.6: biases on q, k and v, norms on each head's queries and keys where the config says so."""
    fields = prepared(fields, _GLM4_MOE, "attention_bias", "n_shared_experts", "first_k_dense_replace", "use_qk_norm")
    return _grouped(fields, frame(fields), norms=_QK_NORMS if fields.flag("use_qk_norm", default=False) else None)


def glm4v_moe(fields: Fields) -> Geometry:
    """The language part of GLM-4.5V and GLM-4.6V."""
    fields = prepared(fields, _GLM4V_MOE, "attention_bias", "n_shared_experts", "first_k_dense_replace")
    return _grouped(fields, frame(fields, "model.language_model.", "lm_head"))


def solar_open(fields: Fields) -> Geometry:
    """Solar Open: as GLM-4.5, experts in every layer."""
    fields = prepared(fields, _SOLAR, "attention_bias", "n_shared_experts")
    return _grouped(fields, frame(fields))


def dots1(fields: Fields) -> Geometry:
    """dots.llm1: norms on each head's queries and keys; layers from `max_window_layers` on slide where there is a window."""
    fields = prepared(fields, _DOTS1, "attention_bias", "n_shared_experts", "first_k_dense_replace")
    return _grouped(fields, frame(fields), out_bias=True, norms=_QK_NORMS, rule=_beyond_first)


def _beyond_first(fields: Fields, layers: int) -> Sequence[bool]:
    first = fields.whole("max_window_layers", least=0)
    return [fields.has("sliding_window") and layer >= first for layer in range(layers)]


def _grouped(
    fields: Fields, shape: Frame, *, out_bias: bool = False, norms: tuple[str, str] | None = None,
    rule: windows.Rule = windows.never,
) -> Geometry:  # fmt: skip
    """The families above; `out_bias`: whether `attention_bias` means o_proj too."""
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    shared = shared_size(fields, "n_shared_experts")
    experts = mixture(fields, shape, experts=_ROUTED, shared=shared, sparse=after_dense(fields, shape))
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias and out_bias, norms=norms),
        *mlps(shape, experts, Names()),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape, rule))


def exaone_moe(fields: Fields) -> Geometry:
    """K-EXAONE: norms on each head's queries and keys, one full layer after several that slide."""
    fields = prepared(fields, _EXAONE_MOE, "num_shared_experts", "first_k_dense_replace")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    shared = shared_size(fields, "num_shared_experts")
    keys = ("num_experts", "num_local_experts")
    experts = mixture(fields, shape, experts=keys, shared=shared, sparse=after_dense(fields, shape))
    modules = (*heads.modules(shape, norms=_QK_NORMS), *mlps(shape, experts, Names()))
    return shape.geometry(fields, modules, heads.layers(fields, shape, windows.letters))


def ernie4_5_moe(fields: Fields) -> Geometry:
    """ERNIE 4.5: experts between two layer indices; the routers' correction bias is a parameter here, not a buffer."""
    fields = prepared(fields, _ERNIE, "moe_num_shared_experts")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    first = fields.whole("moe_layer_start_index", least=0)
    unbounded = fields.found("moe_layer_end_index") in (None, -1)
    last = shape.layers - 1 if unbounded else fields.whole("moe_layer_end_index", least=0)
    interval = fields.whole("moe_layer_interval")
    sparse = [first <= layer <= last and (layer + 1) % interval == 0 for layer in shape.every]
    experts = mixture(
        fields, shape, sparse=sparse, shared=shared_size(fields, "moe_num_shared_experts"),
        experts=("moe_num_experts", "num_experts"), per_token=("moe_k", "num_experts_per_tok"),
    )  # fmt: skip
    modules = (
        *heads.modules(shape),
        *mlps(shape, experts, Names()),
        parts.vector(f"{shape.layer}mlp.moe_statics.e_score_correction_bias", experts.experts, experts.sparse),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape), tied=True)


def hunyuan_v1_moe(fields: Fields) -> Geometry:
    """Hunyuan-A13B: experts and a shared MLP in every layer; its per-layer lists must say the same for each."""
    fields = prepared(fields, {"use_qk_norm": True}, "attention_bias", "num_shared_expert", "use_qk_norm")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    intermediate = fields.whole("intermediate_size")
    experts, per_token = _alike(fields, "num_experts", None), _alike(fields, "moe_topk", None)
    if per_token > experts:
        raise fields.refused("moe_topk", f"is {per_token}, more than the {experts} experts")
    size, shared = _alike(fields, "moe_intermediate_size", intermediate), _alike(fields, "num_shared_expert", 1)
    routed = Mixture(shape.every, (), experts, per_token, size, shared * intermediate)
    norms = ("query_layernorm", "key_layernorm") if fields.flag("use_qk_norm", default=True) else None
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=norms),
        *mlps(shape, routed, Names(router="gate.wg", shared="shared_mlp.")),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def _alike(fields: Fields, key: str, default: int | None) -> int:
    """A whole number, or a list of them for the layers that must all be the same."""
    value = fields.found(key)
    if not isinstance(value, list):
        return fields.whole(key, default=default)
    entries = fields.listed(key) or ()
    first = entries[0] if entries else None
    if isinstance(first, bool) or not isinstance(first, int) or first < 1 or any(entry != first for entry in entries):
        raise fields.refused(
            key, "is a list whose layers are not all the same whole number; there is no formula here for that"
        )
    return first


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "deepseek": deepseek,
    "glm4_moe": glm4_moe,
    "glm4v_moe": glm4v_moe,
    "glm4v_moe_text": glm4v_moe,
    "solar_open": solar_open,
    "dots1": dots1,
    "exaone_moe": exaone_moe,
    "ernie4_5_moe": ernie4_5_moe,
    "hunyuan_v1_moe": hunyuan_v1_moe,
}
