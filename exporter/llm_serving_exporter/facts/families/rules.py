"""Values of a family's names that arithmetic does not give: heads that must divide, experts, and which layer is of which kind.

A rule takes the look at a config and gives one value for each name of its key in `Family.sizes`. Rules of layers are as in transformers
5.23.0's config classes; `layer_types`, where a config has it, goes before an architecture's own rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts.fields import MOST_LAYERS, Fields
from llm_serving_exporter.facts.shapes import Layers, Look, Rule

FULL_AND_SLIDING = {"full_attention": "full", "sliding_attention": "sliding"}
FULL_AND_LINEAR = {"full_attention": "full", "linear_attention": "linear"}
SPARSE_AND_DENSE = {"sparse": "sparse", "dense": "dense"}


def layers_of(*keys: str) -> Rule:
    """The number of layers under a family's own keys."""
    return lambda look: look.fields.layers(*keys)


# heads


def dense_heads(look: Look) -> tuple[int, int, int]:
    """heads, kv, head: KV heads absent: as many as heads; head size absent: hidden / heads."""
    fields, hidden, heads = look.fields, look["hidden"], look.fields.whole("num_attention_heads")
    kv = shared_heads(fields, heads, "num_key_value_heads")
    return heads, kv, fields.whole("head_dim") if fields.has("head_dim") else split_heads(fields, hidden, heads)


def split_heads(fields: Fields, hidden: int, heads: int) -> int:
    """The head size where hidden is shared out among the heads."""
    if heads > hidden:
        raise fields.refused("hidden_size", f"is {hidden}, less than the number of heads, {heads}")
    return hidden // heads


def shared_heads(fields: Fields, heads: int, key: str, what: str = " (as given or by default)") -> int:
    """The KV heads, each shared by the same number of query heads."""
    kv = fields.whole(key, default=heads)
    if heads % kv:
        raise fields.refused(key, f"is {kv}{what}, which does not divide the {heads} heads")
    return kv


def own_heads(*keys: str, shared: str | Rule | None = None, one: str | None = None) -> Rule:
    """heads, kv, head of a family whose head size is hidden / heads: heads under `keys`; KV heads under `shared`, or one where the flag
    `one` says so."""

    def rule(look: Look) -> tuple[int, int, int]:
        fields, hidden, heads = look.fields, look["hidden"], look.fields.whole(*keys)
        size = split_heads(fields, hidden, heads)
        if fields.whole("head_dim", default=size) != size:
            raise fields.refused("head_dim", f"is not hidden size / heads = {size}, as this architecture has it")
        key = shared(look) if callable(shared) else shared
        kv = 1 if one is not None and look.flag(one) else heads
        return heads, kv if key is None else shared_heads(fields, heads, key), size

    return rule


