"""Any server that has no metrics: whether it answers, and its GPUs."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
)
from llm_serving_exporter.normalise.mapping import PageKind, Runtime

_EVERYTHING = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)


def nothing_but(*fields: str) -> dict[str, str]:
    """Why the other fields are missing of a runtime without metrics."""
    return {field: "it has no metrics page" for field in _EVERYTHING if field not in fields}


RUNTIME = Runtime(
    name="gpu-only",
    title="a server without metrics",
    rows=(),
    paths=("/health",),
    kind=PageKind.NONE,
    without_metrics=True,
    missing=nothing_but(),
)
