"""Layout -> Plan: which samples feed which field of which engine, and why a field is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from llm_serving_exporter.engines.index import EngineIdentity, Index, spellings
from llm_serving_exporter.engines.mapping import (
    ERRORS,
    PageKind,
    Reads,
    Row,
    Runtime,
    Version,
    parse_version,
    satisfies,
    selector,
)
from llm_serving_exporter.engines.rows import MAX_LABEL_VALUES, Reader, read_row
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Layout
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    EXPORTED_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    WORK_FIELDS,
    Absence,
    Quality,
    Snapshot,
)

# --- a server at rest: samples that come with their first event, and pages that have none of the runtime's own before it ---

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


_BORN = frozenset((*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS)) | {
    "decode_pass_tokens", "decode_steps_total", "decode_tokens_live", "prefix_cache_queries", "prefix_cache_hits",
}  # fmt: skip
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
    awaited: dict[str, Row] = {}
    for row in runtime.rows:
        declared = absent.get(row.field) is Absence.IDLE
        certain = not row.versions or (version is not None and satisfies(version, row.versions))
        comes = row.field in unborn and certain and row.when is None and row.unless is None
        if row.field in _BORN and row.field in absent and (declared or comes):
            awaited.setdefault(row.field, row)
    return awaited


# --- the plan ---

# A page's labels come from outside; this cap keeps the series that we export bounded whatever it holds.
MAX_ENGINES = 1024  # identities (model_name, engine) of one page; the largest data-parallel layouts known have hundreds


class Plan(Struct, frozen=True):
    """How a page of one layout is read."""

    # identity -> field -> function of the page's values, None for an invalid value
    engines: Mapping[EngineIdentity, Mapping[str, Reader]]
    common: Snapshot  # what all pages of the layout have in common: without engines and times
    start_index: int | None  # place of the process's start among the values; None: the page has none
    of_a_context_part: frozenset[str]  # fields that are of one part of the context
    inconsistent: frozenset[str]  # fields whose None means that two samples disagree
    foreign: Mapping[str, str]  # field -> the label in which its series differ, and of which the table knows nothing
    unset: frozenset[str]  # fields whose None means that nothing is set
    names_models: bool  # whether the page names its models
    silent: bool  # whether it has nothing of any engine's


_SUFFIXES = {Reads.HISTOGRAM: ("_bucket", "_sum", "_count"), Reads.PRESENCE: ("", "_count")}


def _named(row: Row) -> Iterable[str]:
    """The sample names of everything that a row is worked out from."""
    parts = (*row.samples, *row.minus, *row.times, *row.over, *((row.agrees,) if row.agrees else ()))
    return dict.fromkeys(selector(text).name for text in parts)


def _row_names(row: Row, respelt: tuple[tuple[str, str], ...]) -> Iterable[str]:
    suffixes = _SUFFIXES.get(row.reads, ("",))
    for name in (*_named(row), *((row.times_label[0],) if row.times_label else ())):
        for spelling in spellings(name, respelt):
            yield from (spelling + suffix for suffix in suffixes)
    for condition in (row.proof, row.when, row.unless):
        if condition:
            yield from spellings(condition[0], respelt)


def on_the_wire(runtime: Runtime) -> frozenset[str]:
    """Every sample name that the runtime's table reads, in every spelling."""
    names = {name for row in runtime.rows for name in _row_names(row, runtime.respelt)}
    names |= {name.removesuffix("_total") for name in names}
    others = [name for name in (runtime.start_sample, runtime.living) if name]
    return frozenset(names | {spelling for name in others for spelling in spellings(name, runtime.respelt)})


def _applies(row: Row, index: Index, version: Version | None) -> Absence | None:
    """None where the row may be used, else why not."""
    if row.when is not None and not index.shown(row.when):
        return Absence.NOT_EXPORTED
    if row.unless is not None and index.shown(row.unless):
        return Absence.NOT_CONFIGURED
    if not row.guarded or (row.proof is not None and index.shown(row.proof)):
        return None
    if version is None:
        return Absence.VERSION_UNKNOWN if index.select(row.samples[0]) else Absence.NOT_EXPORTED
    return None if satisfies(version, row.versions) else Absence.NOT_EXPORTED


