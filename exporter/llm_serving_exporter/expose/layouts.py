"""Layouts: how the lines of a section of a page are put together, worked out once for all sections that are made up alike.

A section is a list of series that were added one after the other: their metrics, the names and values of their own labels, and which of
them share labels, but neither what the shared labels are nor any number. Targets of a fleet have the same few sections from page to
page. Of each the layout knows in which order pieces of text follow one another: the same for all, of the labels, and digits. The digits
of all numbers are made in one call, and one call picks all pieces: a line costs no call of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, cast

import orjson

from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.expose.labels import SEPARATOR, SharedLabels, write_label_value

# what a section is made up of, flat: the place of the labels that the series from here on share; a metric, behind it, where its series
# have labels of their own, their names and the values of each series; the edges of a histogram's buckets and whether it has a sum
Element = int | Metric | tuple[str | tuple[str, ...], ...] | bool
Own = tuple[str, ...]
Keys = tuple[str | tuple[str, ...], ...]

LE: Own = ("le",)
# layouts that are kept, of 5 to 30 KB: a fleet has a handful of runtimes, each with a handful of signals that come and go
_MOST_KEPT = 256
_NOT_FINITE = b"null"


class Added(NamedTuple):
    """Series of one metric that were added by one call."""

    metric: Metric
    place: int  # the place of their shared labels
    own: Own  # names of their own labels
    keys: Keys  # for each series the values of those, or the value where it is one
    has_sum: bool | None  # of a histogram, whether it has a count and a sum; None: it is no histogram


def read_section(section: Sequence[Element]) -> Iterator[Added]:
    """What was added, call by call."""
    place, at = 0, 0
    while at < len(section):
        element, at = section[at], at + 1
        if not isinstance(element, Metric):
            place = cast(int, element)
            continue
        own, keys, has_sum = Own(), cast(Keys, ((),)), None
        if at < len(section) and isinstance(section[at], tuple):
            own, keys, at = cast(Own, section[at]), cast(Keys, section[at + 1]), at + 2
            if at < len(section) and isinstance(section[at], bool):
                has_sum, at = cast(bool, section[at]), at + 1
        yield Added(element, place, own, keys, has_sum)


class _Line(NamedTuple):
    """One line: pieces of text by what they are."""

    name: str  # the name on the wire
    place: int  # the place of its shared labels
    own: Own  # names of its own labels
    values: tuple[str, ...]  # their values, as they are written


def _list_lines(added: Added) -> Iterator[_Line]:
    name, place = added.metric.full_name, added.place
    bucket = name if added.has_sum is None else f"{name}_bucket"
    # the order in which own labels stand in a line is that of their names, whatever they share
    order = sorted(range(len(added.own)), key=added.own.__getitem__)
    for key in added.keys:
        values = key if isinstance(key, tuple) else (key,)
        yield _Line(bucket, place, added.own, tuple(write_label_value(values[one]) for one in order))
    if added.has_sum:
        yield _Line(f"{name}_count", place, (), ())
        yield _Line(f"{name}_sum", place, (), ())


class SectionLayout:
    """How the lines of one make-up of a section are written."""

    __slots__ = ("_count", "_owns", "_pick", "_ranges", "_texts", "metrics")

    def __init__(self, section: tuple[Element, ...]) -> None:
        calls = list(read_section(section))
        # a histogram is looked at as a whole before it is added, and its numbers stand behind the others
        checked = [one for one in calls if one.has_sum is None]
        by_range: dict[tuple[float, float], list[int]] = {}
        for number, metric in enumerate([one.metric for one in checked for _ in one.keys]):
            by_range.setdefault((metric.bounds.least, metric.bounds.most), []).append(number)
        # what picks numbers of one range, at least two of them, for else it would be no tuple; the range
        self._ranges = tuple((itemgetter(*places, places[0]), *bounds) for bounds, places in by_range.items())
        lines = [(one.metric, line) for one in calls if one.has_sum is None for line in _list_lines(one)]
        lines += [(one.metric, line) for one in calls if one.has_sum is not None for line in _list_lines(one)]
        self._count = len(lines)
        # in the order of first use
        metrics: dict[Metric, list[tuple[int, _Line]]] = {one.metric: [] for one in calls}
        for number, (metric, line) in enumerate(lines):
            metrics[metric].append((number, line))
        self.metrics = tuple(metrics)
        combined = dict.fromkeys((line.place, line.own) for _, line in lines)
        # by place, the names of own labels around which its text is cut
        self._owns = tuple(
            tuple(own for of, own in combined if of == place)
            for place in range(1 + max((place for place, _ in combined), default=-1))
        )
        # what is picked from: texts of labels, digits, and what is the same each time
        ordered = [(place, own) for place, owns in enumerate(self._owns) for own in owns]
        starts = list(accumulate((len(own) + 1 for _, own in ordered), initial=0))
        first_of, first_digits = dict(zip(ordered, starts, strict=False)), starts[-1]
        texts: dict[str, int] = {}

        def find(text: str) -> int:
            return first_digits + len(lines) + texts.setdefault(text, len(texts))

        picked: list[int] = []
        for following in metrics.values():
            between = f"\n{SEPARATOR}" if picked else ""
            for number, line in following:
                first = first_of[line.place, line.own]
                picked += (find(between + line.name), first)
                for place, value in enumerate(line.values, first + 1):
                    picked += (find(value), place)
                picked.append(first_digits + number)
                between = "\n"
        picked.append(find("\n"))
        self._texts = list(texts)
        self._pick = itemgetter(*picked)

    def write(self, shared: Sequence[SharedLabels], numbers: Sequence[float]) -> list[str] | None:
        """The lines of each metric; None where one of the numbers is none that its metric can have.

        `shared`: labels by place; `numbers`: floats, those of histograms behind the others. Raises ValueError where they are not as many
        as there are series: each would stand behind another's name.
        """
        if len(numbers) != self._count:
            raise ValueError(f"{len(numbers)} numbers for {self._count} series")
        digits = orjson.dumps(numbers)
        if _NOT_FINITE in digits:  # JSON has neither NaN nor infinities
            return None
        for pick, least, most in self._ranges:
            found = pick(numbers)
            if not (least <= min(found) and max(found) <= most):
                return None
        pool = [
            text
            for labels, owns in zip(shared, self._owns, strict=False)
            for own in owns
            for text in labels.pieces.get(own) or labels.cut(own)
        ]
        pool += digits[1:-1].decode().split(",")
        pool += self._texts
        return "".join(self._pick(pool)).split(SEPARATOR)


# threads share it
find_layout = lru_cache(maxsize=_MOST_KEPT)(SectionLayout)
