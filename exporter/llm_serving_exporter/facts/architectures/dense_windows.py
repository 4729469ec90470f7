"""Which layers of a decoder look back only as far as a window (facts model-math B.9).

A rule takes the fields and the number of layers and says for each layer whether it slides. `layer_types`, where a config has it,
goes before the architecture's own rule. Rules as in transformers 5.23.0's config classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.facts.parts import attention_layers
from llm_serving_exporter.model.geometry import AttentionLayers, Span
from llm_serving_exporter.model.numbers import add_up

Rule = Callable[[Fields, int], Sequence[bool]]

_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def never(fields: Fields, layers: int) -> Sequence[bool]:
    """The architecture has no window; a config that names one is refused, as engines differ on what they make of it."""
    if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
        raise fields.refused(
            "sliding_window", f"is {fields.found('sliding_window')!r}, for an architecture without one"
        )
    return [False] * layers


def always(fields: Fields, layers: int) -> Sequence[bool]:
    """Every layer slides where there is a window: Mistral 0.1, Phi-3, StarCoder2."""
    return [fields.has("sliding_window")] * layers


def beyond_first(fields: Fields, layers: int) -> Sequence[bool]:
    """Qwen: no window unless `use_sliding_window`; then the layers from `max_window_layers` on slide."""
    if not fields.has("sliding_window") or not fields.flag("use_sliding_window", default=False):
        return [False] * layers
    first = fields.whole("max_window_layers", least=0)
    return [layer >= first for layer in range(layers)]


def all_but_every(full: int, *keys: str) -> Rule:
    """Each `full`-th layer is full, those between slide: Gemma 2 (2), Gemma 3 (6), Cohere 2 and OLMo 3 (4); a key may say otherwise."""

    def rule(fields: Fields, layers: int) -> Sequence[bool]:
        period = fields.whole(*keys, default=full) if keys else full
        return [(layer + 1) % period != 0 for layer in range(layers)]

    return rule


def all_but_first_of(group: int) -> Rule:
    """The first layer of each `group` is full, the others slide: CWM, Granite with sinks (4)."""

    def rule(fields: Fields, layers: int) -> Sequence[bool]:
        return [layer % group != 0 for layer in range(layers)]

    return rule


def letters(fields: Fields, layers: int) -> Sequence[bool]:
    """EXAONE 4: `sliding_window_pattern` is a period as above, or letters such as LLLG (local, global) that repeat."""
    pattern = fields.found("sliding_window_pattern")
    if not fields.has("sliding_window") or pattern in (None, 0):
        return [False] * layers
    if not isinstance(pattern, str):
        return all_but_every(4, "sliding_window_pattern")(fields, layers)
    if not pattern or not set(pattern) <= {"L", "G"}:
        raise fields.refused("sliding_window_pattern", f"is {pattern!r}, not a whole number nor letters L and G")
    return [pattern[layer % len(pattern)] == "L" for layer in range(layers)]


def without_rope(fields: Fields, layers: int) -> Sequence[bool]:
    """SmolLM3: with `use_sliding_window`, the layers that `no_rope_layers` marks with 0; by default every fourth."""
    if not fields.has("sliding_window") or not fields.flag("use_sliding_window", default=False):
        return [False] * layers
    listed = fields.listed("no_rope_layers")
    if listed is None:
        interval = fields.whole("no_rope_layer_interval", default=4)
        return [(layer + 1) % interval == 0 for layer in range(layers)]
    if len(listed) != layers:
        raise fields.refused("no_rope_layers", f"has {len(listed)} entries for {layers} layers")
    return [not rope for rope in listed]


def attention_groups(
    fields: Fields, rule: Rule, layers: int, heads: int, kv_heads: int, head_size: int
) -> tuple[AttentionLayers, ...]:
    """The attention layers of a decoder: those that look at all of the context, and those that slide."""
    listed = fields.listed("layer_types")
    sliding = add_up(rule(fields, layers) if listed is None else _listed(fields, listed, layers))
    groups = []
    if layers > sliding:
        groups.append(attention_layers(layers - sliding, heads, kv_heads, head_size))
    if sliding:
        window = fields.whole("sliding_window")
        groups.append(attention_layers(sliding, heads, kv_heads, head_size, span=Span.SLIDING, window_tokens=window))
    return tuple(groups)


def _listed(fields: Fields, listed: Sequence[object], layers: int) -> Sequence[bool]:
    if len(listed) != layers:
        raise fields.refused("layer_types", f"has {len(listed)} entries for {layers} layers")
    for entry in listed:
        if not isinstance(entry, str) or entry not in _LAYER_TYPES:
            raise fields.refused("layer_types", f"holds {entry!r}, for which there is no formula here")
    return [_LAYER_TYPES[str(entry)] for entry in listed]
