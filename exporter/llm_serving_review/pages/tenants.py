"""The page's tables of tenants: what each of them costs, what its tokens would be billed at, and how far gateway and engines agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import amount, percent, usd, usd_plain
from llm_serving_review.figures.formulas import ratio
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.tenant_costs import LEAST_SCALE, MOST_SCALE, Scale, TenantCost, TenantSplit
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_PRINTED_TENANTS, _PRINTED_PRICES, _PRINTED_SCALES = 10, 10, 5
EXTERNAL, UNEXPLAINED = "external", "(no tenant)"
_COST_COLUMNS = (
    Column("Tenant", number=False), Column("Spend", "USD"), Column("Share"), Column("Prefill", "USD"), Column("Decode", "USD"),
    Column("Idle and other", "USD"), Column("Input as sent", "tokens"), Column("Cached", "of input"), Column("Output", "tokens"),
    Column("Requests"),
)  # fmt: skip
_PRICE_COLUMNS = (
    Column("Tenant", number=False), Column("Model", number=False), Column("Spend", "USD"), Column("Input as sent", "USD/M"),
    Column("Input, not cached", "USD/M"), Column("Output", "USD/M"), Column("Input as sent", "tokens"), Column("Output", "tokens"),
)  # fmt: skip
_SCALE_COLUMNS = (
    Column("Model", number=False), Column("Input", "engines over gateway"), Column("Output", "engines over gateway"),
)  # fmt: skip


class TenantTables(Struct, frozen=True):
    """What the card about tenants shows."""

    lead: str  # how to read the tables
    costs: Table
    prices: Table  # a row for each tenant and model
    scales: Table | None  # how far gateways and engines agree, by model; None where no model is counted by both
    notes: Sequence[str]  # sentences below the tables


def build_tenants(review: Review) -> TenantTables | None:
    """The tables; None where no gateway counts by tenant."""
    split = review.tenants
    if split is None:
        return None
    names = list(dict.fromkeys((row.tenant, row.kind) for row in split.rows))
    costs = sorted(names, key=lambda name: -fsum(row.usd for row in _pick(split, name)))
    # with one row for all the others, and what is no tenant's: what is shown adds up, however many there are
    shown = costs if len(costs) < MOST_ROWS else costs[: MOST_ROWS - 2]
    rows = [tuple(_cost_cells(name[0], _pick(split, name), split)) for name in shown]
    if others := costs[len(shown) :]:
        rest = [row for name in others for row in _pick(split, name)]
        rows.append(tuple(_cost_cells(f"({len(others)} more)", rest, split)))
    if split.unexplained:
        rows.append(tuple(_cost_cells(UNEXPLAINED, split.unexplained, split)))
    foot = tuple(_cost_cells("All", (*split.rows, *split.unexplained), split))
    prices = [tuple(_price_cells(row)) for row in split.rows]
    scales = [tuple(_scale_cells(scale)) for scale in split.scales]
    return TenantTables(
        "Gateways say how a model's tokens divide among tenants, the engines what they cost and how many there were. Idle, down and "
        "unattributed time goes with the busy time of its hour.",
        Table("Cost by tenant", _COST_COLUMNS, rows, foot, _PRINTED_TENANTS, len(others)),
        Table(
            "Tokens as an API bills them",
            _PRICE_COLUMNS,
            prices[:MOST_ROWS],
            (),
            _PRINTED_PRICES,
            max(0, len(prices) - MOST_ROWS),
        ),
        Table("Engines' tokens over the gateway's", _SCALE_COLUMNS, scales, (), _PRINTED_SCALES) if scales else None,
        tuple(list_notes(split)),
    )


def list_notes(split: TenantSplit) -> Iterator[str]:
    """What a reader has to know, in sentences."""
    apart = [scale.model_name for scale in split.scales if scale.flagged]
    if apart:
        yield (
            f"Engines over gateway is below {LEAST_SCALE} or above {MOST_SCALE} for {_join(apart)}. Above 1: requests tried again, "
            "fallbacks, streams that broke off, requests past the gateway. Below 1: answers from the gateway's own "
            "cache, a tokenizer that counts more. Shares hold as long as it is the same for all tenants."
        )
    if split.unexplained:
        yield (
            f"{usd(split.unexplained_usd)} belong to no tenant: hours in which no tenant had tokens, models without a gateway, and "
            "what engines counted beyond twice the gateway's tokens of an hour."
        )
    if any(row.cached_is_mean and row.prompt_tokens for row in split.rows):
        yield "* Cached tokens are not known to the gateway: the engines' mean of the hour is taken for every tenant."
    outside = list(dict.fromkeys(row.model_name or "(not named)" for row in split.rows if not row.served))
    if outside:
        remedy = "If an engine serves it under another name, add it to tenants.aliases."
        yield f"External, without GPU cost here: {_join(outside)}. {remedy}"


def _pick(split: TenantSplit, name: tuple[str, str]) -> tuple[TenantCost, ...]:
    return tuple(row for row in split.rows if (row.tenant, row.kind) == name)


def _cost_cells(name: str, rows: Sequence[TenantCost], split: TenantSplit) -> Iterator[Cell]:
    spend = fsum(row.usd for row in rows)
    served = [row for row in rows if row.served]
    yield name_cell(name)
    yield number_cell(usd_plain(spend), spend)
    share = ratio(spend, split.usd)
    yield number_cell(percent(share), share)
    for value in (
        fsum(row.prefill_usd for row in rows),
        fsum(row.decode_usd for row in rows),
        fsum(row.rest_usd for row in rows),
    ):
        yield number_cell(usd_plain(value), value)
    sent = fsum(row.prompt_tokens for row in served)
    yield number_cell(amount(sent), sent)
    cached = ratio(fsum(row.cached_tokens or 0.0 for row in served), sent)
    yield number_cell(percent(cached, 0) + _mark(rows), cached)
    made = fsum(row.decode_tokens for row in served)
    yield number_cell(amount(made), made)
    requests = [row.requests for row in served if row.requests is not None]
    yield number_cell(amount(fsum(requests) if requests else None), fsum(requests) if requests else None)


def _mark(rows: Sequence[TenantCost]) -> str:
    return "*" if any(row.cached_is_mean and row.prompt_tokens for row in rows) else ""


def _price_cells(row: TenantCost) -> Iterator[Cell]:
    yield name_cell(row.tenant)
    yield name_cell(row.model_name, "(not named)")
    if row.served:
        yield number_cell(usd_plain(row.usd), row.usd)
    else:
        yield number_cell(EXTERNAL, None)
    for value in (row.input_usd_per_million, row.uncached_usd_per_million, row.output_usd_per_million):
        yield number_cell(usd_plain(value), value)
    for value in (row.prompt_tokens, row.decode_tokens):
        yield number_cell(amount(value), value)


def _scale_cells(scale: Scale) -> Iterator[Cell]:
    yield name_cell(" / ".join((scale.model_name, *filter(None, scale.fleet))))
    for value in (scale.prompt, scale.decode):
        far = value is not None and not LEAST_SCALE <= value <= MOST_SCALE
        yield number_cell("–" if value is None else f"{value:.2f}", value, "bad" if far else "")


def _join(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
