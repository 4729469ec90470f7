"""The page's tables of tenants: what each of them costs, what its tokens would be billed at, and how far gateway and engines agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import Any

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.render.numbers import NOTHING, amount, percent, usd, usd_plain
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.tenants import LEAST_SCALE, MOST_SCALE, TenantCost, TenantSplit
from llm_serving_review.figures.totals import ratio
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Marked, Shown, make_table, name_column
from llm_serving_review.tables.sums import sum_known

_PRINTED_TENANTS, _PRINTED_PRICES, _PRINTED_SCALES = 10, 10, 5
EXTERNAL, UNEXPLAINED = "external", "(no tenant)"
_COST_COLUMNS = (
    name_column("Tenant"), Column("Spend", "USD", usd_plain), Column("Share", "", percent),
    *(Column(title, "USD", usd_plain) for title in ("Prefill", "Decode", "Idle and other")),
    Column("Input as sent", "tokens", amount), Column("Cached", "of input", lambda share: percent(share, 0)),
    Column("Output", "tokens", amount), Column("Requests", "", amount),
)  # fmt: skip
_PRICE_COLUMNS = (
    name_column("Tenant"), name_column("Model", "(not named)"), Column("Spend", "USD", usd_plain),
    *(Column(title, "USD/M", usd_plain) for title in ("Input as sent", "Input, not cached", "Output")),
    Column("Input as sent", "tokens", amount), Column("Output", "tokens", amount),
)  # fmt: skip
_SCALE_COLUMNS = (
    name_column("Model"),
    *(Column(title, "engines over gateway", lambda value: NOTHING if value is None else f"{value:.2f}") for title in ("Input", "Output")),
)  # fmt: skip


def build_tenants(review: Review) -> Shown | None:
    """The tables; None where no gateway counts by tenant."""
    split = review.tenants
    if split is None:
        return None
    names = list(dict.fromkeys((row.tenant, row.kind) for row in split.rows))
    costs = sorted(names, key=lambda name: -fsum(row.usd for row in _pick(split, name)))
    # with one row for all the others, and what is no tenant's: what is shown adds up, however many there are
    shown = costs if len(costs) < MOST_ROWS else costs[: MOST_ROWS - 2]
    rows = [tuple(_list_costs(name[0], _pick(split, name), split)) for name in shown]
    if others := costs[len(shown) :]:
        rest = [row for name in others for row in _pick(split, name)]
        rows.append(tuple(_list_costs(f"({len(others)} more)", rest, split)))
    if split.unexplained:
        rows.append(tuple(_list_costs(UNEXPLAINED, split.unexplained, split)))
    foot = tuple(_list_costs("All", (*split.rows, *split.unexplained), split))
    prices = [
        (
            row.tenant, row.model_name, row.usd if row.served else Cell(EXTERNAL), row.input_usd_per_million,
            row.uncached_usd_per_million, row.output_usd_per_million, row.prompt_tokens, row.decode_tokens,
        )
        for row in split.rows
    ]  # fmt: skip
    scales = [
        (" / ".join((scale.model_name, *filter(None, scale.fleet))), _mark_far(scale.prompt), _mark_far(scale.decode))
        for scale in split.scales
    ]
    costs_table = make_table("Cost by tenant", _COST_COLUMNS, rows, foot, printed=_PRINTED_TENANTS, most=None)
    return Shown(
        lead="Gateways say how a model's tokens divide among tenants, the engines what they cost and how many there were. Idle, down and "
        "unattributed time goes with the busy time of its hour.",
        costs=replace(costs_table, left_out=len(others)),
        prices=make_table("Tokens as an API bills them", _PRICE_COLUMNS, prices, printed=_PRINTED_PRICES),
        scales=make_table("Engines' tokens over the gateway's", _SCALE_COLUMNS, scales, printed=_PRINTED_SCALES, most=None)
        if scales
        else None,
        notes=tuple(list_notes(split)),
    )  # fmt: skip


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


def _list_costs(name: str, rows: Sequence[TenantCost], split: TenantSplit) -> Iterator[Any]:
    spend = fsum(row.usd for row in rows)
    served = [row for row in rows if row.served]
    sent = fsum(row.prompt_tokens for row in served)
    cached = ratio(fsum(row.cached_tokens or 0.0 for row in served), sent)
    mark = "*" if any(row.cached_is_mean and row.prompt_tokens for row in rows) else ""
    yield from (
        name,
        spend,
        ratio(spend, split.usd),
        fsum(row.prefill_usd for row in rows),
        fsum(row.decode_usd for row in rows),
    )
    yield from (fsum(row.rest_usd for row in rows), sent, Cell(percent(cached, 0) + mark, cached))
    yield from (fsum(row.decode_tokens for row in served), sum_known(row.requests for row in served))


def _mark_far(value: float | None) -> Marked:
    return Marked(value, "bad" if value is not None and not LEAST_SCALE <= value <= MOST_SCALE else "")


def _join(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
