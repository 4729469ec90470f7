"""Values of a family's names that arithmetic does not give: heads that must divide, experts, and which layer is of which kind.

A rule takes the look at a config and gives one value for each name of its key in `Family.sizes`. Rules of layers are as in transformers
5.23.0's config classes; `layer_types`, where a config has it, goes before an architecture's own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm_serving_exporter.facts.fields import MOST_LAYERS, Fields

if TYPE_CHECKING:
    from llm_serving_exporter.facts.shapes import Layers, Look, Rule

Chosen = Callable[["Look"], Sequence[bool]]  # for each layer whether it slides, or is of the kind that is named first

FULL_AND_SLIDING = {"full_attention": "full", "sliding_attention": "sliding"}
FULL_AND_LINEAR = {"full_attention": "full", "linear_attention": "linear"}


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


def shared_heads(fields: Fields, heads: int, key: str) -> int:
    """The KV heads, each shared by the same number of query heads."""
    kv = fields.whole(key, default=heads)
    if heads % kv:
        raise fields.refused(key, f"is {kv} (as given or by default), which does not divide the {heads} heads")
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
    kv = _dividing(fields, count)
    size = fields.whole("head_dim", default=look["hidden"] // count)
    if not size:
        raise fields.refused("num_attention_heads", f"is {count}, more than hidden_size {look['hidden']}")
    return count, kv, size


def _dividing(fields: Fields, count: int) -> int:
    kv = fields.whole("num_key_value_heads", default=count)
    if count % kv:
        raise fields.refused("num_key_value_heads", f"is {kv}, which does not divide the {count} heads")
    return kv


def strict_heads(
    queries: str = "num_attention_heads",
    size: str | None = "head_dim",
    other: str | None = None,
    short: str | None = None,
) -> Rule:
    """heads, kv, head of hybrids and encoders, whose heads must divide hidden where no key (`size`, `other`) states a head's size.

    `short`: the key of heads where `queries` is missing.
    """

    def rule(look: Look) -> tuple[int, int, int]:
        fields, hidden = look.fields, look["hidden"]
        key = queries if short is None or fields.has(queries) else short
        count = fields.whole(key)
        kv = _dividing(fields, count)
        stated = size if other is None or (size is not None and fields.has(size)) else other
        if stated is not None and fields.has(stated):
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
        if passed > count:
            key = next((key for key in per if fields.values.get(key) is not None), per[0])
            raise fields.refused(
                key, f"is {passed}, more than the {count} experts" + (f" of {keys[0]}" if named else "")
            )
        if sparse and not look["sparse"]:
            key = next((key for key in keys if fields.values.get(key) is not None), keys[0])
            raise fields.refused(key, f"is {count}, but no layer has experts by the other keys")
        return count, passed

    return rule


# layers


def by_kind(fields: Fields, key: str, entries: Sequence[Any], words: Mapping[str, str]) -> tuple[Layers, ...]:
    """The layers of each kind, in the order of `words`, which has the kind that each entry stands for; () for a kind that no layer is of.

    Raises FactsError that names the key for an entry without a kind, and where there are no entries or too many.
    """
    if not 0 < len(entries) <= MOST_LAYERS:
        raise fields.refused(key, f"has {len(entries)} entries, not 1 to {MOST_LAYERS}")
    layers: dict[str, list[int]] = {kind: [] for kind in words.values()}
    for index, entry in enumerate(entries):
        kind = words.get(entry) if isinstance(entry, str) else None
        if kind is None:
            raise fields.refused(key, f"has {entry!r} for layer {index}, no kind of layer that is known here")
        layers[kind].append(index)
    return tuple(map(tuple, layers.values()))


def each_listed(fields: Fields, key: str, count: int, words: Mapping[str, str]) -> tuple[Layers, ...] | None:
    """`by_kind` of a list with an entry for each of `count` layers; None where the key is missing."""
    entries = fields.listed(key)
    if entries is None:
        return None
    if len(entries) != count:
        raise fields.refused(key, f"has {len(entries)} entries for {count} layers")
    return by_kind(fields, key, entries, words)


def kinds(words: Mapping[str, str], otherwise: Chosen) -> Rule:
    """The layers of each kind by `layer_types`, else those that `otherwise` chooses, which are of the first kind, and the others."""

    def rule(look: Look) -> tuple[Layers, ...]:
        listed = each_listed(look.fields, "layer_types", look["layers"], words)
        return split(otherwise(look)) if listed is None else listed

    return rule


def split(chosen: Sequence[bool]) -> tuple[Layers, Layers]:
    """The chosen layers and the others."""
    return tuple(layer for layer, of_kind in enumerate(chosen) if of_kind), tuple(
        layer for layer, of_kind in enumerate(chosen) if not of_kind
    )


def chosen(choose: Chosen) -> Rule:
    """The layers that `choose` chooses, and the others."""
    return lambda look: split(choose(look))


def every_nth(default: int, *keys: str) -> Chosen:
    """The last layer of each `default`, or as many as a key says."""

    def choose(look: Look) -> list[bool]:
        period = look.fields.whole(*keys, default=default) if keys else default
        return [(layer + 1) % period == 0 for layer in look["every"]]

    return choose


def indices(fields: Fields, key: str, count: int) -> frozenset[int]:
    """A list of layers' indices, empty where the key is missing."""
    entries = fields.listed(key) or ()
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < count:
            raise fields.refused(key, f"has {entry!r}, not the index of one of {count} layers")
    return frozenset(entries)


