"""Frozen dataclasses with slots that are made at every tick: made and copied for less.

A frozen dataclass sets each field of a new object by a call of `object.__setattr__`, and `dataclasses.replace` looks at every field in
Python. Here an object is a twin of its class while it is made, one with the same slots that is not frozen, whose fields are set by plain
assignments. A tick makes some 65 such objects: that is a twentieth of it. Nothing else of the class is changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["replace_fields", "speed_up"]

T = TypeVar("T")

# what stands for a default that each object gets a new one of
_MADE = object()
# by class
_copiers: dict[type, Callable[[Any, dict[str, Any]], Any]] = {}


def speed_up(cls: type[T]) -> type[T]:
    """Gives a frozen dataclass with slots, of no other base than object, a cheaper `__init__` and a copier for `replace_fields`.

    To be written above `@dataclass(frozen=True, slots=True)`. Raises TypeError for any other class.
    """
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or "__slots__" not in cls.__dict__ or cls.__bases__ != (object,):
        raise TypeError(f"{cls.__name__} is no frozen dataclass with slots of its own alone")
    twin = type(f"_{cls.__name__}", (), {"__slots__": cls.__slots__})  # type: ignore[attr-defined]  # looked for above
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # a dataclass, as was looked for above
    found: dict[str, Any] = {"_set": object.__setattr__, "_twin": twin, "_cls": cls, "_made": _MADE}
    arguments, lines = ["self"], ['_set(self, "__class__", _twin)']
    for number, one in enumerate(fields):
        if one.kw_only:
            raise TypeError(f"{cls.__name__}.{one.name} is given by name only, which is not known here")
        default, make = f"_default{number}", f"_make{number}"
        found |= {default: one.default, make: one.default_factory}
        has_default, is_made = one.default is not dataclasses.MISSING, one.default_factory is not dataclasses.MISSING
        if one.init:
            ending = f"={default}" if has_default else "=_made" if is_made else ""
            arguments.append(one.name + ending)
            value = f"{make}() if {one.name} is _made else {one.name}" if is_made else one.name
        elif has_default or is_made:
            value = default if has_default else f"{make}()"
        else:
            continue  # set by __post_init__
        lines.append(f"self.{one.name} = {value}")
    lines.append("self.__class__ = _cls")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    copied = ", ".join(f"'{one.name}': one.{one.name}" for one in fields if one.init)
    source = "\n".join(
        (
            f"def __init__({', '.join(arguments)}):",
            *(f"    {line}" for line in lines),
            "def _copy(one, changes):",
            f"    return _cls(**{{{copied}, **changes}})",
        )
    )
    exec(source, found)  # noqa: S102  # of field names alone, as dataclasses itself does
    made = found["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = made  # type: ignore[method-assign]  # the same signature
    _copiers[cls] = found["_copy"]
    return cls


if TYPE_CHECKING:  # so that names and types of the changes are checked
    from dataclasses import replace as replace_fields
else:

    def replace_fields(one: T, /, **changes: Any) -> T:
        """As `dataclasses.replace`, for an object of a class that was sped up."""
        return _copiers[type(one)](one, changes)
