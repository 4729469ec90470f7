"""What pools came to: by pool, by model, and what a reader has to know of them."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from llm_serving_exporter.model.cost import PoolKind
from llm_serving_exporter.render.numbers import hours, percent, usd, usd_plain
from llm_serving_review.figures.formulas import ratio
from llm_serving_review.figures.pools import Pools
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.tables import NONE, Cell, Column, Marked, Shown, Table, make_table, name_column

_LONGEST = 80
_KINDS = {PoolKind.WINDOW: "window", PoolKind.QUANTITY: "quantity", PoolKind.SPEND: "spend"}
_POOL_COLUMNS = (
    name_column("Pool", longest=_LONGEST), *(Column(title, "USD", usd_plain) for title in ("Committed", "Used", "Unused")),
    Column("Used", "GPU-h", hours), Column("Without it", "USD", usd_plain), Column("Saved", "USD", usd_plain),
)  # fmt: skip
_MODEL_COLUMNS = (
    name_column("Model"), Column("GPU-hours", "", hours), Column("Covered"), Column("Metered", "USD", usd_plain),
    Column("Paid", "USD", usd_plain),
)  # fmt: skip


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


def build_pools(review: Review) -> Shown | None:
    """None without pools."""
    found = review.pools
    if found is None:
        return None
    return Shown(
        lead=_write_lead(review, found), pools=_tabulate(found), models=_tabulate_models(found), sentences=tuple(_list_sentences(found))
    )  # fmt: skip


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
    rows = [
        (
            Marked(one.pool.name, aside=_KINDS[one.pool.kind]), one.committed_usd, one.used_usd, one.unused_usd,
            Marked(one.used_gpu_hours, aside="" if one.committed_gpu_hours is None else f"of {hours(one.committed_gpu_hours)}"),
            one.uncommitted_usd, Marked(one.saved_usd, "" if one.saved_usd >= 0 else "bad"),
        )
        for one in found.rows
    ]  # fmt: skip
    foot = (
        Cell("Sum"), found.committed_usd, fsum(one.used_usd for one in found.rows), found.unused_usd,
        Cell(hours(fsum(one.used_gpu_hours for one in found.rows))), found.uncommitted_usd, fsum(one.saved_usd for one in found.rows),
    )  # fmt: skip
    return make_table("Commitments", _POOL_COLUMNS, rows, foot)


def _tabulate_models(found: Pools) -> Table | None:
    rows = [
        (
            one.model_name, one.gpu_hours, Cell(percent(ratio(one.covered_gpu_hours, one.gpu_hours), 0), one.covered_gpu_hours),
            one.usd, one.paid_usd,
        )
        for one in found.models
    ]  # fmt: skip
    foot = (
        Cell("Sum"), Cell(hours(fsum(one.gpu_hours for one in found.models))), NONE, fsum(one.usd for one in found.models),
        fsum(one.paid_usd for one in found.models),
    )  # fmt: skip
    return make_table("Models after commitments", _MODEL_COLUMNS, rows, foot) if rows else None


def _list_sentences(found: Pools) -> Iterator[str]:
    yield "By UTC hour, use it or lose it: windows first, then quantities, then spends, the highest discount first."
    if found.models:
        yield "What a pool covers is shared by GPU-hours over the models that used it; what stood unused is no model's."
    if found.unknown_usd:
        yield (
            f"{usd(found.unknown_usd)} of commitments lie in hours in which data of a target are missing: paid, and nobody knows how "
            "much of it was used."
        )
