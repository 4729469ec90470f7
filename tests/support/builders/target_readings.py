"""Target readings by the names of their fields, whichever part of the reading has them."""

from typing import Any

from llm_serving_exporter.model.reading import AssignedGpus, PageReading, ServerReading, TargetReading
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import Target

_PARTS = {"server": ServerReading, "page": PageReading, "gpus": AssignedGpus}
_PART_OF = {name: part for part, record in _PARTS.items() for name in name_fields(record)}


def make_reading(target: Target, **fields: Any) -> TargetReading:
    return change_reading(TargetReading(target), **fields)


def change_reading(reading: TargetReading, **changes: Any) -> TargetReading:
    by_part: dict[str, dict[str, Any]] = {}
    for name in changes.keys() & _PART_OF.keys():
        by_part.setdefault(_PART_OF[name], {})[name] = changes.pop(name)
    parts = {part: replace(getattr(reading, part), **fields) for part, fields in by_part.items()}
    return replace(reading, **parts, **changes)
