"""A page of what is on disk: no counter of cost is shown higher than a process that starts from there would show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from llm_serving_exporter.model.cost import EngineCost, EngineTotals, KeptCost, TargetCost
from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import replace

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
    known: dict[tuple[str, str, str], EngineTotals] = {}
    if kept is not None and kept.life == cost.life:
        known = {(one.model_name, one.engine, one.role): one.totals for one in kept.engines}
    return replace(cost, engines=tuple(_hold_engine(one, known) for one in cost.engines))


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
