"""Mamba blocks of the first and second kind, and models made of nothing else (facts model-math B.6, B.9).

The state update itself (a few FLOPs per element of state, about 1 % of a hybrid's matrices) is not in any count here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import Struct


def convolution(path: str, channels: int, kernel: int, layers: Layers, *, bias: bool) -> Module:
    """A causal convolution, each channel on its own: no quantiser takes it, each weight serves each token once."""
    vector = channels if bias else 0
    return Module(path, Part.RECURRENT, channels * kernel, vector, channels, kernel, layers, linear=False)


def or_auto(fields: Fields, key: str, computed: int) -> int:
    """A whole number that configs may leave to be computed, by "auto" or by leaving it out."""
    return computed if fields.values.get(key) in (None, "auto") else fields.whole(key)


def time_step_rank(hidden: int) -> int:
    """What "auto" stands for: a sixteenth of the hidden size, rounded up."""
    return -(-hidden // 16)


class Mamba1(Struct, frozen=True):
    """Sizes of a Mamba-1 block."""

    hidden: int  # width of the residual stream
    inner: int  # width inside the block
    state: int  # state elements per inner channel
    rank: int  # rank of the time step projection
    kernel: int  # taps of the causal convolution
    conv_bias: bool = True  # whether the convolution has a bias
    bias: bool = False  # whether the projections in and out have one
    inner_norms: bool = False  # whether time step, B and C are normalised (Jamba)

    def modules(self, prefix: str, layers: Layers) -> tuple[Module, ...]:
        """Every module of the block, without the norm before it."""
        norms = {"dt_layernorm": self.rank, "b_layernorm": self.state, "c_layernorm": self.state}
        return (
            parts.linear(f"{prefix}in_proj", Part.RECURRENT, 2 * self.inner, self.hidden, layers, bias=self.bias),
            convolution(f"{prefix}conv1d", self.inner, self.kernel, layers, bias=self.conv_bias),
            parts.linear(f"{prefix}x_proj", Part.RECURRENT, self.rank + 2 * self.state, self.inner, layers),
            parts.linear(f"{prefix}dt_proj", Part.RECURRENT, self.inner, self.rank, layers, bias=True),
            parts.vector(f"{prefix}A_log", self.inner * self.state, layers),
            parts.vector(f"{prefix}D", self.inner, layers),
            parts.linear(f"{prefix}out_proj", Part.RECURRENT, self.hidden, self.inner, layers, bias=self.bias),
            *(parts.vector(prefix + name, size, layers) for name, size in norms.items() if self.inner_norms),
        )

    def recurrent(self, layers: int) -> RecurrentLayers:
        """The state, and the convolution's last `kernel` - 1 inputs."""
        return RecurrentLayers(layers, self.inner * self.state, self.inner * (self.kernel - 1))


class Mamba2(Struct, frozen=True):
    """Sizes of a Mamba-2 block."""

    hidden: int  # width of the residual stream
    heads: int  # heads of the block
    head_size: int  # elements of one head
    state: int  # state elements per inner channel
    groups: int  # groups of heads that share B and C
    kernel: int  # taps of the causal convolution
    conv_bias: bool = True  # whether the convolution has a bias
    bias: bool = False  # whether in_proj has one
    out_bias: bool | None = None  # whether out_proj has one; None: as `bias`
    gated_norm: bool = True  # whether there is a norm before out_proj; only Falcon-H1 has none

    @property
    def inner(self) -> int:
        """Width of the block."""
        return self.heads * self.head_size

    @property
    def channels(self) -> int:
        """Channels of the convolution: the inner ones and, of each group, B and C."""
        return self.inner + 2 * self.groups * self.state

    def modules(self, prefix: str, layers: Layers) -> tuple[Module, ...]:
        """Every module of the block, without the norm before it."""
        out_bias = self.bias if self.out_bias is None else self.out_bias
        rows = self.inner + self.channels + self.heads
        return (
            parts.linear(f"{prefix}in_proj", Part.RECURRENT, rows, self.hidden, layers, bias=self.bias),
            convolution(f"{prefix}conv1d", self.channels, self.kernel, layers, bias=self.conv_bias),
            parts.vector(f"{prefix}A_log", self.heads, layers),
            parts.vector(f"{prefix}D", self.heads, layers),
            parts.vector(f"{prefix}dt_bias", self.heads, layers),
            *((parts.vector(f"{prefix}norm", self.inner, layers),) if self.gated_norm else ()),
            parts.linear(f"{prefix}out_proj", Part.RECURRENT, self.hidden, self.inner, layers, bias=out_bias),
        )

    def recurrent(self, layers: int) -> RecurrentLayers:
        """The state, and the convolution's last `kernel` - 1 inputs."""
        return RecurrentLayers(layers, self.inner * self.state, self.channels * (self.kernel - 1))


