"""Against the bill, and what pools came to: sums of each side, and what makes the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import fsum
from typing import Any

from llm_serving_exporter.model.cost import PoolKind
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import (
    NOTHING,
    hours,
    percent,
    signed_percent,
    signed_usd_to_the_cent,
    usd,
    usd_plain,
    usd_to_the_cent,
)
from llm_serving_review.bills.compare import BillReview, Comparison, MachineRow, Pair
from llm_serving_review.bills.review import REASONS, write_left_out
from llm_serving_review.figures.pools import Pools
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.totals import ratio
from llm_serving_review.pages.tables import (
    BLANK,
    LONGEST_NAME,
    NONE,
    Cell,
    Column,
    Shown,
    Table,
    make_table,
    mark,
    name_column,
    write_cents,
)

# --- What pools came to: by pool, by model, and what a reader has to know of them.


_LONGEST = 80
_KINDS = {PoolKind.WINDOW: "window", PoolKind.QUANTITY: "quantity", PoolKind.SPEND: "spend"}
_POOL_COLUMNS = (
    name_column("Pool", longest=_LONGEST), *(Column(title, "USD", usd_plain) for title in ("Committed", "Used", "Unused")),
    Column("Used", "GPU-h", hours), Column("Without it", "USD", usd_plain), Column("Saved", "USD", usd_plain),
)  # fmt: skip
_POOL_MODEL_COLUMNS = (
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
        lead=_write_pool_lead(review, found),
        pools=_tabulate_pools(found),
        models=_tabulate_pool_models(found),
        sentences=tuple(_list_pool_sentences(found)),
    )


def _write_pool_lead(review: Review, found: Pools) -> str:
    benefit = found.benefit_usd
    moved = f"less {usd(benefit)} that pools take off" if benefit >= 0 else f"with {usd(-benefit)} that pools add"
    parts = [f"{usd(review.now.usd)} of GPU time metered", moved]
    parts.append(f"with {usd(found.unused_usd)} that stood unused")
    if found.unknown_usd:
        parts.append(f"and {usd(found.unknown_usd)} of hours in gaps")
    paid = (review.now.usd or 0.0) + found.effect_usd
    return f"{', '.join(parts)}: {usd(paid)}."


def _tabulate_pools(found: Pools) -> Table:
    rows = [
        (
            mark(one.pool.name, aside=_KINDS[one.pool.kind]), one.committed_usd, one.used_usd, one.unused_usd,
            mark(one.used_gpu_hours, aside="" if one.committed_gpu_hours is None else f"of {hours(one.committed_gpu_hours)}"),
            one.uncommitted_usd, mark(one.saved_usd, "" if one.saved_usd >= 0 else "bad"),
        )
        for one in found.rows
    ]  # fmt: skip
    foot = (
        Cell("Sum"), found.committed_usd, fsum(one.used_usd for one in found.rows), found.unused_usd,
        Cell(hours(fsum(one.used_gpu_hours for one in found.rows))), found.uncommitted_usd, fsum(one.saved_usd for one in found.rows),
    )  # fmt: skip
    return make_table("Commitments", _POOL_COLUMNS, rows, foot)


def _tabulate_pool_models(found: Pools) -> Table | None:
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
    return make_table("Models after commitments", _POOL_MODEL_COLUMNS, rows, foot) if rows else None


def _list_pool_sentences(found: Pools) -> Iterator[str]:
    yield "By UTC hour, use it or lose it: windows first, then quantities, then spends, the highest discount first."
    if found.models:
        yield "What a pool covers is shared by GPU-hours over the models that used it; what stood unused is no model's."
    if found.unknown_usd:
        yield (
            f"{usd(found.unknown_usd)} of commitments lie in hours in which data of a target are missing: paid, and nobody knows how "
            "much of it was used."
        )


# --- Against the bill: one sum for each side, and what makes the difference.


_SHOWN_MACHINES, _SHOWN_MODELS, _PRINTED, _NAMED = 20, 12, 8, 3
_PAIR_COLUMNS = (
    Column("Metered", "USD", "{:,.2f}".format), Column("Billed", "USD", "{:,.2f}".format), Column("Difference", "USD", write_cents),
    Column("Of metered", "", signed_percent),
)  # fmt: skip
_MACHINE, _TYPE, _RUNS = name_column("Machine"), name_column("Type", NOTHING), name_column("Runs", NOTHING)
_GPU_HOURS, _HOURS = Column("Metered", "GPU-h", hours), Column("Billed", "h", hours)
_BOTH_COLUMNS = (_MACHINE, _RUNS, _TYPE, _GPU_HOURS, _HOURS, *_PAIR_COLUMNS[:3], name_column("Most of it", NOTHING))
_BILLED_COLUMNS = (_MACHINE, _TYPE, name_column("Account", NOTHING), _HOURS, _PAIR_COLUMNS[1])
_METERED_COLUMNS = (_MACHINE, _RUNS, _TYPE, _GPU_HOURS, _PAIR_COLUMNS[0])


def build_bills(review: Review) -> Shown | None:
    """None where no bill is given."""
    found = review.bills
    if found is None:
        return None
    if found.comparison is None:
        lead = f"Not compared: {found.whole_refusal}."
        return Shown(lead=lead, facts=(), notes=(), tables=tuple(_list_beside(found)), faults=())
    shown = found.comparison
    tables = (_list_reasons(shown), _list_models(shown), *_list_machines(shown), *_list_beside(found))
    lines = f"{' and '.join(found.formats)}: {count_nouns(found.lines, 'line')} of {count_nouns(found.files, 'file')}"
    faults = [make_presentable(str(fault), 3 * LONGEST_NAME) for fault in found.faults]
    if found.fault_count > len(faults):
        faults.append(f"{found.fault_count - len(faults):,} more")
    return Shown(
        lead=f"{lines}. Metered is after commitments, with what of them stood unused.", facts=tuple(_list_facts(found, shown)),
        notes=found.notes, tables=tables, faults=faults,
    )  # fmt: skip


def _list_facts(found: BillReview, shown: Comparison) -> Iterator[tuple[str, str]]:
    total = shown.total
    yield "Metered", usd_to_the_cent(total.metered_usd)
    yield f"Billed, effective{' (preliminary)' if found.preliminary else ''}", usd_to_the_cent(total.billed_usd)
    yield "Difference", f"{signed_usd_to_the_cent(total.difference_usd)} ({signed_percent(total.difference_ratio)})"
    yield "The same lines as invoiced (BilledCost)", usd_to_the_cent(shown.invoiced_usd)


def write_headline(found: BillReview) -> str:
    """Both sums and their difference in one sentence."""
    if found.comparison is None:
        return f"The bill is not compared: {found.whole_refusal}"
    total = found.comparison.total
    mark = "Preliminary: " if found.preliminary else ""
    formats = " and ".join(found.formats)
    name, value = max(found.comparison.reasons.parts().items(), key=lambda item: abs(item[1]))
    most = f" Most of it: {REASONS[name]}, {signed_usd_to_the_cent(value)}." if abs(value) >= 0.005 else ""
    left_out = f" {one}" if (one := write_left_out(found)) else ""
    return (
        f"{mark}metered {usd_to_the_cent(total.metered_usd)} after commitments, billed {usd_to_the_cent(total.billed_usd)} effective, "
        f"difference {signed_usd_to_the_cent(total.difference_usd)} ({signed_percent(total.difference_ratio)}). The same lines as "
        f"invoiced (BilledCost): {usd_to_the_cent(found.comparison.invoiced_usd)}. {formats}, {count_nouns(found.lines, 'line')}."
        f"{most}{left_out}"
    )


def choose_reason(row: MachineRow) -> str:
    """The reason with most of a machine's difference; "" for none."""
    name, value = max(row.reasons.parts().items(), key=lambda item: abs(item[1]))
    return REASONS[name] if abs(value) >= 0.005 else ""


