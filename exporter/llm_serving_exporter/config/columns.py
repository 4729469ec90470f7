"""Readers of the columns of a runtime's table: one node of the file -> the value. Each reports what it cannot use and returns None."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.normalise.mapping import Fingerprint, Flags, Mark
from llm_serving_exporter.normalise.selector import selector
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.keys import Reader
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, parsed, type_name, value
from llm_serving_exporter.schema.tree import Node, Scalar

LONGEST_TEXT = 500


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
        found = selector(text)
    except ValueError as error:
        raise InvalidValueError(str(error), fix) from None
    pairs = [(label, allowed) for label, values in found.where.items() for allowed in values]
    if len(pairs) != 1:
        raise InvalidValueError(f"{shown(text)} does not have one label with one value", fix)
    return (found.name, *pairs[0])


SAMPLE = kinds.text("sample", LONGEST_TEXT)
LABEL = kinds.text("label", LONGEST_TEXT)
PROSE = kinds.text("text", LONGEST_TEXT)
# "" has a meaning: a series without the label, a value that is left out
LABEL_VALUE = Kind("the value of a label", _any, is_text=True)
NUMBER = Kind("a number", _number)
CONDITION = Kind("a series with a label's value", _condition, is_text=True)


def _flag(text: str) -> str:
    if not re.fullmatch(r"--?[a-z0-9]+(-[a-z0-9]+)*", text):
        raise InvalidValueError(f"{shown(text)} is not a flag", "Write one such as --max-num-seqs, with - for _.")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidValueError(
            f"{shown(text)} is not a regular expression: {error}", "It has to fit a whole value."
        ) from None
    return text


FLAG = Kind("a flag", _flag, is_text=True)
PATTERN = Kind("a regular expression", _pattern, is_text=True)


def texts(kind: Kind[str]) -> Reader:
    """A text, or a list of them, as a tuple. A bad one is reported and stands as "", so that the places of the others hold."""

    def read(node: Node, place: Place, context: object = None) -> tuple[str, ...] | None:
        if is_empty(node) or (isinstance(node, Scalar) and node.kind != "nothing"):
            found = value(node, place, kind)
            return None if found is None else (found,)
        return tuple(value(element, at, kind) or "" for element, at in elements(node, place, "texts"))

    return read


def is_none(node: Node | None) -> bool:
    """Whether it is the word that says that there is none."""
    return isinstance(node, Scalar) and node.text == "none"


def or_none(reader: Reader) -> Reader:
    """What `reader` reads, or () of the word `none`."""
    return lambda node, place, context: () if is_none(node) else reader(node, place, context)


def members(node: Node, place: Place, example: str) -> Mapping[str, Node]:
    """The members of a mapping; {} for anything else."""
    if not isinstance(node, dict):
        place.refuse(f"must be a mapping such as {example}, not {type_name(node)}", "Write a word before each colon.")
        return {}
    return node


def pairs(kind: Kind[str], example: str) -> Reader:
    """A mapping of texts."""

    def read(node: Node, place: Place, context: object = None) -> dict[str, str]:
        found = {key: value(child, place.key(key), kind) for key, child in members(node, place, example).items()}
        return {key: text for key, text in found.items() if text is not None}

    return read


def label_values(node: Node, place: Place, context: object = None) -> dict[str, frozenset[str]]:
    """A mapping of labels to the values, or the one value, that they may have."""
    found = {}
    for label, child in members(node, place, '{source: [compute, ""]}').items():
        at = place.key(label)
        if isinstance(child, Scalar):
            only = value(child, at, LABEL_VALUE)
            values = [] if only is None else [only]
        else:
            read = [value(element, where, LABEL_VALUE) for element, where in elements(child, at, "label values")]
            values = [text for text in read if text is not None]
        found[label] = frozenset(values)
    return found


def values(node: Node, place: Place, context: object = None) -> frozenset[str] | None:
    """A text, or a list of them, as a set; "" is one of them where it is written."""
    return label_values({"": node}, place).get("")


def edges(node: Node, place: Place, context: object = None) -> dict[str, tuple[float, ...]]:
    """Bucket edges by SLO."""
    found = {}
    for name, child in members(node, place, "{ttft: [0.1, 1]}").items():
        read = [value(element, at, NUMBER) for element, at in elements(child, place.key(name), "seconds")]
        found[name] = tuple(edge for edge in read if edge is not None)
    return found


def flags(node: Node, place: Place, context: object = None) -> Flags | None:
    """Flags of a command line: {batch_limit, unless, bounds, source}."""
    section = mapping(node, place, ("batch_limit", "unless", "bounds", "source"))
    if isinstance(node, dict) and "batch_limit" not in node:
        place.key("batch_limit").refuse("the key is missing", "Write the flag that says how many requests run at once.")
    found = {key: texts(FLAG)(child, place.key(key), None) or () for key, child in section.items() if key != "source"}
    source = value(section.get("source"), place.key("source"), PROSE) or ""
    return Flags(found.pop("batch_limit", ()), source=source, **found) if section else None


def series_patterns(node: Node, place: Place, context: object = None) -> tuple[dict[str, str], ...]:
    """Mappings of labels to regular expressions."""
    return tuple(
        pairs(PATTERN, '{user_agent: "probe/.*"}')(one, at, None) for one, at in elements(node, place, "mappings")
    )


def tenants(node: Node, place: Place, context: object = None) -> dict[TenantKind, tuple[str, ...]]:
    """Labels that name a tenant, by what it is."""
    found: dict[TenantKind, tuple[str, ...]] = {}
    for name, child in members(node, place, "{team: [team_alias, team]}").items():
        at = place.key(name)
        labels = texts(LABEL)(child, at, None)
        kind = parsed(name, at, kinds.member("kind of tenant", TenantKind))
        if kind in (TenantKind.OFF, TenantKind.HEADER):
            at.refuse(
                f"{name} has no label in a table",
                "Write team, key, user or adapter; tenants.label names that of header.",
            )
        elif kind is not None and isinstance(labels, tuple):
            found[kind] = labels
    return found


def respelt(node: Node, place: Place, context: object = None) -> tuple[tuple[str, str], ...]:
    """Prefix -> how it may be written otherwise, as pairs."""
    found = []
    for prefix, child in members(node, place, '{"vllm:": acme_}').items():
        others = texts(SAMPLE)(child, place.key(prefix), None)
        found += [(prefix, other) for other in others if other] if isinstance(others, tuple) else []
    return tuple(found)


def named_label(node: Node, place: Place, context: object = None) -> tuple[str, str] | None:
    """A sample and one of its labels, written {name: …, label: …}."""
    section = mapping(node, place, ("name", "label"))
    name = value(section.get("name"), place.key("name"), SAMPLE)
    label = value(section.get("label"), place.key("label"), LABEL)
    for key in ("name", "label"):
        if isinstance(node, dict) and key not in node:
            place.key(key).refuse("the key is missing", "Write {name: acme_info, label: block_size}.")
    return None if name is None or label is None else (name, label)


def fingerprints(node: Node, place: Place, context: object = None) -> tuple[Fingerprint, ...]:
    """Names, or {all_of, none_of}; one alone needs no list."""
    if not isinstance(node, list):
        return (_fingerprint(node, place),)
    return tuple(_fingerprint(element, at) for element, at in elements(node, place, "samples"))


def _fingerprint(node: Node, place: Place) -> Fingerprint:
    if isinstance(node, Scalar):
        return Fingerprint((_mark(node, place),))
    section = mapping(node, place, ("all_of", "none_of"), dict.fromkeys(("name", "label"), "Write it below all_of."))
    found = {key: [_mark(*item) for item in elements(section.get(key), place.key(key), "samples")] for key in section}
    return Fingerprint(tuple(found.get("all_of", ())), tuple(found.get("none_of", ())))


def _mark(node: Node, place: Place) -> Mark:
    if isinstance(node, Scalar):
        return Mark(value(node, place, SAMPLE) or "")
    found = named_label(node, place)
    return Mark(*found) if found is not None else Mark("")