def heads(look: Look) -> tuple[int, int, int]:
    """heads, kv, head of decoders with experts."""
    fields, count = look.fields, look.fields.whole("num_attention_heads")
    kv = shared_heads(fields, count, "num_key_value_heads", "")
    size = fields.whole("head_dim", default=look["hidden"] // count)
    if not size:
        raise fields.refused("num_attention_heads", f"is {count}, more than hidden_size {look['hidden']}")
    return count, kv, size


def strict_heads(*sizes: str, queries: Sequence[str] = ("num_attention_heads",)) -> Rule:
    """heads, kv, head of hybrids and encoders, whose heads must divide hidden where none of the keys `sizes` states a head's size."""

    def rule(look: Look) -> tuple[int, int, int]:
        fields, hidden = look.fields, look["hidden"]
        key = next(filter(fields.has, queries), queries[-1])
        count = fields.whole(key)
        kv = shared_heads(fields, count, "num_key_value_heads", "")
        stated = next(filter(fields.has, sizes), None)
        if stated is not None:
            return count, kv, fields.whole(stated)
        if hidden % count:
            raise fields.refused(key, f"is {count}, which does not divide the hidden size {hidden}")
        return count, kv, hidden // count

    return rule


# experts


def routed(*keys: str, per: Sequence[str] = ("num_experts_per_tok",), named: bool = False, sparse: bool = True) -> Rule:
    """experts, per_token: routed experts of a layer, and how many a token passes. `named`: a message says their key; `sparse`: some layer
    must have experts."""

    def rule(look: Look) -> tuple[int, int]:
        fields = look.fields
        count, passed = fields.first(*keys), fields.first(*per)

        def stated(among: Sequence[str]) -> str:
            return next((key for key in among if fields.values.get(key) is not None), among[0])

        if passed > count:
            of = f" of {keys[0]}" if named else ""
            raise fields.refused(stated(per), f"is {passed}, more than the {count} experts{of}")
        if sparse and not look["sparse"]:
            raise fields.refused(stated(keys), f"is {count}, but no layer has experts by the other keys")
        return count, passed

    return rule


# layers

_UNKNOWN_KIND = "has {entry!r} for layer {index}, no kind of layer that is known here"


def by_kind(
    fields: Fields, key: str, entries: Sequence[Any], words: Mapping[str, str], fault: str = _UNKNOWN_KIND
) -> tuple[Layers, ...]:
    """The layers of each kind, in the order of `words`, which has the kind that each entry stands for; () for a kind that no layer is of.

    Raises FactsError that names the key for an entry without a kind, and where there are no entries or too many.
    """
    if not 0 < len(entries) <= MOST_LAYERS:
        raise fields.refused(key, f"has {len(entries)} entries, not 1 to {MOST_LAYERS}")
    layers: dict[str, list[int]] = {kind: [] for kind in words.values()}
    for index, entry in enumerate(entries):
        kind = words.get(entry) if isinstance(entry, str) else None
        if kind is None:
            raise fields.refused(key, fault.format(entry=entry, index=index))
        layers[kind].append(index)
    return tuple(map(tuple, layers.values()))


def kinds(
    words: Mapping[str, str],
    otherwise: str | Rule,
    key: str = "layer_types",
    fault: str = _UNKNOWN_KIND,
    behind: str | None = None,
) -> Rule:
    """The layers of each kind by a list with an entry for each layer, else by a rule, or a text that tells the first kind. `behind`: the
    key of how many layers more a list may have, which are not the model's own."""

    def rule(look: Look) -> tuple[Layers, ...]:
        entries, count = look.fields.listed(key), look["layers"]
        if entries is None:
            layers: tuple[Layers, ...] = otherwise(look) if callable(otherwise) else look.split(otherwise)
            return layers
        more = look.fields.whole(behind, default=0, least=0) if behind is not None else 0
        if len(entries) not in (count, count + more):
            raise look.fields.refused(key, f"has {len(entries)} entries for {count} layers")
        return by_kind(look.fields, key, entries[:count], words, fault)

    return rule


def _listed_or_periodic(look: Look) -> tuple[Layers, Layers]:
    """As `moe_layer_freq` lists them, else all from `first_k_dense_replace` on, each `moe_layer_freq`th."""
    if isinstance(look.fields.found("moe_layer_freq"), list):
        return look.split("moe_layer_freq[layer]")
    return look.split("layer >= (first_k_dense_replace | 0) and layer % (moe_layer_freq | 1) == 0")


# sparse, dense
after_dense = kinds(SPARSE_AND_DENSE, _listed_or_periodic, "mlp_layer_types")
# experts in every `decoder_sparse_step`th layer, but for those that `mlp_only_layers` lists
STEPPED = "(layer + 1) % (decoder_sparse_step | 1) == 0 and layer not in mlp_only_layers"


def enumerated(otherwise: str) -> Rule:
    """sparse, dense: by the indices in `moe_layers_enum`, a list or a text with commas, else those of which the text holds."""

    def rule(look: Look) -> tuple[Layers, Layers]:
        said = look.fields.found("moe_layers_enum")
        entries = said.split(",") if isinstance(said, str) else said
        if entries is None:
            return look.split(otherwise)
        if not isinstance(entries, list) or not all(str(entry).strip().isdigit() for entry in entries):
            raise look.fields.refused("moe_layers_enum", "is not a list of layers' indices")
        chosen = {int(entry) for entry in entries}
        sparse = tuple(layer for layer in look["every"] if layer in chosen)
        return sparse, tuple(layer for layer in look["every"] if layer not in chosen)

    return rule


# full and sliding layers


def window(full: str | Rule) -> Rule:
    """full, sliding: by `layer_types`, else those are full of which the text holds."""
    return kinds(FULL_AND_SLIDING, full, fault="holds {entry!r}, for which there is no formula here")


def every_nth(default: int, *keys: str) -> str:
    """The last layer of each `default`, or as many as a key says."""
    return f"(layer + 1) % ({' | '.join((*keys, str(default)))}) == 0"


def all_but_every(full: int, *keys: str) -> Rule:
    """Each `full`-th layer is full, those between slide: Gemma 2 (2), Gemma 3 (6), Cohere 2 and OLMo 3 (4); a key may say otherwise."""
    return window(every_nth(full, *keys))


def _never(look: Look) -> tuple[Layers, Layers]:
    """The architecture has no window; a config that names one is refused, as engines differ on what they make of it."""
    fields = look.fields
    if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
        raise fields.refused(
            "sliding_window", f"is {fields.found('sliding_window')!r}, for an architecture without one"
        )
    return look["every"], ()


def _letters(look: Look) -> tuple[Layers, ...]:
    """EXAONE 4: `sliding_window_pattern` is a period, or letters such as LLLG (local, global) that repeat."""
    fields, pattern = look.fields, look.fields.found("sliding_window_pattern")
    if not fields.has("sliding_window") or pattern in (None, 0):
        return look["every"], ()
    if not isinstance(pattern, str):
        return look.split(every_nth(4, "sliding_window_pattern"))
    if not pattern or not set(pattern) <= {"L", "G"}:
        raise fields.refused("sliding_window_pattern", f"is {pattern!r}, not a whole number nor letters L and G")
    letters = [pattern[layer % len(pattern)] for layer in look["every"]]
    return by_kind(fields, "sliding_window_pattern", letters, {"G": "full", "L": "sliding"})


never, letters = window(_never), window(_letters)
# the first layer of each four is full: CWM, Granite with sinks
all_but_first_of_four = window("layer % 4 == 0")
# every layer slides where there is a window: Mistral 0.1, Phi-3, StarCoder2
always = window("not has(sliding_window)")
# Qwen: no window unless `use_sliding_window`; then the layers from `max_window_layers` on slide
beyond_first = window("not (has(sliding_window) and use_sliding_window and layer >= zero(max_window_layers))")
# SmolLM3: with `use_sliding_window`, the layers that `no_rope_layers` marks with 0; by default every fourth
without_rope = window(
    "not (has(sliding_window) and use_sliding_window and "
    "(not no_rope_layers[layer] if has(no_rope_layers) else (layer + 1) % (no_rope_layer_interval | 4) == 0))"
)
