"""Which targets are ranks of one replica, and what their siblings are doing."""

from __future__ import annotations

from collections.abc import Collection

from llm_serving_exporter.derive.roof import shares_experts
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import ReplicaPart, Siblings, Target

# replica, model and role, which its targets have in common
_Key = tuple[str, str, str]


class ReplicaBook:
    """The parts of replicas among the targets of one process. Ticks may ask and note side by side."""

    def __init__(self) -> None:
        # by the name of the target, of those alone that are part of a replica and answer
        self._keys: dict[str, _Key] = {}
        # by replica and target, what was last read of its ranks
        self._read: dict[_Key, dict[str, Siblings]] = {}

    def note(self, reading: TargetReading) -> ReplicaPart | None:
        """What a reading says of its target's place in a replica; None where the target is a replica by itself."""
        part, name = find_part(reading), reading.target.name
        if part is None or not part.replica or not reading.page.up or reading.page.snapshot is None:
            self.forget(name)
            return part
        key = (part.replica, reading.server.model_name, reading.role.value)
        if self._keys.get(name) != key:
            self.forget(name)
            self._keys[name] = key
        running = add_up(engine.requests_running or 0.0 for engine in reading.page.snapshot.engines if engine.is_engine)
        self._read.setdefault(key, {})[name] = Siblings(part.shown, running)
        read = part.shown + self._add_siblings(name, key).ranks
        return replace(part, read=min(part.ranks, read))

    def find_siblings(self, name: str) -> Siblings | None:
        """The other parts of a target's replica; None for a target that is none, or that does not answer."""
        key = self._keys.get(name)
        return None if key is None else self._add_siblings(name, key)

    def forget(self, name: str) -> None:
        """A target is gone, or does not answer."""
        key = self._keys.pop(name, None)
        if key is not None and (parts := self._read.get(key)) is not None:
            parts.pop(name, None)
            if not parts:
                self._read.pop(key, None)

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets every other target."""
        for name in [*self._keys]:
            if name not in names:
                self.forget(name)

    def _add_siblings(self, name: str, key: _Key) -> Siblings:
        others = [read for other, read in [*self._read.get(key, {}).items()] if other != name]
        return Siblings(add_up([one.ranks for one in others]), add_up([one.requests for one in others]))


def find_part(reading: TargetReading) -> ReplicaPart | None:
    """A target's place in a replica of more ranks than its page shows: only where ranks share experts. Those of a dense model are whole
    copies, and each serves without the others."""
    target, facts = reading.target, reading.server.facts
    ranks = target.data_parallel_size or (None if facts.all_ranks_shown else facts.data_parallel_size)
    if not ranks or ranks == 1 or reading.page.snapshot is None:
        return None
    shown = add_up(engine.is_engine for engine in reading.page.snapshot.engines) or 1
    if shown >= ranks or not shares_experts(target, facts) or not _has_experts(reading, target, facts):
        return None
    return ReplicaPart(name_replica(target), ranks, shown, shown)


def name_replica(target: Target) -> str:
    """What the targets of a replica have in common; "" where nothing says it."""
    place = target.identity
    return target.group or target.replica or (f"{place.namespace}/{place.workload}" if place.workload else "")


def _has_experts(reading: TargetReading, target: Target, facts: ServerFacts) -> bool:
    known = [model for model in reading.server.models.values() if isinstance(model, ModelFacts)]
    if known:
        return any(model.geometry.experts for model in known)
    return bool(target.experts_shared or facts.experts_spread)
