"""The page's tables of models: what tokens cost, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_exporter.render.numbers import amount, percent, signed_percent, signed_usd, usd_plain
from llm_serving_exporter.report.figures.formulas import change, ratio
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.figures.rows import ModelRow
from llm_serving_exporter.report.figures.totals import TOKEN_PHASES, Totals
from llm_serving_exporter.report.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_PRINTED_MODELS = 8
# a change of a unit cost below 3 % has no colour
_LEAST_COLOURED_CHANGE = 0.03
# a cause's part below it, of the unit cost, reads as 0
_LEAST_PART = 5e-4
_COST_COLUMNS = (
    Column("Model", number=False), Column("Spend", "USD"), Column("Change"), Column("Share"), Column("Tokens", "in + out"),
    Column("Blended", "USD/M"), Column("Change"), Column("Prefill", "busy, $/M"), Column("Prefill", "with idle, $/M"),
    Column("Decode", "busy, $/M"), Column("Decode", "with idle, $/M"), Column("Requests", "USD/1,000"), Column("Tokens", "per USD"),
)  # fmt: skip
_REASON_COLUMNS = (
    Column("Model", number=False), Column("Price", "USD/M computed"), Column("Mix", "USD/M computed"),
    Column("Utilisation", "USD/M computed"),
    Column("Bandwidth", "of ceiling"), Column("Batch", "of limit"), Column("From cache", "of prompt"), Column("Idle", "of spend"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelTables:
    """Both tables have the same models in the same order."""

    # unit costs by model
    costs: Table
    # what moved each model's unit cost, and how full its GPUs were
    reasons: Table


def build_model_tables(review: Review) -> ModelTables:
    """Unit costs by model, the most expensive first, then what they are made of."""
    models = review.models[:MOST_ROWS]
    foot = tuple(_cost_cells(review, "All", review.now, review.earlier)) if len(models) > 1 else ()
    costs = [tuple(_cost_cells(review, row.model_name, row.now, row.before)) for row in models]
    reasons = [tuple(_reason_cells(row)) for row in models]
    left_out = len(review.models) - len(models)
    return ModelTables(
        Table("Cost by model", _COST_COLUMNS, costs, foot, _PRINTED_MODELS, left_out),
        Table("What changed each model's unit cost", _REASON_COLUMNS, reasons, (), _PRINTED_MODELS, left_out),
    )


def usd_per_thousand_requests(sums: Totals) -> float | None:
    """USD of a thousand requests; None without requests."""
    return None if sums.usd_per_request is None else 1000 * sums.usd_per_request


def _cost_cells(review: Review, name: str, now: Totals, before: Totals) -> Iterator[Cell]:
    yield name_cell(name)
    yield number_cell(usd_plain(now.usd), now.usd)
    moved = change(now.usd, before.usd)
    yield number_cell(signed_percent(moved), moved)
    share = ratio(now.usd, review.now.usd)
    yield number_cell(percent(share), share)
    yield number_cell(amount(now.tokens), now.tokens)
    unit, earlier = now.blended_usd_per_million, before.blended_usd_per_million
    yield number_cell(usd_plain(unit), unit)
    moved = change(unit, earlier)
    kind = "" if moved is None or abs(moved) < _LEAST_COLOURED_CHANGE else "bad" if moved > 0 else "good"
    yield number_cell(signed_percent(moved), moved, kind)
    for phase in TOKEN_PHASES:
        for value in (now.busy_usd_per_million(phase), now.allocated_usd_per_million(phase)):
            yield number_cell(usd_plain(value), value)
    thousand = usd_per_thousand_requests(now)
    yield number_cell(usd_plain(thousand), thousand)
    yield number_cell(amount(now.tokens_per_usd), now.tokens_per_usd)


def _reason_cells(row: ModelRow) -> Iterator[Cell]:
    yield name_cell(row.model_name)
    split = row.split
    for value in (None, None, None) if split is None else (split.price, split.mix, split.utilisation):
        yield number_cell(_write_part(value, row.now.blended_usd_per_million), value)
    for value in (row.bandwidth_ratio, row.batch_ratio, row.now.cached_ratio, row.now.share("idle")):
        yield number_cell(percent(value, 0), value)


def _write_part(value: float | None, unit_cost: float | None) -> str:
    """A cause's part in USD per million; "0" where the unit cost as it is shown has no such digit."""
    if value is not None and unit_cost and abs(value) < _LEAST_PART * unit_cost:
        return "0"
    return signed_usd(value).replace("$", "")
