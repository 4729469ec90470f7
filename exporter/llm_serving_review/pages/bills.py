"""Against the bill: one sum for each side, and what makes the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import (
    NOTHING,
    hours,
    signed_percent,
    signed_usd_to_the_cent,
    usd_to_the_cent,
)
from llm_serving_review.bills.compare import BillReview, Comparison, MachineRow, Pair
from llm_serving_review.bills.words import REASONS, write_left_out
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.tables import LONGEST_NAME, Cell, Column, Table, name_cell, number_cell

_SHOWN_MACHINES, _SHOWN_MODELS, _PRINTED, _NAMED = 20, 12, 8, 3
_PAIR_COLUMNS = (
    Column("Metered", "USD"), Column("Billed", "USD"), Column("Difference", "USD"), Column("Of metered"),
)  # fmt: skip
_MACHINE, _TYPE, _RUNS = Column("Machine", number=False), Column("Type", number=False), Column("Runs", number=False)
_GPU_HOURS, _HOURS = Column("Metered", "GPU-h"), Column("Billed", "h")
_BOTH_COLUMNS = (_MACHINE, _RUNS, _TYPE, _GPU_HOURS, _HOURS, *_PAIR_COLUMNS[:3], Column("Most of it", number=False))
_BILLED_COLUMNS = (_MACHINE, _TYPE, Column("Account", number=False), _HOURS, _PAIR_COLUMNS[1])
_METERED_COLUMNS = (_MACHINE, _RUNS, _TYPE, _GPU_HOURS, _PAIR_COLUMNS[0])


class Bills(Struct, frozen=True):
    """What the section shows."""

    lead: str  # what was read, or why nothing is compared
    facts: Sequence[tuple[str, str]]  # both sums and their difference, names and amounts
    notes: Sequence[str]  # what a reader must know, in sentences
    tables: Sequence[Table]  # by reason, by model, by machine, without a counterpart, beside
    faults: Sequence[str]  # lines that could not be used, with file, line, column and what to do


def build_bills(review: Review) -> Bills | None:
    """None where no bill is given."""
    found = review.bills
    if found is None:
        return None
    if found.comparison is None:
        return Bills(f"Not compared: {found.whole_refusal}.", (), (), tuple(_list_beside(found)), ())
    shown = found.comparison
    tables = (_list_reasons(shown), _list_models(shown), *_list_machines(shown), *_list_beside(found))
    return Bills(_write_lead(found), tuple(_list_facts(found)), found.notes, tables, tuple(_list_faults(found)))


def _write_lead(found: BillReview) -> str:
    files = count_nouns(found.files, "file")
    lines = f"{' and '.join(found.formats)}: {count_nouns(found.lines, 'line')} of {files}"
    return f"{lines}. Metered is after commitments, with what of them stood unused."


def _list_facts(found: BillReview) -> Iterator[tuple[str, str]]:
    if (shown := found.comparison) is None:
        return
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
    rows = [
        (Cell(REASONS[name], REASONS[name]), number_cell(signed_usd_to_the_cent(value), value))
        for name, value in shown.reasons.parts().items()
        if value
    ]
    total = shown.total.difference_usd
    foot = (Cell("Difference"), number_cell(signed_usd_to_the_cent(total), total))
    return Table("Why the bill differs", (Column("Reason", number=False), Column("Billed more", "USD")), rows, foot)


def _list_models(shown: Comparison) -> Table:
    rows = [(name_cell(name, "(no model)"), *_pair_cells(pair)) for name, pair in shown.models[:_SHOWN_MODELS]]
    return Table(
        "Metered and billed by model", (Column("Model", number=False), *_PAIR_COLUMNS), rows,
        (Cell("Sum"), *_pair_cells(shown.total)), left_out=max(0, len(shown.models) - _SHOWN_MODELS),
    )  # fmt: skip


def _list_machines(shown: Comparison) -> Iterator[Table]:
    """Machines that both sides know, then those of one side, each with the rest as a sum."""
    for side in _SIDES:
        found = [row for row in shown.machines if side.holds(row)]
        if not found:
            continue
        rest = found[_SHOWN_MACHINES:]
        foot: list[Cell] = []
        if rest:
            sums = (Cell(f"{len(rest)} more"), *side.amounts(_sum_pairs(rest)))
            # the amounts stand last but for the reason
            blank = [Cell("") for _ in range(len(side.columns) - len(sums) - side.has_reason)]
            foot = [sums[0], *blank, *sums[1:], *([Cell("")] if side.has_reason else [])]
        rows = [side.cells(row) for row in found[:_SHOWN_MACHINES]]
        yield Table(side.caption, side.columns, rows, foot, printed_rows=_PRINTED)


def _sum_pairs(rows: Sequence[MachineRow]) -> Pair:
    return Pair(fsum(row.pair.metered_usd for row in rows), fsum(row.pair.billed_usd for row in rows))


def _both_cells(row: MachineRow) -> tuple[Cell, ...]:
    return (
        _machine_cell(row), _runs_cell(row), name_cell(row.instance_type, NOTHING),
        number_cell(hours(row.metered_gpu_hours), row.metered_gpu_hours), number_cell(hours(row.billed_hours), row.billed_hours),
        *_pair_cells(row.pair)[:3], Cell(choose_reason(row) or NOTHING, choose_reason(row)),
    )  # fmt: skip


def _billed_cells(row: MachineRow) -> tuple[Cell, ...]:
    return (
        _machine_cell(row), name_cell(row.instance_type, NOTHING), name_cell(row.account, NOTHING),
        number_cell(hours(row.billed_hours), row.billed_hours), _pair_cells(row.pair)[1],
    )  # fmt: skip


def _metered_cells(row: MachineRow) -> tuple[Cell, ...]:
    return (
        _machine_cell(row), _runs_cell(row), name_cell(row.instance_type, NOTHING),
        number_cell(hours(row.metered_gpu_hours), row.metered_gpu_hours), _pair_cells(row.pair)[0],
    )  # fmt: skip


def _machine_cell(row: MachineRow) -> Cell:
    """Of an ARN or a full name the last part; the CSV has all of it."""
    return name_cell(", ".join(part.rsplit("/", 1)[-1] for part in row.name.split(", ")))


def _runs_cell(row: MachineRow) -> Cell:
    more = f" and {len(row.targets) - _NAMED} more" if len(row.targets) > _NAMED else ""
    return name_cell(", ".join(row.targets[:_NAMED]) + more, NOTHING)


def _pair_cells(pair: Pair) -> tuple[Cell, ...]:
    return (
        number_cell(f"{pair.metered_usd:,.2f}", pair.metered_usd),
        number_cell(f"{pair.billed_usd:,.2f}", pair.billed_usd),
        number_cell(signed_usd_to_the_cent(pair.difference_usd).replace("$", ""), pair.difference_usd),
        number_cell(signed_percent(pair.difference_ratio), pair.difference_ratio),
    )


class _Side(Struct, frozen=True):
    """Machines that belong into one table."""

    caption: str
    holds: Callable[[MachineRow], bool]  # whether a machine belongs here
    columns: Sequence[Column]
    cells: Callable[[MachineRow], tuple[Cell, ...]]  # a machine's cells
    amounts: Callable[[Pair], tuple[Cell, ...]]  # the cells of USD
    has_reason: bool = False  # whether the last column says why


_SIDES = (
    _Side(
        "Machines on both sides", lambda row: not row.reasons.not_metered and not row.reasons.not_billed, _BOTH_COLUMNS, _both_cells,
        lambda pair: _pair_cells(pair)[:3], has_reason=True,
    ),
    _Side(
        "Billed, not metered", lambda row: bool(row.reasons.not_metered), _BILLED_COLUMNS, _billed_cells,
        lambda pair: _pair_cells(pair)[1:2],
    ),
    _Side(
        "Metered, not billed", lambda row: bool(row.reasons.not_billed), _METERED_COLUMNS, _metered_cells,
        lambda pair: _pair_cells(pair)[:1],
    ),
)  # fmt: skip


def _list_beside(found: BillReview) -> Iterator[Table]:
    if not found.beside:
        return
    rows = [
        (
            name_cell(what), number_cell(f"{one.lines:,}", one.lines),
            number_cell(signed_usd_to_the_cent(one.effective_usd).replace("$", ""), one.effective_usd),
            number_cell(signed_usd_to_the_cent(one.billed_usd).replace("$", ""), one.billed_usd),
        )
        for what, one in found.beside
    ]  # fmt: skip
    columns = (Column("What", number=False), Column("Lines"), Column("Effective", "USD"), Column("Invoiced", "USD"))
    caption = "Lines of the bill that are in no sum above" if found.comparison is not None else "Lines of the bill"
    yield Table(caption, columns, rows)


def _list_faults(found: BillReview) -> Iterator[str]:
    for fault in found.faults:
        yield make_presentable(str(fault), 3 * LONGEST_NAME)
    if found.fault_count > len(found.faults):
        yield f"{found.fault_count - len(found.faults):,} more"


def list_bill_figures(review: Review) -> Iterator[tuple[str, str, dict[str, str], float | None, str]]:
    """Rows of the CSV: section, item, labels, value, unit."""
    found = review.bills
    if found is None or found.comparison is None:
        return
    shown = found.comparison
    for item, value in (
        ("metered", shown.total.metered_usd), ("billed", shown.total.billed_usd),
        ("difference", shown.total.difference_usd), ("invoiced", shown.invoiced_usd),
    ):  # fmt: skip
        yield "bill", item, {}, value, "USD"
    for name, usd in shown.reasons.parts().items():
        yield "bill_difference", name, {}, usd, "USD"
    for model, pair in shown.models:
        yield "bill_by_model", "metered", {"model_name": model}, pair.metered_usd, "USD"
        yield "bill_by_model", "billed", {"model_name": model}, pair.billed_usd, "USD"
    for row in shown.machines:
        labels = {"node": row.name, "target": " ".join(row.targets)}
        yield "bill_by_machine", "metered", labels, row.pair.metered_usd, "USD"
        yield "bill_by_machine", "billed", labels, row.pair.billed_usd, "USD"
        yield "bill_by_machine", "metered", labels, row.metered_gpu_hours, "GPU-hours"
        yield "bill_by_machine", "billed", labels, row.billed_hours, "hours"
        for name, usd in row.reasons.parts().items():
            if usd:
                yield "bill_difference_by_machine", name, labels, usd, "USD"
    for what, one in found.beside:
        yield "bill_beside", what, {}, float(one.lines), "lines"
        yield "bill_beside", what, {}, one.effective_usd, "USD"
