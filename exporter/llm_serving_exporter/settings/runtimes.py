"""`runtimes:` of the file -> tables with the columns of the built-in ones, checked as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_serving_exporter.engines.check import MOST_DIGITS, ROW_QUALITIES, Fault, explain_missing, faults, name_of
from llm_serving_exporter.engines.hooks import HOOKS
from llm_serving_exporter.engines.mapping import (
    Aggregate,
    Fingerprint,
    FirstToken,
    Flags,
    Mark,
    PageKind,
    Reads,
    Row,
    Runtime,
    selector,
)
from llm_serving_exporter.engines.plan import on_the_wire
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import SHOWS_AN_ENGINE
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.settings import keys, kinds
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.options import ConfigFile
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, did_you_mean, shown

# --- columns: one node of the file -> the value; each reader reports what it cannot use and returns None ---------------

LONGEST_TEXT = 500
_WORDS = "Write a word before each colon."


def _any(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise InvalidValueError(f"the text has {len(text)} characters", f"At most {LONGEST_TEXT} are allowed.")
    return text


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
        raise InvalidValueError(f"{shown(text)} is not a number", "Write one such as 0.001 or 1e-6.")
    return float(text)


def _condition(text: str) -> tuple[str, str, str]:
    fix = "Write one series with one label, as in 'acme_info{cache=\"off\"}'."
    try:
        series = selector(text)
    except ValueError as error:
        raise InvalidValueError(str(error), fix) from None
    allowed_values = [(label, allowed) for label, values in series.where.items() for allowed in values]
    if len(allowed_values) != 1:
        raise InvalidValueError(f"{shown(text)} does not have one label with one value", fix)
    return (series.name, *allowed_values[0])


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        what = f"{shown(text)} is not a regular expression: {error}"
        raise InvalidValueError(what, "It has to fit a whole value.") from None
    return text


SAMPLE = kinds.text("sample", LONGEST_TEXT)
LABEL = kinds.text("label", LONGEST_TEXT)
PROSE = kinds.text("text", LONGEST_TEXT)
# "" has a meaning: a series without the label, a value that is left out
LABEL_VALUE = Kind("the value of a label", _any, is_text=True)
NUMBER = Kind("a number", _number)
CONDITION = Kind("a series with a label's value", _condition, is_text=True)
FLAG = kinds.matching("a flag", r"--?[a-z0-9]+(-[a-z0-9]+)*", "Write one such as --max-num-seqs, with - for _.")
PATTERN = Kind("a regular expression", _pattern, is_text=True)


def texts(kind: Kind[str]) -> keys.Reader:
    """A text, or a list of them, as a tuple. A bad one is reported and stands as "", so that the places of the others hold."""

    def read(node: Node, place: Place, context: object = None) -> tuple[str, ...] | None:
        if isinstance(node, Scalar):
            text = keys.value(node, place, kind)
            return None if text is None else (text,)
        return tuple(keys.value(element, at, kind) or "" for element, at in keys.elements(node, place, "texts"))

    return read


def _is_none(node: Node | None) -> bool:
    """Whether it is the word that says that there is none."""
    return isinstance(node, Scalar) and node.text == "none"


def or_none(reader: keys.Reader) -> keys.Reader:
    """What `reader` reads, or () of the word `none`."""
    return lambda node, place, context: () if _is_none(node) else reader(node, place, context)


def _by_name(reads: Kind[str] | keys.Reader, example: str) -> keys.Reader:
    """A mapping whose keys the user chooses, to what `reads` makes of each value."""
    return keys.mapping_reader(reads, _WORDS, form=f"such as {example}")


def values(node: Node, place: Place, context: object = None) -> frozenset[str]:
    """A text, or a list of them, as a set; "" is one of them where it is written."""
    if not isinstance(node, Scalar):
        return frozenset(keys.read_values(node, place, LABEL_VALUE, "label values"))
    text = keys.value(node, place, LABEL_VALUE)
    return frozenset(() if text is None else (text,))


def _seconds(node: Node, place: Place, context: object) -> tuple[float, ...]:
    return tuple(keys.read_values(node, place, NUMBER, "seconds"))


LABEL_VALUES = _by_name(values, '{source: [compute, ""]}')
EDGES = _by_name(_seconds, "{ttft: [0.1, 1]}")  # bucket edges by SLO


def _refuse_absent(node: Node, place: Place, fixes: Mapping[str, str]) -> None:
    """Reports keys that a mapping does not have. `fixes`: what to write, by key."""
    for key, fix in fixes.items():
        if isinstance(node, dict) and key not in node:
            place.key(key).refuse("the key is missing", fix)


def flags(node: Node, place: Place, context: object = None) -> Flags | None:
    """Flags of a command line: {batch_limit, unless, bounds, source}."""
    section = keys.mapping(node, place, ("batch_limit", "unless", "bounds", "source"))
    _refuse_absent(node, place, {"batch_limit": "Write the flag that says how many requests run at once."})
    by_key = {key: texts(FLAG)(child, place.key(key), None) or () for key, child in section.items() if key != "source"}
    source = section.value("source", PROSE) or ""
    return Flags(by_key.pop("batch_limit", ()), source=source, **by_key) if section else None


def series_patterns(node: Node, place: Place, context: object = None) -> tuple[dict[str, str], ...]:
    """Mappings of labels to regular expressions."""
    read = _by_name(PATTERN, '{user_agent: "probe/.*"}')
    return tuple(read(child, at, None) for child, at in keys.elements(node, place, "mappings"))


def tenants(node: Node, place: Place, context: object = None) -> dict[TenantKind, tuple[str, ...]]:
    """Labels that name a tenant, by what it is."""
    by_kind: dict[TenantKind, tuple[str, ...]] = {}
    for name, child in keys.free_mapping(node, place, _WORDS, form="such as {team: [team_alias, team]}").items():
        at = place.key(name)
        labels = texts(LABEL)(child, at, None)
        kind = kinds.member("kind of tenant", TenantKind).read(name, at)
        if kind in (TenantKind.OFF, TenantKind.HEADER):
            fix = "Write team, key, user or adapter; tenants.label names that of header."
            at.refuse(f"{name} has no label in a table", fix)
        elif kind is not None and isinstance(labels, tuple):
            by_kind[kind] = labels
    return by_kind


def respelt(node: Node, place: Place, context: object = None) -> tuple[tuple[str, str], ...]:
    """Prefix -> how it may be written otherwise, as pairs."""
    by_prefix = _by_name(texts(SAMPLE), '{"vllm:": acme_}')(node, place, None)
    return tuple((prefix, other) for prefix, others in by_prefix.items() for other in others if other)


def named_label(node: Node, place: Place, context: object = None) -> tuple[str, str] | None:
    """A sample and one of its labels, written {name: …, label: …}."""
    section = keys.mapping(node, place, ("name", "label"))
    name = section.value("name", SAMPLE)
    label = section.value("label", LABEL)
    _refuse_absent(node, place, dict.fromkeys(("name", "label"), "Write {name: acme_info, label: block_size}."))
    return None if name is None or label is None else (name, label)


def fingerprints(node: Node, place: Place, context: object = None) -> tuple[Fingerprint, ...]:
    """Names, or {all_of, none_of}; one alone needs no list."""
    return tuple(_fingerprint(element, at) for element, at in keys.one_or_several(node, place, "samples"))


def _fingerprint(node: Node, place: Place) -> Fingerprint:
    if isinstance(node, Scalar):
        return Fingerprint((_mark(node, place),))
    section = keys.mapping(
        node, place, ("all_of", "none_of"), dict.fromkeys(("name", "label"), "Write it below all_of.")
    )
    marks = {key: [_mark(*item) for item in section.elements(key, "samples")] for key in section}
    return Fingerprint(tuple(marks.get("all_of", ())), tuple(marks.get("none_of", ())))


def _mark(node: Node, place: Place) -> Mark:
    if isinstance(node, Scalar):
        return Mark(keys.value(node, place, SAMPLE) or "")
    label = named_label(node, place)
    return Mark(*label) if label is not None else Mark("")


# --- tables ------------------------------------------------------------------------------------------------------------

_NAME = kinds.text("name", 63)
_FIELD = kinds.text("field")
_QUALITY = kinds.member("quality", ROW_QUALITIES)
_PAGE = kinds.member("kind of page", (PageKind.METRICS, PageKind.NONE))  # a page of JSON takes hooks, which say so
_HOOKS = kinds.choice("name of hooks", tuple(HOOKS))
_TEXT = re.compile(r"\$([a-z][a-z0-9_]*)")

# by column of Row; `field` is the other
ROW_COLUMNS = keys.table(
    samples=texts(SAMPLE),
    reads=kinds.member("way of reading", Reads),
    where=LABEL_VALUES,
    by=LABEL,
    named=_by_name(LABEL_VALUE, "{acme_done_total: stop}"),
    rename=_by_name(LABEL_VALUE, "{cancelled: abort}"),
    minus=texts(SAMPLE),
    times=texts(SAMPLE),
    over=texts(SAMPLE),
    agrees=SAMPLE,
    labels=texts(LABEL),
    shared_by_engines=kinds.BOOLEAN,
    of_a_context_part=kinds.BOOLEAN,
    times_label=named_label,
    aggregate=kinds.member("way to aggregate", Aggregate),
    scale=NUMBER,
    sum_is_sound=kinds.BOOLEAN,
    zero_is_unset=kinds.BOOLEAN,
    versions=PROSE,
    guarded=kinds.BOOLEAN,
    when=CONDITION,
    unless=CONDITION,
    proof=CONDITION,
    quality=_QUALITY,
    multiprocess_quality=_QUALITY,
    refresh_seconds=keys.Key(kinds.DURATION, name="refresh"),
    freezes=kinds.BOOLEAN,
    decode_only=kinds.BOOLEAN,
    born_at_first_event=kinds.BOOLEAN,
    may_fall=kinds.BOOLEAN,
    caveat=PROSE,
    source=PROSE,
)
ROW_KEYS = ("field", "as", *keys.names_of(ROW_COLUMNS))
_ROW_HINTS = {
    **dict.fromkeys(("name", "sample", "metric", "metrics"), "Write field: for ours and samples: for the runtime's."),
    "type": "Write reads: value, histogram, mean, labels or text.",
    "refresh_seconds": "Write refresh: 10s.",
    "label": "Write labels.",
}
# by column of Runtime; the others say what it starts from, or stand for texts of it
RUNTIME_COLUMNS = keys.table(
    title=PROSE,
    kind=keys.Key(_PAGE, name="page"),
    paths=texts(kinds.URL_PATH),
    health=kinds.URL_PATH,
    prefixes=or_none(texts(SAMPLE)),
    fingerprints=fingerprints,
    model_labels=keys.Key(texts(LABEL), name="model_label"),
    engine_labels=keys.Key(texts(LABEL), name="engine_label"),
    replica_label=LABEL,
    rank_labels=texts(LABEL),
    only=LABEL_VALUES,
    never=LABEL_VALUES,
    not_users=series_patterns,
    unnamed=values,
    any_case=kinds.BOOLEAN,
    born_at_first_event=kinds.BOOLEAN,
    living=SAMPLE,
    respelt=respelt,
    start_sample=SAMPLE,
    significant_digits=kinds.integer(1, MOST_DIGITS),
    ignored=texts(SAMPLE),
    role=kinds.member("role", Role),
    first_token=kinds.member("clock", FirstToken),
    several_workers=PROSE,
    tenants=tenants,
    no_tenant=values,
    default_edges=EDGES,
    flags=flags,
    kv_as_calibrated=_by_name(LABEL_VALUE, '{modelopt: ">=1.0"}'),
    missing=_by_name(PROSE, "{preemptions_total: it does not count them}"),
    versions=PROSE,
    covered=PROSE,
    recorded=or_none(texts(PROSE)),
)
RUNTIME_KEYS = ("name", "based_on", "hooks", "texts", "source", *keys.names_of(RUNTIME_COLUMNS), "rows")
_CODE = (
    "It takes code, which a configuration file cannot hold: start from a built-in table by based_on, or add a table."
)
_RUNTIME_HINTS = {
    **dict.fromkeys(("endpoints", "polls", "read_page", "shows", "adds", "stays", "without_metrics"), _CODE),
    "kind": "Write page: metrics, or none.",
    "model_labels": "Write model_label; it may be a list.",
    "engine_labels": "Write engine_label; it may be a list.",
    "rank_label": "Write rank_labels.",
    "path": "Write paths.",
    "prefix": "Write prefixes.",
    "fingerprint": "Write fingerprints.",
    "fields": "Write rows.",
}
_NAMES = {key.field: key.name for columns in (ROW_COLUMNS, RUNTIME_COLUMNS) for key in columns.values()}
_JOINED = ("prefixes", "ignored", "respelt")  # a fork's own entries come before those of its base


class Configured(Struct, frozen=True):
    """What `runtimes:` of the file holds."""

    tables: tuple[Runtime, ...]  # those without problems
    names: frozenset[str]  # of every table, those with problems included
    warnings: tuple[str, ...]


def read_runtimes(file: ConfigFile, builtin: Mapping[str, Runtime]) -> Configured:
    """Every table of the file. What is wrong with one is reported at its place, each thing once."""
    tables: list[Runtime] = []
    places: dict[str, Place] = {}
    prints: dict[Fingerprint, Place] = {}
    warnings: list[str] = []
    for node, at in keys.elements(*file.find_key("runtimes"), "mappings such as {name: acme, rows: […]}"):
        before = len(at.problems)
        table, faulty = _read(node, at, builtin)
        if table.name in builtin:
            fix = f"Choose another; based_on: {table.name} starts from its table."
            at.key("name").refuse(f"{shown(table.name)} is the name of a built-in table", fix)
        elif table.name and places.setdefault(table.name, at) is not at:
            what = f"the name {shown(table.name)} is already taken by {places[table.name].path}"
            at.key("name").refuse(what, "Give each runtime a name of its own.")
        for number, fingerprint in enumerate(table.fingerprints):
            if all(mark.name for mark in fingerprint.all_of) and prints.setdefault(fingerprint, at) is not at:
                where = _place_of(node, at, ("fingerprints", number))
                where.refuse(
                    f"{prints[fingerprint].path} has the same fingerprint",
                    "A page would match both: write fingerprints that tell them apart.",
                )
        _report(faulty, node, at, before)
        tables.append(table)
        warnings += _warnings(table, at, builtin)
    return Configured(tuple(tables), frozenset(places), tuple(warnings))


def read_table(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> Runtime:
    """One table, what is wrong with it reported. `builtin`: those that it may be based on."""
    before = len(place.problems)
    table, faulty = _read(node, place, builtin)
    _report(faulty, node, place, before)
    return table


def _read(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> tuple[Runtime, list[Fault]]:
    """The table and what is wrong with it. What could not be read is as if it were not given."""
    section = fill_texts(keys.mapping(node, place, RUNTIME_KEYS, _RUNTIME_HINTS), place)
    _refuse_absent(node, place, {"name": "Write the word that targets have as their runtime."})
    name = section.value("name", _NAME) or ""
    base = _find_builtin(*section.find_key("based_on"), builtin)
    source = section.value("source", PROSE) or ""
    # with the place of each in the file, where one line may stand for several rows of another table
    numbered = [
        (number, row if row.source else replace(row, source=source))
        for number, (child, at) in enumerate(section.elements("rows", "mappings"))
        for row in _rows(child, at, builtin)
    ]
    rows = tuple(row for _, row in numbered)
    columns = _read_columns(section, place, RUNTIME_COLUMNS)
    columns.setdefault("title", name or "-")
    if base is None:
        table = Runtime(name=name, rows=rows, **columns)
    else:
        for column in _JOINED:
            columns[column] = tuple(dict.fromkeys((*columns.get(column, ()), *getattr(base, column))))
        # a page of the base must not be taken for the fork's: what tells them apart, only its user knows
        unset = {"fingerprints": (), "shows": (), "missing": {}, "versions": "", "covered": "", "recorded": ()}
        table = replace(base, name=name, rows=(*rows, *base.rows), **{**unset, **columns})
    hooks = section.value("hooks", _HOOKS)
    code = HOOKS[hooks] if hooks is not None else None
    if hooks is not None and code is not None:
        table = replace(table, hooks=hooks, **code.columns)
    # a base that is not known might have given what is missing
    whole = base is not None or "based_on" not in section
    faulty = []
    for fault in _faults(table, len(rows), says_prefixes=_is_none(section.get("prefixes"))):
        if fault.path[0] != "rows" or len(fault.path) == 1:
            faulty += [fault] if whole else []
        elif (number := fault.path[1]) in range(len(rows)):  # those of the base's rows are not the user's
            faulty.append(replace(fault, path=("rows", numbered[int(number)][0], *fault.path[2:])))
    # of tables with problems something may be missing; nothing starts then
    if code is not None and code.complete is not None and not place.problems:
        table = code.complete(table, builtin)
    return explain_missing(table), faulty


def _find_builtin(node: Node | None, place: Place, builtin: Mapping[str, Runtime]) -> Runtime | None:
    if node is None:
        return None
    return builtin.get(keys.value(node, place, kinds.choice("runtime with a built-in table", tuple(builtin))) or "")


def fill_texts(section: keys.Members, place: Place) -> keys.Members:
    """The keys of a table but for `texts`, with the text of that name in place of each `$name`."""
    if "texts" not in section:
        return section
    by_name: dict[str, str] = {}
    at = place.key("texts")
    form = "such as {at_end: Booked when a request ends.}"
    for name, node in keys.free_mapping(section["texts"], at, _WORDS, form=form).items():
        if not _TEXT.fullmatch(f"${name}"):
            at.key(name).refuse(f"{shown(name)} is not a name for a text", "Write lower-case letters, digits and _.")
        by_name[name] = keys.value(_fill(node, at.key(name), by_name), at.key(name), PROSE) or ""
    filled = {key: _fill(node, place.key(key), by_name) for key, node in section.items() if key != "texts"}
    return keys.Members(filled, place)


def _fill(node: Node, place: Place, by_name: Mapping[str, str]) -> Node:
    if isinstance(node, list):
        return [_fill(child, place.item(number), by_name) for number, child in enumerate(node)]
    if isinstance(node, dict):
        return {_fill_text(key, place, by_name): _fill(child, place.key(key), by_name) for key, child in node.items()}
    return replace(node, text=_fill_text(node.text, place, by_name)) if "$" in node.text else node


def _fill_text(text: str, place: Place, by_name: Mapping[str, str]) -> str:
    def find(match: re.Match[str]) -> str:
        if match[1] not in by_name:
            place.refuse(f"there is no text {shown(match[1])}", did_you_mean(match[1], by_name))
        return by_name.get(match[1], match[0])

    return _TEXT.sub(find, text)


def _faults(table: Runtime, own_rows: int, *, says_prefixes: bool) -> Iterator[Fault]:
    """The faults of any table, and those of a file's. `says_prefixes`: whether it says itself that it has none."""
    if table.kind is PageKind.METRICS and own_rows == len(table.rows) and not table.prefixes and not says_prefixes:
        fix = 'Write what its families begin with, as in ["acme_"]; where they have nothing in common, their names.'
        yield Fault(("prefixes",), "there is no prefix", fix)
    yield from (fault for fault in faults(table) if table.prefixes or fault.path != ("prefixes",))
    for number, row in enumerate(table.rows[:own_rows]):
        if row.guarded and row.proof is None and not table.endpoints:
            fix = "Remove it, or write proof: a series that shows the version on the page."
            yield Fault(
                ("rows", number, "guarded"), "nothing says the version, so that the row would never be read", fix
            )


