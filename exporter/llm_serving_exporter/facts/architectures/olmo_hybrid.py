"""OLMo Hybrid: gated delta networks in most layers, attention with norms over all heads in every fourth.

Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.mamba import convolution
from llm_serving_exporter.facts.architectures.moe_decoder import Frame, frame, grouped_query, prepared
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import Geometry, Module, Part, RecurrentLayers


def olmo_hybrid(fields: Fields) -> Geometry:
    """Norms stand before the recurrent layers' halves, and behind the attending layers'."""
    fields = prepared(fields, {}, "attention_bias")
    shape = frame(fields)
    words = {"full_attention": "full", "linear_attention": "linear"}
    every_fourth = frozenset(range(3, shape.layers, 4)) or frozenset({shape.layers - 1})
    kinds = layering.listed(fields, "layer_types", shape.layers, words)
    full, linear = (kinds["full"], kinds["linear"]) if kinds else layering.split(every_fourth, shape.layers)
    heads = grouped_query(fields, shape.hidden)
    bias = fields.flag("attention_bias", default=False)
    recurrent, state = _delta(fields, shape, linear)
    prefix = f"{shape.layer}self_attn."
    modules = (
        *parts.grouped_query(
            shape.hidden, heads.heads, heads.kv_heads, heads.head_size, full, qkv_bias=bias, out_bias=bias, prefix=prefix
        ),
        parts.vector(f"{prefix}q_norm", heads.heads * heads.head_size, full),
        parts.vector(f"{prefix}k_norm", heads.kv_heads * heads.head_size, full),
        *recurrent,
        *parts.gated_mlp(shape.hidden, fields.whole("intermediate_size"), shape.every, prefix=f"{shape.layer}mlp."),
        parts.vector(f"{shape.layer}input_layernorm", shape.hidden, linear),
        parts.vector(f"{shape.layer}post_attention_layernorm", shape.hidden, shape.every),
        parts.vector(f"{shape.layer}post_feedforward_layernorm", shape.hidden, full),
        parts.vector(f"{shape.root}norm", shape.hidden),
        *parts.embeddings(shape.vocabulary, shape.hidden, tied=fields.flag("tie_word_embeddings", default=False)),
    )  # fmt: skip
    attention = (parts.attention_layers(len(full), heads.heads, heads.kv_heads, heads.head_size),)
    return Geometry(
        fields.model_type, modules, attention if full else (), shape.hidden, shape.layers, shape.vocabulary, (state,),
        left_out=fields.left_out,
    )  # fmt: skip


def _delta(fields: Fields, shape: Frame, layers: Layers) -> tuple[tuple[Module, ...], RecurrentLayers]:
    """Gated DeltaNet; sizes that a config leaves out follow from the attention's."""
    usual = fields.whole("num_attention_heads")
    key_heads, value_heads = (fields.whole(f"linear_num_{kind}_heads", default=usual) for kind in ("key", "value"))
    key_size = fields.whole("linear_key_head_dim", default=max(1, 3 * shape.hidden // (4 * key_heads)))
    value_size = fields.whole("linear_value_head_dim", default=2 * key_size)
    kernel = fields.whole("linear_conv_kernel_dim", default=4)
    keys, values, prefix = key_heads * key_size, value_heads * value_size, f"{shape.layer}linear_attn."
    rows = {
        "q_proj": keys,
        "k_proj": keys,
        "v_proj": values,
        "a_proj": value_heads,
        "b_proj": value_heads,
        "g_proj": values,
    }
    modules = (
        *(parts.linear(prefix + name, Part.RECURRENT, size, shape.hidden, layers) for name, size in rows.items()),
        parts.linear(f"{prefix}o_proj", Part.RECURRENT, shape.hidden, values, layers),
        convolution(f"{prefix}conv1d", 2 * keys + values, kernel, layers, bias=False),
        parts.vector(f"{prefix}A_log", value_heads, layers),
        parts.vector(f"{prefix}dt_bias", value_heads, layers),
        parts.vector(f"{prefix}o_norm", value_size, layers),
    )
    state = RecurrentLayers(len(layers), value_heads * key_size * value_size, (2 * keys + values) * (kernel - 1))
    return modules, state


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"olmo_hybrid": olmo_hybrid}
