"""Frozen dataclasses with slots that take less memory, and those of every tick that are made and copied for less.

The package has some hundreds of them. `dataclasses` writes, compiles and keeps six functions for each. By `dataclass` of this module a
class keeps the one that differs, `__init__`, and shares the others with all classes: docs/performance.md says what that saves. It is used
as the library's own, and objects behave alike.

A frozen dataclass sets each field of a new object by a call of `object.__setattr__`, and `dataclasses.replace` looks at every field in
Python. By `speed_up` an object is a twin of its class while it is made, one with the same slots that is not frozen, whose fields are set
by plain assignments. A tick makes some 65 such objects: that is a twentieth of it. Nothing else of the class is changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["dataclass", "replace_fields", "speed_up"]

T = TypeVar("T")
# a field of any dataclass
Field = dataclasses.Field[Any]

# arguments of classes whose methods can be shared
_SHARING = {"frozen", "slots", "eq", "kw_only", "weakref_slot"}
# what stands for a default that each object gets a new one of
_MADE = object()
# by class
_copiers: dict[type, Callable[[Any, dict[str, Any]], Any]] = {}


if TYPE_CHECKING:  # so that fields and arguments are checked
    from dataclasses import dataclass
else:

    def dataclass(cls: type[T] | None = None, /, **options: Any) -> Any:
        """As `dataclasses.dataclass`, with its arguments. What is not frozen, has no slots or another dataclass as base is left to it.

        Raises TypeError for an InitVar in a frozen class with slots.
        """

        def make(cls: type[T]) -> type[T]:
            frozen = options.get("frozen") and options.get("slots") and options.keys() <= _SHARING
            if not frozen or hasattr(cls, "__dataclass_fields__"):
                return dataclasses.dataclass(**options)(cls)
            return _share_methods(cls, options)

        return make if cls is None else make(cls)


def _share_methods(cls: type[T], options: dict[str, Any]) -> type[T]:
    # what a class defines itself is kept, but the None that Python sets as the hash of one that defines `__eq__` alone
    own = cls.__dict__.keys() - (
        {"__hash__"} if "__eq__" in cls.__dict__ and cls.__dict__["__hash__"] is None else set()
    )
    written = cls.__doc__
    made = dataclasses.dataclass(**{**options, "init": False, "repr": False, "eq": False, "frozen": False})(cls)
    made.__dataclass_params__.frozen = True  # type: ignore[attr-defined]  # as is looked for in what is derived from it
    fields = dataclasses.fields(made)  # type: ignore[arg-type]  # made as a dataclass above
    if set(made.__match_args__) - {one.name for one in fields}:  # type: ignore[attr-defined]  # what `__init__` takes
        raise TypeError(f"{cls.__name__} has an InitVar, which is not known here")
    shared = {**_SHARED, "__init__": _write_init(made, fields, lambda name, value: f'_set(self, "{name}", {value})')}
    if options.get("eq", True):
        compared = [one.name for one in fields if one.compare]
        hashed = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
        read = _read_fields(compared)
        shared |= {"__eq__": _equal, "__hash__": _hash, "__compared__": read}
        shared["__hashed__"] = read if hashed == compared else _read_fields(hashed)
    for name in shared.keys() - own:
        setattr(made, name, shared[name])
    made.__doc__ = written  # where there is none the library makes one up, of an `__init__` that was not there yet
    return made


def _read_fields(names: list[str]) -> Callable[[Any], Any]:
    """Gives the values of these fields of an object as a tuple; without fields what is the same for all objects of the class."""
    # one name alone would give no tuple, and it is tuples that take an object for equal to itself, NaN too
    return attrgetter(*names) if len(names) > 1 else attrgetter(*2 * (names or ["__class__"]))


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    read = self.__compared__
    return read(self) == read(other)


def _hash(self: Any) -> int:
    return hash(self.__hashed__(self))


@recursive_repr()
def _describe(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _list_values(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _restore_values(self: Any, values: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED: dict[str, Any] = {
    "__repr__": _describe,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    # an object is copied and pickled by its values
    "__getstate__": _list_values,
    "__setstate__": _restore_values,
}


def speed_up(cls: type[T]) -> type[T]:
    """Gives a frozen dataclass with slots, of no other base than object, a cheaper `__init__` and a copier for `replace_fields`.

    To be written above `@dataclass(frozen=True, slots=True)`. Raises TypeError for any other class.
    """
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or "__slots__" not in cls.__dict__ or cls.__bases__ != (object,):
        raise TypeError(f"{cls.__name__} is no frozen dataclass with slots of its own alone")
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # a dataclass, as was looked for above
    by_name = [one.name for one in fields if one.kw_only]
    if by_name:
        raise TypeError(f"{cls.__name__}.{by_name[0]} is given by name only, which is not known here")
    twin = type(f"_{cls.__name__}", (), {"__slots__": cls.__slots__})  # type: ignore[attr-defined]  # looked for above
    begin, end = '_set(self, "__class__", _twin)', "self.__class__ = _cls"
    cls.__init__ = _write_init(  # type: ignore[method-assign]  # the same signature
        cls, fields, lambda name, value: f"self.{name} = {value}", begin, end, _twin=twin
    )
    copied = ", ".join(f"'{one.name}': one.{one.name}" for one in fields if one.init)
    _copiers[cls] = _compile_inner(f"def _copy(one, changes):\n    return _cls(**{{{copied}, **changes}})", _cls=cls)
    return cls


def _write_init(
    cls: type, fields: Sequence[Field], assign: Callable[[str, str], str], begin: str = "", end: str = "", **known: Any
) -> Any:
    """`__init__` of a class. `assign` makes a line of a field's name and an expression; `begin`, `end`: lines before and after them all."""
    known |= {"_set": object.__setattr__, "_cls": cls, "_made": _MADE}
    arguments: dict[bool, list[str]] = {False: [], True: []}
    lines = [begin]
    for number, one in enumerate(fields):
        default, make = f"_default{number}", f"_make{number}"
        has_default, is_made = one.default is not dataclasses.MISSING, one.default_factory is not dataclasses.MISSING
        known |= ({default: one.default} if has_default else {}) | ({make: one.default_factory} if is_made else {})
        if one.init:
            ending = f"={default}" if has_default else "=_made" if is_made else ""
            arguments[bool(one.kw_only)].append(one.name + ending)
            value = f"{make}() if {one.name} is _made else {one.name}" if is_made else one.name
        elif has_default or is_made:
            value = default if has_default else f"{make}()"
        else:
            continue  # set by __post_init__
        lines.append(assign(one.name, value))
    lines += [end, "self.__post_init__()" if hasattr(cls, "__post_init__") else ""]
    given = ", ".join(("self", *arguments[False], *(("*", *arguments[True]) if arguments[True] else ())))
    body = "".join(f"\n    {line}" for line in lines if line) or "\n    pass"
    made = _compile_inner(f"def __init__({given}):{body}", **known)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _compile_inner(source: str, **known: Any) -> Any:
    """The one function that the source defines; it keeps of `known` what it uses."""
    name = source.split("(")[0].removeprefix("def ")
    inner = source.replace("\n", "\n    ")
    found: dict[str, Any] = {}
    # of field names alone, as dataclasses itself does
    exec(f"def _create({', '.join(known)}):\n    {inner}\n    return {name}", _NO_GLOBALS, found)  # noqa: S102
    return found["_create"](**known)


# of all that is compiled here: it knows what it was given, and Python's own
_NO_GLOBALS: dict[str, Any] = {}


if TYPE_CHECKING:  # so that names and types of the changes are checked
    from dataclasses import replace as replace_fields
else:

    def replace_fields(one: T, /, **changes: Any) -> T:
        """As `dataclasses.replace`, for an object of a class that was sped up."""
        return _copiers[type(one)](one, changes)
