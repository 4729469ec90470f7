"""The configuration's own tables for people: what a runtime is recognised by, and what each field is read from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.check_row import EXPORTED_FIELDS, FIELDS
from llm_serving_exporter.normalise.formula import formula
from llm_serving_exporter.normalise.mapping import Fingerprint, Mark, PageKind, Row, Runtime
from llm_serving_exporter.schema.duration import format_duration

WIDTH = 120


def target_lines(targets: Iterable[Target]) -> list[str]:
    """One line a target: its name, its URL, whose page it is."""
    rows = [(target.name, target.url, target.runtime or "found out from the page") for target in targets]
    names, urls = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"  {name:<{names}}  {url:<{urls}}  {runtime}" for name, url, runtime in rows]


def table_lines(table: Runtime, where: str, builtin: Iterable[Runtime]) -> list[str]:
    """A table: where it stands, its page, how it is recognised, and a line a field; fields of the table that it is based on as one."""
    base = next((one for one in builtin if one.rows and table.rows[-len(one.rows) :] == one.rows), None)
    inherited = base.rows if base is not None else ()
    own = table.rows[: len(table.rows) - len(inherited)]
    lines = [
        f"runtime {table.name} ({table.title}), {where}",
        f"  page           {', '.join(table.paths)}",
        f"  recognised by  {_recognised(table)}",
        f"  model_name     {_from_label(table.model_labels) or 'as the target is configured'}",
        f"  engine         {_from_label(table.engine_labels) or '0'}",
    ]
    below = {row.field for row in inherited}
    fields = [field for field in FIELDS if any(row.field == field for row in own)]
    width = max((len(field) for field in fields), default=0)
    title = base.title if base is not None else ""
    for field in fields:
        ways = [_way(row) for row in own if row.field == field] + [f"as {title}"] * (field in below)
        lines.append(f"  {field:<{width}}  {'; else '.join(ways)}")
    lines += _listed(f"as {title}", [field for field in FIELDS if field in below and field not in fields])
    if table.kind is not PageKind.NONE:
        lines += _listed("not read", [field for field in EXPORTED_FIELDS if field not in below and field not in fields])
    return lines


def _listed(what: str, fields: Sequence[str]) -> list[str]:
    if not fields:
        return []
    return wrap(f"{what}: {', '.join(fields)}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def _from_label(labels: Sequence[str]) -> str:
    return f"from the label {', else '.join(labels)}" if labels else ""


def _recognised(table: Runtime) -> str:
    if not table.fingerprints:
        return f"nothing: only a target with runtime: {table.name} is read by it"
    return ", or ".join(map(_fingerprint, table.fingerprints))


def _fingerprint(one: Fingerprint) -> str:
    text = " with ".join(map(_mark, one.all_of))
    return f"{text} without {' or '.join(map(_mark, one.none_of))}" if one.none_of else text


def _mark(mark: Mark) -> str:
    return mark.name if mark.label is None else f"{mark.name}{{{mark.label}}}"


def _way(row: Row) -> str:
    return "".join((formula(row), *(f", {said}" for said in _qualified(row))))


def _qualified(row: Row) -> Iterable[str]:
    """In which versions a row is right, and how far."""
    if row.versions:
        yield f"versions {row.versions}"
    if row.quality is not Quality.LIVE:
        every = f" ({format_duration(row.refresh_seconds)})" if row.refresh_seconds else ""
        yield f"{row.quality.value}{every}"
