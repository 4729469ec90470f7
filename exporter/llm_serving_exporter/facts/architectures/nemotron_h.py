"""Nemotron-H and Nemotron 3: each layer is one block, Mamba-2, attention, MLP or experts (facts model-math B.5, B.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering, sizes
from llm_serving_exporter.facts.architectures.mamba import Mamba2
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers

_MIXER = "backbone.layers.{}.mixer."
# letters of hybrid_override_pattern, then the words of layers_block_type that newer configs have in its place
_KINDS = {
    "M": "mamba", "*": "attention", "-": "mlp", "E": "moe",
    "mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention",
    "mlp": "mlp", "moe": "moe",
}  # fmt: skip


def nemotron_h(fields: Fields) -> Geometry:
    """Nemotron-H and Nemotron 3. MLPs and experts have no gate: squared ReLU between two matrices."""
    count, blocks = _blocks(fields)
    hidden, vocabulary = fields.whole("hidden_size"), fields.whole("vocab_size")
    mamba = Mamba2(
        hidden, fields.whole("mamba_num_heads"), fields.whole("mamba_head_dim"), fields.whole("ssm_state_size"),
        fields.whole("n_groups", "mamba_n_groups"), fields.whole("conv_kernel", "mamba_d_conv"),
        conv_bias=fields.flag("use_conv_bias", default=True), bias=fields.flag("use_bias", default=False),
    )  # fmt: skip
    if fields.flag("tie_word_embeddings", default=False):
        raise fields.refused("tie_word_embeddings", "is true, which this architecture does not have")
    modules = [
        *parts.embeddings(vocabulary, hidden, tied=False, embed="backbone.embeddings"),
        parts.vector("backbone.layers.{}.norm", hidden, tuple(range(count))),
        parts.vector("backbone.norm_f", hidden),
    ]
    attention: tuple[AttentionLayers, ...] = ()
    recurrent: tuple[RecurrentLayers, ...] = ()
    if blocks["mamba"]:
        modules += mamba.modules(_MIXER, blocks["mamba"])
        recurrent = (mamba.recurrent(len(blocks["mamba"])),)
    if blocks["attention"]:
        if fields.flag("attention_bias", default=False):
            raise fields.refused("attention_bias", "is true, for which implementations differ")
        # the first configs of the family spell it attention_head_dim
        size = "head_dim" if fields.has("head_dim") else "attention_head_dim"
        heads = sizes.heads(fields, hidden, size=size)
        modules += parts.grouped_query(hidden, heads.queries, heads.kv, heads.size, blocks["attention"], prefix=_MIXER)
        attention = (parts.attention_layers(len(blocks["attention"]), heads.queries, heads.kv, heads.size),)
    if blocks["mlp"]:
        bias = fields.flag("mlp_bias", default=False)
        modules += _squared_relu(_MIXER, hidden, fields.whole("intermediate_size"), blocks["mlp"], bias=bias)
    if blocks["moe"]:
        modules += _experts(fields, hidden, blocks["moe"])
    extra = ("multi-token prediction layers",) if fields.whole("num_nextn_predict_layers", default=0, least=0) else ()
    left_out = fields.left_out + extra
    return Geometry("nemotron_h", tuple(modules), attention, hidden, count, vocabulary, recurrent, left_out=left_out)


def _blocks(fields: Fields) -> tuple[int, Mapping[str, Layers]]:
    """Number of layers, and the layers of each kind."""
    key, entries = _pattern(fields)
    blocks = layering.by_kind(fields, key, entries, _KINDS)
    stated = fields.whole("num_hidden_layers", default=len(entries))
    if stated != len(entries):
        raise fields.refused("num_hidden_layers", f"is {stated}, but {key} has {len(entries)} entries")
    return stated, blocks


def _pattern(fields: Fields) -> tuple[str, Sequence[Any]]:
    for key in ("layers_block_type", "layer_types"):
        listed = fields.listed(key)
        if listed is not None:
            return key, listed
    if not fields.has("hybrid_override_pattern"):
        raise fields.refused("hybrid_override_pattern", "is missing")
    return "hybrid_override_pattern", fields.text("hybrid_override_pattern")


def _squared_relu(prefix: str, hidden: int, intermediate: int, layers: Layers, *, bias: bool) -> tuple[Module, ...]:
    return (
        parts.linear(f"{prefix}up_proj", Part.FFN, intermediate, hidden, layers, bias=bias),
        parts.linear(f"{prefix}down_proj", Part.FFN, hidden, intermediate, layers, bias=bias),
    )


def _experts(fields: Fields, hidden: int, layers: Layers) -> tuple[Module, ...]:
    """Router, routed and shared experts; Nemotron 3 Super and Ultra route in a latent space of `moe_latent_size`."""
    if fields.flag("mlp_bias", default=False):
        raise fields.refused("mlp_bias", "is true, for which no formula with experts is known here")
    if fields.whole("n_shared_experts", default=1, least=0) != 1:
        raise fields.refused("n_shared_experts", "is not 1, for which implementations differ")
    experts, per_token = sizes.experts(fields, "n_routed_experts")
    intermediate = fields.whole("moe_intermediate_size")
    width = fields.whole("moe_latent_size", default=hidden)
    latent: tuple[Module, ...] = ()
    if fields.has("moe_latent_size"):
        latent = (
            parts.linear(f"{_MIXER}fc1_latent_proj", Part.FFN, width, hidden, layers),
            parts.linear(f"{_MIXER}fc2_latent_proj", Part.FFN, hidden, width, layers),
        )

    def routed(name: str, rows: int, columns: int) -> Module:
        path = f"{_MIXER}experts.*.{name}"
        return Module(path, Part.EXPERT, rows * columns, 0, rows, columns, layers, copies=experts, per_token=per_token)

    shared = fields.whole("moe_shared_expert_intermediate_size")
    return (
        parts.linear(f"{_MIXER}gate", Part.ROUTER, experts, hidden, layers),
        *latent,
        routed("up_proj", intermediate, width),
        routed("down_proj", width, intermediate),
        *_squared_relu(f"{_MIXER}shared_experts.", hidden, shared, layers, bias=False),
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"nemotron_h": nemotron_h}