def make_plan(runtime: Runtime, layout: Layout, engine_version: str | None) -> Plan:
    """Works out how a page of this layout is read. `engine_version`: as the engine writes it; None: not known.

    A field that several rows could fill takes the first that can; where none can, the last reason other than
    "not exported" is kept, because it says more.
    """
    index = Index(runtime, layout)
    version = parse_version(engine_version)
    start = index.positions(runtime.start_sample) if runtime.start_sample else []
    engines: dict[EngineIdentity, dict[str, Reader]] = {}
    absent: dict[str, Absence] = {}
    used: dict[str, Row] = {}
    recognised: set[EngineIdentity] = set()
    prefixes = tuple(form for prefix in runtime.prefixes for form in spellings(prefix, runtime.respelt))
    rows = runtime.rows
    for row in rows:
        if row.field in used:
            continue
        refused = _applies(row, index, version)
        outcome = refused or read_row(row, index)
        if isinstance(outcome, Absence):
            if outcome is Absence.NOT_EXPORTED and not refused and _declared(row, layout, runtime):
                outcome = Absence.IDLE
            if absent.get(row.field, Absence.NOT_EXPORTED) is Absence.NOT_EXPORTED:
                absent[row.field] = outcome
            continue
        used[row.field] = row
        absent.pop(row.field, None)
        if not prefixes or selector(row.samples[0]).name.startswith(runtime.prefixes):
            recognised.update(outcome)
        for identity, reader in outcome.items():
            if identity in engines or len(engines) < MAX_ENGINES:
                engines.setdefault(identity, {})[row.field] = reader
    if runtime.living is not None:
        alive = {index.identity(index.keys[p]) for p in index.positions(runtime.living)}
        if alive:
            engines = {identity: fields for identity, fields in engines.items() if identity in alive}
        else:
            # gauges that nobody sets go after a while: nothing tells idle replicas from dead ones then
            absent = {field: _idle(field, why) for field, why in absent.items()}
    unborn = find_unborn(runtime, absent, index)
    awaited = find_awaited(runtime, absent, unborn, version)
    at_rest = is_at_rest(runtime, absent)
    waited = list_waited(runtime, index, version) if at_rest else ()
    fields = {row.field for row in waited}
    absent = {field: Absence.IDLE if field in fields and why in NOT_THERE else why for field, why in absent.items()}
    silent = not recognised and at_rest and may_be_silent(runtime) and is_silent(layout, prefixes)
    says_nothing = runtime.kind is PageKind.NONE or (runtime.without_metrics and bool(layout.keys))
    # its JSON with nothing to say yet; or it answers with nothing loaded: one engine at rest, of which nothing is known
    unnamed = (runtime.kind is PageKind.JSON and not layout.keys) or (says_nothing and not engines and not silent)
    if silent or unnamed:  # of a silent page the first request brings all that it will show
        recognised, engines = {EngineIdentity("", "0")}, {EngineIdentity("", "0"): {}}
    if unnamed:
        absent = dict.fromkeys(absent, Absence.IDLE)
    if says_nothing:
        unsaid = set(EXPORTED_FIELDS) - set(used)
        absent = {**dict.fromkeys(unsaid, Absence.NO_METRICS), **absent}

    def read_by(column: str) -> frozenset[str]:
        return frozenset(field for field, row in used.items() if getattr(row, column))

    common = Snapshot(
        engines=(),
        runtime=runtime.name,
        unix_seconds=0.0,
        monotonic_seconds=0.0,
        absent=absent,
        quality=_quality(used, multiprocess=runtime.start_sample is not None and not start),
        unmapped_families=_unmapped(runtime, layout),
        may_fall=read_by("may_fall"),
        freezes=read_by("freezes"),
        decode_only=read_by("decode_only"),
        refreshed_every={field: row.refresh_seconds for field, row in used.items() if row.refresh_seconds},
        significant_digits=runtime.significant_digits,
        sources={field: rows.index(row) for field, row in used.items()},
        errors_counted=_counts_errors(runtime, {**awaited, **used}, waited, layout, index),
        still_zero=unborn,
        awaited=frozenset(awaited),
        never_worked=at_rest,
    )
    return Plan(
        # a page with nothing of the runtime's own is not its page, whatever generic families it has
        engines={identity: engines[identity] for identity in sorted(engines)} if recognised else {},
        common=common,
        start_index=start[0] if start else None,
        of_a_context_part=read_by("of_a_context_part"),
        inconsistent=read_by("agrees") | index.foreign.keys(),
        foreign=index.foreign,
        unset=read_by("zero_is_unset"),
        names_models=index.names_models,
        silent=silent,
    )