def mamba2_of_hybrid(
    fields: Fields, hidden: int, *, inner: int, out_bias: bool | None = None, gated_norm: bool = True
) -> Mamba2:
    """The block of a hybrid that spells its sizes mamba_n_heads, mamba_d_state and so on (Bamba, Granite 4, Falcon-H1)."""
    heads = fields.whole("mamba_n_heads")
    head_size = or_auto(fields, "mamba_d_head", inner // heads)
    if heads * head_size != inner:
        raise fields.refused("mamba_n_heads", f"x mamba_d_head is {heads * head_size}, not the inner width {inner}")
    return Mamba2(
        hidden, heads, head_size, fields.whole("mamba_d_state"), fields.whole("mamba_n_groups"),
        fields.whole("mamba_d_conv"), conv_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias", default=False), out_bias=out_bias, gated_norm=gated_norm,
    )  # fmt: skip


def _only(fields: Fields, block: Mamba1 | Mamba2, *, tied: bool) -> Geometry:
    """A model of Mamba blocks only: one norm before each, no attention, no KV cache."""
    count, vocabulary = fields.layers(), fields.whole("vocab_size")
    every = tuple(range(count))
    modules = (
        *parts.embeddings(vocabulary, block.hidden, tied=tied, embed="backbone.embeddings"),
        parts.vector("backbone.layers.{}.norm", block.hidden, every),
        *block.modules("backbone.layers.{}.mixer.", every),
        parts.vector("backbone.norm_f", block.hidden),
    )
    recurrent = (block.recurrent(count),)
    return Geometry(fields.model_type, modules, (), block.hidden, count, vocabulary, recurrent)


def mamba(fields: Fields) -> Geometry:
    """Mamba and Falcon-Mamba (whose norms over time step, B and C have no weights)."""
    hidden = fields.whole("hidden_size")
    block = Mamba1(
        hidden, fields.whole("expand") * hidden, fields.whole("state_size"),
        or_auto(fields, "time_step_rank", time_step_rank(hidden)), fields.whole("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", default=True), bias=fields.flag("use_bias", default=False),
    )  # fmt: skip
    return _only(fields, block, tied=fields.flag("tie_word_embeddings", default=True))


def mamba2(fields: Fields) -> Geometry:
    """Mamba-2 (Codestral Mamba)."""
    hidden = fields.whole("hidden_size")
    heads, head_size = fields.whole("num_heads"), fields.whole("head_dim")
    if heads * head_size != fields.whole("expand") * hidden:
        raise fields.refused("num_heads", f"x head_dim is {heads * head_size}, not expand x hidden_size")
    block = Mamba2(
        hidden, heads, head_size, fields.whole("state_size"), fields.whole("n_groups"), fields.whole("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", default=True), bias=fields.flag("use_bias", default=False),
    )  # fmt: skip
    return _only(fields, block, tied=fields.flag("tie_word_embeddings", default=False))


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"mamba": mamba, "falcon_mamba": mamba, "mamba2": mamba2}
