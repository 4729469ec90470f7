"""Llama 3.2 Vision: some layers attend to an image's tokens instead of the context.

Their keys and values are an image's, kept once and read by every step; how many tokens that is depends on the image, and a request
without one passes these layers by. Verified against transformers 5.23.0 on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.architectures import layering
from llm_serving_exporter.facts.architectures.attention_kinds import Kind
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry, Module, Part, Span
from llm_serving_exporter.model.record import replace

# the config class's defaults
_MLLAMA: Mapping[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "vocab_size": 128256,
    "num_key_value_heads": 8, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
}  # fmt: skip
# rows of the input table beyond the vocabulary, for the image's token
_MORE_ROWS = 8


def mllama(fields: Fields) -> Geometry:
    """The language part, cross attention included."""
    fields = fields.with_defaults(_MLLAMA)
    hidden, count, vocabulary = fields.whole("hidden_size"), fields.layers(), fields.whole("vocab_size")
    heads = fields.whole("num_attention_heads")
    if hidden % heads:
        raise fields.refused("num_attention_heads", f"is {heads}, which does not divide the hidden size {hidden}")
    kind = Kind(heads, fields.whole("num_key_value_heads"), hidden // heads, hidden // heads)
    cross, own = layering.split(layering.indices(fields, "cross_attention_layers", count), count)
    every = tuple(range(count))
    root, head = ("language_model.model.", "language_model.lm_head") if fields.nested else ("model.", "lm_head")
    layer = f"{root}layers.{{}}."
    table = Module(
        f"{root}embed_tokens", Part.EMBEDDING, (vocabulary + _MORE_ROWS) * hidden, rows=vocabulary + _MORE_ROWS,
        columns=hidden, linear=False,
    )  # fmt: skip
    modules = (
        table,
        parts.linear(head, Part.LM_HEAD, vocabulary, hidden),
        *kind.queries(f"{layer}self_attn.", hidden, own),
        *kind.keys(f"{layer}self_attn.", hidden, own),
        *kind.queries(f"{layer}cross_attn.", hidden, cross),
        *kind.keys(f"{layer}cross_attn.", hidden, cross),
        *(parts.vector(f"{layer}cross_attn.{name}", kind.key_size, cross) for name in ("q_norm", "k_norm")),
        *(parts.vector(layer + name, 1, cross) for name in ("cross_attn_attn_gate", "cross_attn_mlp_gate")),
        *parts.gated_mlp(hidden, fields.whole("intermediate_size"), every, prefix=f"{layer}mlp."),
        *(parts.vector(layer + name, hidden, every) for name in ("input_layernorm", "post_attention_layernorm")),
        parts.vector(f"{root}norm", hidden),
    )
    images = tuple(replace(group, span=Span.CROSS) for group in kind.reads(len(cross)))
    left_out = (*fields.left_out, "KV of images") if cross else fields.left_out
    return Geometry(
        fields.model_type, modules, (*kind.reads(len(own)), *images), hidden, count, vocabulary, left_out=left_out
    )


BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {"mllama": mllama, "mllama_text_model": mllama}