def _rows(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> tuple[Row, ...]:
    """One row, or those that another table has for the field."""
    if not isinstance(node, dict) or "as" not in node:
        return (_row(node, place),)
    section = keys.mapping(node, place, ("field", "as"))
    field = section.value("field", _FIELD)
    other = _find_builtin(*section.find_key("as"), builtin)
    rows = tuple(row for row in other.rows if row.field == field) if other is not None else ()
    if other is not None and not rows:
        place.key("field").refuse(f"{other.title} has no row for {field}", "Write a field that it reads.")
    return rows


def _row(node: Node, place: Place) -> Row:
    section = keys.mapping(node, place, ROW_KEYS, _ROW_HINTS)
    fixes = {"field": "Write one such as decode_tokens_total.", "samples": "Write what the field is read from."}
    _refuse_absent(node, place, fixes)
    field = section.value("field", _FIELD) or ""
    return Row(field, **{"samples": (), **_read_columns(section, place, ROW_COLUMNS)})


def _read_columns(section: Mapping[str, Node], place: Place, columns: keys.Keys) -> dict[str, Any]:
    """What a mapping sets, by column. An empty key is reported alike, whatever it should hold."""
    empty = [key.name for key in columns.values() if key.name in section and keys.is_empty(section[key.name])]
    for name in empty:
        place.key(name).refuse("the key has no value", "Write one, or remove the line.")
    return keys.read_keys(columns, {name: content for name, content in section.items() if name not in empty}, place)


def _report(faulty: Sequence[Fault], node: Node, place: Place, before: int) -> None:
    """Reports faults of a table at their places in the file, unless something was reported there already."""
    reported = [problem.path for problem in place.problems[before:] if _covers(place.path, problem.path)]
    refused = set()
    for fault in faulty:
        where = _place_of(node, place, fault.path)
        if where.path in refused or any(_covers(path, where.path) or _covers(where.path, path) for path in reported):
            continue
        refused.add(where.path)
        where.refuse(fault.what, fault.fix)


def _covers(path: str, other: str) -> bool:
    return other == path or other.startswith((f"{path}.", f"{path}["))


def _place_of(node: Node | None, place: Place, path: Sequence[str | int]) -> Place:
    """The place of a table's part, as far as the file has it: a list of one may be written without a list."""
    for part in path:
        if isinstance(part, int):
            if not isinstance(node, list) or part >= len(node):
                break
            node, place = node[part], place.item(part)
        elif isinstance(node, dict):
            key = part if part in node else _NAMES.get(part, part)
            node, place = node.get(key), place.key(key)
        else:
            break
    return place


_MISSED = {
    "decode_tokens_total": "decode throughput, the limiter and every rate of generated tokens stay absent",
    "requests_running": "batch utilisation and the limiter stay absent",
}


def _warnings(table: Runtime, place: Place, builtin: Mapping[str, Runtime]) -> Iterator[str]:
    read = {row.field for row in table.rows}
    if table.kind is not PageKind.NONE:
        if read.isdisjoint(SHOWS_AN_ENGINE):
            yield f"{place}: no row reads {' or '.join(SHOWS_AN_ENGINE)}: nothing on its page counts as an engine"
        else:
            yield from (f"{place}: no row reads {field}: {why}" for field, why in _MISSED.items() if field not in read)
    for number, one_of in enumerate(table.fingerprints):
        for other in builtin.values():
            if all(mark.label is None and _reads(other, mark.name) for mark in one_of.all_of):
                yield f"{place}.fingerprints[{number}]: {other.title} has it too: its pages will be read by this table"


def _reads(runtime: Runtime, name: str) -> bool:
    """Whether pages of a built-in runtime are known to have a name."""
    marks = {mark.name for one_of in runtime.fingerprints for mark in one_of.all_of}
    families = {name_of(text) for row in runtime.rows for text in row.samples}
    return name in marks | families | on_the_wire(runtime)
