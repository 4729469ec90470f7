"""What is wrong with rows of the signal table."""

from collections.abc import Iterable
from typing import Any

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import SERVING_LABELS
from llm_serving_exporter.derive.signals import PAGE_FIELDS, Row
from llm_serving_exporter.derive.table import ROWS
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.snapshot import EngineSnapshot


def list_faults(rows: Iterable[Row[Any]] = ROWS) -> list[str]:
    """What is wrong with the rows, a sentence each; [] where nothing is."""
    rows = tuple(rows)
    names = [row.name for row in rows if row.name]
    faults = [f"{name} stands in two rows" for name in dict.fromkeys(names) if names.count(name) > 1]
    faults += [f"{name} is a field of the page, and passed through already" for name in names if name in PAGE_FIELDS]
    read = {*name_fields(EngineSnapshot), *names}
    for row in rows:
        of = row.name or row.figure.name
        faults += [
            f"{of} reads {field!r}, which is no field of the page and no signal"
            for field in row.fields
            if field not in read
        ]
        if row.explained_by and row.explained_by not in row.fields:
            faults.append(f"{of} is explained by {row.explained_by!r}, which it does not read")
        if not row.name and (row.sentences or row.fields or row.quality or row.cause):
            faults.append(f"{of} has no name, so its reasons are never shown")
        for series in row.series:
            own = series.metric.labels[len(SERVING_LABELS) :]
            if BY_NAME.get(series.metric.name) is not series.metric:
                faults.append(f"{of} is published as {series.metric.name}, which the catalogue does not list")
            if series.metric.labels[: len(SERVING_LABELS)] != SERVING_LABELS or len(series.labels) > len(own):
                faults.append(f"{of} has labels that {series.metric.name} does not declare")
    return faults