def indexed(key: str) -> Chosen:
    """The layers whose indices a key lists."""

    def choose(look: Look) -> list[bool]:
        listed = indices(look.fields, key, look["layers"])
        return [layer in listed for layer in look["every"]]

    return choose


def marked(fields: Fields, key: str, count: int) -> Sequence[Any]:
    """A list with a mark for each layer."""
    marks = fields.listed(key)
    if marks is None or len(marks) != count:
        raise fields.refused(key, f"has {len(marks or ())} entries for {count} layers")
    return marks


def periodic(name: str) -> Chosen:
    """Every `<name>_period`th layer from `<name>_offset` on."""

    def choose(look: Look) -> list[bool]:
        period, offset = look.fields.whole(f"{name}_period"), look.fields.whole(f"{name}_offset", least=0)
        if offset >= period:
            raise look.fields.refused(f"{name}_offset", f"is {offset}, not below {name}_period, which is {period}")
        return [layer % period == offset for layer in look["every"]]

    return choose


# layers with experts


def every_sparse(look: Look) -> tuple[Layers, Layers]:
    """sparse, dense: every layer has experts."""
    return look["every"], ()


def after_dense(look: Look) -> tuple[Layers, Layers]:
    """sparse, dense: as `mlp_layer_types` or `moe_layer_freq` lists them, else all from `first_k_dense_replace` on, each
    `moe_layer_freq`th."""
    fields, count = look.fields, look["layers"]
    listed = each_listed(fields, "mlp_layer_types", count, {"sparse": "sparse", "dense": "dense"})
    if listed is not None:
        return listed[0], listed[1]
    if isinstance(fields.found("moe_layer_freq"), list):
        return split([bool(mark) for mark in marked(fields, "moe_layer_freq", count)])
    first = fields.whole("first_k_dense_replace", default=0, least=0)
    period = fields.whole("moe_layer_freq", default=1)
    return split([layer >= first and layer % period == 0 for layer in look["every"]])


def from_layer(key: str) -> Rule:
    """sparse, dense: all from the layer that a key says on."""

    def rule(look: Look) -> tuple[Layers, Layers]:
        first = look.fields.whole(key, least=0)
        return split([layer >= first for layer in look["every"]])

    return rule


