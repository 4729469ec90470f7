"""The two kinds of record: `Struct` for what ticks and pages make, the library's dataclass for settings. These functions take both.

A `msgspec.Struct` takes half of a dataclass's memory, is defined ten times as fast, and made and copied four times as fast. It has no field
that is computed, left out of equality or described by metadata: a class that needs one stays a dataclass. Only this module knows
msgspec, beside the reader of Kubernetes' answers: whoever needs a record needs none of its codecs. `convert` reads what a file of ours
holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import NODEFAULT, Struct, convert, field, structs

__all__ = ["Struct", "as_dict", "convert", "field", "is_record", "name_fields", "replace", "select_given"]

T = TypeVar("T")


if TYPE_CHECKING:  # so that names and types of the changes are checked
    from dataclasses import replace
else:

    def replace(one: T, /, **changes: Any) -> T:
        """A copy of a record with these fields changed, as `copy.replace` from Python 3.13 on."""
        return structs.replace(one, **changes) if isinstance(one, Struct) else dataclasses.replace(one, **changes)


def is_record(value: object) -> bool:
    """Whether it is an object of either kind."""
    return isinstance(value, Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def name_fields(record: Any) -> tuple[str, ...]:
    """Names of the fields of a record or its class, in their order."""
    known = getattr(record, "__struct_fields__", None)
    return known if known is not None else tuple(item.name for item in dataclasses.fields(record))


def select_given(record: Struct) -> dict[str, Any]:
    """The fields of a Struct that are not at their default, as they are."""
    given = {}
    for info in structs.fields(record):
        unset = info.default if info.default_factory is NODEFAULT else info.default_factory()
        value = getattr(record, info.name)
        if value != unset:
            given[info.name] = value
    return given


def as_dict(record: Any) -> dict[str, Any]:
    """A record as a dictionary, and so each record within it, as `dataclasses.asdict`; other values as they are."""
    return {name: _plain(getattr(record, name)) for name in name_fields(record)}


def _plain(value: Any) -> Any:
    if is_record(value):
        return as_dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
