"""Both weeks -> why the spend changed, by cause and model, and what came, went, was scaled and moved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import NamedTuple

from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.evidence.usage import Evidence, Owner, Usage
from llm_serving_review.figures.gpu_prices import (
    Bill,
    GpuKinds,
    LastPrices,
    read_said_prices,
    split_prices,
    sum_bills,
)
from llm_serving_review.figures.matching import find_units, match_weeks
from llm_serving_review.figures.movements import Compared, Movement, list_movements
from llm_serving_review.figures.split import Cell, Key, Split, add_cents, add_splits, round_splits, split_use
from llm_serving_review.figures.totals import TOKEN_PHASES, sum_by_owner
from llm_serving_review.tables.sums import group_by_key, sum_by_key

# model and role: what prices are compared of
Service = tuple[str, str]


class Change(Struct, frozen=True):
    """Why the spend is another than the week before."""

    split: Split  # over all models, in whole cents
    by_model: Mapping[str, Split] = field(default_factory=dict)  # by model, in whole cents; they add up to `split`
    movements: tuple[Movement, ...] = ()  # what came, went, was scaled and moved; the largest amount first
    left_out_usd: float = 0.0  # USD of the week that is compared with nothing because one of the weeks does not know it
    left_out_before_usd: float = 0.0  # the same of the week before


class _Hours(NamedTuple):
    """GPU-hours of one cell, and its tokens."""

    tokens: float  # computed or generated
    busy: float  # that the phase was busy for
    gpu: float  # with the time that the target was not busy


def explain_change(evidence: Evidence, before: Usage, after: Usage, identity: Sequence[str]) -> Change | None:
    """The change from one week to the next; None where either has no cost. Usage is as it counts, after `count_once`."""
    if not before.cost or not after.cost:
        return None
    units = find_units(evidence.book, evidence.book_before, identity)
    matched = match_weeks(evidence, before, after, units)
    kinds = GpuKinds(evidence.book_before, identity), GpuKinds(evidence.book, identity)
    old, new = (sum_bills(week.usage, of, _service) for week, of in zip(matched, kinds, strict=True))
    last = LastPrices(_add_bills(sum_bills(before, kinds[0], _service)), read_said_prices(evidence.book_before.prices))
    cells, idle = zip(*(_build_cells(week.usage) for week in matched), strict=True)
    found: dict[str, list[Split]] = {}
    means: dict[Service, float] = {}
    for service in sorted(old.keys() | new.keys()):
        was, now = old.get(service, Bill()), new.get(service, Bill())
        splits = found.setdefault(service[0], [])
        # cost of which no GPU time is known has no price
        unmetered = _unmetered(now) - _unmetered(was)
        if unmetered:
            splits.append(Split(left_out=unmetered))
        was, now = _metered(was), _metered(now)
        mean = was.mean_price
        if mean is None or not now.all_hours:
            splits.append(Split(came_and_went=now.all_usd - was.all_usd))
            continue
        means[service] = mean
        splits.append(split_prices(was, now, last))
        splits.append(Split(idle=(idle[1].get(service, 0.0) - idle[0].get(service, 0.0)) * mean))
    priced = [
        {
            key: Cell(cell.tokens, cell.busy, cell.gpu, cell.gpu * means[key[0], key[1]])
            for key, cell in week.items()
            if (key[0], key[1]) in means
        }
        for week in cells
    ]
    for key, split in split_use(*priced).items():
        found[key[0]].append(split)
    for sign, week in ((-1.0, matched[0]), (1.0, matched[1])):
        for owner, usd in week.alone_usd.items():
            found.setdefault(owner.model_name, []).append(Split(came_and_went=sign * usd))
        for owner, usd in week.left_out_usd.items():
            found.setdefault(owner.model_name, []).append(Split(left_out=sign * usd))
    total = _in_cents(_sum_cost(after)) - _in_cents(_sum_cost(before))
    by_model = round_splits({model: add_splits(splits) for model, splits in sorted(found.items())}, total)
    return Change(
        add_cents(by_model.values()),
        by_model,
        list_movements(Compared(evidence, units, matched, kinds, last)),
        *(fsum(week.left_out_usd.values()) for week in reversed(matched)),
    )


def _service(owner: Owner) -> Service:
    return owner.model_name, owner.role


def _in_cents(usd: float) -> int:
    return round(100 * usd)


def _sum_cost(usage: Usage) -> float:
    return fsum(line.total for line in usage.cost)


def _add_bills(bills: Mapping[Service, Bill]) -> Bill:
    return Bill(
        sum_by_key(pair for bill in bills.values() for pair in bill.hours.items()),
        sum_by_key(pair for bill in bills.values() for pair in bill.usd.items()),
    )


def _metered(bill: Bill) -> Bill:
    """Only kinds and rates of which GPU-hours are known."""
    return Bill(dict(bill.hours), {key: usd for key, usd in bill.usd.items() if bill.hours.get(key)})


def _unmetered(bill: Bill) -> float:
    return fsum(usd for key, usd in bill.usd.items() if not bill.hours.get(key))


def _build_cells(usage: Usage) -> tuple[dict[Key, _Hours], dict[Service, float]]:
    """GPU-hours by model, role and phase, and by service those that no cell bears, which includes those of cells without tokens."""
    usd = sum_by_owner(usage.cost)
    hours = sum_by_key((line.owner, line.total / 3600) for line in usage.gpu_seconds if line.of[1])
    tokens = {
        "prefill": {line.owner: line.total for line in usage.prefill_tokens},
        "decode": {line.owner: line.total for line in usage.decode_tokens},
    }
    parts: list[tuple[Key, _Hours]] = []
    nobody: list[tuple[Service, float]] = []
    for owner, gpu_hours in hours.items():
        phases = usd.get(owner, {})
        everything = fsum(phases.values())
        productive = fsum(phases.get(phase, 0.0) for phase in TOKEN_PHASES)
        if productive <= 0:
            nobody.append((_service(owner), gpu_hours))
            continue
        for phase in TOKEN_PHASES:
            value = phases.get(phase, 0.0)
            part = _Hours(tokens[phase].get(owner, 0.0), value / everything * gpu_hours, value / productive * gpu_hours)
            parts.append(((*_service(owner), phase), part))
    found = {key: _Hours(*map(fsum, zip(*each, strict=True))) for key, each in group_by_key(parts).items()}
    nobody += [((key[0], key[1]), cell.gpu) for key, cell in found.items() if not cell.tokens]
    return {key: cell for key, cell in found.items() if cell.tokens}, sum_by_key(nobody)
