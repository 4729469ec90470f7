"""The signal table: every figure of an engine and of a target, with its reasons, roles, sentences and series, in the order of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import SERVING_LABELS
from llm_serving_exporter.derive import (
    bandwidth,
    batch,
    compute,
    contradiction,
    decode,
    kv,
    latency,
    long_context,
    phases,
    slo,
    standstill,
    ticks,
)
from llm_serving_exporter.derive.cost_sentences import COST_SENTENCES
from llm_serving_exporter.derive.limiter import LIMITER
from llm_serving_exporter.derive.memory import MEMORY
from llm_serving_exporter.derive.page_fields import PAGE_FIELDS
from llm_serving_exporter.derive.signals import Row
from llm_serving_exporter.derive.tenant_sentences import TENANT_SENTENCES
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot

# computed for each engine
ENGINE_ROWS: tuple[Row[Any], ...] = (
    *phases.ROWS,
    *batch.ROWS,
    *kv.ROWS,
    *contradiction.ROWS,
    *standstill.ROWS,
    *latency.ROWS,
    *long_context.ROWS,
    *slo.ROWS,
    *bandwidth.ROWS,
    decode.CEILING,
    decode.RATIO,
    compute.PREFILL_CAPACITY,
    decode.CAPACITY,
    compute.RATIO,
    *compute.OTHER_ROWS,
    decode.RIDGE,
    *decode.OTHER_ROWS,
    *ticks.ROWS,
    MEMORY,
)
# computed for the target, from what its engines came to
TARGET_ROWS: tuple[Row[Any], ...] = (LIMITER,)
ROWS = (*ENGINE_ROWS, *TARGET_ROWS)
SIGNALS: dict[str, Row[Any]] = {row.name: row for row in ROWS if row.name}


def find_sentence(signal: str, why: Absence) -> str:
    """What to do about an absence, where the signal knows more than the reason's own sentence; else ""."""
    if signal in COST_SENTENCES:
        return COST_SENTENCES[signal].get(why, "")
    if signal in TENANT_SENTENCES:
        return TENANT_SENTENCES[signal].get(why, "")
    row = SIGNALS.get(signal) or PAGE_FIELDS.get(signal)
    return row.sentences.get(why, "") if row is not None else ""


def find_explaining_field(signal: str) -> str:
    """The field of the page whose reason in a runtime's table explains the signal's absence; "" where there is none."""
    row = SIGNALS.get(signal)
    return row.explained_by if row is not None else ""


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
