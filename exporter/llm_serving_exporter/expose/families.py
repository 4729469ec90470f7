"""Catalogue entries and values -> the client library's metric families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, TypeVar, cast

import orjson

from llm_serving_exporter.catalogue.health import AS_WRITTEN
from llm_serving_exporter.catalogue.own_labels import MOST_LABELS
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS, PLACE_LABELS, Metric
from llm_serving_exporter.expose.encode import LineFamily, write_number
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.target import NOWHERE, Identity, NodePlace, Target
from llm_serving_exporter.model.text import escape_label_value

# --- Labels of series. What many series share is put in order and escaped once, which is most of what rendering a page costs.


# derived labels that are kept for the next page: engines and models of one target, whose names may change without end
MOST_KEPT = 256
# stands between the lines of two metrics while they are put together, and so in no label's value
SEPARATOR = "\0"


def write_label_value(value: str) -> str:
    """A label's value as it stands in a line."""
    return escape_label_value(value).replace(SEPARATOR, "\N{REPLACEMENT CHARACTER}")


class SharedLabels(Mapping[str, str]):
    """Labels that many series have in common; of a series that has no more, all of its labels."""

    __slots__ = ("_more", "_pairs", "pieces", "unchanged")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)
        # what `cut` has found, by the names of a series' own labels
        self.pieces: dict[tuple[str, ...], tuple[str, ...]] = {}
        # by the labels that they have more
        self._more: dict[tuple[tuple[str, str], ...], SharedLabels] = {}
        # lines that were written for the last page, by metric, with what they were written from; None: there are none to be used again
        self.unchanged: tuple[object, tuple[tuple[Metric, str], ...]] | None = None

    def with_labels(self, **own: str) -> SharedLabels:
        """These and more, for series that share those too; one of the same name takes the place of the old one."""
        key = tuple(own.items())
        found = self._more.get(key)
        if found is None:
            if len(self._more) >= MOST_KEPT:
                self._more.clear()
            found = self._more[key] = SharedLabels({**self._pairs, **own})
        return found

    def cut(self, own: tuple[str, ...]) -> tuple[str, ...]:
        """The exposition formats' text of these labels, in the order of their names, cut where the values of the labels `own` stand.

        One more than there are own labels, in the order of their names: before the first value, between two, after the last; with the
        braces and the blank behind them. A label of `own` takes the place of a shared one of its name.
        """
        found = self.pieces.get(own)
        if found is None:
            shared = {name: text for name, text in self._pairs.items() if name not in own}
            texts = [""]
            for name in sorted((*shared, *own)):
                start = f'{texts[-1]},{name}="' if texts[-1] else f'{name}="'
                if name in shared:
                    texts[-1] = f'{start}{write_label_value(shared[name])}"'
                else:
                    texts[-1] = start
                    texts.append('"')
            if own or shared:
                texts[0], texts[-1] = f"{{{texts[0]}", f"{texts[-1]}}} " if own else f"{{{texts[0]}}} "
            else:
                texts = [" "]
            found = self.pieces[own] = tuple(texts)
        return found

    def __getitem__(self, name: str) -> str:
        return self._pairs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return repr(self._pairs)


NO_LABELS = SharedLabels({})


# --- Which identity labels stand on a series, by what it is about: the one place that puts them there.
#
# Where a place is not known its label is "", which Prometheus stores as no label: a scrape with honor_labels, which fills in what is
# missing, then adds nothing of the exporter's own pod to a series of something else.


NO_PLACES: Mapping[str, NodePlace] = {}
_NO_PLACE = dict.fromkeys(PLACE_LABELS, "")
_FIELDS = tuple(name for name in IDENTITY_LABELS if name != "node")


def list_identity(identity: Identity, nodes: Sequence[str] = ()) -> dict[str, str]:
    """Every identity label, "" where it is not known, and the labels of its own. `node` is that of what stands on a single one."""
    found = {name: getattr(identity, name) for name in _FIELDS}
    return {**found, "node": nodes[0] if len(nodes) == 1 else "", **dict(identity.labels)}


