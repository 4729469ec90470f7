"""The page's upper half: headline figures, what stands out, what to do, where the money went and why it changed."""

from __future__ import annotations

from llm_serving_exporter.render.numbers import (
    NOTHING,
    amount,
    hours,
    percent,
    signed_percent,
    signed_usd,
    usd,
    usd_plain,
)
from llm_serving_exporter.render.report_html import Cell, Column, card, facts, figure, table, text
from llm_serving_exporter.report.figures.formulas import change, plus
from llm_serving_exporter.report.figures.review import Review, by_day
from llm_serving_exporter.report.figures.totals import PHASES
from llm_serving_exporter.report.pages import charts
from llm_serving_exporter.report.pages.page_models import thousand

_WORDS = {
    "prefill": "Prefill", "decode": "Decode", "idle": "Idle", "down": "Down", "unattributed": "Unattributed",
}  # fmt: skip
_KEY = '<svg class="key" viewBox="0 0 9 9" aria-hidden="true"><rect class="{}" width="9" height="9"/></svg>'
# phases that are a state; the others share what was busy and what nothing is known of
_STATES = {"idle": "idle", "down": "down"}

# below it reads as 0.0
_LEAST_HOURS = 0.05


def tiles(review: Review) -> str:
    """Six figures, each against the week before."""
    now, before, ahead = review.now, review.earlier, review.outlook
    idle = now.share("idle")
    month = (
        (usd(ahead.projected_usd), text(f"at this rate {ahead.of_hours}".rstrip()))
        if ahead is not None
        else (NOTHING, "")
    )
    if ahead is not None and ahead.budget_usd is not None:
        share = percent(ahead.budget_used_ratio, 0)
        over = ' class="bad"' if (ahead.budget_used_ratio or 0.0) > 1 else ""
        month = month[0], f"<span{over}>{share}</span> of {usd(ahead.budget_usd)} {text(ahead.of_hours)}".rstrip()
    boxes = (
        ("Spend on GPU time", usd(now.usd), _against(now.usd, before.usd)),
        (
            "A million tokens",
            usd(now.blended_usd_per_million),
            _against(now.blended_usd_per_million, before.blended_usd_per_million),
        ),
        ("Tokens", amount(now.tokens), _against(now.tokens, before.tokens, good=None)),
        ("1,000 requests", usd(thousand(now)), _against(thousand(now), thousand(before))),
        ("GPU-hours", hours(now.gpu_hours), f"<small>{percent(idle, 0)} of the spend idle</small>"),
        ("Month", month[0], f"<small>{month[1]}</small>"),
    )
    return (
        '<dl class="tiles">'
        + "".join(f"<div><dt>{what}</dt><dd>{value}{more}</dd></div>" for what, value, more in boxes)
        + "</dl>"
    )


def _against(now: float | None, before: float | None, *, good: bool | None = False) -> str:
    """A change, coloured where more is bad (`good` False); None: neither is."""
    moved = change(now, before)
    if moved is None:
        return "<small>nothing to compare with</small>"
    kind = "" if good is None or abs(moved) < 0.005 else (' class="bad"' if moved > 0 else ' class="good"')
    return f"<small><span{kind}>{signed_percent(moved)}</span> on {usd(before) if good is not None else amount(before)}</small>"


def stands_out(review: Review) -> str:
    """Findings, a sentence each."""
    if not review.findings:
        return card("What stands out", '<p class="soft">No rule has anything to say about this week.</p>', "half")
    return card(
        "What stands out",
        f'<ul class="say">{"".join(f"<li>{text(one.sentence)}</li>" for one in review.findings)}</ul>',
        "half",
    )


def to_do(review: Review) -> str:
    """Three actions at most."""
    lines = "".join(
        f'<li><b>{text(one.what)}</b>: {text(one.worth)}<span class="soft">{text(one.why)}</span></li>'
        for one in review.actions
    )
    few = {
        0: "Nothing in these figures asks for action.",
        1: "These figures ask for no other.",
        2: "These figures ask for no third.",
    }
    rest = f'<p class="soft">{few[len(review.actions)]}</p>' if len(review.actions) in few else ""
    body = (f'<ol class="say">{lines}</ol>' if lines else "") + rest
    return card(
        "What to do first",
        body,
        "half",
        "What each comes to in this week. What is committed or owned is freed, not saved. They may overlap and are not added up.",
    )


