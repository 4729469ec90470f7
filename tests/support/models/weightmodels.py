"""Geometries written out by hand from facts model-math B.2-B.5, for tests of formats and bytes that must not depend on the builders."""

from __future__ import annotations

from llm_serving_exporter.model.shape import Geometry, Module, Part, RecurrentLayers
from tests.support.models import parts

LAYER = "model.layers.{}."


def _norms(hidden: int, layers: tuple[int, ...]) -> tuple[Module, ...]:
    return (
        parts.vector(LAYER + "input_layernorm", hidden, layers),
        parts.vector(LAYER + "post_attention_layernorm", hidden, layers),
        parts.vector("model.norm", hidden),
    )


def _router(
    hidden: int, experts: int, layers: tuple[int, ...], name: str = "mlp.gate", *, bias: bool = False
) -> Module:
    return parts.linear(LAYER + name, Part.ROUTER, experts, hidden, layers, bias=bias)


def llama(
    hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocabulary: int, *, tied: bool = False
) -> Geometry:
    every, head = tuple(range(layers)), hidden // heads
    modules = (
        *parts.embeddings(vocabulary, hidden, tied=tied),
        *parts.grouped_query(hidden, heads, kv_heads, head, every),
        *parts.gated_mlp(hidden, intermediate, every),
        *_norms(hidden, every),
    )
    return Geometry(
        "llama", modules, (parts.attention_layers(layers, heads, kv_heads, head),), hidden, layers, vocabulary
    )


LLAMA_8B = llama(4096, 32, 32, 8, 14336, 128256)
LLAMA_70B = llama(8192, 80, 64, 8, 28672, 128256)
LLAMA_1B = llama(2048, 16, 32, 8, 8192, 128256, tied=True)


def _mixtral() -> Geometry:
    every = tuple(range(32))
    modules = (
        *parts.embeddings(32000, 4096, tied=False),
        *parts.grouped_query(4096, 32, 8, 128, every),
        _router(4096, 8, every),
        *parts.gated_experts(4096, 14336, every, 8, 2),
        *_norms(4096, every),
    )
    return Geometry("mixtral", modules, (parts.attention_layers(32, 32, 8, 128),), 4096, 32, 32000)


MIXTRAL_8X7B = _mixtral()


def _qwen3_moe(hidden: int, layers: int, heads: int, intermediate: int) -> Geometry:
    every = tuple(range(layers))
    modules = (
        *parts.embeddings(151936, hidden, tied=False),
        *parts.grouped_query(hidden, heads, 4, 128, every),
        parts.vector(LAYER + "self_attn.q_norm", 128, every),
        parts.vector(LAYER + "self_attn.k_norm", 128, every),
        _router(hidden, 128, every),
        *parts.gated_experts(hidden, intermediate, every, 128, 8),
        *_norms(hidden, every),
    )
    return Geometry("qwen3_moe", modules, (parts.attention_layers(layers, heads, 4, 128),), hidden, layers, 151936)


QWEN3_30B = _qwen3_moe(2048, 48, 32, 768)
QWEN3_235B = _qwen3_moe(4096, 94, 64, 1536)


def _deepseek_v3() -> Geometry:
    every, dense, sparse, hidden = tuple(range(61)), tuple(range(3)), tuple(range(3, 61)), 7168
    attention = LAYER + "self_attn."
    modules = (
        *parts.embeddings(129280, hidden, tied=False),
        parts.linear(attention + "q_a_proj", Part.ATTENTION, 1536, hidden, every),
        parts.vector(attention + "q_a_layernorm", 1536, every),
        parts.linear(attention + "q_b_proj", Part.ATTENTION, 128 * 192, 1536, every),
        parts.linear(attention + "kv_a_proj_with_mqa", Part.ATTENTION, 576, hidden, every),
        parts.vector(attention + "kv_a_layernorm", 512, every),
        parts.linear(attention + "kv_b_proj", Part.ATTENTION, 128 * 256, 512, every),
        parts.linear(attention + "o_proj", Part.ATTENTION, hidden, 128 * 128, every),
        *parts.gated_mlp(hidden, 18432, dense),
        _router(hidden, 256, sparse),
        *parts.gated_experts(hidden, 2048, sparse, 256, 8),
        *parts.gated_mlp(hidden, 2048, sparse, prefix=LAYER + "mlp.shared_experts."),
        *_norms(hidden, every),
    )
    return Geometry("deepseek_v3", modules, (), hidden, 61, 129280, mla=True)


DEEPSEEK_V3 = _deepseek_v3()


def _gpt_oss(layers: int, experts: int) -> Geometry:
    every, hidden = tuple(range(layers)), 2880

    def expert(name: str, rows: int) -> Module:
        return Module(
            f"{LAYER}mlp.experts.*.{name}",
            Part.EXPERT,
            rows * hidden,
            rows,
            rows,
            hidden,
            every,
            copies=experts,
            per_token=4,
        )

    modules = (
        *parts.embeddings(201088, hidden, tied=False),
        *parts.grouped_query(hidden, 64, 8, 64, every, qkv_bias=True, out_bias=True),
        parts.vector(LAYER + "self_attn.sinks", 64, every),
        _router(hidden, experts, every, "mlp.router", bias=True),
        expert("gate_up_proj", 2 * hidden),
        expert("down_proj", hidden),
        *_norms(hidden, every),
    )
    return Geometry("gpt_oss", modules, (parts.attention_layers(layers, 64, 8, 64),), hidden, layers, 201088)


GPT_OSS_120B, GPT_OSS_20B = _gpt_oss(36, 128), _gpt_oss(24, 32)


def hybrid() -> Geometry:
    """Llama-8B's shape with one recurrent layer beside it."""
    return Geometry(
        "hybrid", LLAMA_8B.modules, LLAMA_8B.attention, 4096, 33, 128256, recurrent=(RecurrentLayers(1, 1024, 64),)
    )
