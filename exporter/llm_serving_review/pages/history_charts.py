"""Charts of page one and of what lies beyond the week. What differs in colour differs in shape or place, too, so that paper shows it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.render.numbers import usd
from llm_serving_review.figures.month import MonthToDate
from llm_serving_review.figures.trend import TrendWeek
from llm_serving_review.pages.charts import WIDTH, Box, Chart, Label, Rule

_TALLEST = 96.0
# of a week's hours: with fewer its column is pale
MOSTLY = 0.95


def draw_share(share: float) -> Chart:
    """A bar as long as the share."""
    width = WIDTH * min(1.0, max(0.0, share))
    boxes = [Box("track", 0, 0, WIDTH, 10), Box("prefill", 0, 0, round(width, 1), 10)]
    return Chart(f"Share of the spend: {100 * share:.0f} %", 10, boxes, kind="bar", stretched=True)


def draw_spark(weeks: Sequence[TrendWeek]) -> Chart:
    """A small column for each week, the last one dark; nothing where a week is not known."""
    most = _find_most(weeks)
    step = WIDTH / len(weeks)
    boxes = []
    for index, one in enumerate(weeks):
        if one.known is None:
            boxes.append(Box("none", index * step + 4, 50, step - 8, 10, f"{one.name}: not known"))
            continue
        tall = max(1.0, 60 * one.known.paid_usd / most)
        kind = "prefill" if index == len(weeks) - 1 else "idle"
        hint = f"{one.name}: {usd(one.known.paid_usd)}"
        boxes.append(
            Box(kind, round(index * step + 4, 1), round(60 - tall, 1), round(step - 8, 1), round(tall, 1), hint)
        )
    return Chart(_describe(weeks), 60, boxes, kind="bar")


def draw_trend(weeks: Sequence[TrendWeek]) -> Chart:
    """A column for each week with its USD above; a dashed outline where a week is not known, a paler column where only a part is."""
    most = _find_most(weeks)
    top, step = 16.0, WIDTH / len(weeks)
    width = step - 7
    boxes, labels = [], []
    base = top + _TALLEST
    for index, one in enumerate(weeks):
        x = round(index * step + 3.5, 1)
        middle = round(x + width / 2, 1)
        labels.append(Label(f"W{one.name.rpartition('W')[2]}", middle, base + 14, "middle", soft=True))
        if one.known is None:
            boxes.append(Box("none", x, base - 14, round(width, 1), 14, f"{one.name}: not known"))
            labels.append(Label("?", middle, base - 3, "middle", soft=True))
            continue
        tall = round(_TALLEST * one.known.paid_usd / most, 1)
        kind = "prefill" if one.known.hours_seen >= MOSTLY * one.known.week.length_hours else "decode"
        boxes.append(
            Box(kind, x, round(base - tall, 1), round(width, 1), tall, f"{one.name}: {usd(one.known.paid_usd)}")
        )
        labels.append(Label(write_compact(one.known.paid_usd), middle, round(base - tall - 4, 1), "middle"))
    return Chart(_describe(weeks), base + 20, boxes, (Rule("axis", 0, base, WIDTH, base),), labels)


def draw_month_bar(month: MonthToDate) -> Chart:
    """To date, then what the forecast adds, then a line at the budget."""
    most = max(month.forecast_usd, month.budget_usd or 0.0) or 1.0
    paid, ahead = WIDTH * month.usd / most, WIDTH * month.forecast_usd / most
    boxes = [
        Box("track", 0, 3, WIDTH, 14),
        Box("prefill", 0, 3, round(paid, 1), 14, f"to date: {usd(month.usd)}"),
        Box("ahead", round(paid, 1), 3, round(max(0.0, ahead - paid), 1), 14, f"forecast: {usd(month.forecast_usd)}"),
    ]
    rules = []
    words = f"{usd(month.usd)} to date, forecast {usd(month.forecast_usd)}"
    if month.budget_usd is not None:
        at = round(min(WIDTH - 1.5, WIDTH * month.budget_usd / most), 1)
        rules.append(Rule("limit", at, 0, at, 20, f"budget: {usd(month.budget_usd)}"))
        words += f", budget {usd(month.budget_usd)}"
    return Chart(f"The month: {words}", 20, boxes, rules, kind="bar", stretched=True)


def draw_month(month: MonthToDate) -> Chart:
    """What was paid by day, added up, and the forecast to the month's end; a line at the budget. A day of which nothing is known is an
    outline."""
    days = (month.next_first - month.first).days
    most = 1.06 * max(month.forecast_usd, month.budget_usd or 0.0, month.usd) or 1.0
    top, height, step = 14.0, 110.0, WIDTH / days
    base = top + height
    boxes, rules, labels = [], [], []
    total, rest = 0.0, days - len(month.days)
    for number in range(days):
        x = round(number * step + 1, 1)
        if number < len(month.days):
            day = month.days[number]
            total += day.usd or 0.0
            hint = (
                f"{day.day:%-d %B}: {usd(day.usd)}, {usd(total)} in all"
                if day.usd is not None
                else f"{day.day:%-d %B}: not known"
            )
            kind, value = ("prefill" if day.usd is not None else "none"), total
        else:
            value = month.usd + (month.forecast_usd - month.usd) * (number - len(month.days) + 1) / max(1, rest)
            hint, kind = f"day {number + 1}: {usd(value)} by the forecast", "ahead"
        tall = max(1.0 if kind != "none" else 8.0, height * value / most)
        boxes.append(Box(kind, x, round(base - tall, 1), round(step - 2, 1), round(tall, 1), hint))
    for number in (0, 7, 14, 21, days - 1):
        labels.append(Label(str(number + 1), round((number + 0.5) * step, 1), base + 14, "middle", soft=True))
    rules.append(Rule("axis", 0, base, WIDTH, base))
    words = f"{usd(month.usd)} to date, forecast {usd(month.forecast_usd)}"
    if month.budget_usd is not None:
        y = round(base - height * month.budget_usd / most, 1)
        rules.append(Rule("limit", 0, y, WIDTH, y))
        # above the line, or below it at the upper edge
        labels.append(Label(f"budget {usd(month.budget_usd)}", 2, y - 4 if y > top else y + 12))
        words += f", budget {usd(month.budget_usd)}"
    return Chart(f"{month.first:%B %Y}, added up by day: {words}", base + 20, boxes, rules, labels)


def write_compact(value: float) -> str:
    """USD in at most five characters, without their sign: 934, 9.33k, 10.9k, 1.20M."""
    for scale, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * scale:
            scaled = value / scale
            places = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{places}f}{letter}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _find_most(weeks: Sequence[TrendWeek]) -> float:
    return max((one.known.paid_usd for one in weeks if one.known is not None), default=0.0) or 1.0


def _describe(weeks: Sequence[TrendWeek]) -> str:
    said = ", ".join(f"{one.name} {'not known' if one.known is None else usd(one.known.paid_usd)}" for one in weeks)
    return f"Paid by week: {said}"
