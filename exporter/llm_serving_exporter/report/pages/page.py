"""The review -> one page that needs nothing else: no network, no file beside it, and no script to be read."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

from llm_serving_exporter import __version__
from llm_serving_exporter.render.numbers import hours
from llm_serving_exporter.render.report_html import text
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.pages import page_models, page_rest, page_top
from llm_serving_exporter.report.pages.style import SCRIPT, STYLE

_SHOWN_NOTES = 12


def page(review: Review) -> str:
    """HTML. Its policy lets it load nothing and run nothing but its own script."""
    policy = (
        f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = text(f"{review.title}, {review.week.name}")
    main = "".join(
        (
            page_top.stands_out(review),
            page_top.to_do(review),
            page_top.where(review),
            page_top.why(review),
            page_models.models(review),
            page_rest.maps(review),
            page_rest.labels(review),
            page_top.month(review),
            page_rest.invoice(review),
            page_rest.nodes(review),
            page_rest.bought(review),
            page_rest.gaps(review),
        )
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body>'
        f"<header><h1>{title}</h1>{_about(review)}{_notes(review)}{page_top.tiles(review)}</header>"
        f'<main><div class="grid">{main}</div></main><footer>{_footer()}</footer><script>{SCRIPT}</script></body></html>\n'
    )


def _about(review: Review) -> str:
    first, last = review.week.monday, review.week.monday + timedelta(days=6)
    length = hours(review.week.length_hours)
    methods = "; ".join(f"{method} (from {inputs})" if inputs else method for method, inputs in review.methods)
    split = f" Busy time is split into prefill and decode by {text(methods)}." if methods else ""
    return (
        f'<p class="sub">{first:%A, %-d %B} to {last:%A, %-d %B %Y}, {text(review.week.zone)}, {length} hours; against '
        f"{review.previous.name}.{split} All amounts in USD.</p>"
    )


def _notes(review: Review) -> str:
    said = (*review.notes, *review.missing_parts)
    if not said:
        return ""
    shown = "".join(f"<p>{text(sentence)}</p>" for sentence in said[:_SHOWN_NOTES])
    more = f"<p>{len(said) - _SHOWN_NOTES} more are in the CSV.</p>" if len(said) > _SHOWN_NOTES else ""
    return f'<div class="notes" role="note">{shown}{more}</div>'


def _footer() -> str:
    return (
        "<p>Spend: GPU time at the price in force, from the exporters' counters; each second is in one place, so that the parts add up. "
        "Change: exact split (LMDI-I) over models, roles and phases; price is USD per GPU-hour of whatever rate, volume is tokens computed "
        "and generated, mix their spread over models and phases, utilisation GPU-hours per token. docs/report.md has every formula. "
        f"llm-serving-exporter {text(__version__)}.</p>"
    )


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
