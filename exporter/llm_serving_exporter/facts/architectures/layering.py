"""Which layer is of which kind, as hybrids' configs say it: by list, by pattern, by index or by period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_serving_exporter.facts.fields import MOST_LAYERS, Fields
from llm_serving_exporter.facts.parts import Layers


def by_kind(fields: Fields, key: str, entries: Sequence[Any], words: Mapping[str, str]) -> Mapping[str, Layers]:
    """The layers of each kind, () for a kind that no layer is of; `words` has the kind that each entry stands for.

    Raises FactsError that names the key for an entry without a kind, and where there are no entries or too many.
    """
    if not 0 < len(entries) <= MOST_LAYERS:
        raise fields.refused(key, f"has {len(entries)} entries, not 1 to {MOST_LAYERS}")
    found: dict[str, list[int]] = {kind: [] for kind in words.values()}
    for index, entry in enumerate(entries):
        kind = words.get(entry) if isinstance(entry, str) else None
        if kind is None:
            raise fields.refused(key, f"has {entry!r} for layer {index}, no kind of layer that is known here")
        found[kind].append(index)
    return {kind: tuple(layers) for kind, layers in found.items()}


def listed(fields: Fields, key: str, count: int, words: Mapping[str, str]) -> Mapping[str, Layers] | None:
    """`by_kind` of a list with an entry for each of `count` layers; None where the key is missing."""
    entries = fields.listed(key)
    if entries is None:
        return None
    if len(entries) != count:
        raise fields.refused(key, f"has {len(entries)} entries for {count} layers")
    return by_kind(fields, key, entries, words)


def indices(fields: Fields, key: str, count: int) -> frozenset[int]:
    """A list of layers' indices, empty where the key is missing."""
    entries = fields.listed(key) or ()
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < count:
            raise fields.refused(key, f"has {entry!r}, not the index of one of {count} layers")
    return frozenset(entries)


def periodic(fields: Fields, name: str, count: int) -> frozenset[int]:
    """Every `<name>_period`th layer from `<name>_offset` on."""
    period, offset = fields.whole(f"{name}_period"), fields.whole(f"{name}_offset", least=0)
    if offset >= period:
        raise fields.refused(f"{name}_offset", f"is {offset}, not below {name}_period, which is {period}")
    return frozenset(range(offset, count, period))


def split(chosen: frozenset[int], count: int) -> tuple[Layers, Layers]:
    """The chosen layers and the others, each in order."""
    every = range(count)
    return tuple(index for index in every if index in chosen), tuple(index for index in every if index not in chosen)
