"""Modules that many architectures share. Each returns Module rows; sizes as in facts model-math B.2-B.5."""

from __future__ import annotations

from llm_serving_exporter.model.shape import AttentionLayers, Module, Part, Span

Layers = tuple[int, ...]


def linear(path: str, part: Part, rows: int, columns: int, layers: Layers = (), *, bias: bool = False) -> Module:
    """A Linear module: rows (out) x columns (in), with or without bias."""
    return Module(path, part, rows * columns, rows if bias else 0, rows, columns, layers)


def vector(path: str, size: int, layers: Layers = ()) -> Module:
    """A norm, or other parameters that no quantiser takes."""
    return Module(path, Part.NORM, 0, size, layers=layers, linear=False)


def embeddings(
    vocabulary: int, hidden: int, *, tied: bool, embed: str = "model.embed_tokens", head: str = "lm_head"
) -> tuple[Module, ...]:
    """Input table and lm_head. Tied: the one table, which each step reads whole as lm_head; quantisers leave it alone as an embedding."""
    if tied:
        return (Module(embed, Part.LM_HEAD, vocabulary * hidden, rows=vocabulary, columns=hidden, linear=False),)
    return (
        Module(embed, Part.EMBEDDING, vocabulary * hidden, rows=vocabulary, columns=hidden, linear=False),
        linear(head, Part.LM_HEAD, vocabulary, hidden),
    )


def grouped_query(
    hidden: int, heads: int, kv_heads: int, head_size: int, layers: Layers, *,
    qkv_bias: bool = False, out_bias: bool = False, prefix: str = "model.layers.{}.self_attn.",
) -> tuple[Module, ...]:  # fmt: skip
    """q, k, v and o projections of GQA or MHA."""
    return (
        linear(f"{prefix}q_proj", Part.ATTENTION, heads * head_size, hidden, layers, bias=qkv_bias),
        linear(f"{prefix}k_proj", Part.ATTENTION, kv_heads * head_size, hidden, layers, bias=qkv_bias),
        linear(f"{prefix}v_proj", Part.ATTENTION, kv_heads * head_size, hidden, layers, bias=qkv_bias),
        linear(f"{prefix}o_proj", Part.ATTENTION, hidden, heads * head_size, layers, bias=out_bias),
    )


def attention_layers(
    layers: int, heads: int, kv_heads: int, head_size: int, *, span: Span = Span.FULL, window_tokens: int | None = None
) -> AttentionLayers:
    """GQA or MHA: K and V of every KV head are stored; QK^T and AV cost 2 FLOPs each per query head and element (facts B.10)."""
    flops = 4 * heads * head_size
    return AttentionLayers(layers, 2 * kv_heads * head_size, kv_heads, flops, flops, span, window_tokens, heads)


def gated_mlp(
    hidden: int, intermediate: int, layers: Layers, *, prefix: str = "model.layers.{}.mlp.", bias: bool = False
) -> tuple[Module, ...]:
    """SwiGLU or GeGLU: gate, up, down."""
    return (
        linear(f"{prefix}gate_proj", Part.FFN, intermediate, hidden, layers, bias=bias),
        linear(f"{prefix}up_proj", Part.FFN, intermediate, hidden, layers, bias=bias),
        linear(f"{prefix}down_proj", Part.FFN, hidden, intermediate, layers, bias=bias),
    )


def gated_experts(
    hidden: int,
    intermediate: int,
    layers: Layers,
    experts: int,
    per_token: int,
    *,
    prefix: str = "model.layers.{}.mlp.experts.*.",
) -> tuple[Module, ...]:
    """Routed SwiGLU experts: three matrices each."""

    def one(name: str, rows: int, columns: int) -> Module:
        return Module(
            prefix + name, Part.EXPERT, rows * columns, 0, rows, columns, layers, copies=experts, per_token=per_token
        )

    return (
        one("gate_proj", intermediate, hidden),
        one("up_proj", intermediate, hidden),
        one("down_proj", hidden, intermediate),
    )
