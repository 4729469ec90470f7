"""One engine's derived figures -> series, in the order of METRICS.md."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from llm_serving_exporter.catalogue.derived import DERIVED
from llm_serving_exporter.catalogue.roofline import ROOFLINE
from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Metric
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.model.derived import EngineDerived, PublishedSeries, Publishes

_PLACES = {metric.name: place for place, metric in enumerate((*DERIVED, *ROOFLINE))}


class _Planned(NamedTuple):
    """A metric, and what its samples come from."""

    # as the catalogue declares it
    metric: Metric
    # its labels beyond those of every serving series
    own: tuple[str, ...]
    # rows with those of their series that are the metric's
    sources: tuple[tuple[Publishes, PublishedSeries], ...]


# engines of a fleet have a handful of sets of figures, by role and by what their runtime says
@lru_cache(maxsize=64)
def _plan_series(rows: tuple[Publishes, ...]) -> tuple[_Planned, ...]:
    found: dict[str, list[tuple[Publishes, PublishedSeries]]] = {}
    for row in rows:
        for one in row.series:
            if one.metric.name in _PLACES:
                found.setdefault(one.metric.name, []).append((row, one))
    metrics = {name: sources[0][1].metric for name, sources in found.items()}
    return tuple(
        _Planned(metrics[name], metrics[name].labels[len(SERVING_LABELS) :], tuple(found[name]))
        for name in sorted(found, key=_PLACES.__getitem__)
    )


def add_figures(families: Families, derived: EngineDerived, labels: SharedLabels) -> None:
    """Adds every figure of an engine that there is."""
    figures: Any = derived.figures
    for metric, own, sources in _plan_series(tuple(figures)):
        if len(sources) == 1:
            row, series = sources[0]
            value = figures[row]
            part = value if series.part is None else series.part(value)
            if type(part) is float and not own:  # the most of them
                families.add_value(metric, labels, part)
                continue
            if type(part) is dict and len(own) == 1 and not series.labels:
                families.add_by_label(metric, labels, own[0], part)
                continue
            if type(part) is float and len(series.labels) == len(own):
                families.add_values(metric, labels, own, (series.labels,), (part,))
                continue
        samples: dict[tuple[str, ...], float] = {}
        for row, series in sources:
            samples.update(series.samples(figures[row]))
        families.add_engine_samples(metric, labels, samples)
