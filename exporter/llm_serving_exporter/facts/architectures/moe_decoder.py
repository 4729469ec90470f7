"""What mixture-of-experts decoders share: the frame around the layers, grouped-query attention, routed and shared experts.

A family's builder reads its own keys and puts these together (facts model-math B.1-B.5). Routers are matrices that no quantiser
takes: engines keep them in the model's dtype, whether or not a checkpoint lists them as excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import dense_windows as windows
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, RecurrentLayers
from llm_serving_exporter.model.record import Struct

# sizes that a config of its own states; one nested in a larger config leaves out what equals its class default
_SIZES = frozenset({"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"})

# keys that add parameters somewhere; where a family's formula does not know one, a config that sets it is refused
_SHAPING = (
    "attention_bias", "first_k_dense_replace", "index_topk", "kv_lora_rank", "lm_head_bias", "mlp_bias", "moe_layer_num_skipped",
    "moe_num_shared_experts", "n_shared_experts", "num_kv_shared_layers", "num_shared_expert", "num_shared_experts", "qkv_bias",
    "shared_expert_intermediate_size", "shared_intermediate_size", "use_bias", "use_cla", "use_qk_norm",
)  # fmt: skip


def prepared(fields: Fields, defaults: Mapping[str, Any], *known: str) -> Fields:
    """The fields with a config class's defaults (transformers 5.23.0). Refuses keys that change the shape and are not `known`."""
    fields = fields.with_defaults({key: value for key, value in defaults.items() if fields.nested or key not in _SIZES})
    for key in _SHAPING:
        if key not in known and fields.found(key):
            raise fields.refused(key, f"is {fields.found(key)!r}, for which there is no formula here")
    return fields


class Frame(Struct, frozen=True):
    """Sizes of a decoder and the names of its modules."""

    hidden: int  # width of the residual stream
    layers: int  # decoder layers
    vocabulary: int  # rows of the token table
    root: str = "model."  # stands before embed_tokens, layers and norm
    head: str = "lm_head"  # the LM head

    @property
    def every(self) -> Layers:
        """The indices of all layers."""
        return tuple(range(self.layers))

    @property
    def layer(self) -> str:
        """What the modules of a layer start with."""
        return f"{self.root}layers.{{}}."

    def geometry(
        self, fields: Fields, modules: Iterable[Module], attention: Sequence[AttentionLayers], *,
        mla: bool = False, norm_vectors: int = 1, tied: bool = False, recurrent: Sequence[RecurrentLayers] = (),
    ) -> Geometry:  # fmt: skip
        """The model: `modules` of the layers, with tables and norms around them; `tied` where no key says it.

        `norm_vectors` is 1 for norms with a weight, 2 for those with a bias too. Prediction layers beyond the model's own
        (num_nextn_predict_layers) are left out.
        """
        tables = parts.embeddings(
            self.vocabulary, self.hidden, tied=fields.flag("tie_word_embeddings", default=tied),
            embed=f"{self.root}embed_tokens", head=self.head,
        )  # fmt: skip
        norms = (
            parts.vector(f"{self.layer}input_layernorm", norm_vectors * self.hidden, self.every),
            parts.vector(f"{self.layer}post_attention_layernorm", norm_vectors * self.hidden, self.every),
            parts.vector(f"{self.root}norm", norm_vectors * self.hidden),
        )
        extra = ("MTP module",) if fields.whole("num_nextn_predict_layers", default=0, least=0) else ()
        return Geometry(
            fields.model_type, (*tables, *modules, *norms), tuple(attention), self.hidden, self.layers, self.vocabulary,
            tuple(recurrent), mla=mla, left_out=(*fields.left_out, *extra),
        )  # fmt: skip


def frame(
    fields: Fields, nested_root: str = "language_model.model.", nested_head: str = "language_model.lm_head"
) -> Frame:
    """Hidden size, layers and vocabulary under their usual keys; multimodal checkpoints keep them below another root."""
    hidden, layers, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    return Frame(hidden, layers, vocabulary, *((nested_root, nested_head) if fields.nested else ()))


class GroupedQuery(Struct, frozen=True):
    """Grouped-query attention, alike in every layer except for how far it looks back."""

    heads: int  # query heads
    kv_heads: int  # key and value heads
    head_size: int  # elements of one head

    def modules(
        self, frame: Frame, *, qkv_bias: bool = False, out_bias: bool = False,
        norms: tuple[str, str] | None = None, norm_whole: bool = False,
    ) -> tuple[Module, ...]:  # fmt: skip
        """q, k, v, o; `norms` names those on queries and keys, as large as one head or (`norm_whole`) as all of them."""
        prefix = f"{frame.layer}self_attn."
        sizes = (self.heads * self.head_size, self.kv_heads * self.head_size) if norm_whole else (self.head_size,) * 2
        return (
            *parts.grouped_query(
                frame.hidden, self.heads, self.kv_heads, self.head_size, frame.every,
                qkv_bias=qkv_bias, out_bias=out_bias, prefix=prefix,
            ),
            *(parts.vector(prefix + name, size, frame.every) for name, size in zip(norms or (), sizes, strict=False)),
        )  # fmt: skip

    def layers(self, fields: Fields, frame: Frame, rule: windows.Rule = windows.never) -> tuple[AttentionLayers, ...]:
        """The layers by how far they look back."""
        return windows.attention_groups(fields, rule, frame.layers, self.heads, self.kv_heads, self.head_size)


