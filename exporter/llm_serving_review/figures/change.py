"""Both weeks -> why the spend changed, by cause and model, and what came, went, was scaled and moved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_serving_exporter.model.numbers import add_up
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
from llm_serving_review.figures.totals import TOKEN_PHASES

# model and role: what prices are compared of
Service = tuple[str, str]


class Change(Struct, frozen=True):
    """Why the spend is another than the week before."""

    # over all models, in whole cents
    split: Split
    # by model, in whole cents; they add up to `split`
    by_model: Mapping[str, Split] = field(default_factory=dict)
    # what came, went, was scaled and moved; the largest amount first
    movements: tuple[Movement, ...] = ()
    # USD of the week that is compared with nothing because one of the weeks does not know it
    left_out_usd: float = 0.0
    # the same of the week before
    left_out_before_usd: float = 0.0


class _Hours(Struct):
    """GPU-hours of one cell, and its tokens."""

    # computed or generated
    tokens: float = 0.0
    # that the phase was busy for
    busy: float = 0.0
    # with the time that the target was not busy
    gpu: float = 0.0


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
        *(add_up(week.left_out_usd.values()) for week in reversed(matched)),
    )


def _service(owner: Owner) -> Service:
    return owner.model_name, owner.role


def _in_cents(usd: float) -> int:
    return round(100 * usd)


def _sum_cost(usage: Usage) -> float:
    return add_up(line.total for line in usage.cost)


def _add_bills(bills: Mapping[Service, Bill]) -> Bill:
    total = Bill()
    for bill in bills.values():
        for key, value in bill.hours.items():
            total.hours[key] = total.hours.get(key, 0.0) + value
        for key, value in bill.usd.items():
            total.usd[key] = total.usd.get(key, 0.0) + value
    return total


def _metered(bill: Bill) -> Bill:
    """Only kinds and rates of which GPU-hours are known."""
    return Bill(dict(bill.hours), {key: usd for key, usd in bill.usd.items() if bill.hours.get(key)})


def _unmetered(bill: Bill) -> float:
    return add_up(usd for key, usd in bill.usd.items() if not bill.hours.get(key))


def _build_cells(usage: Usage) -> tuple[dict[Key, _Hours], dict[Service, float]]:
    """GPU-hours by model, role and phase, and by service those that no cell bears, which includes those of cells without tokens."""
    usd: dict[Owner, dict[str, float]] = {}
    for line in usage.cost:
        phases = usd.setdefault(line.owner, {})
        phases[line.of[0]] = phases.get(line.of[0], 0.0) + line.total
    hours: dict[Owner, float] = {}
    for line in usage.gpu_seconds:
        if line.of[1]:
            hours[line.owner] = hours.get(line.owner, 0.0) + line.total / 3600
    tokens = {
        "prefill": {line.owner: line.total for line in usage.prefill_tokens},
        "decode": {line.owner: line.total for line in usage.decode_tokens},
    }
    found: dict[Key, _Hours] = {}
    nobody: dict[Service, float] = {}
    for owner, gpu_hours in hours.items():
        phases = usd.get(owner, {})
        everything = add_up(phases.values())
        productive = add_up(phases.get(phase, 0.0) for phase in TOKEN_PHASES)
        if productive <= 0:
            nobody[_service(owner)] = nobody.get(_service(owner), 0.0) + gpu_hours
            continue
        for phase in TOKEN_PHASES:
            cell = found.setdefault((*_service(owner), phase), _Hours())
            cell.tokens += tokens[phase].get(owner, 0.0)
            cell.gpu += phases.get(phase, 0.0) / productive * gpu_hours
            cell.busy += phases.get(phase, 0.0) / everything * gpu_hours
    for key, cell in list(found.items()):
        if not cell.tokens:
            nobody[key[0], key[1]] = nobody.get((key[0], key[1]), 0.0) + cell.gpu
            del found[key]
    return found, nobody
