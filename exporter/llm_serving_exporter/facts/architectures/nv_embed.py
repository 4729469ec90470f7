"""NV-Embed: Mistral without lm_head, looking both ways, and a latent-attention pooler (facts model-math B.7).

Every token of a sequence asks `num_latents_value` learnt latents; their keys and values are made once a sequence, so that `to_kv` is not
among the matrices that each token passes. The attention over the latents, a constant 4 x heads x head size x latents FLOPs a token
(0.5 % of the stack's), is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import encoder_parts, sizes
from llm_serving_exporter.facts.architectures.encoder_parts import layer_norm
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part

# of NV-Embed's LatentAttentionConfig, for what its config.json leaves out
_LATENT = {
    "num_latents_value": 512, "num_cross_heads": 8, "hidden_dim": 4096, "latent_dim": 4096, "cross_dim_head": 4096
}  # fmt: skip
_GATED_TIMES = 4
_STACK = "embedding_model."
_POOLER = "latent_attention_model."


def nv_embed(fields: Fields) -> Geometry:
    """NV-Embed v1 and v2; `fields` are those of its text_config, the pooler's stand beside it."""
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads, every = sizes.heads(fields, hidden), tuple(range(count))
    layer = f"{_STACK}layers.{{}}."
    modules = (
        Module(
            f"{_STACK}embed_tokens", Part.EMBEDDING, vocabulary * hidden, rows=vocabulary, columns=hidden, linear=False
        ),
        *parts.grouped_query(hidden, heads.queries, heads.kv, heads.size, every, prefix=f"{layer}self_attn."),
        *parts.gated_mlp(hidden, fields.whole("intermediate_size"), every, prefix=f"{layer}mlp."),
        parts.vector(f"{layer}input_layernorm", hidden, every),
        parts.vector(f"{layer}post_attention_layernorm", hidden, every),
        parts.vector(f"{_STACK}norm", hidden),
        *_pooler(fields),
    )
    attention = (encoder_parts.attention(count, heads.queries, heads.size),)
    return Geometry(
        "nvembed", modules, attention, hidden, count, vocabulary, encoder=True, left_out=fields.left_out,
        bidirectional=True,
    )  # fmt: skip


def _pooler(fields: Fields) -> tuple[Module, ...]:
    """Cross attention to the latents and a gated MLP; nothing where the config has no pooler."""
    config = fields.find_around("latent_attention_config")
    if config is None:
        return ()
    if not isinstance(config, Mapping):
        raise fields.refused("latent_attention_config", "is not an object")
    latent = Fields(config).with_defaults(_LATENT)
    width, context = latent.whole("latent_dim"), latent.whole("hidden_dim")
    inner = latent.whole("num_cross_heads") * latent.whole("cross_dim_head")
    cross, gated = f"{_POOLER}cross_attend_blocks.0.", f"{_POOLER}cross_attend_blocks.1."
    return (
        encoder_parts.table(f"{_POOLER}latents", latent.whole("num_latents_value"), width),
        layer_norm(f"{cross}norm", width),
        layer_norm(f"{cross}norm_context", context),
        parts.linear(f"{cross}fn.to_q", Part.ATTENTION, inner, width),
        *encoder_parts.side_linear(f"{cross}fn.to_kv", 2 * inner, context, bias=False),
        parts.linear(f"{cross}fn.to_out", Part.ATTENTION, width, inner),
        layer_norm(f"{gated}norm", width),
        parts.linear(f"{gated}fn.net.0", Part.FFN, 2 * _GATED_TIMES * width, width, bias=True),
        parts.linear(f"{gated}fn.net.2", Part.FFN, width, _GATED_TIMES * width, bias=True),
    )


# the outer config's type counts where text_config names none
BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"bidir_mistral": nv_embed, "nvembed": nv_embed}
