"""Encoders with rotary positions and gated MLPs: ModernBERT, EuroBERT, GTE, Nomic (facts model-math B.7, from their classes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import encoder_parts, layering, sizes
from llm_serving_exporter.facts.architectures.encoder_parts import layer_norm, side_linear, table
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import AttentionLayers, Geometry, Module, Part, Span


def modernbert(fields: Fields) -> Geometry:
    """ModernBERT: every `global_attn_every_n_layers`th layer attends to all, the others to `local_attention` tokens around."""
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads, intermediate = sizes.heads(fields, hidden, size=None), fields.whole("intermediate_size")
    qkv_bias, mlp_bias = fields.flag("attention_bias", default=False), fields.flag("mlp_bias", default=False)
    norm_bias, every = fields.flag("norm_bias", default=False), tuple(range(count))
    modules: list[Module] = [
        _words("embeddings.tok_embeddings", vocabulary, hidden),
        layer_norm("embeddings.norm", hidden, bias=norm_bias),
        parts.linear("layers.{}.attn.Wqkv", Part.ATTENTION, 3 * hidden, hidden, every, bias=qkv_bias),
        parts.linear("layers.{}.attn.Wo", Part.ATTENTION, hidden, hidden, every, bias=qkv_bias),
        layer_norm("layers.{}.mlp_norm", hidden, every, bias=norm_bias),
        parts.linear("layers.{}.mlp.Wi", Part.FFN, 2 * intermediate, hidden, every, bias=mlp_bias),
        parts.linear("layers.{}.mlp.Wo", Part.FFN, hidden, intermediate, every, bias=mlp_bias),
        layer_norm("final_norm", hidden, bias=norm_bias),
    ]
    if count > 1:
        # the embeddings' norm serves the first layer
        modules.append(layer_norm("layers.{}.attn_norm", hidden, every[1:], bias=norm_bias))
    labels = encoder_parts.labels(fields)
    if labels is not None:
        bias = fields.flag("classifier_bias", default=False)
        modules += side_linear("head.dense", hidden, hidden, bias=bias)
        modules.append(layer_norm("head.norm", hidden, bias=norm_bias))
        modules += side_linear("classifier", labels, hidden)
    full, local = _spans(fields, count)
    # as many tokens to either side, and the token itself
    window = 2 * (fields.whole("local_attention", default=128) // 2) + 1
    attention = (
        *((encoder_parts.attention(full, heads.queries, heads.size),) if full else ()),
        *(
            (encoder_parts.attention(local, heads.queries, heads.size, span=Span.SLIDING, window_tokens=window),)
            if local
            else ()
        ),
    )
    return _encoder(fields, tuple(modules), attention, hidden, count, vocabulary)


def eurobert(fields: Fields) -> Geometry:
    """EuroBERT: Llama's layers, looking both ways."""
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads, every = sizes.heads(fields, hidden), tuple(range(count))
    bias = fields.flag("attention_bias", default=False)
    _only_bare(fields)
    modules = (
        _words("model.embed_tokens", vocabulary, hidden),
        *parts.grouped_query(hidden, heads.queries, heads.kv, heads.size, every, qkv_bias=bias, out_bias=bias),
        *parts.gated_mlp(hidden, fields.whole("intermediate_size"), every, bias=fields.flag("mlp_bias", default=False)),
        parts.vector("model.layers.{}.input_layernorm", hidden, every),
        parts.vector("model.layers.{}.post_attention_layernorm", hidden, every),
        parts.vector("model.norm", hidden),
    )
    return _encoder(
        fields, modules, (encoder_parts.attention(count, heads.queries, heads.size),), hidden, count, vocabulary
    )


