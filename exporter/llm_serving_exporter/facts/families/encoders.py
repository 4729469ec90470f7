"""Encoders: BERT and its kin, ModernBERT, EuroBERT, GTE, Nomic, NV-Embed (facts model-math B.7).

They keep no KV cache and do not decode: attention has no KV elements and no decode FLOPs, and `bidirectional` says that each token looks
at its whole sequence. Prefill FLOPs are per token and token of context, 4 x hidden size and layer: whoever sums contexts takes s for
each of a sequence's s tokens, not the causal half; then tokens/s <= peak / (2 N_mat + 4 L h s). Every token passes the layers' matrices;
position and type tables, poolers and classifiers are `side`, Part.ENCODER_ONLY. The pooler is counted where the family's base model has
one, though servers that pool otherwise may not load it.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.facts.families import rules
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.shapes import Families, Family, Look, Rule, Sizes, by_type

_CLASSIFIER = "ForSequenceClassification"


def _classifies(look: Look) -> bool:
    return look.fields.architecture.endswith(_CLASSIFIER)


def _labels(look: Look) -> int:
    """Outputs of a classifier (rerankers have one)."""
    named = look.fields.values.get("id2label")
    return look.fields.whole("num_labels", default=len(named) if isinstance(named, Mapping) and named else 2)


def _left_out(fields: Fields) -> tuple[str, ...]:
    """What the checkpoint holds beside the encoder: towers, and heads such as a masked language model's, which embedders do not load."""
    architecture = fields.architecture
    if not architecture or architecture.endswith(("Model", _CLASSIFIER)):
        return fields.left_out
    return (*fields.left_out, f"head of {architecture}")


def _bare(look: Look) -> None:
    """Classifiers of these families have tops that are not covered here."""
    if _classifies(look):
        raise look.fields.refused(
            "architectures", f"has {look.fields.architecture}, whose classifier is not covered here"
        )


def _one_of(key: str, usual: str, *others: str, what: str = "for which no formula is known here") -> Rule:
    """Whether a text is another than the usual one."""

    def rule(look: Look) -> bool:
        said = look.fields.text(key, usual)
        if said not in (usual, *others):
            raise look.fields.refused(key, f"is {said!r}, {what}")
        return said != usual

    return rule


_SIZES: Sizes = {
    "types": "zero(type_vocab_size)", "classifies": _classifies, "labels": _labels, "bare": _bare
}  # fmt: skip


def _encoder(rows: str, sizes: Sizes, layer: str) -> Family:
    return Family(rows=rows, sizes={**_SIZES, **sizes}, layer=layer, root="", encoder=True, left_out=_left_out)


# a classifier on top of the pooler; or with a matrix of its own, instead of the pooler where there is one
_POOLED = """
    pooler.dense  side  hidden x hidden  bias True
    classifier  side  labels x hidden  bias True  if classifies
"""
_POOLER = "\npooler.dense  side  hidden x hidden  bias True  if not classifies\n"
_DENSE = """
    classifier.dense  side  hidden x hidden  bias True  if classifies
    classifier  side  labels x hidden  bias True  if classifies
"""


def _classic(rows: str, sizes: Sizes | None = None, layer: str = "encoder.layer.{}.") -> Family:
    usual: Sizes = {
        "head": "hidden//heads", "embedding": "hidden",
        "placeless": _one_of("position_embedding_type", "absolute", "rotary", "alibi"),
        "gated": _one_of("feed_forward_type", "original", "geglu", "reglu"),
    }  # fmt: skip
    return _encoder(rows, {**usual, **(sizes or {})}, layer)


