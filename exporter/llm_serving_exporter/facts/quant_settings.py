"""A quantisation's settings, checked as they are taken, and what each reader of a dialect makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.fields import LARGEST
from llm_serving_exporter.model.geometry import Module
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import WeightFormat

# a quantisation with more entries or longer patterns is not read: DeepSeek-sized mixed ones name about 20,000 modules
MOST_NAMES = 200_000
LONGEST_NAME = 1024

# a module and the names one of its places goes by -> its format, None where it stays in the model's dtype
Choice = Callable[[Module, tuple[str, ...]], WeightFormat | None]


class Scheme(Struct, frozen=True):
    """What one quantisation does."""

    method: str  # its name in the config
    choose: Choice  # the format of a linear module; None: it stays as it is
    lm_head: bool = False  # whether it decides about lm_head at all


class Settings:
    """The keys of one quantisation. Every reader raises FactsError (model_unknown) naming the method, the key and the fault."""

    def __init__(self, method: str, values: Mapping[str, Any]) -> None:
        self.method = method
        self.values = values

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def whole(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """The first of the keys that is there; `default` where none is."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                raise self.refused(key, f"is {value!r}, not a whole number of at least {least}")
            return value
        if default is None:
            raise self.refused(keys[0], "is missing")
        return default

    def text(self, *keys: str, default: str = "") -> str:
        """The first of the keys that is there, in lower case."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, str):
                raise self.refused(key, f"is {value!r}, not a text")
            return value.lower()
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refused(key, f"is {value!r}, not true or false")
        return value

    def section(self, key: str) -> Settings | None:
        """A mapping, None where the key is missing or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refused(key, "is not a mapping")
        return Settings(self.method, value)

    def listed(self, *keys: str) -> tuple[str, ...]:
        """The texts of every list that is there under the keys."""
        found: list[str] = []
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, list) or len(value) > MOST_NAMES:
                raise self.refused(key, f"is not a list of at most {MOST_NAMES} names")
            for entry in value:
                if not isinstance(entry, str) or len(entry) > LONGEST_NAME:
                    raise self.refused(key, f"holds {str(entry)[:64]!r}, not a name of at most {LONGEST_NAME} letters")
                found.append(entry)
        return tuple(found)

    def entries(self, key: str) -> Mapping[str, Settings]:
        """A mapping of names to mappings, empty where the key is missing."""
        section = self.section(key)
        if section is None:
            return {}
        if len(section.values) > MOST_NAMES or any(len(name) > LONGEST_NAME for name in section.values):
            raise self.refused(
                key, f"has more than {MOST_NAMES} entries, or a name of more than {LONGEST_NAME} letters"
            )
        return {name: inner for name in section.values if (inner := section.section(name)) is not None}

    def refused(self, key: str, what: str) -> FactsError:
        """The error for a key."""
        return FactsError(
            Absence.MODEL_UNKNOWN.value, f"quantization_config ({self.method or 'no quant_method'}): {key} {what}"
        )