def _list_reasons(shown: Comparison) -> Table:
    rows = [(REASONS[name], value) for name, value in shown.reasons.parts().items() if value]
    columns = (name_column("Reason"), Column("Billed more", "USD", signed_usd_to_the_cent))
    return make_table("Why the bill differs", columns, rows, (Cell("Difference"), shown.total.difference_usd))


def _list_models(shown: Comparison) -> Table:
    rows = [(name, *_list_pair(pair)) for name, pair in shown.models]
    columns, foot = (name_column("Model", "(no model)"), *_PAIR_COLUMNS), (Cell("Sum"), *_list_pair(shown.total))
    return make_table("Metered and billed by model", columns, rows, foot, most=_SHOWN_MODELS)


def _list_machines(shown: Comparison) -> Iterator[Table]:
    """Machines that both sides know, then those of one side, each with the rest as a sum."""
    for side in _SIDES:
        found = [row for row in shown.machines if side.holds(row)]
        if not found:
            continue
        rest = found[_SHOWN_MACHINES:]
        foot: list[Any] = []
        if rest:
            sums = Pair(fsum(row.pair.metered_usd for row in rest), fsum(row.pair.billed_usd for row in rest))
            # the amounts stand last but for the reason
            of_reason = [BLANK] if side.has_reason else []
            amounts = list(_list_pair(sums)[side.amounts])
            blank = [BLANK] * (len(side.columns) - 1 - len(amounts) - len(of_reason))
            foot = [Cell(f"{len(rest)} more"), *blank, *amounts, *of_reason]
        rows = [side.list_values(row) for row in found[:_SHOWN_MACHINES]]
        yield make_table(side.caption, side.columns, rows, foot, printed=_PRINTED)