def gte(fields: Fields) -> Geometry:
    """GTE (model_type "new" in Alibaba's own configs): biases everywhere but in front of the gate."""
    position = fields.text("position_embedding_type", "rope")
    if position != "rope":
        raise fields.refused("position_embedding_type", f"is {position!r}, for which no formula is known here")
    _only_bare(fields)
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads, intermediate = sizes.heads(fields, hidden, size=None), fields.whole("intermediate_size")
    types, every = fields.whole("type_vocab_size", least=0), tuple(range(count))
    modules = (
        _words("embeddings.word_embeddings", vocabulary, hidden),
        *((table("embeddings.token_type_embeddings", types, hidden),) if types else ()),
        layer_norm("embeddings.LayerNorm", hidden),
        parts.linear("encoder.layer.{}.attention.qkv_proj", Part.ATTENTION, 3 * hidden, hidden, every, bias=True),
        parts.linear("encoder.layer.{}.attention.o_proj", Part.ATTENTION, hidden, hidden, every, bias=True),
        layer_norm("encoder.layer.{}.attn_ln", hidden, every),
        parts.linear("encoder.layer.{}.mlp.up_gate_proj", Part.FFN, 2 * intermediate, hidden, every),
        parts.linear("encoder.layer.{}.mlp.down_proj", Part.FFN, hidden, intermediate, every, bias=True),
        layer_norm("encoder.layer.{}.mlp_ln", hidden, every),
    )
    attention = (encoder_parts.attention(count, heads.queries, heads.size),)
    return _encoder(fields, modules, attention, hidden, count, vocabulary)


def nomic_bert(fields: Fields) -> Geometry:
    """Nomic: gated MLP, no biases but the norms'. Its own configs use GPT-2's names for the sizes."""
    for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm"):
        if fields.flag(key, default=False):
            raise fields.refused(key, "is true, for which no formula is known here")
    if fields.whole("num_experts", default=0, least=0) > 1:
        raise fields.refused("num_experts", "is above 1, for which no formula is known here")
    act = fields.text("activation_function", "swiglu")
    if act not in ("swiglu", "geglu"):
        raise fields.refused("activation_function", f"is {act!r}, not a gated one")
    _only_bare(fields)
    hidden, count = fields.whole("hidden_size", "n_embd"), fields.layers("num_hidden_layers", "n_layer")
    queries = "num_attention_heads" if fields.has("num_attention_heads") else "n_head"
    heads, vocabulary = sizes.heads(fields, hidden, queries=queries), fields.whole("vocab_size")
    width, types = heads.queries * heads.size, fields.whole("type_vocab_size", least=0)
    every, layer = tuple(range(count)), "encoder.layers.{}."
    intermediate = fields.whole("intermediate_size", "n_inner")
    modules = (
        _words("embeddings.word_embeddings", vocabulary, hidden),
        *((table("embeddings.token_type_embeddings", types, hidden),) if types else ()),
        layer_norm("emb_ln", hidden),
        parts.linear(f"{layer}attn.Wqkv", Part.ATTENTION, 3 * width, hidden, every),
        parts.linear(f"{layer}attn.out_proj", Part.ATTENTION, hidden, width, every),
        layer_norm(f"{layer}norm1", hidden, every),
        parts.linear(f"{layer}mlp.fc11", Part.FFN, intermediate, hidden, every),
        parts.linear(f"{layer}mlp.fc12", Part.FFN, intermediate, hidden, every),
        parts.linear(f"{layer}mlp.fc2", Part.FFN, hidden, intermediate, every),
        layer_norm(f"{layer}norm2", hidden, every),
    )
    return _encoder(
        fields, modules, (encoder_parts.attention(count, heads.queries, heads.size),), hidden, count, vocabulary
    )


def _spans(fields: Fields, count: int) -> tuple[int, int]:
    """How many of ModernBERT's layers attend to all, and how many locally."""
    words = {"full_attention": "full", "sliding_attention": "local"}
    kinds = layering.listed(fields, "layer_types", count, words)
    if kinds is not None:
        return len(kinds["full"]), len(kinds["local"])
    full = len(range(0, count, fields.whole("global_attn_every_n_layers", default=3)))
    return full, count - full


def _only_bare(fields: Fields) -> None:
    """Classifiers of these families have tops that are not covered here."""
    if encoder_parts.labels(fields) is not None:
        raise fields.refused("architectures", f"has {fields.architecture}, whose classifier is not covered here")


def _words(path: str, vocabulary: int, hidden: int) -> Module:
    return Module(path, Part.EMBEDDING, vocabulary * hidden, rows=vocabulary, columns=hidden, linear=False)


def _encoder(
    fields: Fields, modules: tuple[Module, ...], attention: tuple[AttentionLayers, ...], hidden: int, count: int,
    vocabulary: int,
) -> Geometry:  # fmt: skip
    return Geometry(
        fields.model_type, modules, attention, hidden, count, vocabulary, encoder=True,
        left_out=encoder_parts.left_out(fields), bidirectional=True,
    )  # fmt: skip


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    "modernbert": modernbert, "eurobert": eurobert, "gte": gte, "new": gte, "nomic_bert": nomic_bert
}  # fmt: skip
