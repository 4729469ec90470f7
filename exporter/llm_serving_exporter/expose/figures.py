"""One engine's derived figures -> series, in the order of METRICS.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from llm_serving_exporter.catalogue.derived import DERIVED
from llm_serving_exporter.catalogue.roofline import ROOFLINE
from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Metric
from llm_serving_exporter.derive.signals import Row, Series
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.expose.layouts import Element
from llm_serving_exporter.model.derived import EngineDerived

_PLACES = {metric.name: place for place, metric in enumerate((*DERIVED, *ROOFLINE))}


class _Planned(NamedTuple):
    """The series of one metric that one row's value becomes."""

    metric: Metric
    own: tuple[str, ...]  # its labels beyond those of every serving series
    row: Row[Any]  # where the value comes from
    series: Series
    part: Callable[[Any], Any] | None  # the same
    # what a section has of it where the part is one number; None: one number does not fill its labels
    of_number: tuple[Element, ...] | None


# engines of a fleet have a handful of sets of figures, by role and by what their runtime says
@lru_cache(maxsize=64)
def _plan_series(rows: tuple[Row[Any], ...]) -> tuple[_Planned, ...]:
    found = [_plan_one(row, one) for row in rows for one in row.series if one.metric.name in _PLACES]
    return tuple(sorted(found, key=lambda one: _PLACES[one.metric.name]))


def _plan_one(row: Row[Any], series: Series) -> _Planned:
    metric, labels = series.metric, series.labels
    own = metric.labels[len(SERVING_LABELS) :]
    of_number: tuple[Element, ...] | None = (metric, own, (labels,)) if own else (metric,)
    return _Planned(metric, own, row, series, series.part, of_number if len(labels) == len(own) else None)


@lru_cache(maxsize=512)
def _complete_keys(metric: Metric, labels: tuple[str, ...], keys: tuple[Any, ...]) -> tuple[tuple[str, ...], ...]:
    """The values of all labels that the metric's series have of their own: those of the whole row, and those that are a key of its value.

    Raises ValueError where the metric declares others.
    """
    found = tuple((*labels, *key) if isinstance(key, tuple) else (*labels, key) for key in keys)
    own = metric.labels[len(SERVING_LABELS) :]
    if any(len(one) != len(own) for one in found):
        raise ValueError(f"{metric.name} has the labels {own}, its values those of {found}")
    return found


def add_figures(families: Families, derived: EngineDerived, labels: SharedLabels) -> None:
    """Adds every figure of an engine that there is."""
    figures: Any = derived.figures
    elements, numbers = list[Element](), list[float]()
    for metric, own, row, series, part_of, of_number in _plan_series(tuple(figures)):
        value = figures[row]
        part = value if part_of is None else part_of(value)
        if type(part) is float and of_number is not None:  # the most of them
            elements += of_number
            numbers.append(part)
            continue
        given = series.labels
        if type(part) is not dict:
            part, given = series.samples(value), ()
        if part:
            keys = _complete_keys(metric, given, tuple(part))
            elements += (metric, own, keys) if own else (metric,)
            numbers += part.values()
    families.add_elements(labels, elements, numbers)
