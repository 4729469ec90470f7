"""Samples of one layout by name, with the identities that their labels stand for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite

from llm_serving_exporter.engines.mapping import NOT_ADDITIVE, Row, Runtime, selector
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Layout, SeriesKey
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.text import clean


class EngineIdentity(Struct, frozen=True, order=True):
    """One engine of one model. A label that a family lacks is the page's sole value of it, else ""."""

    model_name: str  # as the page spells it
    engine: str  # data-parallel rank; "0" where the engine has none


def spellings(name: str, respelt: Iterable[tuple[str, str]] = ()) -> tuple[str, ...]:
    """The wire forms of a name: as written, under other prefixes, and as an OpenMetrics scrape without UTF-8 names writes it."""
    forms = [name, *(other + name.removeprefix(prefix) for prefix, other in respelt if name.startswith(prefix))]
    return tuple(dict.fromkeys(spelling for form in forms for spelling in (form, form.replace(":", "_"))))


# words of a label that names a replica, however the rest of it is written: instance, exported_pod, k8s.pod.name, service_instance_id
_REPLICA_WORDS = ("pod", "instance", "replica", "hostname", "host", "server", "worker", "container", "node")


class Index:
    """Samples of a layout by name. `where` conditions of the runtime hold for every position that is given out.

    A page on which engines differ by a label that names replicas, of which the runtime's table knows nothing (Prometheus' /federate, an
    OpenTelemetry collector), is read as one of several replicas.
    """

    def __init__(self, runtime: Runtime, layout: Layout) -> None:
        self.keys = layout.keys
        self._types = layout.types
        self._runtime = runtime
        self._by_name: dict[str, list[int]] = {}
        for position, key in enumerate(layout.keys):
            if _holds(key, runtime.only) and not _is_passed_over(key, runtime):
                self._by_name.setdefault(key.name, []).append(position)
        self.duplicates = {key for key, times in Counter(layout.keys).items() if times > 1}
        named = self._values_of(runtime.model_labels) - runtime.unnamed
        self._spelt = _spelt(named) if runtime.any_case else {}
        self._models = {self._spelt.get(name, name) for name in named}
        self._engines = self._values_of(runtime.engine_labels) if runtime.engine_labels else {"0"}
        # fields whose series differ in a label that nothing knows -> that label
        self.foreign: dict[str, str] = {}
        self._identities: dict[SeriesKey, EngineIdentity] = {}
        self._replica_label: str | None = None
        self._take_replicas(runtime.replica_label)
        if runtime.replica_label is None and runtime.role is not Role.FRONTEND:
            self._take_replicas(self._find_replica_label())

    def _take_replicas(self, label: str | None) -> None:
        self._replica_label = label
        self._replicas = self._values_of((label,) if label else ())
        self._models_of = self._models_by_replica(label) if label else {}
        self._identities.clear()

    def _find_replica_label(self) -> str | None:
        """The label by which several engines' gauges differ, where it names replicas; None: they do not, or by another label."""
        telling = [row for row in self._runtime.rows if row.field in {"requests_running", *NOT_ADDITIVE}]
        differing: set[str] = set()
        for row in telling:
            for text in row.samples[:1]:
                for positions in self.by_identity(self.select(text, row)).values():
                    differing.update(self.find_foreign(row, positions))
        naming = [
            (word, label) for label in sorted(differing) for word in _split_words(label) if word in _REPLICA_WORDS
        ]
        return min(naming, key=lambda named: _REPLICA_WORDS.index(named[0]))[1] if naming else None

    def find_foreign(self, row: Row, positions: Iterable[int]) -> list[str]:
        """The labels in which series of one sample differ beside ranks and what the row itself names, sorted."""
        expected = {*self._runtime.rank_labels, *row.where, *((row.by,) if row.by else ()), "le"}
        for text in (*row.samples, *row.minus, *row.times, *row.over):
            expected.update(selector(text).where)
        by_name: dict[str, list[dict[str, str]]] = {}
        for position in positions:
            labels = {label: value for label, value in self.keys[position].labels if label not in expected}
            by_name.setdefault(self.keys[position].name, []).append(labels)
        return sorted(
            {
                label
                for others in by_name.values()
                for label in {label for labels in others for label in labels}
                if len({labels.get(label, "") for labels in others}) > 1
            }
        )

    def _values_of(self, labels: Iterable[str]) -> set[str]:
        labels = tuple(labels)
        values = {_first(key, labels) for key in self.keys if not _is_passed_over(key, self._runtime)}
        return {value for value in values if value is not None}

    def _models_by_replica(self, label: str) -> dict[str | None, set[str]]:
        models: dict[str | None, set[str]] = {}
        for key in self.keys:
            model = self._model(key)
            if model is not None and model in self._models:
                models.setdefault(key.label(label), set()).add(model)
        return models

    def identity(self, key: SeriesKey) -> EngineIdentity:
        """Whose sample this is."""
        if key not in self._identities:
            self._identities[key] = self._identity(key)
        return self._identities[key]

    def _model(self, key: SeriesKey) -> str | None:
        model = _first(key, self._runtime.model_labels)
        return model if model is None else self._spelt.get(model, model)

    def _identity(self, key: SeriesKey) -> EngineIdentity:
        model = self._model(key)
        if model is None or model in self._runtime.unnamed:
            # a replica's own model where the page shows several
            models = self._models_of.get(key.label(self._replica_label or ""), self._models)
            model = next(iter(models)) if len(models) == 1 else ""
        engine = _first(key, self._runtime.engine_labels)
        if engine is None:
            # an engine without data parallelism may leave the label out altogether: then it is engine 0
            engine = next(iter(self._engines)) if len(self._engines) == 1 else ("" if self._engines else "0")
        if self._replicas:
            replica = key.label(self._replica_label or "")
            if replica is None:
                replica = next(iter(self._replicas)) if len(self._replicas) == 1 else ""
            engine = f"{replica}/{engine}" if replica else engine
        return EngineIdentity(clean(model), clean(engine))

    def positions(self, name: str, suffix: str = "") -> list[int]:
        """Every sample of a name, in whichever spelling the page has."""
        for spelling in spellings(name, self._runtime.respelt):
            if positions := self._by_name.get(spelling + suffix):
                return positions
            bare = spelling.removesuffix("_total")
            # a counter by its TYPE, of a server that leaves the suffix out
            if not suffix and bare != spelling and self._types.get(bare) == "counter" and bare in self._by_name:
                return self._by_name[bare]
        return []

    def select(self, text: str, row: Row | None = None, suffix: str = "") -> list[int]:
        """The samples that a selector names, narrowed to the row's `where`."""
        selected = selector(text)
        wheres = (selected.where,) if row is None else (selected.where, row.where)
        return [
            position
            for position in self.positions(selected.name, suffix)
            if all(_holds(self.keys[position], where) for where in wheres)
        ]

    def by_identity(self, positions: Iterable[int]) -> dict[EngineIdentity, list[int]]:
        """Positions grouped by whose they are."""
        grouped: dict[EngineIdentity, list[int]] = {}
        for position in positions:
            grouped.setdefault(self.identity(self.keys[position]), []).append(position)
        return grouped

    def repeated(self, positions: Iterable[int]) -> bool:
        """Whether one of them stands on the page twice."""
        return bool(self.duplicates) and any(self.keys[position] in self.duplicates for position in positions)

    def groups(self, positions: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Positions that differ in nothing but ranks together, lowest rank first: each group is one value, told several times."""
        ranks = self._runtime.rank_labels
        if not ranks:
            return tuple((position,) for position in positions)
        grouped: dict[tuple[object, ...], list[int]] = {}
        for position in positions:
            key = self.keys[position]
            rest = tuple(pair for pair in key.labels if pair[0] not in ranks)
            grouped.setdefault((key.name, rest), []).append(position)
        return tuple(tuple(sorted(group, key=self._rank)) for group in grouped.values())

    def _rank(self, position: int) -> tuple[tuple[int, str], ...]:
        labels = [self.keys[position].label(label) or "" for label in self._runtime.rank_labels]
        return tuple((int(label) if label.isdecimal() else 0, label) for label in labels)

    @property
    def names_models(self) -> bool:
        """Whether any series says which model it is about."""
        return bool(self._models)

    def engine_count(self) -> int:
        """Engines that the page's labels name, at least one."""
        return max(1, len(self._engines))

    def shown(self, condition: tuple[str, str, str]) -> bool:
        """Whether a series has a label's value."""
        name, label, value = condition
        return any(self.keys[position].label(label) == value for position in self.positions(name))


def _split_words(label: str) -> list[str]:
    """exportedPodName -> exported, pod, name"""
    return re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", label).lower())


def _first(key: SeriesKey, labels: Iterable[str]) -> str | None:
    return next((value for value in map(key.label, labels) if value is not None), None)


def _spelt(names: Iterable[str]) -> dict[str, str]:
    """Each name -> the one with the most capitals of those that differ from it in case only."""
    chosen: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (add_up(map(str.isupper, name)), name)):
        chosen[name.casefold()] = name
    return {name: chosen[name.casefold()] for name in names}


def _holds(key: SeriesKey, where: Mapping[str, frozenset[str]]) -> bool:
    return all((key.label(label) or "") in allowed for label, allowed in where.items())


def _is_passed_over(key: SeriesKey, runtime: Runtime) -> bool:
    """Whether a label has one of the values that name nobody, or the series is of a question that no user asked."""
    return any(key.label(label) in values for label, values in runtime.never.items()) or any(
        all(_fits(pattern, key.label(label) or "") for label, pattern in labels.items()) for labels in runtime.not_users
    )


@lru_cache(maxsize=4096)
def _fits(pattern: str, value: str) -> bool:
    """A page has few values of a label, and many series."""
    return re.fullmatch(pattern, value) is not None


def parse_number(text: str | None) -> float | None:
    """A label's value as a positive finite number; None where it is none."""
    try:
        value = float(text) if text is not None and "_" not in text else None
    except ValueError:
        return None
    return value if value is not None and isfinite(value) and value > 0 else None
