"""What is wrong with one row of a table, whatever the table: columns that contradict each other, or that nothing would read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from math import isfinite

from llm_serving_exporter.engines.mapping import Aggregate, Reads, Row
from llm_serving_exporter.engines.selector import selector
from llm_serving_exporter.engines.version import satisfies
from llm_serving_exporter.model.record import Struct, name_fields
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    EngineSnapshot,
    Quality,
)

EXPORTED_FIELDS = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)
# what a row may fill: the exported fields, and those that only the exporter itself uses
# what follows from labels, and from where another field was found
_NOT_READ = ("model_name", "engine", "batch_limit_source")
FIELDS = tuple(name for name in name_fields(EngineSnapshot) if name not in _NOT_READ)
_TEXT_FIELDS = frozenset(name for name, kind in EngineSnapshot.__annotations__.items() if kind == "str | None")
_COUNTERS = frozenset((*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS))
_MAY_FALL = frozenset((*COUNTER_FIELDS, "decode_tokens_live"))
# the other qualities are found by the exporter, not stated by a table
ROW_QUALITIES = (Quality.LIVE, Quality.LAGGING, Quality.SLOW, Quality.APPROXIMATE)
SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Path = tuple[str | int, ...]


class Fault(Struct, frozen=True):
    """One thing that is wrong with a row."""

    path: Path  # to the column
    what: str  # without a full stop
    fix: str = ""  # a sentence, or ""

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")
        said = f"{where}: {self.what}" if where else self.what
        return f"{said}. {self.fix}" if self.fix else f"{said}."


def row_faults(row: Row) -> list[Fault]:
    """What is wrong with a row whatever its table."""
    found = [*_field(row), *_samples(row), *_conditions(row), *_numbers(row), *_promises(row)]
    match row.reads:
        case Reads.VALUE:
            found += _value(row)
        case Reads.HISTOGRAM:
            found += _histogram(row)
        case Reads.MEAN:
            found += _mean(row)
        case Reads.LABELS:
            found += _of_labels(row)
        case Reads.TEXT:
            found += _of_text(row)
    return found


def _field(row: Row) -> Iterator[Fault]:
    if row.field not in FIELDS:
        yield Fault(("field",), f'there is no field "{row.field}"', near(row.field, FIELDS))
        return
    histogram = row.field in HISTOGRAM_FIELDS
    if histogram != (row.reads in (Reads.HISTOGRAM, Reads.MEAN)):
        fix = (
            "Write reads: histogram (or mean)." if histogram else f"Only histograms are: {', '.join(HISTOGRAM_FIELDS)}."
        )
        yield Fault(("reads",), f"{row.field} is {'' if histogram else 'not '}a histogram", fix)
    elif (row.field in _TEXT_FIELDS) != (row.reads is Reads.TEXT):
        text = row.field in _TEXT_FIELDS
        yield Fault(
            ("reads",),
            f"{row.field} is a {'text' if text else 'number'}",
            f"Write reads: {'text' if text else 'value'}.",
        )
    elif row.field in _COUNTERS and row.reads is not Reads.VALUE:
        yield Fault(("reads",), f"{row.field} is a counter, and labels do not count", "Write reads: value.")


def _samples(row: Row) -> Iterator[Fault]:
    if not row.samples:
        yield Fault(("samples",), "there is no sample", "Write the name of what is read.")
    columns: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("samples", row.samples), ("minus", row.minus), ("times", row.times), ("over", row.over),
    )  # fmt: skip
    for column, texts in columns:
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
    for column, condition in (
        ("when", row.when),
        ("unless", row.unless),
        ("proof", row.proof),
        ("times_label", row.times_label),
    ):
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
    if not (isfinite(row.refresh_seconds) and row.refresh_seconds >= 0):
        yield Fault(
            ("refresh",), f"{row.refresh_seconds:g} is not a time", "Write how often the engine brings it up to date."
        )


def _promises(row: Row) -> Iterator[Fault]:
    for column, quality in (("quality", row.quality), ("multiprocess_quality", row.multiprocess_quality)):
        if quality is not None and quality not in ROW_QUALITIES:
            yield Fault((column,), f'"{quality}" is not for a table to say', f"Write {', '.join(ROW_QUALITIES)}.")
    if Quality.SLOW in (row.quality, row.multiprocess_quality):
        if row.refresh_seconds == 0 and not row.freezes:
            yield Fault(
                ("refresh",), "a slow field has to say how slow", "Write how often the engine brings it up to date."
            )
    elif row.refresh_seconds > 0 and row.quality is Quality.LIVE and row.reads not in (Reads.LABELS, Reads.TEXT):
        yield Fault(("refresh",), "the quality says live", "Write quality: slow.")
    if row.freezes and (row.field in _COUNTERS or row.field in HISTOGRAM_FIELDS):
        yield Fault(("freezes",), f"{row.field} only counts, and nothing is lost while it does not", "Remove it.")
    if row.decode_only and (row.field in _COUNTERS or row.field in HISTOGRAM_FIELDS):
        yield Fault(("decode_only",), f"{row.field} only counts, and nothing is lost while it does not", "Remove it.")
    if row.born_at_first_event and (row.field in _COUNTERS or row.field in HISTOGRAM_FIELDS):
        yield Fault(
            ("born_at_first_event",), f"{row.field} only counts: the runtime says it of all that does", "Remove it."
        )
    if row.zero_is_unset and (row.field in _COUNTERS or row.field in HISTOGRAM_FIELDS):
        yield Fault(("zero_is_unset",), f"{row.field} counts from 0", "Remove it.")
    if row.may_fall and row.field not in _MAY_FALL:
        yield Fault(("may_fall",), f"{row.field} is not a plain counter", "Remove it.")


def _unread(row: Row, *columns: str) -> Iterator[Fault]:
    """Columns that this way of reading leaves unread."""
    empty = Row("", ())
    for column in columns:
        if getattr(row, column) != getattr(empty, column):
            yield Fault((column,), f"it has no effect in a row that reads {row.reads.value}", "Remove it.")


def _value(row: Row) -> Iterator[Fault]:
    yield from _unread(row, "labels", "shared_by_engines", "of_a_context_part")
    keyed = row.by is not None or bool(row.named)
    label = LABELLED_COUNTER_FIELDS.get(row.field)
    if keyed and label is None:
        column = "by" if row.by is not None else "named"
        known = ", ".join(LABELLED_COUNTER_FIELDS)
        yield Fault((column,), f"{row.field} has no label of its own", f"Remove it; only these have: {known}.")
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


_PARTS = ("minus", "times", "over", "by", "named", "rename", "agrees", "times_label", "aggregate", "may_fall")


def _histogram(row: Row) -> Iterator[Fault]:
    yield from _unread(row, *_PARTS, "labels", "shared_by_engines", "of_a_context_part")
    for number, text in enumerate(row.samples):
        name = name_of(text)
        if name.endswith(("_bucket", "_sum", "_count")):
            yield Fault(("samples", number), f"{name} is one part of a histogram", f"Write {name.rpartition('_')[0]}.")


def _mean(row: Row) -> Iterator[Fault]:
    yield from _unread(row, *_PARTS, "labels", "shared_by_engines", "of_a_context_part")
    if len(row.samples) not in (0, 2):
        yield Fault(
            ("samples",), f"a mean is read from 2 samples, not {len(row.samples)}", "Write the sum, then its count."
        )


def _of_labels(row: Row) -> Iterator[Fault]:
    yield from _unread(row, *_PARTS)
    yield from _one_sample(row)
    if not row.labels:
        yield Fault(("labels",), "there is no label", "Write the numeric labels to multiply.")
    for label in row.labels:
        yield from label_faults(("labels",), label)


def _of_text(row: Row) -> Iterator[Fault]:
    yield from _unread(
        row, *(part for part in _PARTS if part != "rename"), "shared_by_engines", "of_a_context_part", "scale"
    )
    yield from _one_sample(row)
    if len(row.labels) != 1:
        yield Fault(("labels",), f"a text is read from 1 label, not {len(row.labels)}", "Write the label.")
    for label in row.labels:
        yield from label_faults(("labels",), label)


def _one_sample(row: Row) -> Iterator[Fault]:
    if len(row.samples) > 1:
        yield Fault(("samples",), f"labels are read from 1 series, not {len(row.samples)}", "Write a row for each.")


def label_faults(path: Path, label: str) -> Iterator[Fault]:
    """What is wrong with the name of a label."""
    if not _LABEL.fullmatch(label):
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


def near(word: str, known: Collection[str]) -> str:
    """A fix for a name that is not known."""
    found = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {found[0]}?" if found else "docs/mapping.md lists the fields."
