"""Series in columns: the samples of one name that share labels, and the families that they make up.

A page has hundreds of samples a target. An object for each of them costs more than its text, so that none is made unless somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.model.text import escape_label_value

# most label values are a bucket's edge, a phase or a signal, again on every target
_escaped = lru_cache(maxsize=4096)(escape_label_value)
# from here on the client library writes numbers otherwise than Python
_PLAIN_BELOW = 1e6

Keys = Sequence[tuple[str, ...]]


class Block(NamedTuple):
    """Samples of one name."""

    # on the wire, with its suffix
    name: str
    # labels that all of them have
    shared: SharedLabels
    # names of the labels that each has beside them
    own: tuple[str, ...]
    # for each sample the values of `own`
    keys: Keys
    # for each sample its value
    values: Sequence[float]


class BlockFamily(Family):
    """A family of blocks; to the client library's functions one like its own."""

    def __init__(self, name: str, documentation: str, kind: str) -> None:
        self.name, self.documentation, self.type, self.unit = name, documentation, kind, ""
        self.blocks: list[Block] = []

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override]  # an attribute there
        """The samples as objects, made again each time."""
        return [
            Sample(block.name, {**block.shared, **dict(zip(block.own, key, strict=True))}, value)
            for block in self.blocks
            for key, value in zip(block.keys, block.values, strict=True)
        ]


def write_number(value: float) -> str:
    """A number as the client library writes it."""
    if -_PLAIN_BELOW < value < _PLAIN_BELOW:  # neither NaN nor an infinity
        return repr(value)
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    return text


def write_blocks(blocks: Iterable[Block]) -> list[str]:
    """The lines of all samples, each with its newline."""
    lines: list[str] = []
    for name, shared, own, keys, values in blocks:
        texts, order = shared.cut(own)
        # repr, as `write_number`: a call costs as much as the rest of a line
        numbers = [repr(value) if -_PLAIN_BELOW < value < _PLAIN_BELOW else write_number(value) for value in values]
        if not own:
            start = f"{name}{{{texts[0]}}} " if texts[0] else f"{name} "
            lines += [f"{start}{number}\n" for number in numbers]
            continue
        first, last = f"{name}{{{texts[0]}", f"{texts[-1]}}} "
        if len(own) == 1:
            lines += [f"{first}{_escaped(key)}{last}{number}\n" for (key,), number in zip(keys, numbers, strict=True)]
            continue
        places = list(zip(order[:-1], texts[1:-1], strict=True))
        for key, number in zip(keys, numbers, strict=True):
            inner = "".join([f"{_escaped(key[place])}{text}" for place, text in places])
            lines.append(f"{first}{inner}{_escaped(key[order[-1]])}{last}{number}\n")
    return lines
