"""The first gate: what a page says and cannot be true goes no further, into no history, figure, limiter or bill.

A labelled counter and a histogram go as a whole: with a part of them missing, their sums and shares would be of something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.catalogue.bounds import Bounds
from llm_serving_exporter.catalogue.serving import FIELD_BOUNDS
from llm_serving_exporter.model.histogram import Histogram

# of a labelled counter that is left out, so many keys are named
_MOST_KEYS = 5


def list_implausible(found: Mapping[str, Any]) -> list[str]:
    """The fields of one engine whose values are outside their declared ranges. `found`: values by field; texts pass."""
    bad = []
    for name, value in found.items():
        bounds = FIELD_BOUNDS.get(name)
        if bounds is None:
            continue
        if type(value) is float:  # the most of them
            if not bounds.least <= value <= bounds.most:  # NaN fails every comparison
                bad.append(name)
        elif not _admits(bounds, value):
            bad.append(name)
    return bad


def _admits(bounds: Bounds, value: object) -> bool:
    if isinstance(value, Histogram):
        return bounds.admits_histogram(value)
    if isinstance(value, Mapping):
        return all(map(bounds.admits, value.values()))
    return not isinstance(value, int | float) or bounds.admits(value)


def describe_value(value: object) -> str:
    """A value that is left out, for a person: "1e+308"; of a histogram its sum and count."""
    if isinstance(value, Histogram):
        total = "no sum" if value.sum is None else f"a sum of {value.sum:g}"
        return f"{value.count:g} events with {total}, or buckets that do not ascend to that"
    if isinstance(value, Mapping):
        return ", ".join(f"{number:g} for {key}" for key, number in list(value.items())[:_MOST_KEYS])
    return f"{value:g}" if isinstance(value, int | float) else str(value)