def grouped_query(fields: Fields, hidden: int) -> GroupedQuery:
    """Heads under their usual keys; KV heads absent: as many as heads, head size absent: hidden / heads."""
    heads = fields.whole("num_attention_heads")
    kv_heads = fields.whole("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.refused("num_key_value_heads", f"is {kv_heads}, which does not divide the {heads} heads")
    head_size = fields.whole("head_dim", default=hidden // heads)
    if not head_size:
        raise fields.refused("num_attention_heads", f"is {heads}, more than hidden_size {hidden}")
    return GroupedQuery(heads, kv_heads, head_size)


class Mixture(Struct, frozen=True):
    """The MLPs of a model: some layers route each token to a few experts, the others have one dense MLP."""

    sparse: Layers  # layers with experts
    dense: Layers  # layers with one MLP
    experts: int  # routed experts of a sparse layer
    per_token: int  # experts that a token is routed to
    size: int  # intermediate size of one expert
    shared: int = 0  # intermediate size of the experts that every token passes, added up; 0: none
    dense_size: int | None = None  # intermediate size of a dense layer's MLP; None: there is no dense layer
    width: int | None = None  # that routed experts work in; None: that of the residual stream


def mixture(
    fields: Fields, frame: Frame, *, sparse: Sequence[bool] | None = None, experts: Sequence[str],
    per_token: Sequence[str] = ("num_experts_per_tok",), size: str = "moe_intermediate_size", shared: int = 0,
    dense_size: str = "intermediate_size",
) -> Mixture:  # fmt: skip
    """Reads the sizes under a family's keys. `sparse`: which layers have experts (None: all of them)."""
    chosen = [True] * frame.layers if sparse is None else sparse
    experts, per_token = _stated(fields, experts), _stated(fields, per_token)
    count, passed = fields.whole(*experts), fields.whole(*per_token)
    if passed > count:
        raise fields.refused(per_token[0], f"is {passed}, more than the {count} experts")
    routed = tuple(layer for layer in frame.every if chosen[layer])
    dense = tuple(layer for layer in frame.every if not chosen[layer])
    if not routed:
        raise fields.refused(experts[0], f"is {count}, but no layer has experts by the other keys")
    return Mixture(
        routed, dense, count, passed, fields.whole(size), shared, fields.whole(dense_size) if dense else None
    )


def _stated(fields: Fields, keys: Sequence[str]) -> Sequence[str]:
    """Of a key and its aliases those that the config states, so that a class default never goes before an alias."""
    return [key for key in keys if fields.values.get(key) is not None] or keys


class Names(Struct, frozen=True):
    """What a family's checkpoints call the modules of an MLP."""

    block: str = "mlp."  # prefix of a sparse layer's MLP, below the layer
    router: str = "gate"  # the router, below `block`
    # an expert's matrices, below `block`; two names: gate and up are one tensor
    experts: tuple[str, ...] = ("experts.*.gate_proj", "experts.*.up_proj", "experts.*.down_proj")
    shared: str = "shared_experts."  # prefix of the shared experts, below `block`
    dense: str = "mlp."  # prefix of a dense layer's MLP, below the layer


def mlps(frame: Frame, mixture: Mixture, names: Names, *, bias: bool = False) -> tuple[Module, ...]:
    """Every MLP of the model, with its routers; `bias`: of router and experts."""
    block, hidden, sparse = frame.layer + names.block, frame.hidden, mixture.sparse
    *wide, down = names.experts
    width, rows = mixture.width or hidden, mixture.size if len(wide) == 2 else 2 * mixture.size
    shapes = [(name, rows, width) for name in wide] + [(down, width, mixture.size)]
    modules = [router(block + names.router, mixture.experts, hidden, sparse, bias=bias)]
    modules += [
        Module(
            block + name, Part.EXPERT, out * inner, out if bias else 0, out, inner, sparse,
            copies=mixture.experts, per_token=mixture.per_token,
        )
        for name, out, inner in shapes
    ]  # fmt: skip
    if mixture.shared:
        modules += parts.gated_mlp(hidden, mixture.shared, sparse, prefix=block + names.shared)
    if mixture.dense_size is not None:
        modules += parts.gated_mlp(hidden, mixture.dense_size, mixture.dense, prefix=frame.layer + names.dense)
    return tuple(modules)


def router(path: str, rows: int, hidden: int, layers: Layers, *, bias: bool = False) -> Module:
    """The matrix that scores the experts, or the gate of a shared one."""
    return Module(path, Part.ROUTER, rows * hidden, rows if bias else 0, rows, hidden, layers, linear=False)


def inner_fields(fields: Fields, key: str) -> Fields:
    """A part of the config, whose messages still name the model's type."""
    part = fields.found(key)
    if not isinstance(part, Mapping):
        raise fields.refused(key, "is missing" if part is None else "is not a table of keys")
    return Fields(part, {"model_type": fields.model_type})