def label_target(target: Target, chosen: Sequence[str]) -> SharedLabels:
    """The labels of every series of a target. `chosen`: as `target_labels` of the configuration."""
    whole = list_identity(target.identity, target.nodes) if chosen else {}
    return SharedLabels({"target": target.name, **_NO_PLACE, **{name: whole.get(name, "") for name in chosen}})


def label_target_info(target: Target, known: Sequence[str]) -> SharedLabels:
    """The labels of a target's info series: its whole identity. `known`: labels that are "" where it has none of its own."""
    return SharedLabels(
        {"target": target.name, **dict.fromkeys(known, ""), **list_identity(target.identity, target.nodes)}
    )


def list_own_labels(identities: Iterable[Identity]) -> tuple[str, ...]:
    """The labels that these have of their own: the most usual ones, at most as many as one target may have."""
    stated = [identity.labels for identity in identities if identity.labels]
    if not stated:  # as usual
        return ()
    counts = Counter(name for labels in stated for name, _ in labels)
    return tuple(name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_LABELS])


def find_place(target: Target, node: str, stated: Mapping[str, NodePlace]) -> NodePlace:
    """Where one of the target's nodes stands: as the price file says, else as discovery knows, else as the target is configured, whose own
    place is that of its first node."""
    found = stated.get(node, NOWHERE).fill_up(dict(target.node_places).get(node, NOWHERE))
    if target.nodes[:1] != (node,):
        return found
    of = target.identity
    return found.fill_up(NodePlace(of.region, "", of.instance_type, of.provider_id))


def label_place(place: NodePlace) -> dict[str, str]:
    """The labels of where a node stands."""
    return {name: getattr(place, name) for name in NODE_LABELS}


class LabelBook:
    """The labels of targets, kept from one page to the next, so that their text is made once. Threads may share it."""

    def __init__(self) -> None:
        # by the target's name: for whom they were made, and they
        self._of_series: dict[str, tuple[Target, tuple[str, ...], SharedLabels]] = {}
        self._of_info: dict[str, tuple[Target, tuple[str, ...], SharedLabels]] = {}

    def of_target(self, target: Target, chosen: tuple[str, ...]) -> SharedLabels:
        """As `label_target`."""
        found = self._of_series.get(target.name)
        if found is None or found[0] is not target or found[1] != chosen:
            found = self._of_series[target.name] = target, chosen, label_target(target, chosen)
        return found[2]

    def of_target_info(self, target: Target, known: tuple[str, ...]) -> SharedLabels:
        """As `label_target_info`."""
        found = self._of_info.get(target.name)
        if found is None or found[0] is not target or found[1] != known:
            found = self._of_info[target.name] = target, known, label_target_info(target, known)
        return found[2]

    def forget_others(self, names: Collection[str]) -> None:
        """Forgets every target but `names`."""
        for kept in (self._of_series, self._of_info):
            for name in kept.keys() - names:
                kept.pop(name, None)


# --- Layouts: how the lines of a section of a page are put together, worked out once for all sections that are made up alike.
#
# A section is a list of series that were added one after the other: their metrics, the names and values of their own labels, and which of
# them share labels, but neither what the shared labels are nor any number. Targets of a fleet have the same few sections from page to
# page. Of each the layout knows in which order pieces of text follow one another: the same for all, of the labels, and digits. The digits
# of all numbers are made in one call, and one call picks all pieces: a line costs no call of its own.


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


# --- Families


T = TypeVar("T")
SeriesKeys = Collection[tuple[str, ...]]


