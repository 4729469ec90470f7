"""`runtimes:` of the file -> tables with the columns of the built-in ones, checked as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_serving_exporter.config import columns
from llm_serving_exporter.config.columns import CONDITION, LABEL, LABEL_VALUE, NUMBER, PROSE, SAMPLE, texts
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import SHOWS_AN_ENGINE
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.check import MOST_DIGITS, faults
from llm_serving_exporter.normalise.check_row import ROW_QUALITIES, Fault, name_of
from llm_serving_exporter.normalise.hooks import NAMES, load_hooks
from llm_serving_exporter.normalise.mapping import Aggregate, Fingerprint, FirstToken, PageKind, Reads, Row, Runtime
from llm_serving_exporter.normalise.missing import explain_missing
from llm_serving_exporter.normalise.plan import on_the_wire
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.keys import Key, Keys, names_of, read_keys, table
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import Place, did_you_mean, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node

_NAME = kinds.text("name", 63)
_FIELD = kinds.text("field")
_QUALITIES = {quality.value: quality for quality in ROW_QUALITIES}
_QUALITY_WORDS = kinds.choice("quality", tuple(_QUALITIES))
_QUALITY = Kind(_QUALITY_WORDS.expects, lambda text: _QUALITIES[_QUALITY_WORDS.parse(text)])
# a page of JSON takes hooks, which say so
_PAGES = {kind.value: kind for kind in (PageKind.METRICS, PageKind.NONE)}
_PAGE_WORDS = kinds.choice("kind of page", tuple(_PAGES))
_PAGE = Kind(_PAGE_WORDS.expects, lambda text: _PAGES[_PAGE_WORDS.parse(text)])
_HOOKS = kinds.choice("name of hooks", NAMES)

_TEXT = re.compile(r"\$([a-z][a-z0-9_]*)")

# by column of Row; `field` is the other
ROW_COLUMNS = table(
    samples=Key(reads=texts(SAMPLE)),
    reads=Key(reads=kinds.member("way of reading", Reads)),
    where=Key(reads=columns.label_values),
    by=Key(reads=LABEL),
    named=Key(reads=columns.pairs(LABEL_VALUE, "{acme_done_total: stop}")),
    rename=Key(reads=columns.pairs(LABEL_VALUE, "{cancelled: abort}")),
    minus=Key(reads=texts(SAMPLE)),
    times=Key(reads=texts(SAMPLE)),
    over=Key(reads=texts(SAMPLE)),
    agrees=Key(reads=SAMPLE),
    labels=Key(reads=texts(LABEL)),
    shared_by_engines=Key(reads=kinds.BOOLEAN),
    of_a_context_part=Key(reads=kinds.BOOLEAN),
    times_label=Key(reads=columns.named_label),
    aggregate=Key(reads=kinds.member("way to aggregate", Aggregate)),
    scale=Key(reads=NUMBER),
    sum_is_sound=Key(reads=kinds.BOOLEAN),
    zero_is_unset=Key(reads=kinds.BOOLEAN),
    versions=Key(reads=PROSE),
    guarded=Key(reads=kinds.BOOLEAN),
    when=Key(reads=CONDITION),
    unless=Key(reads=CONDITION),
    proof=Key(reads=CONDITION),
    quality=Key(reads=_QUALITY),
    multiprocess_quality=Key(reads=_QUALITY),
    refresh_seconds=Key(name="refresh", reads=kinds.DURATION),
    freezes=Key(reads=kinds.BOOLEAN),
    decode_only=Key(reads=kinds.BOOLEAN),
    born_at_first_event=Key(reads=kinds.BOOLEAN),
    may_fall=Key(reads=kinds.BOOLEAN),
    caveat=Key(reads=PROSE),
    source=Key(reads=PROSE),
)
ROW_KEYS = ("field", "as", *names_of(ROW_COLUMNS))
_ROW_HINTS = {
    **dict.fromkeys(("name", "sample", "metric", "metrics"), "Write field: for ours and samples: for the runtime's."),
    "type": "Write reads: value, histogram, mean, labels or text.",
    "refresh_seconds": "Write refresh: 10s.",
    "label": "Write labels.",
}
# by column of Runtime; the others say what it starts from, or stand for texts of it
RUNTIME_COLUMNS = table(
    title=Key(reads=PROSE),
    kind=Key(name="page", reads=_PAGE),
    paths=Key(reads=texts(kinds.URL_PATH)),
    health=Key(reads=kinds.URL_PATH),
    prefixes=Key(reads=columns.or_none(texts(SAMPLE))),
    fingerprints=Key(reads=columns.fingerprints),
    model_labels=Key(name="model_label", reads=texts(LABEL)),
    engine_labels=Key(name="engine_label", reads=texts(LABEL)),
    replica_label=Key(reads=LABEL),
    rank_labels=Key(reads=texts(LABEL)),
    only=Key(reads=columns.label_values),
    never=Key(reads=columns.label_values),
    not_users=Key(reads=columns.series_patterns),
    unnamed=Key(reads=columns.values),
    any_case=Key(reads=kinds.BOOLEAN),
    born_at_first_event=Key(reads=kinds.BOOLEAN),
    living=Key(reads=SAMPLE),
    respelt=Key(reads=columns.respelt),
    start_sample=Key(reads=SAMPLE),
    significant_digits=Key(reads=kinds.integer(1, MOST_DIGITS)),
    ignored=Key(reads=texts(SAMPLE)),
    role=Key(reads=kinds.member("role", Role)),
    first_token=Key(reads=kinds.member("clock", FirstToken)),
    several_workers=Key(reads=PROSE),
    tenants=Key(reads=columns.tenants),
    no_tenant=Key(reads=columns.values),
    default_edges=Key(reads=columns.edges),
    flags=Key(reads=columns.flags),
    kv_as_calibrated=Key(reads=columns.pairs(LABEL_VALUE, '{modelopt: ">=1.0"}')),
    missing=Key(reads=columns.pairs(PROSE, "{preemptions_total: it does not count them}")),
    versions=Key(reads=PROSE),
    covered=Key(reads=PROSE),
    recorded=Key(reads=columns.or_none(texts(PROSE))),
)
RUNTIME_KEYS = ("name", "based_on", "hooks", "texts", "source", *names_of(RUNTIME_COLUMNS), "rows")
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
_NAMES = {one.field: one.name for keys in (ROW_COLUMNS, RUNTIME_COLUMNS) for one in keys.values()}
# a fork's own entries come before those of its base
_JOINED = ("prefixes", "ignored", "respelt")


class Configured(Struct, frozen=True):
    """What `runtimes:` of the file holds."""

    tables: tuple[Runtime, ...]  # those without problems
    # of every table, those with problems included
    names: frozenset[str]
    # what is odd about them
    warnings: tuple[str, ...]


def read_runtimes(file: ConfigFile, builtin: Mapping[str, Runtime]) -> Configured:
    """Every table of the file. What is wrong with one is reported at its place, each thing once."""
    tables: list[Runtime] = []
    places: dict[str, Place] = {}
    prints: dict[Fingerprint, Place] = {}
    warnings: list[str] = []
    for node, at in elements(*file.find_key("runtimes"), "mappings such as {name: acme, rows: […]}"):
        before = len(at.problems)
        table, found = _read(node, at, builtin)
        if table.name in builtin:
            fix = f"Choose another; based_on: {table.name} starts from its table."
            at.key("name").refuse(f"{shown(table.name)} is the name of a built-in table", fix)
        elif table.name and places.setdefault(table.name, at) is not at:
            what = f"the name {shown(table.name)} is already taken by {places[table.name].path}"
            at.key("name").refuse(what, "Give each runtime a name of its own.")
        for number, one_of in enumerate(table.fingerprints):
            if all(mark.name for mark in one_of.all_of) and prints.setdefault(one_of, at) is not at:
                where = _place_of(node, at, ("fingerprints", number))
                where.refuse(
                    f"{prints[one_of].path} has the same fingerprint",
                    "A page would match both: write fingerprints that tell them apart.",
                )
        _report(found, node, at, before)
        tables.append(table)
        warnings += _warnings(table, at, builtin)
    return Configured(tuple(tables), frozenset(places), tuple(warnings))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_table(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> Runtime:
    """One table, what is wrong with it reported. `builtin`: those that it may be based on."""
    before = len(place.problems)
    table, found = _read(node, place, builtin)
    _report(found, node, place, before)
    return table


def _read(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> tuple[Runtime, list[Fault]]:
    """The table and what is wrong with it. What could not be read is as if it were not given."""
    section = fill_texts(mapping(node, place, RUNTIME_KEYS, _RUNTIME_HINTS), place)
    if isinstance(node, dict) and "name" not in node:
        place.key("name").refuse("the key is missing", "Write the word that targets have as their runtime.")
    name = value(section.get("name"), place.key("name"), _NAME) or ""
    base = _find_builtin(section.get("based_on"), place.key("based_on"), builtin)
    source = value(section.get("source"), place.key("source"), PROSE) or ""
    # with the place of each in the file, where one line may stand for several rows of another table
    numbered = [
        (number, row if row.source else replace(row, source=source))
        for number, (one, at) in enumerate(elements(section.get("rows"), place.key("rows"), "mappings"))
        for row in _rows(one, at, builtin)
    ]
    rows = tuple(row for _, row in numbered)
    found = _read_columns(section, place, RUNTIME_COLUMNS)
    found.setdefault("title", name or "-")
    if base is None:
        table = Runtime(name=name, rows=rows, **found)
    else:
        for column in _JOINED:
            found[column] = tuple(dict.fromkeys((*found.get(column, ()), *getattr(base, column))))
        # a page of the base must not be taken for the fork's: what tells them apart, only its user knows
        unset = {"fingerprints": (), "shows": (), "missing": {}, "versions": "", "covered": "", "recorded": ()}
        table = replace(base, name=name, rows=(*rows, *base.rows), **{**unset, **found})
    hooks = value(section.get("hooks"), place.key("hooks"), _HOOKS)
    code = load_hooks(hooks) if hooks is not None else None
    if hooks is not None and code is not None:
        table = replace(table, hooks=hooks, **code.columns)
    # a base that is not known might have given what is missing
    whole = base is not None or "based_on" not in section
    faults = []
    for fault in _faults(table, len(rows), says_prefixes=columns.is_none(section.get("prefixes"))):
        if not _is_in_a_row(fault):
            faults += [fault] if whole else []
        elif (number := fault.path[1]) in range(len(rows)):  # those of the base's rows are not the user's
            faults.append(replace(fault, path=("rows", numbered[int(number)][0], *fault.path[2:])))
    # of tables with problems something may be missing; nothing starts then
    if code is not None and code.complete is not None and not place.problems:
        table = code.complete(table, builtin)
    return explain_missing(table), faults


def _find_builtin(node: Node | None, place: Place, builtin: Mapping[str, Runtime]) -> Runtime | None:
    if node is None:
        return None
    return builtin.get(value(node, place, kinds.choice("runtime with a built-in table", tuple(builtin))) or "")


def fill_texts(section: Mapping[str, Node], place: Place) -> dict[str, Node]:
    """The keys of a table but for `texts`, with the text of that name in place of each `$name`."""
    if "texts" not in section:
        return dict(section)
    texts: dict[str, str] = {}
    at = place.key("texts")
    for name, node in columns.members(section["texts"], at, "{at_end: Booked when a request ends.}").items():
        if not _TEXT.fullmatch(f"${name}"):
            at.key(name).refuse(f"{shown(name)} is not a name for a text", "Write lower-case letters, digits and _.")
        texts[name] = value(_fill(node, at.key(name), texts), at.key(name), PROSE) or ""
    return {key: _fill(node, place.key(key), texts) for key, node in section.items() if key != "texts"}


def _fill(node: Node, place: Place, texts: Mapping[str, str]) -> Node:
    if isinstance(node, list):
        return [_fill(one, place.item(number), texts) for number, one in enumerate(node)]
    if isinstance(node, dict):
        return {_fill_text(key, place, texts): _fill(one, place.key(key), texts) for key, one in node.items()}
    return replace(node, text=_fill_text(node.text, place, texts)) if "$" in node.text else node


def _fill_text(text: str, place: Place, texts: Mapping[str, str]) -> str:
    def find(match: re.Match[str]) -> str:
        if match[1] not in texts:
            place.refuse(f"there is no text {shown(match[1])}", did_you_mean(match[1], texts))
        return texts.get(match[1], match[0])

    return _TEXT.sub(find, text)


def _is_in_a_row(fault: Fault) -> bool:
    return fault.path[0] == "rows" and len(fault.path) > 1


def _faults(table: Runtime, own: int, *, says_prefixes: bool) -> Iterator[Fault]:
    """The faults of any table, and those of a file's. `says_prefixes`: whether it says itself that it has none."""
    if table.kind is PageKind.METRICS and own == len(table.rows) and not table.prefixes and not says_prefixes:
        fix = 'Write what its families begin with, as in ["acme_"]; where they have nothing in common, their names.'
        yield Fault(("prefixes",), "there is no prefix", fix)
    yield from (fault for fault in faults(table) if table.prefixes or fault.path != ("prefixes",))
    for number, row in enumerate(table.rows[:own]):
        if row.guarded and row.proof is None and not table.endpoints:
            fix = "Remove it, or write proof: a series that shows the version on the page."
            yield Fault(
                ("rows", number, "guarded"), "nothing says the version, so that the row would never be read", fix
            )


