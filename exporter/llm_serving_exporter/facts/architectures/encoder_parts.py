"""Parts of encoders: tables and tops that not every token passes, norms with bias, attention without a cache."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Module, Part, Span

_CLASSIFIER = "ForSequenceClassification"


def table(path: str, rows: int, columns: int) -> Module:
    """A small table that is looked up: positions, token types."""
    return Module(path, Part.ENCODER_ONLY, rows * columns, rows=rows, columns=columns, linear=False)


def side_linear(path: str, rows: int, columns: int, *, bias: bool = True) -> tuple[Module]:
    """A Linear module that a sequence passes once: pooler, classifier."""
    return (parts.linear(path, Part.ENCODER_ONLY, rows, columns, bias=bias),)


def layer_norm(path: str, size: int, layers: Layers = (), *, bias: bool = True) -> Module:
    """A LayerNorm: weight, and bias where it has one."""
    return parts.vector(path, 2 * size if bias else size, layers)


def attention(
    layers: int, heads: int, head_size: int, *, span: Span = Span.FULL, window_tokens: int | None = None
) -> AttentionLayers:
    """Attention that stores nothing and does not decode; FLOPs per token and token it looks at."""
    return AttentionLayers(layers, 0, heads, 0, 4 * heads * head_size, span, window_tokens, heads)


def labels(fields: Fields) -> int | None:
    """Outputs of a classifier (rerankers have one); None where the architecture is none."""
    if not fields.architecture.endswith(_CLASSIFIER):
        return None
    named = fields.values.get("id2label")
    return fields.whole("num_labels", default=len(named) if isinstance(named, Mapping) and named else 2)


def left_out(fields: Fields) -> tuple[str, ...]:
    """What the checkpoint holds beside the encoder: towers, and heads such as a masked language model's, which embedders do not load."""
    architecture = fields.architecture
    if not architecture or architecture.endswith(("Model", _CLASSIFIER)):
        return fields.left_out
    return (*fields.left_out, f"head of {architecture}")
