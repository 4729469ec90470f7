"""Pools over a week: what each came to, what models cost after them, and which on-demand load belongs onto them. Pure.

Use it or lose it, by UTC hour. `pool_hours` says in which order pools apply and what they cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, RateKind
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.render.numbers import hours as write_hours
from llm_serving_exporter.render.numbers import usd
from llm_serving_review.evidence.usage import Book, Gap, Hours, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.metered_hours import MeteredHour, measure_metered_hours
from llm_serving_review.figures.outlook import Seen
from llm_serving_review.figures.pool_hours import (
    Doubts,
    Move,
    OpenUse,
    PoolHour,
    apply_to_hour,
    find_card,
    find_hidden,
    find_moves,
    is_hidden,
    order_pools,
)
from llm_serving_review.figures.rates import Commitment, find_rates_of_kind
from llm_serving_review.tables.facts import NOW, FactTable
from llm_serving_review.tables.sums import group_by_key, sum_by_key

RATE = RateKind.POOL.value
# fewer GPU-hours read as 0.0
_LEAST_HOURS = 0.05


class PoolRow(Struct, frozen=True):
    """A pool over the week. Its committed USD are used, unused or unknown."""

    pool: Pool  # as the price file states it
    committed_usd: float  # paid, used or not
    used_usd: float  # part that covers use
    unused_usd: float  # part that nobody used
    unknown_usd: float  # part of hours in which a gap hides whether it was used
    committed_gpu_hours: float | None  # GPU-hours paid for; None of a spend
    used_gpu_hours: float  # GPU-hours that it covers
    unused_gpu_hours: float | None  # GPU-hours that nobody used; None of a spend
    uncommitted_usd: float  # what the covered GPU-hours would have cost without it

    @property
    def benefit_usd(self) -> float:
        """What it took off the covered use."""
        return self.uncommitted_usd - self.used_usd

    @property
    def saved_usd(self) -> float:
        """The same less what stood unused: whether it paid. Hours that are unknown are left out."""
        return self.benefit_usd - self.unused_usd


class PoolModel(Struct, frozen=True):
    """A model whose GPUs are metered at the rate of pools."""

    model_name: str  # "" where it is unknown
    gpu_hours: float  # at that rate
    covered_gpu_hours: float  # of these, covered by a pool
    usd: float  # at the uncommitted price
    paid_usd: float  # after commitments; unused commitments are nobody's


class Pools(Struct, frozen=True):
    """What pools came to in a week."""

    rows: tuple[PoolRow, ...]  # those in force in the week, in the order in which they apply
    models: tuple[PoolModel, ...]  # the most expensive after commitments first
    hours: tuple[MeteredHour, ...]  # every piece of the week's GPU time, with what it cost after commitments
    moves: tuple[Move, ...]  # on-demand load that would fit onto what stood unused, by pool
    notes: tuple[str, ...] = ()  # what a reader has to know, in sentences
    effect_by_hour: Hours = ()  # `effect_usd` by hour of the week; None before the first data of all
    # USD that are committed and cover no use, also where a gap hides it: by UTC hour
    idle_usd: Mapping[float, float] = field(default_factory=dict)
    uses: tuple[OpenUse, ...] = ()  # every piece of GPU time at the rate of pools, with what no pool covers of it

    @property
    def committed_usd(self) -> float:
        """Paid, used or not."""
        return fsum(row.committed_usd for row in self.rows)

    @property
    def uncommitted_usd(self) -> float:
        """What the covered use would have cost without pools: part of the metered GPU time."""
        return fsum(row.uncommitted_usd for row in self.rows)

    @property
    def benefit_usd(self) -> float:
        """What pools took off the metered GPU time."""
        return fsum(row.benefit_usd for row in self.rows)

    @property
    def unused_usd(self) -> float:
        """What was committed and not used."""
        return fsum(row.unused_usd for row in self.rows)

    @property
    def unknown_usd(self) -> float:
        """What was committed in hours in which a gap hides its use. It is paid all the same."""
        return fsum(row.unknown_usd for row in self.rows)

    @property
    def effect_usd(self) -> float:
        """What is to be added to the metered GPU time for what is paid: less the benefit, with what is not used."""
        return self.committed_usd - self.uncommitted_usd


# where the price files state none that is in force
NO_POOLS = Pools((), (), (), ())


def measure_pools(
    usage: Usage,
    book: Book,
    week: Week,
    stated: PoolBook | None,
    identity: Sequence[str] = (),
    gaps: Iterable[Gap] = (),
    begins: int = 0,
    bought: Iterable[Commitment] = (),
) -> Pools | None:
    """Applies pools to a week; None where the price file states none that is in force in it.

    They float over all fleets. `begins`: hours at the beginning of the week that are in no figure, neither use nor commitment.
    `bought`: commitments of rates, which on-demand load is promised to first.
    """
    if stated is None or not stated.pools:
        return None
    pieces = measure_metered_hours(usage, book, week, identity, stated)
    at_rate = [one for one in pieces if one.rate == RATE and one.gpu_hours > 0]
    uses: dict[float, list[OpenUse]] = {}
    for one in at_rate:
        uses.setdefault(one.utc_begin, []).append(OpenUse(one, one.gpu_hours))
    hidden = find_hidden(stated.pools, at_rate, identity, gaps)
    sums = {pool.name: _Sums() for pool in stated.pools}
    begin = week.hours[min(begins, len(week.hours) - 1)].begin
    at = begin // HOUR_SECONDS * HOUR_SECONDS
    applied: list[PoolHour] = []
    while at < week.end:
        for pool in order_pools(stated.pools):
            until = min(week.end, at + HOUR_SECONDS)
            found = apply_to_hour(pool, uses.get(at, ()), at, max(begin, at), until)
            if found is not None:
                sums[pool.name].add(found, hidden=is_hidden(hidden[pool.name], at))
                applied.append(found)
        at += HOUR_SECONDS
    rows = tuple(_make_row(pool, sums[pool.name]) for pool in order_pools(stated.pools) if sums[pool.name].hours)
    if not rows:
        return None
    after = _replace_paid(pieces, uses)
    on_demand = find_rates_of_kind(book, RateKind.ON_DEMAND)
    doubts = Doubts(stated.pools)
    # what may be on such a node already is not to be moved there
    elsewhere = {at: [use for use in each if not doubts.has(use.piece)] for at, each in uses.items()}
    unused = {row.pool.name: sums[row.pool.name].unused_by_hour for row in rows if row.pool.kind is not PoolKind.SPEND}
    return Pools(
        rows,
        _sum_models(uses),
        after,
        find_moves([row.pool for row in rows], unused, pieces, elsewhere, on_demand, _sum_promised(bought, week)),
        tuple(_write_notes(doubts, uses)),
        _spread_effect(
            sum_by_key((one.utc_begin, one.committed_usd - one.uncommitted_usd) for one in applied), week, begin
        ),
        sum_by_key((one.utc_begin, one.committed_usd - one.used_usd) for one in applied),
        tuple(use for each in uses.values() for use in each),
    )


def sum_effect_seen(pools: Pools, seen: Seen, begins: int) -> float:
    """`effect_usd` in the part of the week that is seen: what is committed in hours of a gap belongs to those as much as to the others."""
    known = seen.of - begins
    return 0.0 if known <= 0 else pools.committed_usd * min(1.0, seen.hours / known) - pools.uncommitted_usd


def note_pools(facts: FactTable, pools: Pools | None, stated: PoolBook | None) -> tuple[str, ...]:
    """What a reader has to know, in sentences."""
    if pools is not None:
        return pools.notes
    metered = facts.sum_total(NOW, "quantity = 'cost' and rate = :rate", rate=RATE)
    if not metered:
        return ()
    why = "Name the price file in the settings (price_file) or by --price-file."
    if stated is not None:
        why = "None of the price file is in force in this week." if stated.pools else "The price file states none."
    return (
        f"{usd(metered)} are metered at the rate pool, at the uncommitted price: no pool was taken off them. {why}",
    )


class _Sums(Struct):
    """A pool's hours, added up."""

    hours: list[PoolHour] = field(default_factory=list)  # those in which it is in force
    unknown: list[tuple[float, float]] = field(default_factory=list)  # USD and GPU-hours of each that is not known
    unused_by_hour: dict[float, float] = field(default_factory=dict)  # GPU-hours that nobody used, by hour

    def add(self, hour: PoolHour, *, hidden: bool) -> None:
        """An hour. `hidden`: whether a gap may hide use."""
        self.hours.append(hour)
        unused = hour.committed_gpu_hours - hour.covered_gpu_hours if hour.committed_gpu_hours else 0.0
        if hidden:
            self.unknown.append((hour.committed_usd - hour.used_usd, unused))
        elif unused > 0:
            self.unused_by_hour[hour.utc_begin] = unused


