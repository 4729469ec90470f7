"""Takes a tree apart by what is expected of it; whatever is not as expected is reported at its place.

Values are never shown where a whole mapping or list is of the wrong type: it may be a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, did_you_mean
from llm_serving_exporter.schema.tree import Node, Scalar

T = TypeVar("T")
NO_HINTS: Mapping[str, str] = {}


def type_name(node: Node) -> str:
    """What a node is, for a message."""
    if isinstance(node, dict):
        return "a mapping"
    if isinstance(node, list):
        return "a list"
    return "empty" if node.kind == "nothing" else node.kind


def is_empty(node: Node | None) -> bool:
    """Whether a key was given without a value, as when all lines below it are comments."""
    return node is None or (isinstance(node, Scalar) and node.kind == "nothing")


def mapping(
    node: Node | None, place: Place, known: Collection[str], hints: Mapping[str, str] = NO_HINTS
) -> dict[str, Node]:
    """The known keys of a mapping; {} for an empty node or one of another type. `hints`: for likely mistakes."""
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (key: value), not {type_name(node)}", f"Known here: {', '.join(sorted(known))}."
        )
        return {}
    for key in node:
        if key in known:
            continue
        if key in hints:
            place.key(key).refuse("this key is not allowed here", hints[key])
        else:
            place.key(key).refuse("this key is not known", _unknown(key, known))
    return {key: value for key, value in node.items() if key in known}


def _unknown(key: str, known: Collection[str]) -> str:
    head, dot, _ = key.partition(".")
    if dot and head in known:
        return f"Write it nested, {head}: and the rest on an indented line below it."
    return did_you_mean(key, known)


def elements(node: Node | None, place: Place, expects: str) -> Iterator[tuple[Node, Place]]:
    """The elements of a list, each with its place; none for an empty node or one of another type."""
    if node is None or is_empty(node):
        return
    if not isinstance(node, list):
        place.refuse(f"must be a list of {expects}, not {type_name(node)}", "Start each element with a dash.")
        return
    for index, element in enumerate(node):
        yield element, place.item(index)


def value(node: Node | None, place: Place, kind: Kind[T]) -> T | None:
    """The value of a scalar; None where it is not given, or not usable, which is then reported."""
    if node is None:
        return None
    if isinstance(node, Scalar) and node.kind == "nothing":
        place.refuse("the key has no value", f"Write {kind.expects}, or remove the line.")
    elif not isinstance(node, Scalar):
        place.refuse(f"must be {kind.expects}, not {type_name(node)}", "Write a single value.")
    elif kind.is_text and node.kind != "text":
        # not shown: it may be a password in the wrong place
        place.refuse(f"YAML reads this value as {node.kind}, not as text", "Put it in double quotes.")
    else:
        return parsed(node.text, place, kind)
    return None


def parsed(text: str, place: Place, kind: Kind[T]) -> T | None:
    """The value of a text; None where it is not usable, which is then reported."""
    try:
        return kind.parse(text)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