@lru_cache(maxsize=256)
def _write_edges(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Bucket edges as label values, the infinite one last; engines share a handful of layouts."""
    return (*map(write_number, edges), "+Inf")


class Families:
    """Collects samples by metric, as text, in the order of first use, and yields families, one under its former name too. One use each.

    Series that share labels are given one `SharedLabels`, so that its text is made once. `chosen`: the identity labels that stand on
    every series of a target, as `target_labels` of the configuration. `own`: labels that some target has of its own. `book`: labels of
    the pages before. `all_buckets`: as the key of the configuration.

    What is added is noted first, and its lines are written a section at a time (see layouts.py): whoever adds much calls `write_section`
    after each part whose make-up seldom changes.

    The last gate stands here: a value outside the range that its metric declares is no sample, whatever it comes from.
    """

    def __init__(
        self,
        chosen: tuple[str, ...] = (),
        own: tuple[str, ...] = (),
        book: LabelBook | None = None,
        *,
        all_buckets: bool = False,
    ) -> None:
        # whole lines by metric, each time one or many
        self._lines: dict[Metric, list[str]] = {}
        # families that were asked for, with what is compressed of them
        self._families: dict[Metric, LineFamily] = {}
        self._chosen = chosen
        # a label that one target has is "" on the info series of the others, so that no scrape fills it in there
        self._known = tuple(dict.fromkeys((*chosen, *own)))
        self._book = LabelBook() if book is None else book
        self._all_buckets = all_buckets
        self._left_out: Counter[tuple[str, str]] = Counter()
        self._begin_section()

    def _begin_section(self) -> None:
        # what the section is made up of
        self._section: list[Element] = []
        # of its series, but for histograms, and of its histograms
        self._numbers: list[float] = []
        self._counts: list[float] = []
        # that its series share, the place of each by its identity, and those of the last series
        self._shared: list[SharedLabels] = []
        self._places: dict[int, int] = {}
        self._labels: SharedLabels | None = None

    def of_target(self, target: Target) -> SharedLabels:
        """The labels that every series of a target has."""
        return self._book.of_target(target, self._chosen)

    def of_target_info(self, target: Target) -> SharedLabels:
        """The labels of the target's info series: its whole identity."""
        return self._book.of_target_info(target, self._known)

    def of_gpu(self, uuid: str, name: str, node: str) -> SharedLabels:
        """The labels that every series of a GPU has."""
        return SharedLabels({**_NO_PLACE, "gpu": uuid, "gpu_name": name, "node": node})

    def of_fleet(self, identity: Identity, model_name: str, role: str) -> SharedLabels:
        """The labels of a series about the replicas of a model: with whatever is stated of their identity."""
        own = {"model_name": model_name, "role": role}
        return SharedLabels({**own, **dict.fromkeys(self._known, ""), **list_identity(identity)})

    def of_written(self) -> SharedLabels:
        """The labels of the series that shows what a scrape does to labels: every identity label, and those of targets' own."""
        return SharedLabels(dict.fromkeys((*IDENTITY_LABELS, *self._known), AS_WRITTEN))

    @property
    def left_out(self) -> Counter[tuple[str, str]]:
        """How many values the last gate has left out, by target ("" where the series is of none) and metric."""
        self.write_section()
        return self._left_out

    def _leave_out(self, metric: Metric, labels: SharedLabels) -> None:
        self._left_out[labels.get("target", ""), metric.name] += 1

    def _turn_to(self, labels: SharedLabels) -> None:
        """Has these labels on the series that follow."""
        place = self._places.get(id(labels))
        if place is None:
            place = self._places[id(labels)] = len(self._shared)
            self._shared.append(labels)
        self._section.append(place)
        self._labels = labels

    def add_value(self, metric: Metric, labels: SharedLabels, value: float | None, /, **own: str) -> None:
        """One series, with the labels `own` beside shared ones; None adds nothing."""
        if value is None:
            return
        if own:
            labels = labels.with_labels(**own)
        if labels is not self._labels:
            self._turn_to(labels)
        self._section.append(metric)
        self._numbers.append(value)

    def add_elements(self, labels: SharedLabels, elements: Iterable[Element], numbers: Iterable[float]) -> None:
        """Series as `layouts.read_section` reads them, but for places of labels: what has a loop of its own needs no call for each."""
        if labels is not self._labels:
            self._turn_to(labels)
        self._section += elements
        self._numbers += numbers

    def add_info(self, metric: Metric, labels: SharedLabels, /, **own: str) -> None:
        """One info series."""
        self.add_value(metric, labels, 1.0, **own)

    def add_values(
        self, metric: Metric, labels: SharedLabels, own: tuple[str, ...], keys: SeriesKeys, values: Collection[float]
    ) -> None:
        """Many series of one metric: for each the values of the labels that `own` names, and its value."""
        if keys:
            if labels is not self._labels:
                self._turn_to(labels)
            self._section += (metric, own, tuple(keys))
            self._numbers += values

    def add_by_label(
        self, metric: Metric, labels: SharedLabels, label: str, values: Mapping[str, float] | None
    ) -> None:
        """One series a key."""
        if values:
            if labels is not self._labels:
                self._turn_to(labels)
            self._section += (metric, (label,), tuple(values))
            self._numbers += values.values()

    def add_histogram(self, metric: Metric, labels: SharedLabels, histogram: Histogram | None) -> None:
        """Buckets with the engine's own edges where the metric has them, `+Inf`; count and sum where the sum is sound."""
        if histogram is None:
            return
        if not metric.bounds.admits_histogram(histogram):
            self._leave_out(metric, labels)
            return
        if labels is not self._labels:
            self._turn_to(labels)
        count, total, counts = histogram.count, histogram.sum, self._counts
        edges: tuple[float, ...] = ()
        if metric.finite_buckets or self._all_buckets:
            edges = histogram.edges
            counts += histogram.cumulative
        # OpenMetrics has count and sum both or neither; the +Inf bucket says the count too
        self._section += (metric, LE, _write_edges(edges), total is not None)
        counts += (count,) if total is None else (count, count, total)

    def add_unchanged(self, labels: SharedLabels, facts: T, add: Callable[[Families, SharedLabels, T], None]) -> None:
        """What `add` adds of facts that are the same object from page to page; kept with their labels, so that it is written once."""
        self.write_section()
        found = labels.unchanged
        if found is None or found[0] is not facts:
            alone = Families()
            add(alone, labels, facts)
            if alone.left_out:  # to be counted each time
                self._left_out.update(alone.left_out)
            found = facts, tuple((metric, "".join(lines)) for metric, lines in alone._lines.items())
            labels.unchanged = None if alone.left_out else found
        for metric, text in found[1]:
            self._lines.setdefault(metric, []).append(text)

    def write_section(self) -> None:
        """Writes the lines of what was added since the last call. What cannot be written is gone, and the next section not concerned."""
        if not (self._numbers or self._counts):
            return
        section, shared, numbers, counts = self._section, self._shared, self._numbers, self._counts
        self._begin_section()
        layout = find_layout(tuple(section))
        texts = layout.write(shared, list(map(float, (*numbers, *counts))))
        if texts is None:
            self._leave_out_wrong(section, shared, numbers)
            self._counts = counts
            self.write_section()
            return
        lines = self._lines
        try:
            known = list(map(lines.__getitem__, layout.metrics))
        except KeyError:  # as at the first target
            known = [lines.setdefault(metric, []) for metric in layout.metrics]
        for of_metric, text in zip(known, texts, strict=True):
            of_metric.append(text)

    def _leave_out_wrong(self, section: list[Element], shared: list[SharedLabels], numbers: list[float]) -> None:
        """Adds again what its metrics can have. `numbers`: without those of histograms."""
        following = iter(numbers)
        for one in read_section(section):
            labels = shared[one.place]
            self._turn_to(labels)
            if one.has_sum is not None:
                self._section += (one.metric, one.own, one.keys, one.has_sum)
                continue
            values = dict(zip(one.keys, following, strict=False))
            admitted = {key: value for key, value in values.items() if one.metric.bounds.admits(value)}
            for _ in range(len(values) - len(admitted)):
                self._leave_out(one.metric, labels)
            if admitted:
                self._section += (one.metric, one.own, tuple(admitted)) if one.own else (one.metric,)
                self._numbers += admitted.values()

    def spool_lines(self) -> None:
        """Compresses what has become much: to be called again and again while a large page is made."""
        for family in self._list_families():
            family.spool_lines()

    def _list_families(self) -> Iterable[LineFamily]:
        self.write_section()
        found = self._families
        for metric, lines in self._lines.items():
            if metric not in found:
                found[metric] = LineFamily(metric, lines)
        return found.values()

    def __iter__(self) -> Iterator[LineFamily]:
        for family in self._list_families():
            yield family
            if (former := family.metric.former) is not None:
                yield family.under_former_name(former)