def _idle(field: str, why: Absence) -> Absence:
    return Absence.IDLE if why is Absence.NOT_EXPORTED and field in GAUGE_FIELDS else why


def _counts_errors(
    runtime: Runtime, used: Mapping[str, Row], waited: Sequence[Row], layout: Layout, index: Index
) -> bool:
    """Whether requests that ended in an error can be told from others: by their reason, or by the server's HTTP answers, which an idle one
    has yet to give. Of a server at rest: whether they may be, by any of the rows that are `waited` for."""
    name = "requests_finished_total"
    rows = (used[name],) if name in used else tuple(row for row in waited if row.field == name)
    # of what is renamed to an error some versions of the engine do not say why a request ended
    by_reason = any(
        "error" in row.named.values()
        or "error" in (reasons := _reasons(row, index))
        or ("error" in row.rename.values() and reasons != {None})
        for row in rows
    )
    answers = [row for row in runtime.rows if row.field == "http_responses_total"]
    by_status = "http_responses_total" in used or any(_declared(row, layout, runtime) for row in answers)
    return ERRORS not in runtime.missing and (by_reason or by_status)


def _reasons(row: Row, index: Index) -> set[str | None]:
    """The engine's words for why requests ended, as they stand on the page; None of a sample that does not say."""
    if row.by is None:
        return set()
    return {index.keys[position].label(row.by) for text in row.samples for position in index.select(text, row)}


def _quality(used: Mapping[str, Row], *, multiprocess: bool) -> dict[str, Quality]:
    qualities = {
        field: (row.multiprocess_quality or row.quality) if multiprocess else row.quality for field, row in used.items()
    }
    return {field: quality for field, quality in qualities.items() if quality is not Quality.LIVE}


def _declared(row: Row, layout: Layout, runtime: Runtime) -> bool:
    """Whether the page has the families' TYPE lines: a family without samples waits for its first event."""
    if row.reads in (Reads.LABELS, Reads.TEXT, Reads.PRESENCE):
        return False
    names = [spellings(selector(text).name, runtime.respelt) for text in (row.samples[0], *row.minus[:1])]
    return all(any({form, form.removesuffix("_total")} & layout.types.keys() for form in forms) for forms in names)


def _unmapped(runtime: Runtime, layout: Layout) -> tuple[str, ...]:
    """Families with this runtime's prefix that no row reads and no list knows: what a new version brought."""
    read = {form for row in runtime.rows for name in _named(row) for form in spellings(name, runtime.respelt)}
    prefixes = tuple(form for prefix in runtime.prefixes for form in spellings(prefix, runtime.respelt))
    if not prefixes:
        return ()
    ignored = tuple(form for pattern in runtime.ignored for form in spellings(pattern, runtime.respelt))
    unknown = []
    for family in layout.types:
        samples = {family + suffix for suffix in ("", "_total", "_count", "_sum", "_bucket")}
        if not family.startswith(prefixes) or family.endswith("_created") or not read.isdisjoint(samples):
            continue
        if not any(fnmatchcase(family, pattern) or fnmatchcase(f"{family}_total", pattern) for pattern in ignored):
            unknown.append(family)
    return tuple(sorted(unknown)[:MAX_LABEL_VALUES])
