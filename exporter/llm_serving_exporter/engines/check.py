"""A table looked over, built-in or a configuration's: what a row reads in words, why a field has none, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite

from llm_serving_exporter.engines.mapping import (
    ERRORS,
    LABEL,
    OF_A_PROCESS,
    SAMPLE,
    Aggregate,
    Fingerprint,
    Mark,
    PageKind,
    Reads,
    Row,
    Runtime,
    satisfies,
    selector,
)
from llm_serving_exporter.model.record import Struct, name_fields, replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    EXPORTED_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    EngineSnapshot,
    Quality,
)
from llm_serving_exporter.model.target import Role

# these follow from labels, and from where another field was found
_NOT_READ = ("model_name", "engine", "batch_limit_source")
# what a row may fill: the exported fields, and those that only the exporter itself uses
FIELDS = tuple(name for name in name_fields(EngineSnapshot) if name not in _NOT_READ)
_TEXT_FIELDS = frozenset(name for name, kind in EngineSnapshot.__annotations__.items() if kind == "str | None")
_COUNTERS = frozenset((*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS))
_MAY_FALL = frozenset((*COUNTER_FIELDS, "decode_tokens_live"))
# the other qualities are found by the exporter, not stated by a table
ROW_QUALITIES = (Quality.LIVE, Quality.LAGGING, Quality.SLOW, Quality.APPROXIMATE)

# what a whole class of processes has, so that it tells no runtime from another
GENERIC = (*OF_A_PROCESS, "http_")
SLO_NAMES = ("ttft", "itl", "e2e")
RUNTIME_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MOST_DIGITS = 17  # of a double

Path = tuple[str | int, ...]


class Fault(Struct, frozen=True):
    """One thing that is wrong with a row."""

    path: Path  # to the column
    what: str  # without a full stop
    fix: str = ""  # a sentence, or ""

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        text = f"{where}: {self.what}." if where else f"{self.what}."
        return f"{text} {self.fix}" if self.fix else text


def row_faults(row: Row) -> list[Fault]:
    """What is wrong with a row whatever its table."""
    checks = [_field, _samples, _conditions, _numbers, _promises, _unread]
    if row.reads in _BY_READING:
        checks.append(_BY_READING[row.reads])
    return [fault for check in checks for fault in check(row)]


def _field(row: Row) -> Iterator[Fault]:
    if row.field not in FIELDS:
        yield Fault(("field",), f'there is no field "{row.field}"', near(row.field, FIELDS))
        return
    histogram = row.field in HISTOGRAM_FIELDS
    if histogram != (row.reads in (Reads.HISTOGRAM, Reads.MEAN)):
        only = f"Only histograms are: {', '.join(HISTOGRAM_FIELDS)}."
        fix = "Write reads: histogram (or mean)." if histogram else only
        yield Fault(("reads",), f"{row.field} is {'' if histogram else 'not '}a histogram", fix)
    elif (row.field in _TEXT_FIELDS) != (row.reads is Reads.TEXT):
        kind, reads = ("text", "text") if row.field in _TEXT_FIELDS else ("number", "value")
        yield Fault(("reads",), f"{row.field} is a {kind}", f"Write reads: {reads}.")
    elif row.field in _COUNTERS and row.reads is not Reads.VALUE:
        yield Fault(("reads",), f"{row.field} is a counter, and labels do not count", "Write reads: value.")


def _samples(row: Row) -> Iterator[Fault]:
    if not row.samples:
        yield Fault(("samples",), "there is no sample", "Write the name of what is read.")
    for column in ("samples", "minus", "times", "over"):
        texts: tuple[str, ...] = getattr(row, column)
        for number, text in enumerate(texts):
            yield from _selector((column, number), text)
            if text in texts[:number]:
                yield Fault((column, number), f"{text} is named twice and would count twice", "Name it once.")
    if row.agrees is not None:
        yield from _selector(("agrees",), row.agrees)
    for text in row.named:
        yield from _selector(("named", text), text)
    for label, values in row.where.items():
        yield from label_faults(("where", label), label)
        if not values:
            yield Fault(("where", label), "no value is allowed", 'Write the values, "" for samples without the label.')


def _selector(path: Path, text: str) -> Iterator[Fault]:
    try:
        selector(text)
    except ValueError as error:
        yield Fault(path, str(error))


def _conditions(row: Row) -> Iterator[Fault]:
    for column in ("when", "unless", "proof", "times_label"):
        condition: tuple[str, ...] | None = getattr(row, column)
        if condition is None:
            continue
        if not SAMPLE.fullmatch(condition[0]):
            yield Fault((column,), f'"{condition[0]}" is not the name of a sample', "Write the name of an info series.")
        yield from label_faults((column,), condition[1])
    yield from version_faults(("versions",), row.versions)
    if row.guarded and not row.versions:
        yield Fault(("guarded",), "there are no versions to guard", "Write versions, as in >=0.2.")
    if row.proof is not None and not row.guarded:
        yield Fault(("proof",), "it has no effect without guarded", "Add guarded: true, or remove it.")


def _numbers(row: Row) -> Iterator[Fault]:
    if not (isfinite(row.scale) and row.scale > 0):
        yield Fault(("scale",), f"{row.scale:g} is not a positive number", "Write one such as 0.001 for milliseconds.")


def _promises(row: Row) -> Iterator[Fault]:
    if Quality.SLOW in (row.quality, row.multiprocess_quality):
        if row.refresh_seconds == 0 and not row.freezes:
            yield Fault(
                ("refresh",), "a slow field has to say how slow", "Write how often the engine brings it up to date."
            )
    elif row.refresh_seconds > 0 and row.quality is Quality.LIVE and row.reads not in (Reads.LABELS, Reads.TEXT):
        yield Fault(("refresh",), "the quality says live", "Write quality: slow.")
    if row.field in _COUNTERS or row.field in HISTOGRAM_FIELDS:
        nothing_lost = f"{row.field} only counts, and nothing is lost while it does not"
        for column, what in (
            ("freezes", nothing_lost),
            ("decode_only", nothing_lost),
            ("born_at_first_event", f"{row.field} only counts: the runtime says it of all that does"),
            ("zero_is_unset", f"{row.field} counts from 0"),
        ):
            if getattr(row, column):
                yield Fault((column,), what, "Remove it.")
    if row.may_fall and row.field not in _MAY_FALL:
        yield Fault(("may_fall",), f"{row.field} is not a plain counter", "Remove it.")


_OF_VALUES = ("minus", "times", "over", "by", "named", "rename", "agrees", "times_label", "aggregate", "may_fall")
_OF_LABELS = ("labels", "shared_by_engines", "of_a_context_part")
# columns that a way of reading leaves unread
_UNREAD: Mapping[Reads, tuple[str, ...]] = {
    Reads.VALUE: _OF_LABELS,
    Reads.HISTOGRAM: (*_OF_VALUES, *_OF_LABELS),
    Reads.MEAN: (*_OF_VALUES, *_OF_LABELS),
    Reads.LABELS: _OF_VALUES,
    Reads.TEXT: (*(column for column in _OF_VALUES if column != "rename"), *_OF_LABELS[1:], "scale"),
}


def _unread(row: Row) -> Iterator[Fault]:
    empty = Row("", ())
    for column in _UNREAD.get(row.reads, ()):
        if getattr(row, column) != getattr(empty, column):
            yield Fault((column,), f"it has no effect in a row that reads {row.reads.value}", "Remove it.")


def _value(row: Row) -> Iterator[Fault]:
    keyed = row.by is not None or bool(row.named)
    label = LABELLED_COUNTER_FIELDS.get(row.field)
    if keyed and label is None:
        column = "by" if row.by is not None else "named"
        labelled = ", ".join(LABELLED_COUNTER_FIELDS)
        yield Fault((column,), f"{row.field} has no label of its own", f"Remove it; only these have: {labelled}.")
    elif not keyed and label is not None:
        yield Fault(
            ("by",), f"nothing says the {label}", f"Write by: the sample's label, or named: {{sample: {label}}}."
        )
    if row.by is not None:
        yield from label_faults(("by",), row.by)
    elif row.rename:
        yield Fault(("rename",), "there is no label to rename", "Write by, or remove it.")
    for text in row.named:
        if text not in row.samples:
            yield Fault(("named", text), "it is not one of samples", "Write it there as it stands here.")
    if row.named and row.by is None:
        for number, text in enumerate(row.samples):
            if text not in row.named:
                yield Fault(
                    ("samples", number), f"nothing says the {label or 'label'} of {text}", "Give it one in named."
                )
    compound = bool(row.minus or row.times or row.over)
    if keyed:
        for column in ("minus", "times", "over"):
            if getattr(row, column):
                yield Fault((column,), "it has no effect beside by or named", "Remove it.")
    if row.agrees is not None and (keyed or not compound):
        yield Fault(("agrees",), "it has no effect without minus, times or over", "Remove it.")
    if row.aggregate not in (None, Aggregate.SUM) and (keyed or compound):
        yield Fault(("aggregate",), "it has no effect beside minus, times, over, by or named", "Remove it.")


def _histogram(row: Row) -> Iterator[Fault]:
    for number, text in enumerate(row.samples):
        name = name_of(text)
        if name.endswith(("_bucket", "_sum", "_count")):
            yield Fault(("samples", number), f"{name} is one part of a histogram", f"Write {name.rpartition('_')[0]}.")


def _info_series(row: Row) -> Iterator[Fault]:
    if len(row.samples) > 1:
        yield Fault(("samples",), f"labels are read from 1 series, not {len(row.samples)}", "Write a row for each.")
    if row.reads is Reads.TEXT and len(row.labels) != 1:
        yield Fault(("labels",), f"a text is read from 1 label, not {len(row.labels)}", "Write the label.")
    elif not row.labels:
        yield Fault(("labels",), "there is no label", "Write the numeric labels to multiply.")
    for label in row.labels:
        yield from label_faults(("labels",), label)


def _mean(row: Row) -> Iterator[Fault]:
    if len(row.samples) not in (0, 2):
        what = f"a mean is read from 2 samples, not {len(row.samples)}"
        yield Fault(("samples",), what, "Write the sum, then its count.")


_BY_READING = {
    Reads.VALUE: _value, Reads.HISTOGRAM: _histogram, Reads.MEAN: _mean, Reads.LABELS: _info_series, Reads.TEXT: _info_series,
}  # fmt: skip


def label_faults(path: Path, label: str) -> Iterator[Fault]:
    """What is wrong with the name of a label."""
    if not LABEL.fullmatch(label):
        yield Fault(path, f'"{label}" is not the name of a label', "Write letters, digits and _.")


def version_faults(path: Path, versions: str) -> Iterator[Fault]:
    """What is wrong with a list of version clauses."""
    for clause in versions.split(","):
        try:
            # clause by clause: the first that is not satisfied ends the look at a whole text
            satisfies((0,), clause)
        except ValueError as error:
            yield Fault(path, str(error), "Write clauses such as >=0.9,<0.13.")


def name_of(text: str) -> str:
    """The name in a selector; "" where it is none."""
    try:
        return selector(text).name
    except ValueError:
        return ""


def near(word: str, names: Collection[str]) -> str:
    """A fix for a name that is not known."""
    matches = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"Did you mean {matches[0]}?" if matches else "docs/mapping.md lists the fields."


def faults(runtime: Runtime) -> list[Fault]:
    """Everything that is wrong with a table; [] for a sound one."""
    all_faults = [*_identity(runtime), *_page(runtime), *_labels(runtime), *_rest(runtime)]
    for number, row in enumerate(runtime.rows):
        all_faults += [Fault(("rows", number, *fault.path), fault.what, fault.fix) for fault in row_faults(row)]
        if row.born_at_first_event and not runtime.born_at_first_event:
            what = "it has no effect where counters are there from the start"
            all_faults.append(
                Fault(("rows", number, "born_at_first_event"), what, "Say it of the runtime too, or remove it.")
            )
        if any(other.field == row.field and _same_reading(other, row) for other in runtime.rows[:number]):
            all_faults.append(Fault(("rows", number), "an earlier row reads the same", "Remove it."))
    return all_faults


def _identity(runtime: Runtime) -> Iterator[Fault]:
    if not RUNTIME_NAME.fullmatch(runtime.name) or runtime.name == "auto":
        yield Fault(
            ("name",),
            f'"{runtime.name}" is not a name for a runtime',
            "Write lower-case words with dashes, as in acme-serve.",
        )
    yield from version_faults(("versions",), runtime.versions)
    for method, versions in runtime.kv_as_calibrated.items():
        yield from version_faults(("kv_as_calibrated", method), versions)


def _page(runtime: Runtime) -> Iterator[Fault]:
    if not runtime.paths:
        yield Fault(("paths",), "there is no path", "Write the path of its metrics page, as in [/metrics].")
    if (runtime.read_page is not None) != (runtime.kind is PageKind.JSON):
        yield Fault(("read_page",), "read_page and a page of kind json belong together")
    if runtime.kind is PageKind.NONE:
        return
    if not runtime.rows:
        yield Fault(("rows",), "there is no row", "Write one for each field that the page can fill.")
    prefixes = runtime.prefixes or None
    first = [name_of(text) for row in runtime.rows for text in row.samples[:1]]
    if first and not any(name.startswith(prefixes) if prefixes else not name.startswith(GENERIC) for name in first):
        what = "begins with one of them" if prefixes else "only this runtime has"
        yield Fault(
            ("prefixes",),
            f"no row reads a sample that {what}: pages of others would count as its, or none would",
            "Write what its families begin with, and a row that reads one of them.",
        )
    for number, prefix in enumerate(runtime.prefixes):
        yield from _prefix(("prefixes", number), prefix)


def _prefix(path: Path, prefix: str) -> Iterator[Fault]:
    if not SAMPLE.fullmatch(prefix):
        yield Fault(
            path, f'"{prefix}" cannot begin the name of a sample', "Write letters, digits, _ and :, as in acme_."
        )
    elif _is_generic(prefix, is_prefix=True):
        yield Fault(
            path, f'"{prefix}" begins what every process has', "Write what only this runtime's families begin with."
        )


def _labels(runtime: Runtime) -> Iterator[Fault]:
    columns: tuple[tuple[str, Iterable[str]], ...] = (
        ("model_labels", runtime.model_labels),
        ("engine_labels", runtime.engine_labels),
        ("replica_label", (runtime.replica_label,) if runtime.replica_label is not None else ()),
        ("rank_labels", runtime.rank_labels),
        ("only", runtime.only),
        ("never", runtime.never),
        ("not_users", [label for labels in runtime.not_users for label in labels]),
    )
    for column, labels in columns:
        for label in labels:
            yield from label_faults((column,), label)
    for label in sorted(
        {*runtime.rank_labels} & {*runtime.model_labels, *runtime.engine_labels, runtime.replica_label}
    ):
        yield Fault(
            ("rank_labels",),
            f'"{label}" also tells engines apart',
            "A rank belongs to one engine: keep the label in one place.",
        )
    for label, values in runtime.only.items():
        if not values:
            yield Fault(
                ("only", label), "no value is allowed, so that nothing would be read", 'Write the values, "" for none.'
            )


def _fingerprint(path: Path, fingerprint: Fingerprint) -> Iterator[Fault]:
    marks = (("all_of", fingerprint.all_of), ("none_of", fingerprint.none_of))
    wrong = [
        fault
        for column, of_column in marks
        for number, mark in enumerate(of_column)
        for fault in _mark((*path, column, number), mark)
    ]
    yield from wrong
    names = [mark.name for mark in fingerprint.all_of]
    if not names:
        fix = "Write what only this runtime has on its page."
        yield Fault(path, "it names nothing that has to be on the page", fix)
    elif not wrong and all(_is_generic(name.rstrip("*"), is_prefix=name.endswith("*")) for name in names):
        what = f"{', '.join(names)} would recognise any server"
        yield Fault(path, what, "Name a sample that only this runtime has.")


def _mark(path: Path, mark: Mark) -> Iterator[Fault]:
    if not SAMPLE.fullmatch(mark.name.removesuffix("*")):
        yield Fault(
            path, f'"{mark.name}" is not the name of a sample', "Write one, or a prefix that ends in *, as in acme_*."
        )
    if mark.label is not None:
        yield from label_faults(path, mark.label)


def _is_generic(name: str, *, is_prefix: bool) -> bool:
    return name.startswith(GENERIC) or (is_prefix and any(generic.startswith(name) for generic in GENERIC))


def _rest(runtime: Runtime) -> Iterator[Fault]:
    for number, fingerprint in enumerate(runtime.fingerprints):
        yield from _fingerprint(("fingerprints", number), fingerprint)
    for column, name in (("living", runtime.living), ("start_sample", runtime.start_sample)):
        if name is not None and not SAMPLE.fullmatch(name):
            yield Fault((column,), f'"{name}" is not the name of a sample', "Write a name without labels.")
    for number, pair in enumerate(runtime.respelt):
        for prefix in pair:
            yield from _prefix(("respelt", number), prefix)
    for name, edges in runtime.default_edges.items():
        if name not in SLO_NAMES:
            yield Fault(("default_edges", name), "there is no such SLO", f"Known: {', '.join(SLO_NAMES)}.")
        elif not edges or any(not (isfinite(edge) and edge > 0) for edge in edges) or sorted(set(edges)) != list(edges):
            yield Fault(
                ("default_edges", name),
                "the edges are not positive and ascending",
                "Write seconds, the smallest first.",
            )
    read = {row.field for row in runtime.rows}
    for field in runtime.missing:
        if field not in (*FIELDS, ERRORS):
            yield Fault(("missing", field), "there is no such field", near(field, FIELDS))
        elif field in read:
            yield Fault(("missing", field), "the field has a row", "Keep one of them.")


def _same_reading(one: Row, other: Row) -> bool:
    """Whether the texts are all that two rows differ in."""
    return replace(one, caveat="", source="") == replace(other, caveat="", source="")


# fields that only an engine has; any other a front door may have
_OF_ENGINES = frozenset(
    {
        "prefill_tokens_total", "prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total", "preemptions_total",
        "engine_steps_total", "speculative_draft_tokens_total", "speculative_accepted_tokens_total",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds", "requests_running",
        "batch_limit_requests", "kv_cache_usage_ratio", "kv_cache_capacity_tokens", "context_limit_tokens",
        "model_gpu_memory_bytes",
    }
)  # fmt: skip


def explain_missing(table: Runtime) -> Runtime:
    """The table with a reason for each field that it neither reads nor explains: of front doors and servers without metrics."""
    if table.kind is PageKind.NONE or table.without_metrics:
        reasons = dict.fromkeys(EXPORTED_FIELDS, "it has no metrics page")
    elif table.role is Role.FRONTEND:
        engines, not_counted = "an engine's: on the page of each engine behind it", "not counted by it"
        reasons = {field: engines if field in _OF_ENGINES else not_counted for field in EXPORTED_FIELDS}
    else:
        return table
    read = {row.field for row in table.rows}
    return replace(table, missing={**{name: why for name, why in reasons.items() if name not in read}, **table.missing})


Quote = Callable[[str], str]
_AGGREGATES = {Aggregate.MAX: "largest", Aggregate.ONE: "only"}


def formula(row: Row, quote: Quote = str) -> str:
    """One line: how the value is worked out and from which samples. `quote` marks what stands on the page, as in Markdown."""
    match row.reads:
        case Reads.HISTOGRAM:
            text = f"histogram {_sum(row, quote)}"
        case Reads.MEAN:
            text = f"mean {quote(row.samples[0])} / {quote(row.samples[1])}"
        case Reads.LABELS | Reads.TEXT:
            text = f"label {' × '.join(map(quote, row.labels))} of {_sum(row, quote)}"
            text += " / engines on the page" if row.shared_by_engines else ""
            text += " × decode_context_parallel_size × prefill_context_parallel_size" if row.of_a_context_part else ""
        case Reads.PRESENCE:
            text = f"1 where there is {_sum(row, quote)}"
        case Reads.VALUE:
            text = _say_value(row, quote)
    if row.scale != 1.0:
        text += f" × {row.scale:g}"
    return ", ".join((text, *_narrowed(row, quote)))


def _say_value(row: Row, quote: Quote) -> str:
    text = _sum(row, quote)
    if row.aggregate in _AGGREGATES:
        text = f"{_AGGREGATES[row.aggregate]} {text}"
    if row.times_label is not None and not row.minus:
        text = f"{_factor(row.samples, quote)} × {_labelled(row.times_label, quote)}"
    if row.minus:
        factor = f" × {_labelled(row.times_label, quote)}" if row.times_label is not None else ""
        taken = _factor(row.minus, quote) + factor
        # brackets only where something is multiplied with the difference
        text = f"({text} - {taken})" if row.times or row.over or row.scale != 1.0 else f"{text} - {taken}"
    elif len(row.samples) > 1 and (row.times or row.over or row.scale != 1.0):
        text = f"({text})"
    text = " × ".join((text, *map(quote, row.times)))
    return f"{text} / {_factor(row.over, quote)}" if row.over else text


def _sum(row: Row, quote: Quote) -> str:
    named = {sample: f" as {key}" for sample, key in row.named.items()}
    return " + ".join(f"{quote(sample)}{named.get(sample, '')}" for sample in row.samples)


def _factor(samples: Sequence[str], quote: Quote) -> str:
    text = " + ".join(map(quote, samples))
    return f"({text})" if len(samples) > 1 else text


def _labelled(pair: tuple[str, str], quote: Quote) -> str:
    return quote(f"{pair[0]}{{{pair[1]}}}")


def _narrowed(row: Row, quote: Quote) -> Iterator[str]:
    """Which samples count, and when the row does."""
    for label, allowed in row.where.items():
        yield f"{quote(label)} {' or '.join(value or 'none' for value in sorted(allowed))}"
    if row.by is not None:
        yield f"by {quote(row.by)}"
    if row.agrees is not None:
        yield f"where {quote(row.agrees)} says the same"
    for name, condition in (("when", row.when), ("unless", row.unless)):
        if condition is not None:
            sample, label, value = condition
            text = f'{sample}{{{label}="{value}"}}'
            yield f"{name} {quote(text)}"
