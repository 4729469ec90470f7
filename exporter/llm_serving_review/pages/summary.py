"""The review on one screen: Markdown for a chat or a mail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import fsum

from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.render.numbers import (
    NOTHING,
    amount,
    amount_of,
    hours,
    percent,
    signed_percent,
    signed_usd_to_the_cent,
    usd,
)
from llm_serving_review.figures.change import CAUSE_WORDS, write_causes
from llm_serving_review.figures.findings import BILL_RULE, CAUSE_RULE
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.tenants import TenantSplit
from llm_serving_review.figures.totals import PHASES, change, say_counted
from llm_serving_review.pages.bills import write_headline, write_pool_line
from llm_serving_review.pages.first_page import write_known_hours, write_month
from llm_serving_review.pages.operations import write_unusual_day
from llm_serving_review.tables.sums import sum_by_key

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")
_LONGEST_NAME = 60
_MODELS, _NOTES, _TENANTS, _UNUSUAL_DAYS = 5, 5, 5, 2


def render_summary(review: Review) -> str:
    """Headline, warnings, findings, actions, models."""
    return "\n".join(_lines(review)) + "\n"


def _lines(review: Review) -> Iterator[str]:
    now, before = review.now, review.earlier
    yield f"# {escape_markdown(review.title)}: {review.week.name}"
    yield ""
    notes = (*review.notes, *review.missing_parts)
    for note in notes[:_NOTES]:
        yield f"- **Note:** {escape_markdown(note, 400)}"
    if len(notes) > _NOTES:
        yield f"- **Note:** {len(notes) - _NOTES} more on the page."
    if notes:
        yield ""
    of_tokens = f"{of}; " if (of := say_counted(now.tokens_share)) else ""
    yield (
        f"**{usd(review.invoice_usd)}** in all ({signed_percent(change(review.invoice_usd, review.invoice_before_usd))} against "
        f"{review.previous.name}), of it {usd(now.usd)} for GPU time, "
        f"**{usd(now.blended_usd_per_million)}** a million tokens "
        f"({of_tokens}{signed_percent(change(now.blended_usd_per_million, before.blended_usd_per_million))}), "
        f"{amount_of(now.tokens, 'token')}, {amount_of(now.requests, 'request')}, {hours(now.gpu_hours)} GPU-hours."
    )
    beside = ", ".join(f"{what} {usd(value)}" for what, value in review.list_beside())
    if beside:
        yield f"Beside GPU time: {beside}."
    if pools := write_pool_line(review):
        yield pools
    yield ""
    shares = ", ".join(f"{phase} {percent(now.share(phase), 0)}" for phase in PHASES if now.usd_by_phase.get(phase))
    yield f"Where it went: {shares or NOTHING}."
    if review.change is not None and review.split is not None:
        said = " ".join(write_causes(review.change, review.week.this, review.week.one_before))
        parts = ", ".join(
            f"{CAUSE_WORDS[cause].lower()} {signed_usd_to_the_cent(value)}"
            for cause, value in review.split.parts().items()
            if value
        )
        yield escape_markdown(said, 600)
        if parts:
            yield f"In parts: {parts}."
    if review.outlook is not None:
        budget = review.outlook.budget_usd
        of = f", {percent(review.outlook.budget_used_ratio, 0)} of the budget" if budget is not None else ""
        rate = f" ({review.outlook.of_hours})" if review.outlook.of_hours else ""
        yield f"A month at this rate{rate}: {usd(review.outlook.projected_usd)}{of}."
    if review.tenants is not None:
        yield _write_tenants(review.tenants)
    if (month := review.beyond.month) is not None:
        until = f"{month.first:%B} {'in all' if month.is_over else 'to date'}"
        sentences = (f"{until}: {usd(month.usd)} ({write_known_hours(month)}).", *write_month(month, review))
        yield escape_markdown(" ".join(sentences), 400)
    if review.missing_usd:
        yield f"Gaps in the data hide {review.about_missing} {usd(review.missing_usd)} that is not in the spend."
    # why one is not compared stands in the notes
    if review.bills is not None and review.bills.comparison is not None:
        yield f"Against the bill: {escape_markdown(write_headline(review.bills), 600)}"
    unusual = [write_unusual_day(review, day) for day in review.beyond.unusual]
    # why the spend changed and what the bill says stand above
    findings = [finding for finding in review.findings if finding.rule not in (CAUSE_RULE, BILL_RULE)]
    if findings or unusual:
        yield ""
        yield from (f"- {escape_markdown(sentence, 400)}" for sentence in unusual[:_UNUSUAL_DAYS])
        yield from (f"- {escape_markdown(finding.sentence, 400)}" for finding in findings[:6])
    yield ""
    if review.actions:
        yield "**What to do first**"
        yield ""
        for index, action in enumerate(review.actions, 1):
            yield f"{index}. {escape_markdown(action.what, 200)} – {escape_markdown(action.worth)}: {escape_markdown(action.why, 300)}."
    else:
        yield "These figures call for no action."
    yield ""
    if review.sizings:
        yield "**Fewer or cheaper replicas**"
        yield ""
        for one in review.sizings[:_MODELS]:
            yield (
                f"- {escape_markdown(one.action.what, 200)} – {escape_markdown(one.action.worth)}: "
                f"{escape_markdown(one.action.why, 400)}. {escape_markdown(' '.join((one.rests_on, *one.risks)), 600)}"
            )
        yield ""
    yield "| model | USD | change | USD per million tokens | tokens |"
    yield "|---|---:|---:|---:|---:|"
    for row in review.models[:_MODELS]:
        yield (
            f"| {escape_markdown(row.model_name) or '(none)'} | {usd(row.now.usd)} | "
            f"{signed_percent(change(row.now.usd, row.before.usd))} | {usd(row.now.blended_usd_per_million)} | {amount(row.now.tokens)} |"
        )
    if len(review.models) > _MODELS:
        yield f"| {len(review.models) - _MODELS} more | | | | |"


def _write_tenants(split: TenantSplit) -> str:
    """The tenants that cost most, and what none of them explains."""
    spend = sum_by_key((row.tenant, row.usd) for row in split.rows)
    first = sorted(spend, key=lambda name: (-spend[name], name))[:_TENANTS]
    said = [f"{escape_markdown(name) or '(no name)'} {usd(spend[name])}" for name in first]
    if len(spend) > len(first):
        said.append(f"{len(spend) - len(first)} more {usd(fsum(spend.values()) - fsum(spend[name] for name in first))}")
    if split.unexplained:
        said.append(f"no tenant {usd(split.unexplained_usd)}")
    return f"By tenant: {', '.join(said)}."


def escape_markdown(text: str, longest: int = _LONGEST_NAME) -> str:
    """Text from outside on one line, with nothing in it that Markdown or a chat takes for its own."""
    line = on_one_line(text, longest)
    # a chat makes a link of what looks like an address
    return _SPECIAL.sub(r"\\\1", line.replace("://", ": //"))
