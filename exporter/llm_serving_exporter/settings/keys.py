"""How a key of a settings file is declared: once, beside the value that it sets. Everything else follows from the declaration.

Two forms lead to the same table. A dataclass declares a key with the field that holds its value:

    @dataclass(frozen=True)
    class Mail:
        host: str = key(HOST, "The mail server.", required=True)
        port: int = key(PORT, "Its port.", default="587")

`keys_of(Mail)` is its table. Where the value's type may not know this module, `table` takes the keys by themselves.

Readers take a tree apart by what is expected of it; whatever is not as expected is reported at its place. Values are never shown where a
whole mapping or list is of the wrong type: it may be a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeAlias, TypeVar

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, did_you_mean, listed

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
    node: Node | None, place: Place, names: Collection[str], hints: Mapping[str, str] = NO_HINTS
) -> dict[str, Node]:
    """The keys of a mapping that are among `names`; {} for an empty node or one of another type. `hints`: for likely mistakes."""
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, dict):
        place.refuse(
            f"must be a mapping (key: value), not {type_name(node)}", f"Known here: {', '.join(sorted(names))}."
        )
        return {}
    for key in node:
        if key in names:
            continue
        if key in hints:
            place.key(key).refuse("this key is not allowed here", hints[key])
        else:
            place.key(key).refuse("this key is not known", _unknown(key, names))
    return {key: value for key, value in node.items() if key in names}


def _unknown(key: str, names: Collection[str]) -> str:
    head, dot, _ = key.partition(".")
    if dot and head in names:
        return f"Write it nested, {head}: and the rest on an indented line below it."
    return did_you_mean(key, names)


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
        return parse_text(node.text, place, kind)
    return None


def read_values(node: Node | None, place: Place, kind: Kind[T], expects: str) -> list[T]:
    """The usable values of a list of single ones. `expects` completes "must be a list of …"."""
    values = (value(element, at, kind) for element, at in elements(node, place, expects))
    return [content for content in values if content is not None]


def parse_text(text: str, place: Place, kind: Kind[T]) -> T | None:
    """The value of a text; None where it is not usable, which is then reported."""
    try:
        return kind.parse(text)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None


# --- declared keys -----------------------------------------------------------------------------------------------------

# (node, place, context) -> the value; None where it is not usable, which the reader has reported
Reader: TypeAlias = Callable[[Node, Place, Any], Any]
_METADATA = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a settings file."""

    # a kind, whose parser has the bounds, for a single value; a reader for anything else
    reads: Kind[Any] | Reader
    help: str = ""
    # as a user would write it; "" = none
    default: str = ""
    # as the file spells it; the table fills it in where it is the field's name
    name: str = ""
    # the attribute that holds the value; filled in by the table
    field: str = ""
    required: bool = False

    def read(self, node: Node, place: Place, context: Any = None) -> Any:
        """The value of what the file has under this key; None where it is not usable, which is then reported at `place`."""
        if isinstance(self.reads, Kind):
            return value(node, place, self.reads)
        return self.reads(node, place, context)

    def default_value(self) -> Any:
        """The value of `default`; None where there is none."""
        return self.reads.parse(self.default) if self.default and isinstance(self.reads, Kind) else None


# by field, in the order in which they are declared and shown
Keys: TypeAlias = Mapping[str, Key]


def declare(declared: Key, unset: Any = None) -> Any:
    """A field of a dataclass with its key. Where the key is not given, the field has its default, else `unset`."""
    metadata = {_METADATA: declared}
    if declared.required:
        return field(metadata=metadata)
    default = declared.default_value() if declared.default else unset
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def key(
    reads: Kind[Any] | Reader,
    help_text: str = "",
    *,
    default: str = "",
    name: str = "",
    required: bool = False,
    unset: Any = None,
) -> Any:
    """A field of a dataclass that a key of the file sets; see `Key` and `declare`."""
    return declare(Key(reads=reads, help=help_text, default=default, name=name, required=required), unset)


@cache
def keys_of(declaring: type) -> Keys:
    """The keys that the fields of a dataclass declare; fields without a key are left out."""
    return table(**{item.name: item.metadata[_METADATA] for item in fields(declaring) if _METADATA in item.metadata})


def table(**declared: Key) -> Keys:
    """Keys by the fields of a type that is declared elsewhere."""
    return {
        attribute: replace(item, field=attribute, name=item.name or attribute) for attribute, item in declared.items()
    }


def names_of(keys: Keys) -> tuple[str, ...]:
    """The keys as the file spells them."""
    return tuple(item.name for item in keys.values())


def read_keys(keys: Keys, section: Mapping[str, Node], place: Place, context: Any = None) -> dict[str, Any]:
    """The values that a mapping of the file sets, by field. A key that is not given, or whose value is not usable, is left out.

    `section`: as `reading.mapping` gives it, so that unknown keys are reported already. `context`: for readers that need one.
    """
    by_name = {declared.name: declared for declared in keys.values()}
    values = {}
    # in the order of the file, so that faults are reported in that order
    for name, node in section.items():
        if (declared := by_name.get(name)) is not None:
            content = declared.read(node, place.key(name), context)
            if content is not None:
                values[declared.field] = content
    return values


def refuse_missing(keys: Keys, section: Mapping[str, Node], place: Place, example: str) -> bool:
    """Whether a mapping lacks required keys, which are then reported. `example`: a sentence with one that has them."""
    missing = [item.name for item in keys.values() if item.required and item.name not in section]
    if missing:
        place.refuse(f"{listed(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing", example)
    return bool(missing)


def read_complete(
    keys: Keys, node: Node | None, place: Place, example: str, context: Any = None, hints: Mapping[str, str] = NO_HINTS
) -> dict[str, Any] | None:
    """The values of a mapping, by field; None where a required one is missing, or not usable, which is then reported."""
    section = mapping(node, place, names_of(keys), hints)
    values = read_keys(keys, section, place, context)
    refuse_missing(keys, section, place, example)
    return values if all(item.field in values for item in keys.values() if item.required) else None


def section_reader(declaring: type, example: str = "", hints: Mapping[str, str] = NO_HINTS) -> Reader:
    """Reads a mapping into the dataclass that declares its keys; None for an empty one, or where a required key is missing."""

    def read(node: Node, place: Place, context: Any) -> Any:
        if is_empty(node):
            return None
        values = read_complete(keys_of(declaring), node, place, example, context, hints)
        return None if values is None else declaring(**values)

    return read


def list_reader(kind: Kind[Any], expects: str) -> Reader:
    """Reads a list of single values, each once, as a tuple; see `read_values`."""

    def read(node: Node, place: Place, context: Any) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(read_values(node, place, kind, expects)))

    return read
