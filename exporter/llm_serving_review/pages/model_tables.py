"""The page's tables of models: what tokens cost, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import (
    amount,
    percent,
    signed_percent,
    signed_usd_to_the_cent,
    usd_plain,
)
from llm_serving_review.figures.causes import CAUSE_WORDS
from llm_serving_review.figures.formulas import change, ratio
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.rows import ModelRow
from llm_serving_review.figures.split import Split
from llm_serving_review.figures.totals import TOKEN_PHASES, Totals
from llm_serving_review.pages.links import COST, MODEL_VARIABLE, link_week
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_PRINTED_MODELS, _PRINTED_CHANGES, _PRINTED_REASONS = 8, 5, 3
# a change of a unit cost below 3 % has no colour
_LEAST_COLOURED_CHANGE = 0.03
_ALL = "All"
_COST_COLUMNS = (
    Column("Model", number=False), Column("Spend", "USD"), Column("Change"), Column("Share"), Column("Tokens", "in + out"),
    Column("All tokens", "USD/M"), Column("Change"), Column("Prefill", "busy, $/M"), Column("Prefill", "with idle, $/M"),
    Column("Decode", "busy, $/M"), Column("Decode", "with idle, $/M"), Column("Requests", "USD/1,000"), Column("Tokens", "per USD"),
)  # fmt: skip
_CHANGE_COLUMNS = (Column("Model", number=False), Column("Change", "USD"))
_REASON_COLUMNS = (
    Column("Model", number=False),
    Column("Bandwidth", "of ceiling"), Column("Batch", "of limit"), Column("From cache", "of prompt"), Column("Idle", "of spend"),
)  # fmt: skip


class ModelTables(Struct, frozen=True):
    """Both tables have the same models in the same order."""

    costs: Table  # unit costs by model
    changes: (
        Table | None
    )  # what changed each model's spend, in cents that add up; None where the weeks are not compared
    reasons: Table  # how full each model's GPUs were


def build_model_tables(review: Review) -> ModelTables:
    """Unit costs by model, the most expensive first, then what they are made of."""
    models = review.models[:MOST_ROWS]
    foot = tuple(_cost_cells(review, _ALL, review.now, review.earlier)) if len(models) > 1 else ()
    costs = [tuple(_cost_cells(review, row.model_name, row.now, row.before)) for row in models]
    reasons = [tuple(_reason_cells(row)) for row in models]
    left_out = len(review.models) - len(models)
    return ModelTables(
        Table("Cost by model", _COST_COLUMNS, costs, foot, _PRINTED_MODELS, left_out),
        _tabulate_changes(review, models, left_out),
        Table("How full each model's GPUs were", _REASON_COLUMNS, reasons, (), _PRINTED_REASONS, left_out),
    )


def usd_per_thousand_requests(sums: Totals) -> float | None:
    """USD of a thousand requests; None without requests."""
    return None if sums.usd_per_request is None else 1000 * sums.usd_per_request


def _cost_cells(review: Review, name: str, now: Totals, before: Totals) -> Iterator[Cell]:
    yield name_cell(name, link="" if name == _ALL else link_week(review, COST, **{MODEL_VARIABLE: name}))
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


def _tabulate_changes(review: Review, models: Sequence[ModelRow], left_out: int) -> Table | None:
    """Causes that moved no model at all have no column."""
    if review.split is None:
        return None
    causes = [cause for cause in CAUSE_WORDS if any(row.split and getattr(row.split, cause) for row in review.models)]
    columns = (*_CHANGE_COLUMNS, *(Column(CAUSE_WORDS[cause], "USD") for cause in causes))
    rows = [(name_cell(row.model_name), *_change_cells(row.split, causes)) for row in models]
    foot = (Cell("All"), *_change_cells(review.split, causes)) if len(models) > 1 else ()
    return Table("What changed each model's spend", columns, rows, foot, _PRINTED_CHANGES, left_out)


def _change_cells(split: Split | None, causes: Sequence[str]) -> Iterator[Cell]:
    for value in (
        (None,) * (1 + len(causes)) if split is None else (split.total, *(getattr(split, one) for one in causes))
    ):
        yield number_cell("0" if value == 0 else signed_usd_to_the_cent(value).replace("$", ""), value)


def _reason_cells(row: ModelRow) -> Iterator[Cell]:
    yield name_cell(row.model_name)
    for value in (row.bandwidth_ratio, row.batch_ratio, row.now.cached_ratio, row.now.share("idle")):
        yield number_cell(percent(value, 0), value)