# the embeddings' norm serves the first layer
_MODERNBERT = _encoder(
    """
    embeddings.tok_embeddings  embedding  vocabulary x hidden
    embeddings.norm, final_norm  norm  norms*hidden
    attn.Wqkv  attention  3*hidden x hidden  every  bias attention_bias
    attn.Wo  attention  hidden x hidden  every  bias attention_bias
    mlp_norm  norm  norms*hidden  every
    mlp.Wi  ffn  2*intermediate_size x hidden  every  bias mlp_bias
    mlp.Wo  ffn  hidden x intermediate_size  every  bias mlp_bias
    attn_norm  norm  norms*hidden  later
    head.dense  side  hidden x hidden  bias classifier_bias  if classifies
    head.norm  norm  norms*hidden  if classifies
    classifier  side  labels x hidden  bias True  if classifies
    *encoder_reads layers=full
    *encoder_reads layers=local span=sliding:2*((local_attention|128)//2)+1
    """,
    {
        "heads kv head": rules.strict_heads(), "norms": "2 if norm_bias else 1", "later first": "layer > 0",
        "full local": rules.kinds(
            {"full_attention": "full", "sliding_attention": "local"}, "layer % (global_attn_every_n_layers | 3) == 0"
        ),
    },
    "layers.{}.",
)  # fmt: skip
# Llama's layers, looking both ways
_EUROBERT = _encoder(
    """
    needs  bare
    model.embed_tokens  embedding  vocabulary x hidden
    *projections bias=attention_bias
    *mlp bias=mlp_bias
    input_layernorm, post_attention_layernorm  norm  hidden  every
    model.norm  norm  hidden
    *encoder_reads
    """,
    {"heads kv head": rules.strict_heads("head_dim")}, "model.layers.{}.",
)  # fmt: skip
# biases everywhere but in front of the gate
_GTE = _encoder(
    """
    needs  position
    needs  bare
    embeddings.word_embeddings  embedding  vocabulary x hidden
    embeddings.token_type_embeddings  side  types x hidden  plain
    embeddings.LayerNorm  norm  2*hidden
    attention.qkv_proj  attention  3*hidden x hidden  every  bias True
    attention.o_proj  attention  hidden x hidden  every  bias True
    attn_ln  norm  2*hidden  every
    mlp.up_gate_proj  ffn  2*intermediate_size x hidden  every
    mlp.down_proj  ffn  hidden x intermediate_size  every  bias True
    mlp_ln  norm  2*hidden  every
    *encoder_reads
    """,
    {"heads kv head": rules.strict_heads(), "position": _one_of("position_embedding_type", "rope")}, "encoder.layer.{}.",
)  # fmt: skip
# a gated MLP, no biases but the norms'; its own configs use GPT-2's names for the sizes
_NOMIC = _encoder(
    "".join(
        f"refuse  {key}  {key}  is true, for which no formula is known here\n"
        for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm")
    )
    + """
    refuse  (num_experts | 0) > 1  num_experts  is above 1, for which no formula is known here
    needs  activation
    needs  bare
    embeddings.word_embeddings  embedding  vocabulary x hidden
    embeddings.token_type_embeddings  side  types x hidden  plain
    emb_ln  norm  2*hidden
    attn.Wqkv  attention  3*heads*head x hidden  every
    attn.out_proj  attention  hidden x heads*head  every
    norm1, norm2  norm  2*hidden  every
    mlp.fc11, mlp.fc12  ffn  intermediate x hidden  every
    mlp.fc2  ffn  hidden x intermediate  every
    *encoder_reads
    """,
    {
        "hidden": "hidden_size | n_embd", "layers": rules.layers_of("num_hidden_layers", "n_layer"),
        "heads kv head": rules.strict_heads("head_dim", queries=("num_attention_heads", "n_head")),
        "intermediate": "intermediate_size | n_inner",
        "activation": _one_of("activation_function", "swiglu", "geglu", what="not a gated one"),
    },
    "encoder.layers.{}.",
)  # fmt: skip

