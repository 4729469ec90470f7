"""Multi-head latent attention: DeepSeek-V2 and V3, Kimi-K2, GLM-4.7-Flash, Mistral-4. Its sparse kind is in `mla_sparse`.

A token's KV cache is one latent and one rotary key for all heads (facts model-math B.2, B.9, B.10). Verified against
transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, Names, frame, mixture, mlps, prepared
from llm_serving_exporter.facts.architectures.moe_shared import after_dense, deepseek, shared_size
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part

# config classes' defaults; for V3 and what descends from it the checkpoints' code has the same
_DEEPSEEK_V2: Mapping[str, Any] = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0,
}  # fmt: skip
_DEEPSEEK_V3: Mapping[str, Any] = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128, "vocab_size": 129280,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
}  # fmt: skip
_GLM4_MOE_LITE: Mapping[str, Any] = {
    "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
}  # fmt: skip
_MISTRAL4: Mapping[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "vocab_size": 131072,
    "q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 2048, "first_k_dense_replace": 0,
}  # fmt: skip
_KNOWN = ("attention_bias", "first_k_dense_replace", "kv_lora_rank", "n_shared_experts")


def mla_attention(
    fields: Fields, shape: Frame, layers: Layers | None = None, *, inner: str = "self_attn."
) -> tuple[tuple[Module, ...], AttentionLayers]:
    """The projections of `layers` (None: of every one), and what they keep, read and compute.

    `q_lora_rank` null: queries come from one matrix. The latent has no heads, so tensor-parallel ranks each hold all of it. Decode
    is counted in the absorbed form, in which every head works on the latent itself; prefill on the heads' own keys and values.
    `inner`: what stands before the modules' names, below the layer.
    """
    hidden, prefix = shape.hidden, shape.layer + inner
    every = shape.every if layers is None else layers
    heads, latent = fields.whole("num_attention_heads"), fields.whole("kv_lora_rank")
    rotary, plain = fields.whole("qk_rope_head_dim"), fields.whole("qk_nope_head_dim")
    value = fields.whole("v_head_dim")
    bias = fields.flag("attention_bias", default=False)

    def matrix(name: str, rows: int, columns: int, *, bias: bool = False) -> Module:
        return parts.linear(prefix + name, Part.ATTENTION, rows, columns, every, bias=bias)

    queries = heads * (plain + rotary)
    query: tuple[Module, ...] = (matrix("q_proj", queries, hidden),)
    if fields.has("q_lora_rank"):
        rank = fields.whole("q_lora_rank")
        query = (
            matrix("q_a_proj", rank, hidden, bias=bias),
            parts.vector(f"{prefix}q_a_layernorm", rank, every),
            matrix("q_b_proj", queries, rank),
        )
    modules = (
        *query,
        matrix("kv_a_proj_with_mqa", latent + rotary, hidden, bias=bias),
        parts.vector(f"{prefix}kv_a_layernorm", latent, every),
        matrix("kv_b_proj", heads * (plain + value), latent),
        matrix("o_proj", hidden, heads * value, bias=bias),
    )
    decode = 2 * heads * (latent + rotary) + 2 * heads * latent
    prefill = 2 * heads * (plain + rotary) + 2 * heads * value
    return modules, AttentionLayers(len(every), latent + rotary, 1, decode, prefill, heads=heads)


def _builder(defaults: Mapping[str, Any]) -> Callable[[Fields], Geometry]:
    def build(fields: Fields) -> Geometry:
        fields = prepared(fields, defaults, *_KNOWN)
        if not fields.flag("use_mla", default=True):
            # DeepSeek-OCR and DeepSeek-VL2-tiny: their V2 attends as the family's first
            return deepseek(fields)
        shape = frame(fields)
        projections, attention = mla_attention(fields, shape)
        experts = mixture(
            fields, shape, experts=("n_routed_experts", "num_local_experts"), sparse=after_dense(fields, shape),
            shared=shared_size(fields, "n_shared_experts"),
        )  # fmt: skip
        modules = (*projections, *mlps(shape, experts, Names()))
        return shape.geometry(fields, modules, (attention,), mla=True)

    return build


deepseek_v3 = _builder(_DEEPSEEK_V3)
BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "deepseek_v2": _builder(_DEEPSEEK_V2),
    "deepseek_v3": deepseek_v3,
    "kimi_k2": deepseek_v3,
    "glm4_moe_lite": _builder(_GLM4_MOE_LITE),
    "mistral4": _builder(_MISTRAL4),
}
