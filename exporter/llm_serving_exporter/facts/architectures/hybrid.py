"""Hybrids of attention and Mamba layers, and the table of every family with recurrent layers (facts model-math B.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import (
    kimi_linear,
    layering,
    lfm2,
    mamba,
    minimax_text,
    nemotron_h,
    olmo_hybrid,
    qwen3_next,
    sizes,
)
from llm_serving_exporter.facts.architectures.mamba import Mamba1, Mamba2
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import Struct

_LAYER = "model.layers.{}."


class _Frame(Struct, frozen=True):
    """What these families share: embeddings, two norms a layer, some layers of attention and some of Mamba."""

    fields: Fields  # the config, read key by key
    hidden: int  # width of the residual stream
    count: int  # layers
    second_norm: str = "pre_ff_layernorm"  # the norm before the MLP, below the layer
    last_norm: str = "final_layernorm"  # the norm after the last layer

    def geometry(
        self, block: Mamba1 | Mamba2, attending: Layers, recurrent: Layers, others: tuple[Module, ...]
    ) -> Geometry:
        """The whole, with `others` the feed-forward modules."""
        fields, every = self.fields, tuple(range(self.count))
        vocabulary = fields.whole("vocab_size")
        attention: tuple[AttentionLayers, ...] = ()
        states: tuple[RecurrentLayers, ...] = ()
        modules = [
            *parts.embeddings(vocabulary, self.hidden, tied=fields.flag("tie_word_embeddings", default=False)),
            parts.vector(f"{_LAYER}input_layernorm", self.hidden, every),
            parts.vector(_LAYER + self.second_norm, self.hidden, every),
            parts.vector(f"model.{self.last_norm}", self.hidden),
            *others,
        ]
        if attending:
            heads = sizes.heads(fields, self.hidden)
            bias = fields.flag("attention_bias", default=False)
            modules += parts.grouped_query(
                self.hidden, heads.queries, heads.kv, heads.size, attending, qkv_bias=bias, out_bias=bias
            )
            attention = (parts.attention_layers(len(attending), heads.queries, heads.kv, heads.size),)
        if recurrent:
            modules += block.modules(f"{_LAYER}mamba.", recurrent)
            states = (block.recurrent(len(recurrent)),)
        return Geometry(
            fields.model_type, tuple(modules), attention, self.hidden, self.count, vocabulary, states,
            left_out=fields.left_out,
        )  # fmt: skip


def jamba(fields: Fields) -> Geometry:
    """Jamba: every `attn_layer_period`th layer attends, every `expert_layer_period`th has experts instead of its MLP."""
    if fields.flag("attention_bias", default=False):
        raise fields.refused("attention_bias", "is true, which Jamba does not know")
    if not fields.flag("mamba_inner_layernorms", default=True):
        raise fields.refused("mamba_inner_layernorms", "is false, for which no formula is known here")
    hidden, count = fields.whole("hidden_size"), fields.layers()
    block = Mamba1(
        hidden, fields.whole("mamba_expand") * hidden, fields.whole("mamba_d_state"),
        mamba.or_auto(fields, "mamba_dt_rank", mamba.time_step_rank(hidden)), fields.whole("mamba_d_conv"),
        conv_bias=fields.flag("mamba_conv_bias", default=True), bias=fields.flag("mamba_proj_bias", default=False),
        inner_norms=True,
    )  # fmt: skip
    attending, recurrent = layering.split(layering.periodic(fields, "attn_layer", count), count)
    experts, intermediate = fields.whole("num_experts"), fields.whole("intermediate_size")
    # a single expert is a plain MLP
    chosen = layering.periodic(fields, "expert_layer", count) if experts > 1 else frozenset()
    sparse, dense = layering.split(chosen, count)
    feed_forward = f"{_LAYER}feed_forward."
    others: list[Module] = []
    if dense:
        others += parts.gated_mlp(hidden, intermediate, dense, prefix=feed_forward)
    if sparse:
        experts, per_token = sizes.experts(fields, "num_experts")
        others.append(parts.linear(f"{feed_forward}router", Part.ROUTER, experts, hidden, sparse))
        others += parts.gated_experts(
            hidden, intermediate, sparse, experts, per_token, prefix=f"{feed_forward}experts.*."
        )
    return _Frame(fields, hidden, count).geometry(block, attending, recurrent, tuple(others))


def bamba(fields: Fields) -> Geometry:
    """Bamba: the layers of `attn_layer_indices` attend, all others are Mamba-2."""
    hidden, count = fields.whole("hidden_size"), fields.layers()
    attending, recurrent = layering.split(layering.indices(fields, "attn_layer_indices", count), count)
    block = mamba.mamba2_of_hybrid(fields, hidden, inner=fields.whole("mamba_expand") * hidden)
    return _Frame(fields, hidden, count).geometry(block, attending, recurrent, _mlp(fields, hidden, count))


def falcon_h1(fields: Fields) -> Geometry:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden, count = fields.whole("hidden_size"), fields.layers()
    every = tuple(range(count))
    inner = fields.whole("mamba_d_ssm") if fields.has("mamba_d_ssm") else fields.whole("mamba_expand") * hidden
    block = mamba.mamba2_of_hybrid(
        fields, hidden, inner=inner, out_bias=fields.flag("projectors_bias", default=False),
        gated_norm=fields.flag("mamba_rms_norm", default=False),
    )  # fmt: skip
    return _Frame(fields, hidden, count).geometry(block, every, every, _mlp(fields, hidden, count))


def granite_hybrid(fields: Fields) -> Geometry:
    """Granite 4: Mamba-2 or attention by `layer_types`; an MLP that all tokens pass and, where there are any, experts."""
    hidden, count = fields.whole("hidden_size"), fields.layers()
    words = {"mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention"}
    kinds = layering.listed(fields, "layer_types", count, words)
    if kinds is None:
        kinds = layering.listed(fields, "layers_block_type", count, words)
    if kinds is None:
        raise fields.refused("layer_types", "is missing")
    every, shared = tuple(range(count)), fields.whole("shared_intermediate_size")
    others = [
        # gate and up are one matrix here
        parts.linear(f"{_LAYER}shared_mlp.input_linear", Part.FFN, 2 * shared, hidden, every),
        parts.linear(f"{_LAYER}shared_mlp.output_linear", Part.FFN, hidden, shared, every),
    ]
    if fields.whole("num_local_experts", least=0):
        others += _granite_experts(fields, hidden, every)
    block = mamba.mamba2_of_hybrid(fields, hidden, inner=fields.whole("mamba_expand") * hidden)
    frame = _Frame(fields, hidden, count, "post_attention_layernorm", "norm")
    return frame.geometry(block, kinds["attention"], kinds["mamba"], tuple(others))


def _granite_experts(fields: Fields, hidden: int, layers: Layers) -> tuple[Module, ...]:
    """Router and experts; the checkpoint keeps all experts of a layer in one tensor, gate and up in one matrix."""
    experts, per_token = sizes.experts(fields, "num_local_experts")
    intermediate = fields.whole("intermediate_size")
    prefix = f"{_LAYER}block_sparse_moe."

    def routed(name: str, rows: int, columns: int) -> Module:
        matrix = rows * columns
        return Module(prefix + name, Part.EXPERT, matrix, 0, rows, columns, layers, copies=experts, per_token=per_token)

    return (
        parts.linear(f"{prefix}router.layer", Part.ROUTER, experts, hidden, layers),
        routed("input_linear", 2 * intermediate, hidden),
        routed("output_linear", hidden, intermediate),
    )


def _mlp(fields: Fields, hidden: int, count: int) -> tuple[Module, ...]:
    bias = fields.flag("mlp_bias", default=False)
    every = tuple(range(count))
    return parts.gated_mlp(hidden, fields.whole("intermediate_size"), every, prefix=f"{_LAYER}feed_forward.", bias=bias)


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    **mamba.BUILDERS, **nemotron_h.BUILDERS, **qwen3_next.BUILDERS, **lfm2.BUILDERS, **kimi_linear.BUILDERS, **minimax_text.BUILDERS,
    **olmo_hybrid.BUILDERS,
    "jamba": jamba, "bamba": bamba, "falcon_h1": falcon_h1, "granitemoehybrid": granite_hybrid,
}  # fmt: skip
