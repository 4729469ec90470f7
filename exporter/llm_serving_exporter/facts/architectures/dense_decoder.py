"""The decoder that most dense families share: token table, layers of attention and MLP between norms, a last norm, lm_head.

What tells the families apart is a Layout; sizes come from the config (facts model-math B.1-B.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import Struct, field

Switch = bool | str  # held by every model of the family or by none, or as the config's key of that name says

# sizes that a model's own config states; a part nested in a larger config leaves out those that equal its class default
SIZES = frozenset({"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"})

# keys that add or take away parameters somewhere; where a family's formula does not know one, a config that sets it is refused
_SHAPING = (
    "add_bias_linear", "add_cross_attention", "add_qkv_bias", "attention_bias", "attention_out_bias", "bias", "block_configs",
    "cross_attention_layers", "kv_lora_rank", "lm_head_bias", "mlp_bias", "n_routed_experts", "num_experts", "num_kv_shared_layers",
    "num_local_experts", "q_lora_rank", "qk_layernorm", "qk_norm", "qkv_bias", "use_bias", "use_cla", "use_qk_norm", "use_qkv_bias",
)  # fmt: skip
_EXPERTS = frozenset({"n_routed_experts", "num_experts", "num_local_experts"})
# what a config may say of a family that always has it (Qwen2's q, k and v): the formula counts it either way
_QKV_BIAS = frozenset({"add_qkv_bias", "attention_bias", "qkv_bias", "use_qkv_bias"})
_QK_NORM = frozenset({"qk_layernorm", "qk_norm", "use_qk_norm"})


class QkNorm(Enum):
    """How large the norms on queries and keys are."""

    PER_HEAD = "per head"  # one head's size, shared by all heads
    WHOLE = "whole"  # the size of all heads together


class Layout(Struct, frozen=True):
    """What the layers of a family hold, and what its modules are called."""

    # of the config class, for keys that are absent (transformers 5.23.0)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    qkv_bias: Switch = False  # whether the query, key and value projections have a bias
    out_bias: Switch | None = None  # likewise the output projection; None: as `qkv_bias`
    mlp_bias: Switch = False  # likewise the matrices of the MLP
    head_bias: bool = False  # likewise the LM head
    qk_norm: Switch = False  # whether queries and keys are normalised
    qk_norm_size: QkNorm = QkNorm.PER_HEAD  # the width of these norms: of one head, or of all heads together
    qk_norm_names: tuple[str, str] = ("q_norm", "k_norm")  # the modules of these norms, below `attention`
    qk_norm_vectors: int = 1  # vectors of each of these norms: 1 weight, 2 weight and bias
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")  # the norms of a layer, below `layer`
    norm_vectors: int = 1  # vectors of each norm: 1 weight, 2 weight and bias, 0 neither
    final_norm: str | None = "model.norm"  # the norm after the last layer; None: there is none
    window: windows.Rule = windows.never  # which layers attend to a sliding window, and how long it is
    gated: bool = True  # whether the MLP has a gate matrix beside up and down
    fused_qkv: str | None = None  # the name of one matrix that holds query, key and value; None: three matrices
    fused_gate_up: str | None = None  # the name of one matrix that holds gate and up; None: two matrices
    attention: str = "self_attn."  # prefix of the attention's modules, below `layer`
    out_name: str = "o_proj"  # the output projection, below `attention`
    # gate, up and down, below `layer`
    mlp_names: tuple[str, str, str] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    layer: str = "model.layers.{}."  # prefix of a layer; {} is its number
    embed: str = "model.embed_tokens"  # the token embedding
    head: str = "lm_head"  # the LM head
    extra: Mapping[str, int] = field(default_factory=dict)  # size in elements of further vectors of a layer, by name
    per_head: tuple[str, ...] = ()  # further vectors of a layer with an element for each query head (sinks)
    mlp_norm: str | None = None  # a norm as wide as the MLP, before `down`; None: there is none
    terse: bool = False  # whether published configs leave sizes out that the config class has defaults for

    @property
    def keys(self) -> frozenset[str]:
        """The config keys that switch something here, or say what every model of the family has."""
        switches: tuple[Switch | None, ...] = (self.qkv_bias, self.out_bias, self.mlp_bias, self.qk_norm)
        always = (_QKV_BIAS if self.qkv_bias is True else frozenset()) | (
            _QK_NORM if self.qk_norm is True else frozenset()
        )
        return always | frozenset(switch for switch in switches if isinstance(switch, str))


class Sizes(Struct, frozen=True):
    """The sizes of a decoder, as read and checked."""

    hidden: int  # width of the residual stream
    layers: int  # decoder layers
    heads: int  # query heads of a layer
    kv_heads: int  # key and value heads of a layer
    head_size: int  # elements of one head
    intermediate: int  # width of the MLP
    vocabulary: int  # rows of the token table
    table_width: int | None = None  # columns of the token tables; None: `hidden`

    @property
    def every(self) -> tuple[int, ...]:
        """The indices of all layers."""
        return tuple(range(self.layers))


def decoder(fields: Fields, layout: Layout) -> Geometry:
    """The geometry of a decoder with this layout, its sizes under their usual keys. Raises FactsError that names the key."""
    skipped = frozenset() if fields.nested or layout.terse else SIZES
    fields = fields.with_defaults({key: value for key, value in layout.defaults.items() if key not in skipped})
    return assemble(fields, read_sizes(fields), layout)


def assemble(fields: Fields, sizes: Sizes, layout: Layout, outside: tuple[Module, ...] = ()) -> Geometry:
    """The geometry of a decoder whose sizes are known; `outside`: modules that stand beside layers and token tables."""
    refuse_unknown(fields, layout.keys)
    every = sizes.every
    modules = (
        *_token_tables(fields, sizes, layout),
        *outside,
        *_attention(fields, sizes, layout),
        *_mlp(fields, sizes, layout),
        *(parts.vector(layout.layer + name, sizes.hidden * layout.norm_vectors, every) for name in layout.norms),
        *(parts.vector(layout.layer + name, size, every) for name, size in layout.extra.items()),
        *(parts.vector(layout.layer + name, sizes.heads, every) for name in layout.per_head),
        *((parts.vector(layout.layer + layout.mlp_norm, sizes.intermediate, every),) if layout.mlp_norm else ()),
        *((parts.vector(layout.final_norm, sizes.hidden * layout.norm_vectors),) if layout.final_norm else ()),
    )
    attention = windows.attention_groups(
        fields, layout.window, sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_size
    )
    # a norm without parameters is no module
    held = tuple(module for module in modules if module.parameters)
    return Geometry(
        fields.model_type, held, attention, sizes.hidden, sizes.layers, sizes.vocabulary, left_out=fields.left_out
    )


def refuse_unknown(fields: Fields, known: frozenset[str]) -> None:
    """Refuses a config that sets a key which changes the shape in a way that the family's formula does not know."""
    for key in _SHAPING:
        value = fields.found(key)
        # a single "expert" is a dense MLP
        if key not in known and value and not (key in _EXPERTS and value == 1):
            raise fields.refused(key, f"is {value!r}, for which there is no formula here")