def _list_pair(pair: Pair) -> tuple[float | None, ...]:
    return pair.metered_usd, pair.billed_usd, pair.difference_usd, pair.difference_ratio


def _write_machine(row: MachineRow) -> str:
    """Of an ARN or a full name the last part; the CSV has all of it."""
    return ", ".join(part.rsplit("/", 1)[-1] for part in row.name.split(", "))


def _write_targets(row: MachineRow) -> str:
    more = f" and {len(row.targets) - _NAMED} more" if len(row.targets) > _NAMED else ""
    return ", ".join(row.targets[:_NAMED]) + more


class _Side(Struct, frozen=True):
    """Machines that belong into one table."""

    caption: str
    holds: Callable[[MachineRow], bool]  # whether a machine belongs here
    columns: Sequence[Column]
    list_values: Callable[[MachineRow], Sequence[Any]]  # a machine's row
    amounts: slice  # which of a pair's amounts stand in it
    has_reason: bool = False  # whether the last column says why


_SIDES = (
    _Side(
        "Machines on both sides", lambda row: not row.reasons.not_metered and not row.reasons.not_billed, _BOTH_COLUMNS,
        lambda row: (
            _write_machine(row), _write_targets(row), row.instance_type, row.metered_gpu_hours, row.billed_hours,
            *_list_pair(row.pair)[:3], choose_reason(row),
        ),
        slice(3), has_reason=True,
    ),
    _Side(
        "Billed, not metered", lambda row: bool(row.reasons.not_metered), _BILLED_COLUMNS,
        lambda row: (_write_machine(row), row.instance_type, row.account, row.billed_hours, row.pair.billed_usd), slice(1, 2),
    ),
    _Side(
        "Metered, not billed", lambda row: bool(row.reasons.not_billed), _METERED_COLUMNS,
        lambda row: (_write_machine(row), _write_targets(row), row.instance_type, row.metered_gpu_hours, row.pair.metered_usd), slice(1),
    ),
)  # fmt: skip


def _list_beside(found: BillReview) -> Iterator[Table]:
    if found.beside:
        columns = (
            name_column("What"), Column("Lines", "", "{:,}".format), Column("Effective", "USD", write_cents),
            Column("Invoiced", "USD", write_cents),
        )  # fmt: skip
        caption = "Lines of the bill that are in no sum above" if found.comparison is not None else "Lines of the bill"
        rows = [(what, one.lines, one.effective_usd, one.billed_usd) for what, one in found.beside]
        yield make_table(caption, columns, rows)
