"""Encoders: BERT and its kin (facts model-math B.7).

They keep no KV cache and do not decode: attention has no KV elements and no decode FLOPs, and `bidirectional` says that each token looks
at its whole sequence. Prefill FLOPs are per token and token of context, 4 x hidden size and layer: whoever sums contexts takes s for
each of a sequence's s tokens, not the causal half; then tokens/s <= peak / (2 N_mat + 4 L h s). Every token passes the layers' matrices;
position and type tables, poolers and classifiers are Part.ENCODER_ONLY. The pooler is counted where the family's base model has one,
though servers that pool otherwise may not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import encoder_parts, modern_encoder, nv_embed
from llm_serving_exporter.facts.architectures.encoder_parts import layer_norm, side_linear, table
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part
from llm_serving_exporter.model.record import Struct


class _Names(Struct, frozen=True):
    """What a family's checkpoint calls its modules."""

    layer: str = "encoder.layer.{}."  # prefix of a layer; {} is its number
    query: str = "attention.self.query"  # query projection, below the layer as all that follow
    key: str = "attention.self.key"  # key projection
    value: str = "attention.self.value"  # value projection
    output: str = "attention.output.dense"  # output projection of the attention
    attention_norm: str = "attention.output.LayerNorm"  # norm after the attention
    up: str = "intermediate.dense"  # first matrix of the MLP
    down: str = "output.dense"  # second matrix of the MLP
    norm: str = "output.LayerNorm"  # norm after the MLP


_BERT = _Names()
_MPNET = _Names(
    query="attention.attn.q", key="attention.attn.k", value="attention.attn.v", output="attention.attn.o",
    attention_norm="attention.LayerNorm",
)  # fmt: skip
_DISTILBERT = _Names(
    "transformer.layer.{}.", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
    "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm",
)  # fmt: skip


class _Sizes(Struct, frozen=True):
    """Sizes of a classic encoder."""

    hidden: int  # width of the residual stream
    count: int  # layers
    heads: int  # attention heads of a layer
    intermediate: int  # width of the MLP
    vocabulary: int  # rows of the token table
    positions: int  # rows of the position table
    types: int  # rows of the token type table; 0: no token types
    embedding: int  # width of the tables; differs from `hidden` in ELECTRA


def bert(fields: Fields) -> Geometry:
    """BERT: token types, a pooler, a classifier on top of the pooler."""
    return _classic(fields, _sizes(fields), _BERT, pooler=True, head="pooled")


def roberta(fields: Fields) -> Geometry:
    """RoBERTa, XLM-RoBERTa, CamemBERT: a classifier with a matrix of its own instead of the pooler."""
    return _classic(fields, _sizes(fields), _BERT, pooler=True, head="dense")


def electra(fields: Fields) -> Geometry:
    """ELECTRA: embeddings of their own size, no pooler."""
    return _classic(fields, _sizes(fields, "embedding_size"), _BERT, pooler=False, head="dense")


def mpnet(fields: Fields) -> Geometry:
    """MPNet: no token types; a table of biases by distance, one for each head."""
    buckets = fields.whole("relative_attention_num_buckets", default=32)
    sizes = _sizes(fields, types=False)
    bias = table("encoder.relative_attention_bias", buckets, sizes.heads)
    return _classic(fields, sizes, _MPNET, pooler=True, head="dense", others=(bias,))


def distilbert(fields: Fields) -> Geometry:
    """DistilBERT: no token types, no pooler."""
    hidden = fields.whole("dim")
    sizes = _Sizes(
        hidden, fields.layers("n_layers"), fields.whole("n_heads"), fields.whole("hidden_dim"),
        fields.whole("vocab_size"), fields.whole("max_position_embeddings"), 0, hidden,
    )  # fmt: skip
    return _classic(fields, sizes, _DISTILBERT, pooler=False, head="dense")


