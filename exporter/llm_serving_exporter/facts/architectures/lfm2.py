"""LFM2: gated short convolutions, with attention in some layers; dense or MoE. Its only state is the convolutions' last inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering, sizes
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers

_LAYER = "model.layers.{}."


def lfm2(fields: Fields) -> Geometry:
    """LFM2, dense."""
    count = fields.layers()
    every = tuple(range(count))
    return _build(fields, count, _mlp(fields.whole("hidden_size"), _width(fields), every))


def lfm2_moe(fields: Fields) -> Geometry:
    """LFM2 with experts behind the first `num_dense_layers` layers."""
    hidden, count = fields.whole("hidden_size"), fields.layers()
    first = fields.whole("num_dense_layers", least=0)
    dense, sparse = layering.split(frozenset(range(min(first, count))), count)
    modules: list[Module] = []
    if dense:
        modules += _mlp(hidden, fields.whole("intermediate_size"), dense)
    if sparse:
        experts, per_token = sizes.experts(fields, "num_experts")
        modules.append(parts.linear(f"{_LAYER}feed_forward.gate", Part.ROUTER, experts, hidden, sparse))
        modules += _experts(hidden, fields.whole("moe_intermediate_size"), sparse, experts, per_token)
    return _build(fields, count, tuple(modules))


def _build(fields: Fields, count: int, feed_forward: tuple[Module, ...]) -> Geometry:
    hidden, vocabulary, every = fields.whole("hidden_size"), fields.whole("vocab_size"), tuple(range(count))
    tied = fields.flag("tie_embedding", default=fields.flag("tie_word_embeddings", default=True))
    attending, convolving = _layers(fields, count)
    attention: tuple[AttentionLayers, ...] = ()
    recurrent: tuple[RecurrentLayers, ...] = ()
    modules = [
        *parts.embeddings(vocabulary, hidden, tied=tied),
        parts.vector(f"{_LAYER}operator_norm", hidden, every),
        parts.vector(f"{_LAYER}ffn_norm", hidden, every),
        parts.vector("model.embedding_norm", hidden),
        *feed_forward,
    ]
    if attending:
        heads = sizes.heads(fields, hidden)
        prefix = f"{_LAYER}self_attn."
        *inputs, output = parts.grouped_query(hidden, heads.queries, heads.kv, heads.size, attending, prefix=prefix)
        modules += (
            *inputs,
            parts.linear(f"{prefix}out_proj", Part.ATTENTION, output.rows, output.columns, attending),
            parts.vector(f"{prefix}q_layernorm", heads.size, attending),
            parts.vector(f"{prefix}k_layernorm", heads.size, attending),
        )
        attention = (parts.attention_layers(len(attending), heads.queries, heads.kv, heads.size),)
    if convolving:
        kernel, bias = fields.whole("conv_L_cache"), fields.flag("conv_bias", default=False)
        modules += (
            parts.linear(f"{_LAYER}conv.in_proj", Part.RECURRENT, 3 * hidden, hidden, convolving, bias=bias),
            convolution(f"{_LAYER}conv.conv", hidden, kernel, convolving, bias=bias),
            parts.linear(f"{_LAYER}conv.out_proj", Part.RECURRENT, hidden, hidden, convolving, bias=bias),
        )
        recurrent = (RecurrentLayers(len(convolving), 0, hidden * (kernel - 1)),)
    return Geometry(
        fields.model_type, tuple(modules), attention, hidden, count, vocabulary, recurrent, left_out=fields.left_out
    )


def _layers(fields: Fields, count: int) -> tuple[Layers, Layers]:
    """Layers that attend and layers that convolve."""
    kinds = layering.listed(fields, "layer_types", count, {"full_attention": "attention", "conv": "conv"})
    if kinds is not None:
        return kinds["attention"], kinds["conv"]
    if not fields.has("full_attn_idxs"):
        raise fields.refused("layer_types", "is missing")
    return layering.split(layering.indices(fields, "full_attn_idxs", count), count)


def _width(fields: Fields) -> int:
    """The MLP's width: two thirds of what the config says, scaled and rounded up to a multiple, unless it says to take it as it is."""
    stated = fields.whole("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return stated
    scale = fields.found("block_ffn_dim_multiplier")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale <= 64):
        raise fields.refused("block_ffn_dim_multiplier", f"is {scale!r}, not a number from 0 to 64")
    width = 2 * stated // 3
    if scale is None:
        return width
    multiple = fields.whole("block_multiple_of", default=256)
    return -(-int(scale * width) // multiple) * multiple


def _mlp(hidden: int, width: int, layers: Layers) -> tuple[Module, ...]:
    """SwiGLU, its matrices named w1 (gate), w3 (up) and w2 (down)."""
    prefix = f"{_LAYER}feed_forward."
    return (
        parts.linear(f"{prefix}w1", Part.FFN, width, hidden, layers),
        parts.linear(f"{prefix}w3", Part.FFN, width, hidden, layers),
        parts.linear(f"{prefix}w2", Part.FFN, hidden, width, layers),
    )


def _experts(hidden: int, width: int, layers: Layers, experts: int, per_token: int) -> tuple[Module, ...]:
    def routed(name: str, rows: int, columns: int) -> Module:
        path = f"{_LAYER}feed_forward.experts.*.{name}"
        return Module(path, Part.EXPERT, rows * columns, 0, rows, columns, layers, copies=experts, per_token=per_token)

    return (routed("w1", width, hidden), routed("w3", width, hidden), routed("w2", hidden, width))


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"lfm2": lfm2, "lfm2_moe": lfm2_moe}
