"""The page's tables of models: what tokens cost, and why."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.render.numbers import amount, percent, signed_percent, signed_usd, usd_plain
from llm_serving_exporter.render.report_html import Cell, Column, card, figure, name, table
from llm_serving_exporter.report.figures.formulas import change
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.figures.totals import Totals

# on the screen; the CSV has all
MOST_ROWS = 100
_PRINTED_MODELS = 8


def models(review: Review) -> str:
    """Unit costs by model, then what they are made of."""
    now = review.now
    columns = (
        Column("Model", number=False), Column("Spend", "USD"), Column("Change"), Column("Share"), Column("Tokens", "as sent + made"),
        Column("Blended", "USD/M"), Column("Change"), Column("Prefill", "busy, USD/M"), Column("Prefill", "all, USD/M"),
        Column("Decode", "busy, USD/M"), Column("Decode", "all, USD/M"), Column("Requests", "USD/1,000"), Column("Tokens", "per USD"),
    )  # fmt: skip
    rows = [list(_model(review, row.model_name, row.now, row.before)) for row in review.models[:MOST_ROWS]]
    foot = list(_model(review, "All", now, review.earlier))
    first = table("Cost by model", columns, rows, foot if len(rows) > 1 else (), printed=_PRINTED_MODELS)
    because = (
        Column("Model", number=False), Column("Price", "USD/M computed"), Column("Mix", "USD/M computed"),
        Column("Utilisation", "USD/M computed"),
        Column("Bandwidth", "of ceiling"), Column("Batch", "of limit"), Column("From cache", "of prompt"), Column("Idle", "of spend"),
    )  # fmt: skip
    reasons = []
    for row in review.models[:MOST_ROWS]:
        split = row.split
        causes = (None, None, None) if split is None else (split.price, split.mix, split.utilisation)
        idle, cached = row.now.share("idle"), row.now.cached_ratio
        reasons.append(
            [
                name(row.model_name),
                *(figure(_part(value, row.now.blended_usd_per_million), value) for value in causes),
                figure(percent(row.bandwidth_ratio, 0), row.bandwidth_ratio),
                figure(percent(row.batch_ratio, 0), row.batch_ratio),
                figure(percent(cached, 0), cached),
                figure(percent(idle, 0), idle),
            ]
        )
    second = table("Why a model's tokens cost what they do", because, reasons, printed=_PRINTED_MODELS)
    more = (
        f'<p class="soft">{len(review.models) - MOST_ROWS} more are in the CSV.</p>'
        if len(review.models) > MOST_ROWS
        else ""
    )
    lead = "Busy: the phase's own GPU time. All: idle and down time borne by the tokens as well. Below: what moved it."
    return card("Models", first + second + more, lead=lead)


def _model(review: Review, called: str, now: Totals, before: Totals) -> Iterator[Cell]:
    yield name(called)
    yield figure(usd_plain(now.usd), now.usd)
    moved = change(now.usd, before.usd)
    yield figure(signed_percent(moved), moved)
    share = now.usd / review.now.usd if now.usd is not None and review.now.usd else None
    yield figure(percent(share), share)
    yield figure(amount(now.tokens), now.tokens)
    unit, earlier = now.blended_usd_per_million, before.blended_usd_per_million
    yield figure(usd_plain(unit), unit)
    moved = change(unit, earlier)
    kind = "" if moved is None or abs(moved) < 0.03 else ("bad" if moved > 0 else "good")
    yield figure(signed_percent(moved), moved, kind)
    for phase in ("prefill", "decode"):
        for value in (now.busy_usd_per_million(phase), now.allocated_usd_per_million(phase)):
            yield figure(usd_plain(value), value)
    yield figure(usd_plain(thousand(now)), thousand(now))
    yield figure(amount(now.tokens_per_usd), now.tokens_per_usd)


def thousand(sums: Totals) -> float | None:
    """USD of a thousand requests; None without requests."""
    return None if sums.usd_per_request is None else 1000 * sums.usd_per_request


def _part(value: float | None, of: float | None) -> str:
    """A cause's part in USD per million; what is no part of it at its own digits is 0."""
    return "0" if value is not None and of and abs(value) < 5e-4 * of else signed_usd(value).replace("$", "")