def where(review: Review) -> str:
    """Spend by phase, with the GPU-hours behind it."""
    now, before = review.now, review.earlier
    present = [phase for phase in PHASES if now.usd_by_phase.get(phase) or before.usd_by_phase.get(phase)]
    bar = charts.stacked([(phase, now.usd_by_phase.get(phase, 0.0)) for phase in PHASES], now.usd or 0.0)
    rows = []
    for phase in present:
        value, earlier = now.usd_by_phase.get(phase), before.usd_by_phase.get(phase)
        in_state = now.gpu_hours_by_state.get(_STATES.get(phase, ""))
        rows.append(
            [
                Cell(_KEY.format(phase) + _WORDS[phase], phase),
                figure(usd_plain(value), value),
                figure(percent(now.share(phase)), now.share(phase)),
                figure(signed_percent(change(value, earlier)), change(value, earlier)),
                figure(hours(in_state) if phase in _STATES else NOTHING, in_state),
            ]
        )
    busy, unknown = (now.gpu_hours_by_state.get(state) for state in ("busy", "unknown"))
    foot = [
        Cell("All GPU time"),
        figure(usd_plain(now.usd), now.usd),
        figure("100 %", 1.0),
        figure(signed_percent(change(now.usd, before.usd)), None),
        figure(hours(now.gpu_hours), None),
    ]
    columns = (
        Column("Went to", number=False),
        Column("Spend", "USD"),
        Column("Share"),
        Column("Change"),
        Column("GPU-hours"),
    )
    beside = []
    if busy is not None:
        rest = f" and {hours(unknown)} of unknown state" if unknown and unknown >= _LEAST_HOURS else ""
        beside.append(f"prefill, decode and unattributed share {hours(busy)} busy GPU-hours{rest}")
    if now.energy_usd is not None:
        beside.append(
            f"electricity beside it {usd(now.energy_usd)}"
            + (f" for {amount(now.energy_kwh)} kWh" if now.energy_kwh else "")
        )
    if now.carbon_kg is not None:
        beside.append(f"{amount(now.carbon_kg)} kg CO₂e")
    if now.savings_usd:
        beside.append(f"the prefix cache freed at least {usd(now.savings_usd)} of capacity")
    if now.unpriced_gpu_hours >= _LEAST_HOURS:
        beside.append(f"{hours(now.unpriced_gpu_hours)} GPU-hours have no price")
    if review.recovered_usd:
        beside.append(f"{usd(review.recovered_usd)} of it was read from counters across gaps")
    note = f'<p class="soft">{_sentence(beside)}</p>' if beside else ""
    return card("Where it went", bar + table("Spend by what it went to", columns, rows, foot) + note, "half")


def why(review: Review) -> str:
    """The split of the change and the days."""
    parts = ""
    if review.split is not None:
        one = review.split
        weeks = (
            f"{usd(sums.usd)} in {week.name}"
            for week, sums in ((review.previous, review.earlier), (review.week, review.now))
        )
        total = f"{', '.join(weeks)}: {signed_usd(one.total)}."
        chart = charts.causes(
            [("price", one.price), ("volume", one.volume), ("mix", one.mix), ("utilisation", one.utilisation)]
        )
        parts = f'<p class="lead">{total} The four add up to it.</p>{chart}'
    by_phase = {phase: by_day(review.hourly.usd[phase], review.week) for phase in PHASES}
    days = f'<h3>By day, USD; dashed: the week before</h3><div class="wide">{charts.days(by_phase, review.hourly.usd_by_day_before)}</div>'
    return card("Why it changed", parts + days, "half")


def month(review: Review) -> str:
    """Budget, projection, total cost of ownership, and an API's price."""
    found = review.outlook
    if found is None:
        return ""
    rate = f"at this rate{f' ({found.of_hours})' if found.of_hours else ''}"
    pairs = [(f"GPU time, commitments and electricity {rate}, 730 h", usd(found.projected_usd))]
    if found.budget_usd is not None:
        left = plus(found.budget_usd, -found.projected_usd)
        words = f"{usd(abs(left or 0.0))} {'under' if (left or 0.0) >= 0 else 'over'}"
        pairs.append(("Budget", f"{usd(found.budget_usd)} ({words})"))
    if found.monthly_costs_usd:
        pairs.append(("Storage, network, monitoring, engineering", usd(found.monthly_costs_usd)))
    pairs.append(("Total cost of ownership, month of 720 h", usd(found.tco_usd)))
    api = found.api
    if api is not None:
        pairs += [
            (f"This week's tokens at {api.name}", f"{usd(api.api_usd)} ({usd(api.api_usd_per_million)}/M)"),
            ("The same here, other costs included", f"{usd(api.own_usd)} ({usd(api.own_usd_per_million)}/M)"),
            (
                "Break-even, tokens a month at this mix",
                f"{amount(api.break_even_tokens_per_month)} (now {amount(api.tokens_per_month)})",
            ),
        ]
        if api.payback is not None:
            back = "never" if api.payback.months is None else f"{api.payback.months:.1f} months"
            pairs.append(("Purchase paid back in", back))
    reason = (
        f'<p class="soft">{text(api.payback.reason)}.</p>'
        if api is not None and api.payback is not None and api.payback.reason
        else ""
    )
    return card("The month, and an API", facts(pairs) + reason, "half")


def _sentence(parts: list[str]) -> str:
    joined = "; ".join(parts)
    return text(joined[:1].upper() + joined[1:] + ".")
