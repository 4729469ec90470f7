"""The cost meters of all targets, and which of these claim the same GPUs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import count
from typing import TypeVar

from llm_serving_exporter.cost.meter import CostMeter, Resume
from llm_serving_exporter.cost.terms import Terms
from llm_serving_exporter.gpus.ownership import YIELDED, Assignment, share_cards
from llm_serving_exporter.model.cost import EngineCost, EngineTotals, KeptCost, TargetCost
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReadings
from llm_serving_exporter.model.later import Unchanged
from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, Role, Target, claim_of, fit_one_gpu, is_same_pod
from llm_serving_exporter.settings.config import Config

# --- A page of what is on disk: no counter of cost is shown higher than a process that starts from there would show it.


Key = TypeVar("Key")


def hold_back(view: View, held: Mapping[str, KeptCost] | None) -> View:
    """The view with counters of cost no higher than in `held`, by target. A counter that is not there stands at 0.

    None: nothing may be said of them, and none is shown.
    """
    return replace(view, targets=tuple(_hold_target(reading, held) for reading in view.targets))


def _hold_target(reading: TargetReading, held: Mapping[str, KeptCost] | None) -> TargetReading:
    if reading.cost is None:
        return reading
    if held is None:
        return replace(reading, cost=replace(reading.cost, engines=()))
    kept = held.get(reading.target.name)
    return replace(reading, cost=_hold_cost(reading.cost, kept))


def _hold_cost(cost: TargetCost, kept: KeptCost | None) -> TargetCost:
    totals: dict[tuple[str, str, str], EngineTotals] = {}
    if kept is not None and kept.life == cost.life:
        totals = {(engine.model_name, engine.engine, engine.role): engine.totals for engine in kept.engines}
    return replace(cost, engines=tuple(_hold_engine(engine, totals) for engine in cost.engines))


def _hold_engine(one: EngineCost, known: Mapping[tuple[str, str, str], EngineTotals]) -> EngineCost:
    live, kept = one.totals, known.get((one.model_name, one.engine, one.role), EngineTotals())
    totals = replace(
        live,
        gpu_seconds=_hold_each(live.gpu_seconds, kept.gpu_seconds),
        usd=_hold_each(live.usd, kept.usd),
        savings_usd=_hold(live.savings_usd, kept.savings_usd),
        energy_joules=_hold(live.energy_joules, kept.energy_joules),
        energy_usd=_hold(live.energy_usd, kept.energy_usd),
        carbon_grams=_hold(live.carbon_grams, kept.carbon_grams),
    )
    return replace(one, totals=totals)


def _hold_each(live: Mapping[Key, float], kept: Mapping[Key, float]) -> dict[Key, float]:
    # a counter that is born here stands at 0 until it is kept: increase() misses the first value of one that is born above
    return {key: min(value, kept.get(key, 0.0)) for key, value in live.items()}


def _hold(live: float | None, kept: float | None) -> float | None:
    return None if live is None else min(live, kept or 0.0)


# --- All meters.


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
        self._lives = count(1)
        # by target: what an earlier process kept, until the target begins
        self._resumes: dict[str, Resume] = {}
        # by whether the target's GPUs are claimed twice
        self._make_terms = {claimed: Unchanged(partial(_make_terms, claimed)) for claimed in (False, True)}

    def put_kept(self, resumes: Iterable[Resume]) -> dict[str, KeptCost]:
        """Has targets that begin from now on go on from what an earlier process kept of them.

        What it kept, by name, with the lives that the targets will have.
        """
        with self._lock:
            for one in resumes:
                kept = replace(one.kept, life=next(self._lives))
                self._resumes[kept.name] = replace(one, kept=kept)
            return {name: one.kept for name, one in self._resumes.items()}

    def forget_waiting(self) -> None:
        """Forgets what an earlier process kept of targets that have not begun: they are gone."""
        with self._lock:
            self._resumes.clear()

    def keep(self, to_boot: Callable[[float], float]) -> dict[str, KeptCost]:
        """What is to outlive this process now, by target; also of targets that have not begun yet.

        `to_boot`: a moment of the monotonic clock by the clock of the host's boot.
        """
        with self._lock:
            waiting = {name: one.kept for name, one in self._resumes.items()}
            return waiting | {
                name: meter.keep(name, self._owners[name], to_boot) for name, meter in self._meters.items()
            }

    def begin_target(self, target: Target) -> None:
        """Begins to count a target before its first tick. A target whose configuration changes goes on counting.

        Another pod under the same name starts from 0: what the one before it cost is not its own.
        """
        name = target.name
        with self._lock:
            if name not in self._meters or not is_same_pod(self._owners[name], target.identity):
                self._meters[name] = self._make_meter(target)
            self._owners[name] = target.identity

    def _make_meter(self, target: Target) -> CostMeter:
        resume = self._resumes.pop(target.name, None)
        if resume is None or not is_same_pod(resume.kept.identity, target.identity):
            return CostMeter(next(self._lives))
        meter = CostMeter(resume.kept.life)
        meter.restore(resume)
        return meter

    def drop_others(self, names: Collection[str]) -> None:
        """Forgets what every target but `names` has cost."""
        with self._lock:
            self._meters = {name: meter for name, meter in self._meters.items() if name in names}
            self._owners = {name: owner for name, owner in self._owners.items() if name in names}

    def update_claims(
        self, targets: Iterable[Target], assignments: Mapping[str, Assignment], gpus: GpuReadings | None
    ) -> None:
        """Finds out which targets have the same GPUs without shares that are known and fit into them: none of these has a cost.

        `assignments` by target; `gpus`: the last pass, which knows the cards of MIG instances. Of a target whose GPUs others use now the
        others alone are charged for them.
        """
        # a front end has no cost
        every = {target.name: target for target in targets if target.role is not Role.FRONTEND}
        identities = [gpu.identity for gpu in gpus.gpus] if gpus is not None else []
        claims = {name: list_claims(target, assignments.get(name), identities) for name, target in every.items()}
        yielded = {name for name in every if name in assignments and assignments[name].why == YIELDED}
        claimed_twice = find_claimed_twice(claims) | yielded
        with self._lock:
            before, self._claimed_twice = self._claimed_twice, claimed_twice
        for name in sorted(claimed_twice - before):
            log.warning(
                "target=%s: another target has the same GPUs, and which part is whose is not known, so that it has no cost: "
                "set gpu_share of each, at most 1 together",
                name,
            )

    def advance_target(
        self, reading: TargetReading, gpus: GpuReadings | None, config: Config, *, monotonic: float, unix: float
    ) -> TargetReading:
        """The reading of a tick, with what the target has cost so far; with no cost where the target is gone by now, or another pod.

        `gpus`: the last pass over the GPUs of this node.
        """
        name = reading.target.name
        with self._lock:
            meter = self._meters.get(name)
            if meter is None or not is_same_pod(self._owners[name], reading.target.identity):
                return reading if reading.cost is None else replace(reading, cost=None)
            terms = self._make_terms[name in self._claimed_twice](config)
            return replace(reading, cost=meter.advance(reading, gpus, terms, monotonic=monotonic, unix=unix))


def _make_terms(claimed_twice: bool, config: Config) -> Terms:
    no_book = Absence.NOT_CONFIGURED if config.price_file is None else Absence.PRICES_UNUSABLE
    return Terms(config.prices, config.attribution, config.window_seconds, no_book, claimed_twice)


def list_claims(
    target: Target, assignment: Assignment | None, gpus: Collection[GpuIdentity]
) -> dict[str, float | None]:
    """The cards that a target claims, and which part of each; None: not known which.

    A card is known by its UUID, also where the target has an instance of it; where no UUID is known, by what the configuration calls it.
    """
    if assignment is None or not assignment.uuids:
        return {claim_of(target, gpu): target.gpu_share or 1.0 for gpu in target.gpus or ()}
    cards = {gpu.uuid: gpu.mig.parent_uuid for gpu in gpus if gpu.mig is not None}
    claims: dict[str, float | None] = {}
    for uuid, share in share_cards(assignment, gpus).items():
        card = cards.get(uuid, uuid)
        before = claims.get(card, 0.0)
        claims[card] = target.gpu_share or (None if share is None or before is None else before + share)
    return claims


def find_claimed_twice(claims: Mapping[str, Mapping[str, float | None]]) -> frozenset[str]:
    """Targets that share a card with others where their parts are not known or do not fit into it. `claims`: parts by target and card."""
    by_card: dict[str, dict[str, float | None]] = {}
    for name, cards in claims.items():
        for card, share in cards.items():
            by_card.setdefault(card, {})[name] = share
    doubtful: set[str] = set()
    for owners in by_card.values():
        if len(owners) > 1 and not fit_one_gpu(owners.values()):
            doubtful.update(owners)
    return frozenset(doubtful)
