"""The cost meters of all targets, and which of these claim the same GPUs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.cost.meter import CostMeter, Terms
from llm_serving_exporter.model.claims import claim_of, shared
from llm_serving_exporter.model.device import GpuReadings
from llm_serving_exporter.model.identity import Identity, is_same_pod
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import Target

log = logging.getLogger("llm_serving_exporter.cost")


class Costs:
    """A meter for each target. Threads may share it: targets' jobs advance their own meters while others add, drop and claim."""

    def __init__(self) -> None:
        # held also while a meter is advanced: a target whose configuration changes may have a tick of its old job under way
        self._lock = threading.Lock()
        self._meters: dict[str, CostMeter] = {}
        # whose cost the meter of a name counts
        self._owners: dict[str, Identity] = {}
        self._claimed_twice: frozenset[str] = frozenset()

    def begin_target(self, target: Target) -> None:
        """Begins to count a target before its first tick. A target whose configuration changes goes on counting.

        Another pod under the same name starts from 0: what the one before it cost is not its own.
        """
        name = target.name
        with self._lock:
            if name not in self._meters or not is_same_pod(self._owners[name], target.identity):
                self._meters[name] = CostMeter()
            self._owners[name] = target.identity

    def drop_others(self, names: Collection[str]) -> None:
        """Forgets what every target but `names` has cost."""
        with self._lock:
            self._meters = {name: meter for name, meter in self._meters.items() if name in names}
            self._owners = {name: owner for name, owner in self._owners.items() if name in names}

    def update_claims(
        self, targets: Iterable[Target], uuids: Mapping[str, Collection[str]], yielded: Collection[str] = ()
    ) -> None:
        """Finds out which targets have the same GPUs without stating their shares: none of these has a cost.

        `uuids`: by target, of its GPUs, where they are known. `yielded`: targets whose GPUs others use now; the others alone are
        charged for them.
        """
        every = {target.name: target for target in targets}
        claims = {name: list_claims(target, uuids.get(name, ())) for name, target in every.items()}
        found = find_claimed_twice(claims, every) | every.keys() & frozenset(yielded)
        with self._lock:
            before, self._claimed_twice = self._claimed_twice, found
        for name in sorted(found - before):
            log.warning(
                "target=%s: another target has the same GPUs, so that it has no cost: set gpu_share of each, at most 1 together",
                name,
            )

    def advance_target(
        self, reading: TargetReading, gpus: GpuReadings | None, config: Config, *, monotonic: float, unix: float
    ) -> TargetReading:
        """The reading of a tick, with what the target has cost so far; unchanged where the target is gone by now, or another pod.

        `gpus`: the last pass over the GPUs of this node.
        """
        name = reading.target.name
        with self._lock:
            meter = self._meters.get(name)
            if meter is None or not is_same_pod(self._owners[name], reading.target.identity):
                return reading
            terms = Terms(config.prices, config.attribution, config.window_seconds, name in self._claimed_twice)
            return replace(reading, cost=meter.advance(reading, gpus, terms, monotonic=monotonic, unix=unix))


def find_cards(uuids: Collection[str], gpus: GpuReadings | None) -> frozenset[str]:
    """UUIDs of the cards: a MIG instance stands for the card that it is a slice of, where that is known."""
    seen = [gpu.identity for gpu in gpus.gpus] if gpus is not None else []
    parents = {identity.uuid: identity.mig.parent_uuid for identity in seen if identity.mig is not None}
    return frozenset(parents.get(uuid, uuid) for uuid in uuids)


def list_claims(target: Target, uuids: Collection[str]) -> frozenset[str]:
    """What the target's GPUs are known by: their UUIDs, else the UUIDs or indices in its configuration."""
    if uuids or target.gpus is None:
        return frozenset(uuids)
    return frozenset(claim_of(target, gpu) for gpu in target.gpus)


def find_claimed_twice(claims: Mapping[str, Collection[str]], targets: Mapping[str, Target]) -> frozenset[str]:
    """Targets that share a GPU with others, without stated shares that add up to at most 1. `claims`: GPUs by target."""
    by_gpu: dict[str, list[str]] = {}
    for name, gpus in claims.items():
        for gpu in gpus:
            by_gpu.setdefault(gpu, []).append(name)
    doubtful: set[str] = set()
    for names in by_gpu.values():
        if len(names) > 1 and not shared([targets[name] for name in names]):
            doubtful.update(names)
    return frozenset(doubtful)
