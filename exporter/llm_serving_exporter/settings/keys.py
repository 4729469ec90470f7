"""How a key of a settings file is declared: once, beside the value that it sets. Everything else follows from the declaration.

Two forms lead to the same table. A dataclass declares a key with the field that holds its value:

    @dataclass(frozen=True)
    class Mail:
        host: str = key(HOST, "The mail server.", required=True)
        port: int = key(PORT, "Its port.", default="587")

`keys_of(Mail)` is its table. Where the value's type may not know this module, `table` takes the keys by themselves. `Section` takes a
mapping of the file apart by a table, and knows what is wrong with it.

Whatever is not as expected is reported at its place. Values are never shown where a whole mapping or list is of the wrong type: it may be
a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cache
from typing import Any, ParamSpec, TypeAlias, TypeVar

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import Node, Place, Scalar, did_you_mean, listed

T = TypeVar("T")
P = ParamSpec("P")
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


class Members(dict[str, Node]):
    """Keys of a mapping of the file, in its order, with their places."""

    def __init__(self, nodes: Mapping[str, Node], place: Place) -> None:
        super().__init__(nodes)
        self._place = place

    def find_key(self, name: str) -> tuple[Node | None, Place]:
        """What a key holds, None where it is not given; and its place."""
        return self.get(name), self._place.key(name)

    def value(self, name: str, kind: Kind[T]) -> T | None:
        """The single value of a key; None where it is not given, or not usable, which is then reported."""
        return value(*self.find_key(name), kind)

    def elements(self, name: str, expects: str) -> Iterator[tuple[Node, Place]]:
        """The elements of a key's list, each with its place; see `elements`."""
        return elements(*self.find_key(name), expects)


def mapping(node: Node | None, place: Place, names: Collection[str], hints: Mapping[str, str] = NO_HINTS) -> Members:
    """The keys of a mapping that are among `names`; {} for an empty node or one of another type. `hints`: for likely mistakes."""
    if node is None or is_empty(node):
        return Members({}, place)
    if not isinstance(node, dict):
        fix = f"Known here: {', '.join(sorted(names))}."
        place.refuse(f"must be a mapping (key: value), not {type_name(node)}", fix)
        return Members({}, place)
    for key in node:
        if key in names:
            continue
        if key in hints:
            place.key(key).refuse("this key is not allowed here", hints[key])
        else:
            place.key(key).refuse("this key is not known", _unknown(key, names))
    return Members({key: content for key, content in node.items() if key in names}, place)


def _unknown(key: str, names: Collection[str]) -> str:
    head, dot, _ = key.partition(".")
    if dot and head in names:
        return f"Write it nested, {head}: and the rest on an indented line below it."
    return did_you_mean(key, names)


def free_mapping(node: Node, place: Place, fix: str, *, form: str = "(key: value)") -> Mapping[str, Node]:
    """A mapping whose keys the user chooses; {} for any other node, which is then reported. `form` completes "must be a mapping …"."""
    if isinstance(node, dict):
        return node
    place.refuse(f"must be a mapping {form}, not {type_name(node)}", fix)
    return {}


def elements(node: Node | None, place: Place, expects: str) -> Iterator[tuple[Node, Place]]:
    """The elements of a list, each with its place; none for an empty node or one of another type."""
    if node is None or is_empty(node):
        return
    if not isinstance(node, list):
        place.refuse(f"must be a list of {expects}, not {type_name(node)}", "Start each element with a dash.")
        return
    for index, element in enumerate(node):
        yield element, place.item(index)


def one_or_several(node: Node, place: Place, expects: str) -> list[tuple[Node, Place]]:
    """The elements of a list, each with its place; anything else by itself."""
    return list(elements(node, place, expects)) if isinstance(node, list) else [(node, place)]


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
        return kind.read(node.text, place)
    return None


def read_values(node: Node | None, place: Place, kind: Kind[T], expects: str) -> list[T]:
    """The usable values of a list of single ones. `expects` completes "must be a list of …"."""
    values = (value(element, at, kind) for element, at in elements(node, place, expects))
    return [content for content in values if content is not None]


# --- declared keys -----------------------------------------------------------------------------------------------------