def _sizes(fields: Fields, embedding: str = "hidden_size", *, types: bool = True) -> _Sizes:
    return _Sizes(
        fields.whole("hidden_size"), fields.layers(), fields.whole("num_attention_heads"),
        fields.whole("intermediate_size"), fields.whole("vocab_size"), fields.whole("max_position_embeddings"),
        fields.whole("type_vocab_size", least=0) if types else 0, fields.whole(embedding),
    )  # fmt: skip


def _classic(
    fields: Fields, sizes: _Sizes, names: _Names, *, pooler: bool, head: str, others: tuple[Module, ...] = ()
) -> Geometry:
    """Embeddings with norm, layers of attention and MLP with a bias and a norm each, pooler or classifier."""
    positions, gated = _read_variants(fields)
    hidden, intermediate, every = sizes.hidden, sizes.intermediate, tuple(range(sizes.count))
    if hidden % sizes.heads:
        raise fields.refused("num_attention_heads", f"is {sizes.heads}, which does not divide the hidden size {hidden}")
    labels = encoder_parts.labels(fields)
    top: list[Module] = []
    if pooler and (labels is None or head == "pooled"):
        top += side_linear("pooler.dense", hidden, hidden)
    if labels is not None:
        top += side_linear("classifier.dense", hidden, hidden) if head == "dense" else ()
        top += side_linear("classifier", labels, hidden)
    modules = (
        Module("embeddings.word_embeddings", Part.EMBEDDING, sizes.vocabulary * sizes.embedding, linear=False),
        *((table("embeddings.position_embeddings", sizes.positions, sizes.embedding),) if positions else ()),
        *((table("embeddings.token_type_embeddings", sizes.types, sizes.embedding),) if sizes.types else ()),
        layer_norm("embeddings.LayerNorm", sizes.embedding),
        *(
            (parts.linear("embeddings_project", Part.FFN, hidden, sizes.embedding, bias=True),)
            if sizes.embedding != hidden
            else ()
        ),
        *(
            parts.linear(names.layer + name, Part.ATTENTION, hidden, hidden, every, bias=True)
            for name in (names.query, names.key, names.value, names.output)
        ),
        layer_norm(names.layer + names.attention_norm, hidden, every),
        parts.linear(
            names.layer + names.up, Part.FFN, intermediate * (2 if gated else 1), hidden, every, bias=not gated
        ),
        parts.linear(names.layer + names.down, Part.FFN, hidden, intermediate, every, bias=True),
        layer_norm(names.layer + names.norm, hidden, every),
        *others,
        *top,
    )
    attention = (encoder_parts.attention(sizes.count, sizes.heads, hidden // sizes.heads),)
    return Geometry(
        fields.model_type, modules, attention, hidden, sizes.count, sizes.vocabulary, encoder=True,
        left_out=encoder_parts.left_out(fields), bidirectional=True,
    )  # fmt: skip


def _read_variants(fields: Fields) -> tuple[bool, bool]:
    """Whether there is a table of positions, and whether the MLP is gated. Decoders and tables by distance are refused. Jina's have
    rotary positions or ALiBi, which need no table, and the latter a gated MLP whose first matrix has no bias
    (jinaai/xlm-roberta-flash-implementation; jinaai/jina-bert-implementation, modeling_bert.py, JinaBertGLUMLP).
    """
    position, feed = fields.text("position_embedding_type", "absolute"), fields.text("feed_forward_type", "original")
    if position not in ("absolute", "rotary", "alibi"):
        raise fields.refused("position_embedding_type", f"is {position!r}, for which no formula is known here")
    if feed not in ("original", "geglu", "reglu"):
        raise fields.refused("feed_forward_type", f"is {feed!r}, for which no formula is known here")
    for key in ("is_decoder", "add_cross_attention"):
        if fields.flag(key, default=False):
            raise fields.refused(key, "is true, for which no formula is known here")
    return position == "absolute", feed != "original"


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "bert": bert, "roberta": roberta, "xlm-roberta": roberta, "camembert": roberta, "electra": electra,
    "mpnet": mpnet, "distilbert": distilbert, **modern_encoder.BUILDERS, **nv_embed.BUILDERS,
}  # fmt: skip
