"""What a runtime's JSON gives, which may be anything: values that are checked, samples made of them, joined to its page's or added up.

Numbers are compared before anything converts them: JSON has whole numbers that no float holds, and NaN and Infinity as Python reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.engines.mapping import Readings, Runtime
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Layout, Samples, SeriesKey
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.text import LABEL_LENGTH, clean

# of a model list: adapters are listed as models too, and a router lists every file of its folder
MAX_MODELS = 256
LONGEST_PATH = 4096  # characters
# above any size, limit or count of bytes that a server can have, and a float still holds each whole number
MOST_WHOLE = 10**15
# any measure; beyond it arithmetic on a few of them could leave what a float holds
LARGEST = 1e18


def whole(value: object) -> int | None:
    """A positive whole number of at most MOST_WHOLE."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_WHOLE:
        return None
    return value


def number(value: object) -> float | None:
    """A finite number of at most LARGEST, whatever its sign."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)


def text(value: object, longest: int = LABEL_LENGTH) -> str | None:
    """A string that is not empty, made fit for labels and pages."""
    return clean(value, longest) if isinstance(value, str) and value else None


def mapping(value: object) -> Mapping[str, object]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object, most: int) -> list[object]:
    """The first `most` of a list; nothing of anything else."""
    return value[:most] if isinstance(value, list) else []


def list_objects(value: object, most: int) -> list[Mapping[str, object]]:
    """The objects that are not empty among the first `most` of a list."""
    return [entry for item in listed(value, most) if (entry := mapping(item))]


def list_models(answer: object, most: int = MAX_MODELS) -> list[Mapping[str, object]]:
    """The entries of a model list (`/v1/models`: data[])."""
    return list_objects(mapping(answer).get("data"), most)


def add_facts(facts: ServerFacts, **values: Any) -> ServerFacts:
    """The facts with what an answer says of some; None and what is empty say nothing, but for a text: "" is one."""
    return replace(facts, **{name: value for name, value in values.items() if value not in (None, (), {})})


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/version`: {"version": "0.32.0"}."""
    return add_facts(facts, version=text(mapping(answer).get("version"), 64))


def read_model_names(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id."""
    return add_facts(facts, model_names=tuple(name for entry in list_models(answer) if (name := text(entry.get("id")))))


def is_owned_by(answer: object, owner: str, most: int = 64) -> bool:
    """Whether a model list (`/v1/models`: data[].owned_by) names this owner, and no other."""
    entries = listed(mapping(answer).get("data"), most)
    return bool(entries) and all(mapping(entry).get("owned_by") == owner for entry in entries)


def find_unread_sizes(parallel: Mapping[str, object], read: frozenset[str], most: int = 16) -> tuple[str, ...]:
    """The names of sizes above one, in a server's configuration of its parallelism, that are not among those that are read."""
    names = [
        clean(name)
        for name, value in parallel.items()
        if name.endswith("_size") and name not in read and (whole(value) or 0) > 1 and "parallel" in name
    ]
    return tuple(sorted(names)[:most])


# series that are added up; a page's labels come from outside. Of more, those that the last page does not have start again
MAX_TOTALS = 16_384


class Joiner:
    """Keeps the joined layout as long as both its parts stay, so that what is worked out from it stays too."""

    def __init__(self) -> None:
        self._base: Layout | None = None
        self._keys: tuple[SeriesKey, ...] = ()
        self._joined: Layout | None = None

    def join(self, samples: Samples, polled: Readings) -> Samples:
        """The page's samples and these behind them."""
        if not polled:
            return samples
        keys = tuple(key for key, _ in polled)
        if self._joined is None or self._base is not samples.layout or self._keys != keys:
            base = samples.layout
            names = base.names | {key.name for key in keys}
            self._base, self._keys = base, keys
            self._joined = Layout((*base.keys, *keys), base.types, frozenset(names), base.series_count + len(keys))
        return Samples(self._joined, (*samples.values, *(value for _, value in polled)))


class Totals:
    """What a page that is emptied by reading it has said in all: increments added up from 0, and what holds on until the next sample."""

    def __init__(self) -> None:
        self._totals: dict[SeriesKey, float] = {}
        self._held: Readings = ()

    def let_go(self) -> None:
        """Holds nothing any more: who answers next may be another server. What was added up stays, so that no total falls."""
        self._held = ()

    def add_up(self, runtime: Runtime, answer: Readings) -> Readings:
        """The totals after an answer, and its other samples; of an answer without samples what is still held."""
        added: dict[SeriesKey, float] = {}
        for key, value in answer:
            if key.name in runtime.adds and (key in added or len(added) < MAX_TOTALS):
                added[key] = added.get(key, 0.0) + value
        for key, value in added.items():
            self._totals[key] = self._totals.get(key, 0.0) + value
        if len(self._totals) > MAX_TOTALS:
            gone = [key for key in self._totals if key not in added]
            for key in gone[: len(self._totals) - MAX_TOTALS]:
                del self._totals[key]
        if answer:
            others = tuple(sample for sample in answer if sample[0].name not in runtime.adds)
            self._held = tuple(sample for sample in others if sample[0].name in runtime.stays)
        else:
            others = self._held
        return (*self._totals.items(), *others)


EMPTY = Layout((), {}, frozenset(), 0)


def reading(name: str, value: float, **labels: str) -> tuple[SeriesKey, float]:
    """One polled sample."""
    return SeriesKey(name, tuple(sorted(labels.items()))), value
