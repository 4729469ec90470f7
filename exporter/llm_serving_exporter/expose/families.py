"""Catalogue entries and values -> the client library's metric families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Kind, Metric
from llm_serving_exporter.model.histogram import Histogram

_FAMILY_SUFFIX = {Kind.COUNTER: "_total", Kind.INFO: "_info"}

Labels = Mapping[str, str]


@lru_cache(maxsize=256)
def _le(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Bucket edges as label values; engines share a handful of layouts."""
    return tuple(floatToGoString(edge) for edge in edges)  # type: ignore[no-untyped-call]  # the library leaves it unannotated


class Families:
    """Collects samples by metric, in the order of first use, and yields families. One use each."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def _samples(self, metric: Metric) -> list[Sample]:
        family = self._families.get(metric.name)
        if family is None:
            name = metric.full_name.removesuffix(_FAMILY_SUFFIX.get(metric.kind, ""))
            family = self._families[metric.name] = Family(name, metric.help, metric.kind.value)
        return family.samples

    def add_value(self, metric: Metric, labels: Labels, value: float | None) -> None:
        """One series; None adds nothing."""
        if value is not None:
            self._samples(metric).append(Sample(metric.full_name, dict(labels), float(value)))

    def add_values(self, metric: Metric, found: Iterable[tuple[dict[str, str], float]]) -> None:
        """Many series of one metric; the labels become the samples' own."""
        name = metric.full_name
        samples = [Sample(name, labels, float(value)) for labels, value in found]
        if samples:
            self._samples(metric).extend(samples)

    def add_info(self, metric: Metric, labels: Labels) -> None:
        """One info series."""
        self._samples(metric).append(Sample(metric.full_name, dict(labels), 1.0))

    def add_by_label(self, metric: Metric, labels: Labels, label: str, values: Mapping[str, float] | None) -> None:
        """One series a key."""
        if values:
            samples = self._samples(metric)
            for key, value in values.items():
                samples.append(Sample(metric.full_name, {**labels, label: key}, float(value)))

    def add_engine_samples(self, metric: Metric, labels: Labels, values: Mapping[tuple[str, ...], float]) -> None:
        """One series a key: the values of the labels that the metric declares beyond those of every serving series."""
        if values:
            samples, name, own = self._samples(metric), metric.full_name, metric.labels[len(SERVING_LABELS) :]
            for key, value in values.items():
                whole = {**labels, **dict(zip(own, key, strict=True))} if key else dict(labels)
                samples.append(Sample(name, whole, float(value)))

    def add_histogram(self, metric: Metric, labels: Labels, histogram: Histogram | None) -> None:
        """Buckets with the engine's own edges, `+Inf`; count and sum where the sum is sound."""
        if histogram is None:
            return
        samples = self._samples(metric)
        bucket = metric.full_name + "_bucket"
        for edge, count in zip(_le(histogram.edges), histogram.cumulative, strict=True):
            samples.append(Sample(bucket, {**labels, "le": edge}, count))
        samples.append(Sample(bucket, {**labels, "le": "+Inf"}, histogram.count))
        if (
            histogram.sum is not None
        ):  # OpenMetrics has count and sum both or neither; the +Inf bucket says the count too
            samples.append(Sample(metric.full_name + "_count", dict(labels), histogram.count))
            samples.append(Sample(metric.full_name + "_sum", dict(labels), histogram.sum))

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())