def _rows(node: Node, place: Place, builtin: Mapping[str, Runtime]) -> tuple[Row, ...]:
    """One row, or those that another table has for the field."""
    if not isinstance(node, dict) or "as" not in node:
        return (_row(node, place),)
    section = mapping(node, place, ("field", "as"))
    field = value(section.get("field"), place.key("field"), _FIELD)
    other = _find_builtin(section["as"], place.key("as"), builtin)
    found = tuple(row for row in other.rows if row.field == field) if other is not None else ()
    if other is not None and not found:
        place.key("field").refuse(f"{other.title} has no row for {field}", "Write a field that it reads.")
    return found


def _row(node: Node, place: Place) -> Row:
    section = mapping(node, place, ROW_KEYS, _ROW_HINTS)
    for key, fix in (
        ("field", "Write one such as decode_tokens_total."),
        ("samples", "Write what the field is read from."),
    ):
        if isinstance(node, dict) and key not in node:
            place.key(key).refuse("the key is missing", fix)
    field = value(section.get("field"), place.key("field"), _FIELD) or ""
    return Row(field, **{"samples": (), **_read_columns(section, place, ROW_COLUMNS)})


def _read_columns(section: Mapping[str, Node], place: Place, keys: Keys) -> dict[str, Any]:
    """What a mapping sets, by column. An empty key is reported alike, whatever it should hold."""
    empty = [one.name for one in keys.values() if one.name in section and is_empty(section[one.name])]
    for name in empty:
        place.key(name).refuse("the key has no value", "Write one, or remove the line.")
    return read_keys(keys, {name: content for name, content in section.items() if name not in empty}, place)


# --- problems --------------------------------------------------------------------------------------------------------


def _report(found: Sequence[Fault], node: Node, place: Place, before: int) -> None:
    """Reports faults of a table at their places in the file, unless something was reported there already."""
    said = [problem.path for problem in place.problems[before:] if _covers(place.path, problem.path)]
    refused = set()
    for fault in found:
        where = _place_of(node, place, fault.path)
        if where.path in refused or any(_covers(path, where.path) or _covers(where.path, path) for path in said):
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


# --- warnings --------------------------------------------------------------------------------------------------------

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