# NV-Embed: Mistral without lm_head, looking both ways, and a latent-attention pooler. Every token of a sequence asks `num_latents_value`
# learnt latents; their keys and values are made once a sequence, so that `to_kv` is not among the matrices that each token passes. The
# attention over the latents, a constant 4 x heads x head size x latents FLOPs a token (0.5 % of the stack's), is not counted

# of NV-Embed's LatentAttentionConfig, for what its config.json leaves out
_LATENT = {
    "num_latents_value": 512, "num_cross_heads": 8, "hidden_dim": 4096, "latent_dim": 4096, "cross_dim_head": 4096
}  # fmt: skip


def _pooler(look: Look) -> tuple[int, int, int, int]:
    """latents, latent, context, inner: of the pooler, which stands beside the text_config; 0 where the config has none."""
    config = look.fields.find_around("latent_attention_config")
    if config is None:
        return 0, 0, 0, 0
    if not isinstance(config, Mapping):
        raise look.fields.refused("latent_attention_config", "is not an object")
    part = Fields(config).with_defaults(_LATENT)
    inner = part.whole("num_cross_heads") * part.whole("cross_dim_head")
    return part.whole("num_latents_value"), part.whole("latent_dim"), part.whole("hidden_dim"), inner


_CROSS, _GATED = "latent_attention_model.cross_attend_blocks.0.", "latent_attention_model.cross_attend_blocks.1."
_NV_EMBED = Family(
    rows=f"""
    embedding_model.embed_tokens  embedding  vocabulary x hidden
    *projections
    *mlp
    input_layernorm, post_attention_layernorm  norm  hidden  every
    embedding_model.norm  norm  hidden
    latent_attention_model.latents  side  latents x latent  plain
    {_CROSS}norm, {_GATED}norm  norm  2*latent
    {_CROSS}norm_context  norm  2*context
    {_CROSS}fn.to_q  attention  inner x latent
    {_CROSS}fn.to_kv  side  2*inner x context
    {_CROSS}fn.to_out  attention  latent x inner
    {_GATED}fn.net.0  ffn  8*latent x latent  bias True
    {_GATED}fn.net.2  ffn  latent x 4*latent  bias True
    *encoder_reads
    """,
    sizes={
        "heads kv head": rules.strict_heads("head_dim"), "latents latent context inner": _pooler,
    },
    layer="embedding_model.layers.{}.", encoder=True, name="nvembed",
)  # fmt: skip

FAMILIES: Families = by_type({
    "bert": _classic("*classic_encoder" + _POOLED),
    "roberta xlm-roberta camembert": _classic("*classic_encoder" + _POOLER + _DENSE),
    # embeddings of their own size, no pooler
    "electra": _classic("*classic_encoder" + _DENSE, {"embedding": "embedding_size"}),
    # no token types; a table of biases by distance, one for each head
    "mpnet": _classic(
        """
        *classic_encoder qkvo=attention.attn.q,attention.attn.k,attention.attn.v,attention.attn.o norm1=attention.LayerNorm
        encoder.relative_attention_bias  side  (relative_attention_num_buckets | 32) x heads  plain
        """ + _POOLER + _DENSE, {"types": "0"},
    ),
    # no token types, no pooler
    "distilbert": _classic(
        """
        *classic_encoder qkvo=attention.q_lin,attention.k_lin,attention.v_lin,attention.out_lin norm1=sa_layer_norm up=ffn.lin1
        ... down=ffn.lin2 norm2=output_layer_norm
        """ + _DENSE,
        {"hidden": "dim", "layers": rules.layers_of("n_layers"), "heads": "n_heads", "intermediate": "hidden_dim", "types": "0"},
        "transformer.layer.{}.",
    ),
    "modernbert": _MODERNBERT,
    "eurobert": _EUROBERT,
    "gte new": _GTE,  # `new` in Alibaba's own configs
    "nomic_bert": _NOMIC,
    "bidir_mistral nvembed": _NV_EMBED,  # the outer config's type counts where text_config names none
})  # fmt: skip