def read_sizes(fields: Fields) -> Sizes:
    """The sizes under their usual keys; KV heads absent: as many as heads, head size absent: hidden / heads."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    return Sizes(
        hidden,
        fields.layers(),
        heads,
        shared_heads(fields, heads, fields.whole("num_key_value_heads", default=heads), "num_key_value_heads"),
        fields.whole("head_dim") if fields.has("head_dim") else split_heads(fields, hidden, heads),
        fields.whole("intermediate_size"),
        fields.whole("vocab_size"),
    )


def split_heads(fields: Fields, hidden: int, heads: int) -> int:
    """The head size where hidden is shared out among the heads."""
    if heads > hidden:
        raise fields.refused("hidden_size", f"is {hidden}, less than the number of heads, {heads}")
    return hidden // heads


def shared_heads(fields: Fields, heads: int, kv_heads: int, key: str) -> int:
    """The KV heads, each shared by the same number of query heads."""
    if heads % kv_heads:
        raise fields.refused(key, f"is {kv_heads} (as given or by default), which does not divide the {heads} heads")
    return kv_heads


def _token_tables(fields: Fields, sizes: Sizes, layout: Layout) -> tuple[Module, ...]:
    """Input table and lm_head, whose bias stands apart from a tied table."""
    width = sizes.table_width or sizes.hidden
    tied = fields.flag("tie_word_embeddings", default=False)
    tables = parts.embeddings(sizes.vocabulary, width, tied=tied, embed=layout.embed, head=layout.head)
    if not layout.head_bias:
        return tables
    return (*tables, Module(f"{layout.head}.bias", Part.LM_HEAD, 0, sizes.vocabulary, linear=False))


def switched(fields: Fields, switch: Switch) -> bool:
    """Whether a model holds what the switch stands for."""
    return fields.flag(switch, default=False) if isinstance(switch, str) else switch


def _attention(fields: Fields, sizes: Sizes, layout: Layout) -> tuple[Module, ...]:
    hidden, every = sizes.hidden, sizes.every
    query, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    bias = switched(fields, layout.qkv_bias)
    out_bias = bias if layout.out_bias is None else switched(fields, layout.out_bias)

    inner = layout.layer + layout.attention

    def matrix(name: str, rows: int) -> Module:
        return parts.linear(inner + name, Part.ATTENTION, rows, hidden, every, bias=bias)

    if layout.fused_qkv is not None:
        modules = [matrix(layout.fused_qkv, query + 2 * keys)]
    else:
        modules = [matrix("q_proj", query), matrix("k_proj", keys), matrix("v_proj", keys)]
    modules.append(parts.linear(inner + layout.out_name, Part.ATTENTION, hidden, query, every, bias=out_bias))
    if switched(fields, layout.qk_norm):
        whole = layout.qk_norm_size is QkNorm.WHOLE
        for name, size in zip(layout.qk_norm_names, (query, keys) if whole else (sizes.head_size,) * 2, strict=True):
            modules.append(parts.vector(inner + name, size * layout.qk_norm_vectors, every))
    return tuple(modules)


def _mlp(fields: Fields, sizes: Sizes, layout: Layout) -> tuple[Module, ...]:
    hidden, intermediate, every = sizes.hidden, sizes.intermediate, sizes.every
    bias = switched(fields, layout.mlp_bias)
    gate, up, down = layout.mlp_names

    def matrix(name: str, rows: int, columns: int) -> Module:
        return parts.linear(layout.layer + name, Part.FFN, rows, columns, every, bias=bias)

    if layout.fused_gate_up is not None:
        wide = {layout.fused_gate_up: 2 * intermediate}
    elif layout.gated:
        wide = {gate: intermediate, up: intermediate}
    else:
        wide = {up: intermediate}
    return (*(matrix(name, rows, hidden) for name, rows in wide.items()), matrix(down, hidden, intermediate))
