"""More mixture-of-experts decoders, each a few lines over the shared frame.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.architectures.mla import mla_attention
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
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.record import replace

_EXPERTS = ("num_experts", "num_local_experts")
_QK_NORMS = ("q_norm", "k_norm")
# config classes' defaults
_AXK1: Mapping[str, Any] = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 1,
}  # fmt: skip
_HY_V3: Mapping[str, Any] = {
    "num_key_value_heads": 8, "head_dim": 128, "num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
}  # fmt: skip
_MELLUM: Mapping[str, Any] = {
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 896,
    "sliding_window": 1024,
}  # fmt: skip
_FLEX_OLMO: Mapping[str, Any] = {"num_experts": 7, "num_experts_per_tok": 5}
_ARIA: Mapping[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
    "moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2,
}  # fmt: skip
_COHERE2_MOE: Mapping[str, Any] = {
    "head_dim": 128, "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 0, "sliding_window": 4096,
    "first_k_dense_replace": 0,
}  # fmt: skip
_GRANITE_SWA: Mapping[str, Any] = {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128}
_KOLIBRI: Mapping[str, Any] = {
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 384, "num_experts_per_tok": 6, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "sliding_window": 513,
}  # fmt: skip


def axk1(fields: Fields) -> Geometry:
    """A.X K1: as DeepSeek-V3, with a norm behind each layer's experts."""
    fields = prepared(fields, _AXK1, "attention_bias", "first_k_dense_replace", "kv_lora_rank", "n_shared_experts")
    shape = frame(fields)
    attending, attention = mla_attention(fields, shape)
    experts = mixture(
        fields, shape, experts=("n_routed_experts", "num_local_experts"), sparse=after_dense(fields, shape),
        shared=shared_size(fields, "n_shared_experts"),
    )  # fmt: skip
    norm = parts.vector(f"{shape.layer}mlp.post_mlp_layernorm", shape.hidden, experts.sparse)
    return shape.geometry(fields, (*attending, *mlps(shape, experts, Names()), norm), (attention,), mla=True)


def hy_v3(fields: Fields) -> Geometry:
    """Hunyuan 3: norms on each head's queries and keys, one dense layer first."""
    fields = prepared(fields, _HY_V3, "attention_bias", "first_k_dense_replace", "num_shared_experts", "use_qk_norm")
    return _grouped(fields, frame(fields), shared=shared_size(fields, "num_shared_experts"))


def mellum(fields: Fields) -> Geometry:
    """Mellum 2: as Qwen3-MoE, with sliding layers where `layer_types` says so."""
    fields = prepared(fields, _MELLUM, "attention_bias")
    return _grouped(fields, frame(fields))


def flex_olmo(fields: Fields) -> Geometry:
    """FlexOlmo: norms over all heads' queries and keys, and behind attention and experts instead of before."""
    fields = prepared(fields, _FLEX_OLMO, "attention_bias")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=_QK_NORMS, norm_whole=True),
        *mlps(shape, mixture(fields, shape, experts=_EXPERTS, size="intermediate_size"), Names()),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def aria(fields: Fields) -> Geometry:
    """Aria's language part: experts in every layer, and shared ones of their size."""
    fields = prepared(fields, _ARIA, "attention_bias", "moe_num_shared_experts")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    shared = fields.whole("intermediate_size") * fields.whole("moe_num_shared_experts", least=0)
    experts = mixture(
        fields, shape, experts=("moe_num_experts",), per_token=("moe_topk",), size="intermediate_size", shared=shared
    )
    names = Names(router="router", experts=("experts.fc1", "experts.fc2"))
    modules = (*heads.modules(shape, qkv_bias=bias, out_bias=bias), *mlps(shape, experts, names))
    return shape.geometry(fields, modules, heads.layers(fields, shape))


def granitemoe_swa(fields: Fields) -> Geometry:
    """Granite MoE with sinks: the first of four layers is full, the others slide."""
    fields = prepared(fields, _GRANITE_SWA, "attention_bias", "shared_intermediate_size")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    shared = fields.whole("shared_intermediate_size", default=0, least=0)
    experts = mixture(
        fields, shape, experts=("num_local_experts", "num_experts"), size="intermediate_size", shared=shared
    )
    names = Names("block_sparse_moe.", "router", ("experts.gate_up_proj", "experts.down_proj"))
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias),
        parts.vector(f"{shape.layer}self_attn.sinks", heads.heads, shape.every),
        *mlps(shape, experts, names),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape, windows.all_but_first_of(4)))


def kolibri1(fields: Fields) -> Geometry:
    """Kolibri: norms before and behind attention and MLP, experts in every layer beside a shared one."""
    fields = prepared(fields, _KOLIBRI, "attention_bias", "shared_expert_intermediate_size")
    shape = frame(fields)
    shared = fields.whole("shared_expert_intermediate_size")
    after = ("post_self_attn_layernorm", "post_mlp_layernorm")
    return _grouped(fields, shape, shared=shared, norms=after, rule=windows.all_but_every(5))


def cohere2_moe(fields: Fields) -> Geometry:
    """Command A+: attention and MLP behind one norm; dense layers first have an MLP of their own size."""
    fields = prepared(fields, _COHERE2_MOE, "attention_bias", "first_k_dense_replace", "num_shared_experts")
    shape = frame(fields)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    shared = fields.whole("intermediate_size") * fields.whole("num_shared_experts", least=0)
    experts = mixture(
        fields, shape, experts=_EXPERTS, size="intermediate_size", shared=shared, sparse=after_dense(fields, shape),
        dense_size="prefix_dense_intermediate_size",
    )  # fmt: skip
    modules = (*heads.modules(shape, qkv_bias=bias, out_bias=bias), *mlps(shape, experts, Names()))
    built = shape.geometry(fields, modules, heads.layers(fields, shape, _behind_dense), tied=True)
    held = tuple(module for module in built.modules if not module.path.endswith("post_attention_layernorm"))
    return replace(built, modules=held)


def _behind_dense(fields: Fields, layers: int) -> Sequence[bool]:
    """Dense layers first have a period of their own; the others' count starts behind them."""
    first, own = (
        fields.whole("first_k_dense_replace", least=0),
        fields.whole("prefix_dense_sliding_window_pattern", default=1),
    )
    period = fields.whole("sliding_window_pattern", default=4)
    return [((layer + 1) % own if layer < first else (layer - first + 1) % period) != 0 for layer in range(layers)]


def _grouped(
    fields: Fields, shape: Frame, *, shared: int = 0, norms: tuple[str, ...] = (), rule: windows.Rule = windows.never
) -> Geometry:
    """Grouped-query attention with norms on each head's queries and keys; `norms`: of a layer, beside the usual two."""
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    experts = mixture(fields, shape, experts=_EXPERTS, shared=shared, sparse=after_dense(fields, shape))
    modules = (
        *heads.modules(shape, qkv_bias=bias, out_bias=bias, norms=_QK_NORMS),
        *mlps(shape, experts, Names()),
        *(parts.vector(shape.layer + name, shape.hidden, shape.every) for name in norms),
    )
    return shape.geometry(fields, modules, heads.layers(fields, shape, rule))


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "aria_text": aria,
    "axk1": axk1,
    "hy_v3": hy_v3,
    "mellum": mellum,
    "flex_olmo": flex_olmo,
    "granitemoe_swa": granitemoe_swa,
    "kolibri1": kolibri1,
    "cohere2_moe": cohere2_moe,
}