def stepped(look: Look) -> tuple[Layers, Layers]:
    """sparse, dense: experts in every `decoder_sparse_step`th layer, but for those that `mlp_only_layers` lists."""
    step = look.fields.whole("decoder_sparse_step", default=1)
    dense = indices(look.fields, "mlp_only_layers", look["layers"])
    return split([(layer + 1) % step == 0 and layer not in dense for layer in look["every"]])


# sliding layers


def window(choose: Chosen) -> Rule:
    """full, sliding: by `layer_types`, else those slide that `choose` chooses."""

    def rule(look: Look) -> tuple[Layers, Layers]:
        fields, listed = look.fields, look.fields.listed("layer_types")
        if listed is None:
            sliding, full = split(choose(look))
            return full, sliding
        if len(listed) != look["layers"]:
            raise fields.refused("layer_types", f"has {len(listed)} entries for {look['layers']} layers")
        for entry in listed:
            if not isinstance(entry, str) or entry not in FULL_AND_SLIDING:
                raise fields.refused("layer_types", f"holds {entry!r}, for which there is no formula here")
        return split([entry == "full_attention" for entry in listed])

    return rule


def _never(look: Look) -> Sequence[bool]:
    """The architecture has no window; a config that names one is refused, as engines differ on what they make of it."""
    fields = look.fields
    if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
        raise fields.refused(
            "sliding_window", f"is {fields.found('sliding_window')!r}, for an architecture without one"
        )
    return [False] * look["layers"]


def _beyond_first(look: Look) -> Sequence[bool]:
    """Qwen: no window unless `use_sliding_window`; then the layers from `max_window_layers` on slide."""
    if not look.fields.has("sliding_window") or not look.fields.flag("use_sliding_window", default=False):
        return [False] * look["layers"]
    first = look.fields.whole("max_window_layers", least=0)
    return [layer >= first for layer in look["every"]]


def _letters(look: Look) -> Sequence[bool]:
    """EXAONE 4: `sliding_window_pattern` is a period, or letters such as LLLG (local, global) that repeat."""
    fields = look.fields
    pattern = fields.found("sliding_window_pattern")
    if not fields.has("sliding_window") or pattern in (None, 0):
        return [False] * look["layers"]
    if not isinstance(pattern, str):
        return [not last for last in every_nth(4, "sliding_window_pattern")(look)]
    if not pattern or not set(pattern) <= {"L", "G"}:
        raise fields.refused("sliding_window_pattern", f"is {pattern!r}, not a whole number nor letters L and G")
    return [pattern[layer % len(pattern)] == "L" for layer in look["every"]]


def _without_rope(look: Look) -> Sequence[bool]:
    """SmolLM3: with `use_sliding_window`, the layers that `no_rope_layers` marks with 0; by default every fourth."""
    fields = look.fields
    if not fields.has("sliding_window") or not fields.flag("use_sliding_window", default=False):
        return [False] * look["layers"]
    if fields.listed("no_rope_layers") is None:
        return every_nth(4, "no_rope_layer_interval")(look)
    return [not rope for rope in marked(fields, "no_rope_layers", look["layers"])]


def all_but_every(full: int, *keys: str) -> Rule:
    """Each `full`-th layer is full, those between slide: Gemma 2 (2), Gemma 3 (6), Cohere 2 and OLMo 3 (4); a key may say otherwise."""
    last = every_nth(full, *keys)
    return window(lambda look: [not full for full in last(look)])


def all_but_first_of(group: int) -> Rule:
    """The first layer of each `group` is full, the others slide: CWM, Granite with sinks (4)."""
    return window(lambda look: [layer % group != 0 for layer in look["every"]])


never = window(_never)
# every layer slides where there is a window: Mistral 0.1, Phi-3, StarCoder2
always = window(lambda look: [look.fields.has("sliding_window")] * look["layers"])
beyond_first = window(_beyond_first)
letters = window(_letters)
without_rope = window(_without_rope)
