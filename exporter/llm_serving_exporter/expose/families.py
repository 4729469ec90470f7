"""Catalogue entries and values -> the client library's metric families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Metric
from llm_serving_exporter.expose.identity import LabelBook, label_fleet, label_gpu, label_written
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.expose.lines import NUMBER, Keys, LineFamily, fill_in, write_lines, write_number
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.target import Target

T = TypeVar("T")
_LE = ("le",)


@lru_cache(maxsize=256)
def _le(edges: tuple[float, ...]) -> tuple[tuple[str], ...]:
    """Bucket edges as label values, the infinite one last; engines share a handful of layouts."""
    return (*((write_number(edge),) for edge in edges), ("+Inf",))


class Families:
    """Collects samples by metric, as text, in the order of first use, and yields families, one under its former name too. One use each.

    Series that share labels are given one `SharedLabels`, so that its text is made once. `chosen`: the identity labels that stand on
    every series of a target, as `target_labels` of the configuration. `own`: labels that some target has of its own. `book`: labels of
    the pages before. `all_buckets`: as the key of the configuration.

    The last gate stands here: a value outside the range that its metric declares is no sample, whatever it comes from. `left_out` counts
    such values by target ("" where the series is of none) and metric.
    """

    def __init__(
        self,
        chosen: tuple[str, ...] = (),
        own: tuple[str, ...] = (),
        book: LabelBook | None = None,
        *,
        all_buckets: bool = False,
    ) -> None:
        self._families: dict[str, LineFamily] = {}
        self._chosen = chosen
        # a label that one target has is "" on the info series of the others, so that no scrape fills it in there
        self._known = tuple(dict.fromkeys((*chosen, *own)))
        self._book = LabelBook() if book is None else book
        self._all_buckets = all_buckets
        self.left_out: Counter[tuple[str, str]] = Counter()

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

    def _add_family(self, metric: Metric) -> LineFamily:
        found = self._families[metric.name] = LineFamily(metric)
        return found

    def add_value(self, metric: Metric, labels: SharedLabels, value: float | None, /, **own: str) -> None:
        """One series, with the labels `own` beside shared ones; None adds nothing."""
        if value is None:
            return
        bounds = metric.bounds
        if not bounds.least <= value <= bounds.most:  # as NaN
            self._leave_out(metric, labels)
            return
        family = self._families.get(metric.name) or self._add_family(metric)
        family.lines.append(
            write_lines(metric.full_name, labels, tuple(own), (tuple(own.values()),))
            if own
            # half of a target's series are such: no call that can be saved
            else f"{metric.full_name}{labels.text}{NUMBER}\n"
        )
        family.numbers.append(float(value))

    def _leave_out(self, metric: Metric, labels: SharedLabels) -> None:
        self.left_out[labels.get("target", ""), metric.name] += 1

    def add_info(self, metric: Metric, labels: SharedLabels, /, **own: str) -> None:
        """One info series."""
        self.add_value(metric, labels, 1.0, **own)

    def add_values(
        self, metric: Metric, labels: SharedLabels, own: tuple[str, ...], keys: Keys, values: Collection[float]
    ) -> None:
        """Many series of one metric: for each the values of the labels that `own` names, and its value."""
        least, most = metric.bounds.least, metric.bounds.most
        admitted = [float(value) for value in values if least <= value <= most]  # NaN fails every comparison
        if len(admitted) != len(keys):
            numbers = list(values)
            keys = [key for key, value in zip(keys, numbers, strict=True) if least <= value <= most]
            for _ in range(len(numbers) - len(admitted)):
                self._leave_out(metric, labels)
        if admitted:
            family = self._families.get(metric.name) or self._add_family(metric)
            family.lines.append(write_lines(metric.full_name, labels, own, keys))
            family.numbers += admitted

    def add_by_label(
        self, metric: Metric, labels: SharedLabels, label: str, values: Mapping[str, float] | None
    ) -> None:
        """One series a key."""
        if values:
            self.add_values(metric, labels, (label,), tuple(zip(values, strict=True)), values.values())

    def add_engine_samples(self, metric: Metric, labels: SharedLabels, values: Mapping[tuple[str, ...], float]) -> None:
        """One series a key: the values of the labels that the metric declares beyond those of every serving series."""
        own = metric.labels[len(SERVING_LABELS) :]
        for key in values:
            if len(key) != len(own):
                raise ValueError(f"{metric.name} has the labels {own}, its values those of {list(values)}")
        if own:
            self.add_values(metric, labels, own, list(values), values.values())
        else:
            self.add_value(metric, labels, values.get(()))

    def add_histogram(self, metric: Metric, labels: SharedLabels, histogram: Histogram | None) -> None:
        """Buckets with the engine's own edges where the metric has them, `+Inf`; count and sum where the sum is sound."""
        if histogram is None:
            return
        if not metric.bounds.admits_histogram(histogram):
            self._leave_out(metric, labels)
            return
        name, count, total = metric.full_name, histogram.count, histogram.sum
        finite = metric.finite_buckets or self._all_buckets
        edges, counts = (histogram.edges, (*histogram.cumulative, count)) if finite else ((), (count,))
        family = self._families.get(metric.name) or self._add_family(metric)
        family.lines.append(write_lines(f"{name}_bucket", labels, _LE, _le(edges)))
        family.numbers += counts
        if total is not None:  # OpenMetrics has count and sum both or neither; the +Inf bucket says the count too
            family.lines.append(f"{name}_count{labels.text}{NUMBER}\n{name}_sum{labels.text}{NUMBER}\n")
            family.numbers += (count, total)

    def add_unchanged(self, labels: SharedLabels, facts: T, add: Callable[[Families, SharedLabels, T], None]) -> None:
        """What `add` adds of facts that are the same object from page to page; kept with their labels, so that it is written once."""
        found = labels.unchanged
        if found is None or found[0] is not facts:
            alone = Families()
            add(alone, labels, facts)
            if alone.left_out:  # to be counted each time
                self.left_out.update(alone.left_out)
            # whole lines, and as a template that has no places
            texts = (
                (family.metric, fill_in("".join(family.lines), family.numbers)) for family in alone._families.values()
            )
            written = tuple((metric, text.replace("%", "%%")) for metric, text in texts)
            found = facts, written
            labels.unchanged = None if alone.left_out else found
        for metric, lines in found[1]:
            (self._families.get(metric.name) or self._add_family(metric)).lines.append(lines)

    def spool_lines(self) -> None:
        """Compresses what has become much: to be called again and again while a large page is made."""
        for family in self._families.values():
            family.spool_lines()

    def __iter__(self) -> Iterator[LineFamily]:
        for family in self._families.values():
            yield family
            if (former := family.metric.former) is not None:
                yield family.under_former_name(former)
