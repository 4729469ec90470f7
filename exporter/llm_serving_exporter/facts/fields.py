"""A config.json's fields, checked as they are taken: every message names the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.snapshot import Absence

# what a checkpoint holds beside the language part: top-level key -> the word for it in Geometry.left_out
_OTHER_PARTS = {
    "vision_config": "vision tower",
    "vision_tower": "vision tower",
    "mm_vision_tower": "vision tower",
    "visual": "vision tower",
    "img_processor": "vision tower",
    "audio_config": "audio tower",
    "audio_encoder": "audio tower",
    "talker_config": "talker",
}

# far above any model there is; a config beyond them is not believed, and bounds the work that one can cause
LARGEST = 1 << 40
MOST_LAYERS = 4096


def model_unknown(what: str, fix: str = "") -> FactsError:
    """The error for what cannot be known of a model; `fix`: what to do about it in the daemon's configuration."""
    return FactsError(Absence.MODEL_UNKNOWN.value, what, fix)


class Fields:
    """The language part of a Hugging Face config (`text_config` and its like are entered by `language`).

    Every reader raises FactsError where a key that must be there is missing or no sensible value; a key that is null counts as missing.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        outer: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.values = values
        # of the levels around the language part, the nearer first
        self.outer = outer if outer is not None else {}
        self._defaults = defaults if defaults is not None else {}

    def with_defaults(self, defaults: Mapping[str, Any]) -> Fields:
        """The same fields, with an architecture's class defaults for keys that are absent; a key that is null stays null."""
        return Fields(self.values, self.outer, {**self._defaults, **defaults})

    def with_values(self, values: Mapping[str, Any]) -> Fields:
        """The same fields, with other values for these keys."""
        return Fields({**self.values, **values}, self.outer, self._defaults)

    @property
    def nested(self) -> bool:
        """Whether these are the language part of a larger config."""
        return bool(self.outer)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parts of the checkpoint that are not its language part, in words, each once."""
        found = (word for key, word in _OTHER_PARTS.items() if self.values.get(key) or self.outer.get(key))
        return tuple(dict.fromkeys(found))

    def find_around(self, key: str) -> Any:
        """The key's value here or on the level above, as it stands; None where there is none."""
        value = self.values.get(key)
        return self.outer.get(key) if value is None else value

    @property
    def architecture(self) -> str:
        """The first of `architectures`, the language part's own where it names one; "" where there is none."""
        named = self.find_around("architectures")
        first = named[0] if isinstance(named, list) and named else ""
        return first if isinstance(first, str) else ""

    def found(self, key: str) -> Any:
        """The key's value as it stands, else its class default; None where there is neither."""
        return self.values[key] if key in self.values else self._defaults.get(key)

    @property
    def model_type(self) -> str:
        """`model_type` in lower case, the outer config's where the language part has none; "" where there is none."""
        found = self.values.get("model_type") or self.outer.get("model_type")
        return found.lower() if isinstance(found, str) else ""

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.found(key) is not None

    def whole(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """The first of the keys that is there, as a whole number of at least `least`; `default` where none is."""
        for key in keys:
            value = self.found(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                raise self.refused(key, f"is {value!r}, not a whole number of at least {least}")
            return value
        if default is not None:
            return default
        raise self.refused(keys[0], "is missing")

    def first(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """As `whole`, of the keys that the config states where it states any: a class default never goes before an alias."""
        stated = [key for key in keys if self.values.get(key) is not None]
        return self.whole(*(stated or keys), default=default, least=least)

    def inner(self, key: str) -> Fields:
        """A part of the config, whose messages still name the model's type."""
        part = self.found(key)
        if not isinstance(part, Mapping):
            raise self.refused(key, "is missing" if part is None else "is not a table of keys")
        return Fields(part, {"model_type": self.model_type})

    def layers(self, *keys: str) -> int:
        """Number of layers, bounded."""
        keys = keys or ("num_hidden_layers",)
        count = self.whole(*keys)
        if count > MOST_LAYERS:
            named = next(key for key in keys if self.has(key))
            raise self.refused(named, f"is {count}, more than {MOST_LAYERS}")
        return count

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean; also from the level above for keys such as `tie_word_embeddings` that stand on either."""
        value = self.values.get(key)
        if value is None:
            value = self.outer.get(key)
        if value is None:
            value = self._defaults.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refused(key, f"is {value!r}, not true or false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        value = self.found(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refused(key, f"is {value!r}, not a text")
        return value

    def listed(self, key: str) -> Sequence[Any] | None:
        """A list, None where the key is missing."""
        value = self.found(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.refused(key, f"is not a list of at most {MOST_LAYERS} entries")
        return value

    def marked(self, key: str, count: int) -> Sequence[Any]:
        """A list with a mark for each of so many layers."""
        marks = self.listed(key)
        if marks is None or len(marks) != count:
            raise self.refused(key, f"has {len(marks or ())} entries for {count} layers")
        return marks

    def indices(self, key: str, count: int) -> Sequence[int]:
        """A list of indices of so many layers, empty where the key is missing."""
        entries = self.listed(key) or ()
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < count:
                raise self.refused(key, f"has {entry!r}, not the index of one of {count} layers")
        return entries

    def refused(self, key: str, what: str) -> FactsError:
        """The error for a key."""
        kind = self.model_type or "no model_type"
        return FactsError(Absence.ARCHITECTURE_UNKNOWN.value, f"config.json ({kind}): {key} {what}")