# (node, place, context) -> the value; None where it is not usable, which the reader has reported
Reader: TypeAlias = Callable[[Node, Place, Any], Any]
_METADATA = "key"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a settings file."""

    reads: Kind[Any] | Reader  # a kind, whose parser has the bounds, for a single value; a reader for anything else
    help: str = ""
    _: KW_ONLY
    default: str = ""  # as a user would write it; "" = none
    unset: Any = None  # what the field holds where the key is not given and has no default
    name: str = ""  # as the file spells it; the table fills it in where it is the field's name
    field: str = ""  # the attribute that holds the value; filled in by the table
    required: bool = False

    def read(self, node: Node, place: Place, context: Any = None) -> Any:
        """The value of what the file has under this key; None where it is not usable, which is then reported at `place`."""
        if isinstance(self.reads, Kind):
            return value(node, place, self.reads)
        return self.reads(node, place, context)

    def default_value(self) -> Any:
        """What the field holds where the key is not given."""
        return self.reads.parse(self.default) if self.default and isinstance(self.reads, Kind) else self.unset


Keys: TypeAlias = Mapping[str, Key]  # by field, in the order in which they are declared and shown


def declares(kind_of_key: Callable[P, Key]) -> Callable[P, Any]:
    """What declares a field of a dataclass by such a key, whose arguments it takes."""

    def declare(*args: P.args, **kwargs: P.kwargs) -> Any:
        declared = kind_of_key(*args, **kwargs)
        metadata = {_METADATA: declared}
        if declared.required:
            return field(metadata=metadata)
        default = declared.default_value()
        if isinstance(default, dict):
            return field(default_factory=lambda: dict(default), metadata=metadata)
        return field(default=default, metadata=metadata)

    return declare


key = declares(Key)


@cache
def keys_of(declaring: type) -> Keys:
    """The keys that the fields of a dataclass declare; fields without a key are left out."""
    return table(**{item.name: item.metadata[_METADATA] for item in fields(declaring) if _METADATA in item.metadata})


def table(**declared: Key | Kind[Any] | Reader) -> Keys:
    """Keys by the fields of a type that is declared elsewhere; a kind or a reader alone is a key of the field's name."""
    keys = {attribute: item if isinstance(item, Key) else Key(item) for attribute, item in declared.items()}
    return {attribute: replace(item, field=attribute, name=item.name or attribute) for attribute, item in keys.items()}


def names_of(keys: Keys) -> tuple[str, ...]:
    """The keys as the file spells them."""
    return tuple(item.name for item in keys.values())


def read_keys(keys: Keys, section: Mapping[str, Node], place: Place, context: Any = None) -> dict[str, Any]:
    """The values that a mapping of the file sets, by field. A key that is not given, or whose value is not usable, is left out.

    `section`: as `mapping` gives it, so that unknown keys are reported already. `context`: for readers that need one.
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


def pick_given(section: Mapping[str, Node], names: Iterable[str]) -> list[str]:
    """Those of the names that a mapping of the file gives a value, usable or not."""
    return [name for name in names if not is_empty(section.get(name))]


def refuse_missing(keys: Keys, given: Collection[str], place: Place, example: str) -> bool:
    """Whether required keys are not given, which are then reported. `example`: a sentence with one that has them."""
    missing = [item.name for item in keys.values() if item.required and item.name not in given]
    if missing:
        place.refuse(f"{listed(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing", example)
    return bool(missing)


def refuse_repeats(names: Sequence[object], place: Place, noun: str) -> None:
    """Reports names of which one stands twice. `noun`: what they name."""
    if len(set(names)) < len(names):
        place.refuse(f"a {noun} is named twice", f"Name each {noun} once.")


class Section:
    """A mapping of the file, taken apart by its keys. What is wrong with it is reported at its place, and reading goes on.

    `values`: what it sets, by field, as `read_keys` gives it. `nodes`: the keys that are given, with or without a value.
    """

    def __init__(
        self, keys: Keys, node: Node | None, place: Place, context: Any = None, hints: Mapping[str, str] = NO_HINTS
    ) -> None:
        self.place, self._keys, self._is_sound = place, keys, place.watch()
        self.nodes = mapping(node, place, names_of(keys), hints)
        self.values = read_keys(keys, self.nodes, place, context)

    @property
    def is_sound(self) -> bool:
        """Whether nothing has been found wrong with it so far."""
        return self._is_sound()

    def refuse_missing(self, example: str, *, or_empty: bool = False) -> None:
        """Reports required keys that it lacks. `example`: a sentence with one that has them."""
        given = pick_given(self.nodes, self.nodes) if or_empty else self.nodes
        refuse_missing(self._keys, given, self.place, example)

    def refuse_unless_one(self, keys: Keys, what: str) -> None:
        """Reports keys of which not exactly one is given. `what` they say: "what it is for"."""
        given = pick_given(self.nodes, names_of(keys))
        if len(given) != 1:
            fault = f"{listed(given, 'and')} are given" if given else f"nothing says {what}"
            self.place.refuse(fault, f"Write one of {', '.join(names_of(keys))}.")


def read_complete(
    keys: Keys, node: Node | None, place: Place, example: str, context: Any = None, hints: Mapping[str, str] = NO_HINTS
) -> dict[str, Any] | None:
    """The values of a mapping, by field; None where a required one is missing, or not usable, which is then reported."""
    section = Section(keys, node, place, context, hints)
    section.refuse_missing(example)
    return section.values if all(item.field in section.values for item in keys.values() if item.required) else None


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


def mapping_reader(reads: Kind[Any] | Reader, fix: str, *, form: str = "(key: value)") -> Reader:
    """Reads a `free_mapping`, each of its values by a kind or a reader; what is not usable is left out."""
    child = Key(reads)

    def read(node: Node, place: Place, context: Any = None) -> dict[str, Any]:
        members = free_mapping(node, place, fix, form=form)
        values = {name: child.read(content, place.key(name), context) for name, content in members.items()}
        return {name: content for name, content in values.items() if content is not None}

    return read
