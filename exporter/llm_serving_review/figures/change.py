"""Both weeks -> why the spend changed, by cause and model, and what came, went, was scaled and moved. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.render.numbers import usd
from llm_serving_review.evidence.usage import Evidence, Owner, Usage
from llm_serving_review.figures.matching import Compared, Kind, Movement, find_units, list_movements, match_weeks
from llm_serving_review.figures.rates import Bill, GpuKinds, LastPrices, read_said_prices, split_prices, sum_bills
from llm_serving_review.figures.split import Cell, Key, Split, add_cents, add_splits, round_splits, split_use
from llm_serving_review.figures.totals import TOKEN_PHASES
from llm_serving_review.tables.facts import BEFORE, NOW, FactTable
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


def explain_change(evidence: Evidence, facts: FactTable, identity: Sequence[str]) -> Change | None:
    """The change from one week to the next; None where either has no cost."""
    before, after = (
        replace(
            usage, prefill_tokens=facts.lines(week, "prefill_tokens"), decode_tokens=facts.lines(week, "decode_tokens")
        )
        for week, usage in ((BEFORE, evidence.usage_before), (NOW, evidence.usage))
    )
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
        for owner, alone in week.alone_usd.items():
            found.setdefault(owner.model_name, []).append(Split(came_and_went=sign * alone))
        for owner, left_out in week.left_out_usd.items():
            found.setdefault(owner.model_name, []).append(Split(left_out=sign * left_out))
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
    costs = group_by_key((line.owner, (line.of[0], line.total)) for line in usage.cost)
    usd = {owner: sum_by_key(pairs) for owner, pairs in costs.items()}
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


# --- Why the spend changed, in the two or three sentences that a human would say. Pure.


# each cause for a table or a chart
CAUSE_WORDS = {
    "came_and_went": "Came and went",
    "list_price": "List price",
    "rate": "Rate",
    "hardware": "Hardware",
    "volume": "Tokens",
    "mix": "Mix",
    "idle": "Idle",
    "efficiency": "Efficiency",
    "left_out": "Not compared",
}
# of the change: a smaller cause is in the table, not in a sentence
_LEAST_SHARE = 0.1
_MOST_CAUSES = 3
_MOST_NAMES = 2


def write_causes(change: Change, this: str = "the week", one_before: str = "the week before") -> tuple[str, ...]:
    """What moved the spend and what held against it, the largest first; at most two sentences, and a third where part of the weeks is
    compared with nothing. `this`, `one_before`: how sentences call what is compared."""
    total = change.split.total
    moved = f"GPU time cost {usd(abs(total))} {'more' if total > 0 else 'less'} than {one_before}"
    parts = _list_parts(change)
    # where causes cancel each other out, they and not their sum say what is large
    least = _LEAST_SHARE * max(abs(total), max((abs(value) for value, _ in parts), default=0.0))
    large = sorted((part for part in parts if abs(part[0]) >= max(least, 0.005)), key=lambda part: -abs(part[0]))
    along = [part for part in large if part[0] * total > 0][:_MOST_CAUSES]
    against = [part for part in large if part[0] * total <= 0][:_MOST_CAUSES]
    said = []
    if round(100 * total) == 0:
        said.append(f"GPU time cost the same as {one_before}.")
    elif along:
        said.append(f"{moved}: {_join(along)}.")
    else:
        said.append(f"{moved}.")
    if against:
        other = "more" if total <= 0 else "less"
        said.append(f"Against that, {_join(against, other)}.")
    left_out = [
        f"{usd(value)} of {of}"
        for value, of in ((change.left_out_usd, this), (change.left_out_before_usd, one_before))
        if value >= 0.005
    ]
    if left_out:
        said.append(f"Not compared: {' and '.join(left_out)}, because the same hours of the other one are not known.")
    return tuple(said)


def _join(parts: Sequence[tuple[float, str]], more: str = "") -> str:
    word = f" {more}" if more else ""
    return ", ".join(f"{usd(abs(value))}{word} because {why}" for value, why in parts)


def _list_parts(change: Change) -> list[tuple[float, str]]:
    """Each cause with its USD and its reason; what came and what went stand apart."""
    split = change.split
    found = [(getattr(split, cause), write(change)) for cause, write in _REASONS.items()]
    came = fsum(one.usd for one in change.movements if one.kind == Kind.CAME)
    went = [one for one in change.movements if one.kind == Kind.WENT]
    # in cents, so that both add up to their part
    gone = round(split.came_and_went - round(came, 2), 2)
    if came:
        found.append((round(came, 2), f"{_name(change.movements, Kind.CAME)} came"))
    if went or gone:
        found.append((gone, f"{_name(change.movements, Kind.WENT)} went"))
    return found


def _name(movements: Sequence[Movement], kind: Kind) -> str:
    names = [one.name for one in movements if one.kind == kind]
    rest = len(names) - _MOST_NAMES
    if rest > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {rest} more"
    return " and ".join(names) or "other things"


def _write_hardware(change: Change) -> str:
    moved = [one for one in change.movements if one.kind == Kind.MOVED and abs(one.usd) >= 0.005]
    if not moved:
        return "work moved to other kinds of GPU"
    first = moved[0]
    count = (
        f"{first.replicas:.0f} replica{'' if round(first.replicas) == 1 else 's'} of " if first.replicas >= 0.5 else ""
    )
    rest = f", and {len(moved) - 1} more moved" if len(moved) > 1 else ""
    return f"{count}{first.model_name or first.name} moved {first.detail}{rest}"


def _choose(cause: str, less: str, more: str) -> Callable[[Change], str]:
    return lambda change: more if getattr(change.split, cause) > 0 else less


_REASONS: dict[str, Callable[[Change], str]] = {
    "list_price": _choose("list_price", "list prices fell", "list prices rose"),
    "rate": _choose("rate", "GPUs ran at cheaper rates", "GPUs ran at dearer rates"),
    "hardware": _write_hardware,
    "volume": _choose("volume", "fewer tokens were served", "more tokens were served"),
    "mix": _choose("mix", "tokens moved to cheaper models or phases", "tokens moved to dearer models or phases"),
    "idle": _choose("idle", "GPUs stood idle less", "GPUs stood idle more"),
    "efficiency": _choose("efficiency", "a token took less busy GPU time", "a token took more busy GPU time"),
    "left_out": _choose("left_out", "hours are known of one week only", "hours are known of one week only"),
}
