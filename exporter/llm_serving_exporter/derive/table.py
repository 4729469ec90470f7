"""The signal table: every figure of an engine and of a target, with its reasons, roles, sentences and series, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.catalogue import cost as names
from llm_serving_exporter.derive.bandwidth import ROWS as BANDWIDTH_ROWS
from llm_serving_exporter.derive.batch import ROWS as BATCH_ROWS
from llm_serving_exporter.derive.busy import ROWS as TICKS_ROWS
from llm_serving_exporter.derive.compute import (
    CAPACITY,
    CEILING,
    COMPUTE_RATIO,
    COMPUTE_ROWS,
    DECODE_RATIO,
    PREFILL_CAPACITY,
    RIDGE,
)
from llm_serving_exporter.derive.compute import DECODE_ROWS as DECODE_OTHER_ROWS
from llm_serving_exporter.derive.kv import KV_ROWS, LONG_CONTEXT_ROWS, MEMORY
from llm_serving_exporter.derive.limiter import LIMITER
from llm_serving_exporter.derive.phases import ROWS as PHASES_ROWS
from llm_serving_exporter.derive.signals import PAGE_FIELDS, Row
from llm_serving_exporter.derive.slo import LATENCY_ROWS, SLO_ROWS
from llm_serving_exporter.derive.standstill import CONTRADICTION_ROWS, STANDSTILL_ROWS
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.tenants import TENANT_FIELDS

# --- What to do where a figure of cost is absent. The cost meter knows the reasons; the sentences stand with those of the other signals.


_NO_PRICES = {
    Absence.NOT_CONFIGURED: (
        "Set cost.price_file to a file of what GPUs cost (docs/cost.md), or give --gpu-price beside --target; a server without a GPU "
        "has no cost."
    )
}

# by signal, which is the metric's name
COST_SENTENCES: Mapping[str, Mapping[Absence, str]] = {
    names.COST.name: _NO_PRICES,
    names.COST_PER_MILLION.name: _NO_PRICES,
    names.COST_PER_REQUEST.name: _NO_PRICES,
    names.SAVINGS.name: {
        **_NO_PRICES,
        Absence.INPUT_MISSING: (
            "It needs the engine's count of cached prompt tokens, the model's facts and the GPUs' compute peak."
        ),
    },
    names.GPU_SECONDS.name: {Absence.NOT_CONFIGURED: "It is configured as a server without a GPU."},
    names.ENERGY.name: {
        Absence.GPUS_UNKNOWN: (
            "Its GPUs, or some of them, are not seen here: run an exporter on their node, and set targets[].gpus there if they are "
            "not found."
        ),
        Absence.NOT_EXPORTED: "The driver gave no energy counter of one of its GPUs: the log, and the reading of that GPU, say why.",
    },
}


# --- What to do where a gateway's page counts nothing by tenant.


_SENTENCES = {
    Absence.NOT_EXPORTED: (
        "Its page does not count it, or knows no tenants of the kind that tenants.by asks for; docs/tenants.md says whose page knows which."
    ),
    Absence.NOT_CONFIGURED: (
        "Its page has no label that names the tenant: have the gateway write one, or correct tenants.label (docs/tenants.md)."
    ),
}
# by signal, which is the metric's name
TENANT_SENTENCES: Mapping[str, Mapping[Absence, str]] = dict.fromkeys(TENANT_FIELDS, _SENTENCES)


# --- The table.


# computed for each engine
ENGINE_ROWS: tuple[Row[Any], ...] = (
    *PHASES_ROWS,
    *BATCH_ROWS,
    *KV_ROWS,
    *CONTRADICTION_ROWS,
    *STANDSTILL_ROWS,
    *LATENCY_ROWS,
    *LONG_CONTEXT_ROWS,
    *SLO_ROWS,
    *BANDWIDTH_ROWS,
    CEILING,
    DECODE_RATIO,
    PREFILL_CAPACITY,
    CAPACITY,
    COMPUTE_RATIO,
    *COMPUTE_ROWS,
    RIDGE,
    *DECODE_OTHER_ROWS,
    *TICKS_ROWS,
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
