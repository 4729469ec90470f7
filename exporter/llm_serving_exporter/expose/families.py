"""Catalogue entries and values -> the client library's metric families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.expose.identity import LabelBook, label_fleet, label_gpu, label_written
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.expose.layouts import LE, Element, find_layout, read_section
from llm_serving_exporter.expose.lines import LineFamily, write_number
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.target import Identity, Target

T = TypeVar("T")
Keys = Collection[tuple[str, ...]]


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
        return label_gpu(uuid, name, node)

    def of_fleet(self, identity: Identity, model_name: str, role: str) -> SharedLabels:
        """The labels of a series about the replicas of a model."""
        return label_fleet(identity, self._known, {"model_name": model_name, "role": role})

    def of_written(self) -> SharedLabels:
        """The labels of the series that shows what a scrape does to labels."""
        return label_written(self._known)

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
        self, metric: Metric, labels: SharedLabels, own: tuple[str, ...], keys: Keys, values: Collection[float]
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
