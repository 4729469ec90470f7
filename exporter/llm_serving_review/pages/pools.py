"""What pools came to, for the page and the CSV: by pool, by model, and what a reader has to know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum

from llm_serving_exporter.model.cost import PoolKind
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import NOTHING, hours, percent, usd, usd_plain
from llm_serving_review.figures.formulas import ratio
from llm_serving_review.figures.pools import PoolRow, Pools
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_LONGEST = 80
_KINDS = {PoolKind.WINDOW: "window", PoolKind.QUANTITY: "quantity", PoolKind.SPEND: "spend"}
_POOL_COLUMNS = (
    Column("Pool", number=False), Column("Committed", "USD"), Column("Used", "USD"), Column("Unused", "USD"),
    Column("Used", "GPU-h"), Column("Without it", "USD"), Column("Saved", "USD"),
)  # fmt: skip
_MODEL_COLUMNS = (
    Column("Model", number=False), Column("GPU-hours"), Column("Covered"), Column("Metered", "USD"), Column("Paid", "USD"),
)  # fmt: skip


class PoolTables(Struct, frozen=True):
    """The section about pools."""

    lead: str  # one sentence: metered, taken off, unused, paid
    pools: Table  # by pool, in the order in which they apply
    models: Table | None  # by model, at the rate of pools; None where no GPU was metered at it
    sentences: Sequence[str]  # how to read them, a sentence each


def write_pool_line(review: Review) -> str:
    """The same in a sentence for the summary; "" without pools."""
    found = review.pools
    if found is None:
        return ""
    saved = fsum(one.saved_usd for one in found.rows)
    unknown = f", {usd(found.unknown_usd)} in hours of gaps" if found.unknown_usd else ""
    came_to = f"saved {usd(saved)}" if saved >= 0 else f"cost {usd(-saved)} more"
    return (
        f"Pools: {usd(found.committed_usd)} committed, {usd(found.unused_usd)} of it unused{unknown}; "
        f"against the price without them they {came_to}."
    )


Figure = tuple[str, str, dict[str, str], float | None, str]


def build_pools(review: Review) -> PoolTables | None:
    """None without pools."""
    found = review.pools
    if found is None:
        return None
    return PoolTables(
        _write_lead(review, found), _tabulate(found), _tabulate_models(found), tuple(_list_sentences(found))
    )


def _write_lead(review: Review, found: Pools) -> str:
    benefit = found.benefit_usd
    moved = f"less {usd(benefit)} that pools take off" if benefit >= 0 else f"with {usd(-benefit)} that pools add"
    parts = [f"{usd(review.now.usd)} of GPU time metered", moved]
    parts.append(f"with {usd(found.unused_usd)} that stood unused")
    if found.unknown_usd:
        parts.append(f"and {usd(found.unknown_usd)} of hours in gaps")
    paid = (review.now.usd or 0.0) + found.effect_usd
    return f"{', '.join(parts)}: {usd(paid)}."


def _tabulate(found: Pools) -> Table:
    rows = [_row(one) for one in found.rows[:MOST_ROWS]]
    sums = (found.committed_usd, fsum(one.used_usd for one in found.rows), found.unused_usd)
    saved = fsum(one.saved_usd for one in found.rows)
    foot = (
        Cell("Sum"), *(number_cell(usd_plain(value), value) for value in sums),
        number_cell(hours(fsum(one.used_gpu_hours for one in found.rows)), None),
        number_cell(usd_plain(found.uncommitted_usd), found.uncommitted_usd), number_cell(usd_plain(saved), saved),
    )  # fmt: skip
    return Table("Commitments", _POOL_COLUMNS, rows, foot, left_out=len(found.rows) - len(rows))


def _row(one: PoolRow) -> Sequence[Cell]:
    name = make_presentable(one.pool.name, _LONGEST)
    used = hours(one.used_gpu_hours)
    aside = "" if one.committed_gpu_hours is None else f"of {hours(one.committed_gpu_hours)}"
    return (
        Cell(name, one.pool.name, aside=_KINDS[one.pool.kind]),
        number_cell(usd_plain(one.committed_usd), one.committed_usd),
        number_cell(usd_plain(one.used_usd), one.used_usd),
        number_cell(usd_plain(one.unused_usd), one.unused_usd),
        Cell(used, one.used_gpu_hours, aside=aside),
        number_cell(usd_plain(one.uncommitted_usd), one.uncommitted_usd),
        number_cell(usd_plain(one.saved_usd), one.saved_usd, "" if one.saved_usd >= 0 else "bad"),
    )


def _tabulate_models(found: Pools) -> Table | None:
    if not found.models:
        return None
    rows = [
        (
            name_cell(one.model_name),
            number_cell(hours(one.gpu_hours), one.gpu_hours),
            number_cell(percent(ratio(one.covered_gpu_hours, one.gpu_hours), 0), one.covered_gpu_hours),
            number_cell(usd_plain(one.usd), one.usd),
            number_cell(usd_plain(one.paid_usd), one.paid_usd),
        )
        for one in found.models[:MOST_ROWS]
    ]
    usd_, paid = fsum(one.usd for one in found.models), fsum(one.paid_usd for one in found.models)
    foot = (
        Cell("Sum"), Cell(hours(fsum(one.gpu_hours for one in found.models))), Cell(NOTHING), number_cell(usd_plain(usd_), usd_),
        number_cell(usd_plain(paid), paid),
    )  # fmt: skip
    return Table("Models after commitments", _MODEL_COLUMNS, rows, foot, left_out=len(found.models) - len(rows))


def _list_sentences(found: Pools) -> Iterator[str]:
    yield "By UTC hour, use it or lose it: windows first, then quantities, then spends, the highest discount first."
    if found.models:
        yield "What a pool covers is shared by GPU-hours over the models that used it; what stood unused is no model's."
    if found.unknown_usd:
        yield (
            f"{usd(found.unknown_usd)} of commitments lie in hours in which data of a target are missing: paid, and nobody knows how "
            "much of it was used."
        )


def list_pool_figures(review: Review) -> Iterator[Figure]:
    """Rows of the CSV: section, item, labels, value, unit."""
    found = review.pools
    if found is None:
        return
    for one in found.rows:
        labels = {"rate": one.pool.name, "basis": one.pool.kind.value, "gpu_name": one.pool.use.gpu_name}
        for item, value in (
            ("committed", one.committed_usd), ("used", one.used_usd), ("unused", one.unused_usd), ("unknown", one.unknown_usd),
            ("uncommitted_price", one.uncommitted_usd), ("benefit", one.benefit_usd), ("saved", one.saved_usd),
        ):  # fmt: skip
            yield "pool", item, labels, value, "USD"
        for item, number in (
            ("committed", one.committed_gpu_hours), ("used", one.used_gpu_hours), ("unused", one.unused_gpu_hours),
        ):  # fmt: skip
            yield "pool", item, labels, number, "GPU-hours"
    for model in found.models:
        labels = {"model_name": model.model_name}
        yield "pool_models", "metered", labels, model.usd, "USD"
        yield "pool_models", "after_commitments", labels, model.paid_usd, "USD"
        yield "pool_models", "gpu_hours", labels, model.gpu_hours, "GPU-hours"
        yield "pool_models", "covered", labels, model.covered_gpu_hours, "GPU-hours"
    for move in found.moves:
        yield "pool", "on_demand_that_would_fit", {"rate": move.pool}, move.gpu_hours, "GPU-hours"
        yield "pool", "on_demand_that_would_fit", {"rate": move.pool}, move.usd, "USD"
    yield "invoice", "pools_benefit", {}, -found.benefit_usd, "USD"
    yield "invoice", "pools_unused", {}, found.unused_usd, "USD"
    yield "invoice", "pools_unknown", {}, found.unknown_usd, "USD"
