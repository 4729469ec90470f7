"""Qwen3-Next and Qwen3.5: three gated DeltaNet layers to one of gated attention, dense or MoE (facts model-math B.2, B.5, B.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering, sizes
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import Struct

# of the classes in transformers 5.23.0: the text part of a multimodal config leaves out what equals them
_QWEN3_5 = {
    "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "vocab_size": 248320, "num_attention_heads": 16,
}  # fmt: skip
_QWEN3_5_DENSE = {
    **_QWEN3_5, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_key_value_heads": 4
}  # fmt: skip
_QWEN3_5_MOE = {
    **_QWEN3_5, "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256,
}  # fmt: skip


class _DeltaNet(Struct, frozen=True):
    """Sizes of a gated DeltaNet block."""

    hidden: int  # width of the residual stream
    key_heads: int  # heads of queries and keys
    key_size: int  # elements of one of them
    value_heads: int  # heads of values
    value_size: int  # elements of one of them
    kernel: int  # taps of the causal convolution
    fused: bool  # whether the checkpoint keeps q, k, v and z in one matrix (Qwen3-Next)

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size

    def modules(self, prefix: str, layers: Layers) -> tuple[Module, ...]:
        width = self.value_heads * self.value_size
        inputs = (
            {"in_proj_qkvz": self.channels + width, "in_proj_ba": 2 * self.value_heads}
            if self.fused
            else {
                "in_proj_qkv": self.channels, "in_proj_z": width,
                "in_proj_b": self.value_heads, "in_proj_a": self.value_heads,
            }
        )  # fmt: skip
        return (
            *(parts.linear(prefix + name, Part.RECURRENT, rows, self.hidden, layers) for name, rows in inputs.items()),
            convolution(f"{prefix}conv1d", self.channels, self.kernel, layers, bias=False),
            parts.vector(f"{prefix}A_log", self.value_heads, layers),
            parts.vector(f"{prefix}dt_bias", self.value_heads, layers),
            parts.vector(f"{prefix}norm", self.value_size, layers),
            parts.linear(f"{prefix}out_proj", Part.RECURRENT, self.hidden, width, layers),
        )

    def recurrent(self, layers: int) -> RecurrentLayers:
        """A key x value matrix for each value head, and the convolution's last `kernel` - 1 inputs."""
        state = self.value_heads * self.key_size * self.value_size
        return RecurrentLayers(layers, state, self.channels * (self.kernel - 1))


def qwen3_next(fields: Fields) -> Geometry:
    """Qwen3-Next."""
    return _build(fields, "qwen3_next", fused=True)


def qwen3_5(fields: Fields) -> Geometry:
    """Qwen3.5, dense."""
    return _build(fields.with_defaults(_QWEN3_5_DENSE), "qwen3_5", fused=False)


def qwen3_5_moe(fields: Fields) -> Geometry:
    """Qwen3.5 with experts in every layer."""
    return _build(fields.with_defaults(_QWEN3_5_MOE), "qwen3_5_moe", fused=False)