def _make_row(pool: Pool, sums: _Sums) -> PoolRow:
    committed, used = fsum(one.committed_usd for one in sums.hours), fsum(one.used_usd for one in sums.hours)
    covered = fsum(one.covered_gpu_hours for one in sums.hours)
    gpu_hours = None if pool.kind is PoolKind.SPEND else fsum(one.committed_gpu_hours for one in sums.hours)
    unknown_usd, unknown_gpu_hours = (fsum(one[at] for one in sums.unknown) for at in (0, 1))
    return PoolRow(
        pool,
        committed,
        used,
        max(0.0, committed - used - unknown_usd),
        unknown_usd,
        gpu_hours,
        covered,
        None if gpu_hours is None else max(0.0, gpu_hours - covered - unknown_gpu_hours),
        fsum(one.uncommitted_usd for one in sums.hours),
    )


def _sum_promised(bought: Iterable[Commitment], week: Week) -> dict[tuple[float, str], float]:
    """GPU-hours of on-demand load that rates' commitments take over, by UTC hour and card. An hour of the week counts where it begins."""
    return sum_by_key(
        ((week.hours[index].begin // HOUR_SECONDS * HOUR_SECONDS, find_card(kind)), hours)
        for one in bought
        for (index, kind), hours in one.movable_by_hour.items()
    )


def _spread_effect(effect: Mapping[float, float], week: Week, begin: float) -> Hours:
    """Amounts by UTC hour -> by hour of the week, in proportion to the time that both have."""
    found: list[float | None] = []
    for hour in week.hours:
        if hour.end <= begin:
            found.append(None)
            continue
        usd, at = [], hour.begin // HOUR_SECONDS * HOUR_SECONDS
        while at < hour.end:
            since, until = max(at, begin), min(at + HOUR_SECONDS, week.end)
            both = max(0.0, min(hour.end, until) - max(hour.begin, since))
            usd.append(effect.get(at, 0.0) * both / (until - since))
            at += HOUR_SECONDS
        found.append(fsum(usd))
    return tuple(found)


def _replace_paid(pieces: Iterable[MeteredHour], uses: Mapping[float, list[OpenUse]]) -> tuple[MeteredHour, ...]:
    paid = {id(use.piece): use.paid_usd for each in uses.values() for use in each}
    return tuple(replace(one, paid_usd=paid[id(one)]) if id(one) in paid else one for one in pieces)


def _sum_models(uses: Mapping[float, list[OpenUse]]) -> tuple[PoolModel, ...]:
    amounts = group_by_key(
        (use.piece.model_name, (use.piece.gpu_hours, use.piece.gpu_hours - use.left, use.piece.usd, use.paid_usd))
        for each in uses.values()
        for use in each
    )
    rows = [PoolModel(name, *map(fsum, zip(*each, strict=True))) for name, each in amounts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.paid_usd, row.model_name)))


def _write_notes(doubts: Doubts, uses: Mapping[float, list[OpenUse]]) -> Iterable[str]:
    """What keeps a pool from covering what it may be meant for."""
    unknown = fsum(use.left for each in uses.values() for use in each if use.left > 0 and doubts.has(use.piece))
    if unknown >= _LEAST_HOURS:
        yield (
            f"{write_hours(unknown)} GPU-hours at the rate pool ran on nodes whose region, zone or instance type is not known: pools that "
            "name one do not cover them. Describe the nodes in the price file (nodes), or let Kubernetes discovery read them (node_data)."
        )
