"""What a server at rest has yet to show: samples that come with their first event, and pages that have none of its own before it."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.index import Index
from llm_serving_exporter.engines.mapping import PageKind, Reads, Row, Runtime
from llm_serving_exporter.engines.version import Version, satisfies
from llm_serving_exporter.model.samples import Layout
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    WORK_FIELDS,
    Absence,
)

# families of any Python process and of any web application: they stand beside an engine's own, and do not wait for its first request
OF_ANY_SERVER = ("python_", "process_", "http_")


def is_silent(layout: Layout, own: tuple[str, ...] = ()) -> bool:
    """Whether a page has no family of anybody's: nothing at all, or what any Python server has. `own`: prefixes that are allowed beside."""
    allowed = (*OF_ANY_SERVER, *own)
    return all(name.startswith(allowed) for name in (*layout.types, *layout.names))


def may_be_silent(runtime: Runtime) -> bool:
    """Whether a server of this runtime that has had no request yet may have a silent page.

    Not where replicas come and go on a page: with none of them left it says that they are gone.
    """
    return runtime.kind is PageKind.METRICS and runtime.born_at_first_event and runtime.living is None


_BORN = frozenset(
    {
        *COUNTER_FIELDS,
        *LABELLED_COUNTER_FIELDS,
        *HISTOGRAM_FIELDS,
        "decode_pass_tokens",
        "decode_steps_total",
        "decode_tokens_live",
        "prefix_cache_queries",
        "prefix_cache_hits",
    }
)
# other reasons say that the page has something of the field
NOT_THERE = (Absence.NOT_EXPORTED, Absence.NOT_CONFIGURED, Absence.IDLE)


def find_unborn(runtime: Runtime, absent: Mapping[str, Absence], index: Index) -> frozenset[str]:
    """Fields none of whose rows has its first sample on the page, of a runtime whose samples come with their first event."""
    if not runtime.born_at_first_event:
        return frozenset()
    there = {
        row.field
        for row in runtime.rows
        # of several samples only the first has to be on the page, unless each has a name of its own
        for text in (row.samples if row.named else row.samples[:1])
        if index.select(text, suffix="_count" if row.reads is Reads.HISTOGRAM else "")
    }
    return frozenset(field for field in absent if field in _BORN and field not in there)


def is_at_rest(runtime: Runtime, absent: Mapping[str, Absence]) -> bool:
    """Whether a server whose samples come with their first event has worked on nothing since its start: of all that it counts of its work
    the page has nothing."""
    filled = {row.field for row in runtime.rows}
    counted = filled & WORK_FIELDS or filled & _BORN
    missing = all(absent.get(field) in NOT_THERE for field in counted)
    return runtime.born_at_first_event and bool(counted) and missing


def list_waited(runtime: Runtime, index: Index, version: Version | None) -> tuple[Row, ...]:
    """The rows that a server at rest may fill once it works: not those that its version is known to lack, or that are switched off."""
    return tuple(
        row
        for row in runtime.rows
        if (row.field in _BORN or row.born_at_first_event)
        and (version is None or satisfies(version, row.versions))
        and not (row.unless is not None and index.shown(row.unless))
    )


def find_awaited(
    runtime: Runtime, absent: Mapping[str, Absence], unborn: frozenset[str], version: Version | None
) -> dict[str, Row]:
    """Fields that this version of the runtime certainly has and whose first event has yet to come, with the row that will read them.

    Sure of a row without conditions: of all versions, or of this one; and of a family that the page declares.
    """
    found: dict[str, Row] = {}
    for row in runtime.rows:
        declared = absent.get(row.field) is Absence.IDLE
        known = not row.versions or (version is not None and satisfies(version, row.versions))
        comes = row.field in unborn and known and row.when is None and row.unless is None
        if row.field in _BORN and row.field in absent and (declared or comes):
            found.setdefault(row.field, row)
    return found