def _build(fields: Fields, family: str, *, fused: bool) -> Geometry:
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    full, linear = _layers(fields, count)
    root = "model.language_model." if fields.nested else "model."
    tied = fields.flag("tie_word_embeddings", default=False)
    modules = [
        *parts.embeddings(vocabulary, hidden, tied=tied, embed=f"{root}embed_tokens"),
        parts.vector(f"{root}layers.{{}}.input_layernorm", hidden, tuple(range(count))),
        parts.vector(f"{root}layers.{{}}.post_attention_layernorm", hidden, tuple(range(count))),
        parts.vector(f"{root}norm", hidden),
    ]
    attention: tuple[AttentionLayers, ...] = ()
    recurrent: tuple[RecurrentLayers, ...] = ()
    if full:
        gated, alike = _gated_attention(fields, hidden, f"{root}layers.{{}}.self_attn.", full)
        modules += gated
        attention = (alike,)
    if linear:
        block = _DeltaNet(
            hidden, fields.whole("linear_num_key_heads"), fields.whole("linear_key_head_dim"),
            fields.whole("linear_num_value_heads"), fields.whole("linear_value_head_dim"),
            fields.whole("linear_conv_kernel_dim"), fused,
        )  # fmt: skip
        modules += block.modules(f"{root}layers.{{}}.linear_attn.", linear)
        recurrent = (block.recurrent(len(linear)),)
    dense, sparse = _sparse(fields, count, moe=family != "qwen3_5")
    mlp = f"{root}layers.{{}}.mlp."
    if dense:
        modules += parts.gated_mlp(hidden, fields.whole("intermediate_size"), dense, prefix=mlp)
    if sparse:
        modules += _experts(fields, hidden, mlp, sparse)
    left_out = fields.left_out
    if fields.whole("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, least=0):
        left_out += ("multi-token prediction layers",)
    return Geometry(family, tuple(modules), attention, hidden, count, vocabulary, recurrent, left_out=left_out)


def _gated_attention(
    fields: Fields, hidden: int, prefix: str, layers: Layers
) -> tuple[tuple[Module, ...], AttentionLayers]:
    """q_proj is doubled: its second half gates the output; q and k are normed by head (facts B.2)."""
    if not fields.flag("attn_output_gate", default=True):
        raise fields.refused("attn_output_gate", "is false, for which no formula is known here")
    heads = sizes.heads(fields, hidden)
    bias = fields.flag("attention_bias", default=False)
    query, *others = parts.grouped_query(
        hidden, heads.queries, heads.kv, heads.size, layers, qkv_bias=bias, out_bias=bias, prefix=prefix
    )
    modules = (
        parts.linear(query.path, Part.ATTENTION, 2 * query.rows, hidden, layers, bias=bias),
        *others,
        parts.vector(f"{prefix}q_norm", heads.size, layers),
        parts.vector(f"{prefix}k_norm", heads.size, layers),
    )
    return modules, parts.attention_layers(len(layers), heads.queries, heads.kv, heads.size)


def _experts(fields: Fields, hidden: int, prefix: str, layers: Layers) -> tuple[Module, ...]:
    """Router, routed experts, and one shared expert with a gate of its own."""
    experts, per_token = sizes.experts(fields, "num_experts")
    intermediate, shared = fields.whole("moe_intermediate_size"), fields.whole("shared_expert_intermediate_size")
    return (
        parts.linear(f"{prefix}gate", Part.ROUTER, experts, hidden, layers),
        *parts.gated_experts(hidden, intermediate, layers, experts, per_token, prefix=f"{prefix}experts.*."),
        *parts.gated_mlp(hidden, shared, layers, prefix=f"{prefix}shared_expert."),
        parts.linear(f"{prefix}shared_expert_gate", Part.ROUTER, 1, hidden, layers),
    )


def _layers(fields: Fields, count: int) -> tuple[Layers, Layers]:
    """Layers of full attention and of DeltaNet: as listed, else every `full_attention_interval`th is full."""
    words = {"full_attention": "full", "linear_attention": "linear"}
    kinds = layering.listed(fields, "layer_types", count, words)
    if kinds is not None:
        return kinds["full"], kinds["linear"]
    interval = fields.whole("full_attention_interval", default=4)
    return layering.split(frozenset(range(interval - 1, count, interval)), count)


def _sparse(fields: Fields, count: int, *, moe: bool) -> tuple[Layers, Layers]:
    """Dense layers and those with experts, by `decoder_sparse_step` and `mlp_only_layers` (Qwen3-Next; Qwen3.5 has one kind)."""
    step = fields.whole("decoder_sparse_step", default=1)
    sparse = frozenset(range(step - 1, count, step)) if moe else frozenset()
    with_experts, dense = layering.split(sparse - layering.indices(fields, "mlp_only_layers", count), count)
    return dense, with_experts


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "qwen3_next": qwen3_next,
    "qwen3_5": qwen3_5, "qwen3_5_text": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe, "qwen3_5_moe_text": qwen3_5_moe,
}  # fmt: skip
