"""The page's charts as shapes with coordinates; templates/parts.html writes them as SVG, the style sheet has their colours.

Every chart is as wide as `WIDTH`, has its origin at the upper left, and carries a description of what it shows for those who cannot see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import amount, signed_usd_to_the_cent, usd
from llm_serving_exporter.render.numbers import hours as hours_text
from llm_serving_review.evidence.usage import Hours
from llm_serving_review.evidence.week import Hour, Week
from llm_serving_review.figures.past_weeks import MonthToDate, TrendWeek

WIDTH = 420
# shades of a heatmap above 0
_SHADES = 5
# "$99,999"; two longer ones side by side would touch
_LONGEST_ABOVE_COLUMN = 7
# of the charts' font, generously
_HALF_LETTER, _LETTER_HEIGHT = 3.5, 11.0
# a column with such a label above it
_NARROWEST = 48.0
# of a column of the trend
_TALLEST = 96.0
# of a week's hours: with fewer its column is pale
MOSTLY = 0.95


class Box(Struct, frozen=True):
    """A filled rectangle."""

    kind: str  # class of the style sheet that colours it
    x: float
    y: float
    width: float  # to the right
    height: float  # downwards
    hint: str = ""  # text that appears under the pointer; "" for none


class Rule(Struct, frozen=True):
    """A straight line."""

    kind: str  # class of the style sheet: axis or mark
    x1: float  # where it begins
    y1: float  # where it begins
    x2: float  # where it ends
    y2: float  # where it ends
    hint: str = ""  # text that appears under the pointer; "" for none


class Label(Struct, frozen=True):
    """A short text in a chart."""

    text: str
    x: float  # the anchor's place
    y: float  # the text's base line
    anchor: str = "start"  # which end of the text is at x: start, middle or end
    soft: bool = False  # whether it is in the softer colour


class Chart(Struct, frozen=True):
    """Shapes in the order in which they are drawn: boxes, then lines, then labels."""

    description: str  # what the chart shows, with its numbers, for screen readers
    height: float  # in the units of WIDTH
    boxes: Sequence[Box]
    rules: Sequence[Rule] = ()
    labels: Sequence[Label] = ()  # short texts
    kind: str = ""  # class of the style sheet: bar, heat or ""
    width: float = WIDTH  # in the same units
    stretched: bool = False  # whether its height is the style sheet's and its width that of its place; without labels


def draw_stacked_bar(parts: Sequence[tuple[str, float]], total: float) -> Chart:
    """One bar of (phase, USD), each part as wide as its share of `total`."""
    boxes, x = [], 0.0
    for name, value in parts:
        width = WIDTH * value / total if total else 0.0
        if width > 0:
            boxes.append(Box(name, x, 0, width, 22, f"{name}: {usd(value)}"))
            x += width
    words = ", ".join(f"{name} {usd(value)}" for name, value in parts if value)
    return Chart(f"Spend by what it went to: {words}", 24, boxes, kind="bar")


def draw_causes(parts: Sequence[tuple[str, float]]) -> Chart:
    """A bar for each (cause, USD) to the left (less) or to the right (more) of a line."""
    most = max((abs(value) for _, value in parts), default=0.0) or 1.0
    # room for the name, then for the longest amount on either side
    left, middle, step = 92, 256, 26
    longest = max((len(signed_usd_to_the_cent(value)) for _, value in parts), default=0)
    reach = max(10.0, min(68.0, WIDTH - middle - 5 - 2 * _HALF_LETTER * longest))
    boxes, labels = [], []
    for index, (name, value) in enumerate(parts):
        y, width = index * step + 4, reach * abs(value) / most
        x = middle if value >= 0 else middle - width
        label_x, anchor = (middle + width + 5, "start") if value >= 0 else (middle - width - 5, "end")
        boxes.append(Box("up" if value > 0 else "fall", round(x, 1), y, round(max(width, 0.5), 1), 18))
        labels.append(Label(name, left - 4, y + 13, "end", soft=True))
        labels.append(Label(signed_usd_to_the_cent(value), round(label_x, 1), y + 13, anchor))
    height = len(parts) * step + 4
    words = ", ".join(f"{name} {signed_usd_to_the_cent(value)}" for name, value in parts)
    axis = Rule("axis", middle, 0, middle, height)
    return Chart(f"Why the spend changed: {words}", height, boxes, (axis,), labels)


def draw_days(
    names: Sequence[str],
    one_before: str,
    by_phase: Mapping[str, Sequence[float | None]],
    before: Sequence[float | None],
) -> Chart:
    """A column for each name, USD stacked by phase, with a mark for the same day of the week before; None where nothing is known.
    `one_before`: how a sentence calls that week."""
    count = len(names)
    sums = [fsum(values[day] or 0.0 for values in by_phase.values()) for day in range(count)]
    before = [*before, *[None] * count][:count]
    most = max((*sums, *(value or 0.0 for value in before)), default=0.0) or 1.0
    step = WIDTH / count
    top, height, width = 20, 116, min(38.0, step - 6)
    # of narrow columns each second has a label
    every = -(-_NARROWEST // step)
    boxes, rules, labels = [], [], []
    for day, name in enumerate(names):
        x, y = day * step + (step - width) / 2, float(top + height)
        for phase, values in by_phase.items():
            tall = height * (values[day] or 0.0) / most
            if tall > 0:
                y -= tall
                boxes.append(Box(phase, round(x, 1), y, width, tall, f"{name} {phase}: {usd(values[day])}"))
        middle = round(x + width / 2, 1)
        earlier = before[day]
        above = y - 5
        if earlier is not None:
            mark = top + height - height * earlier / most
            hint = f"{one_before}: {usd(earlier)}"
            rules.append(Rule("mark", round(x - 4, 1), mark, round(x + width + 4, 1), mark, hint))
            # the mark would strike the figure through
            above = mark - 4 if above - _LETTER_HEIGHT < mark < above + 3 else above
        if sums[day] and day % every == 0:
            text = _write_short(sums[day])
            # within the chart, where the column is narrower than its label
            reach = len(text) * _HALF_LETTER
            at = round(min(max(middle, reach), WIDTH - reach), 1)
            labels.append(Label(text, at, round(above, 1), "middle"))
        if day % every == 0:
            labels.append(Label(name, middle, top + height + 14, "middle", soft=True))
    rules.append(Rule("axis", 0, top + height, WIDTH, top + height))
    words = ", ".join(f"{name} {usd(value)}" for name, value in zip(names, sums, strict=True))
    return Chart(f"Spend: {words}", top + height + 20, boxes, rules, labels)


def _write_short(value: float) -> str:
    """USD above a column: as long as the column is wide."""
    text = usd(value)
    return text if len(text) <= _LONGEST_ABOVE_COLUMN else f"${amount(value)}".replace(" ", "")


def draw_heatmap(what: str, unit: str, week: Week, hours: Hours) -> Chart:
    """Days by hours of the clock; the darker the more, an outline where there is no data. The hour that clocks put back has a box of its
    own beside its twin."""
    columns = max(24, *Counter(hour.day for hour in week.hours).values())
    most = max((value for value in hours if value is not None), default=0.0)
    left, top, step = 48 if week.is_span else 30, 4, 14
    wide = (WIDTH - left) / columns
    boxes, labels = [], []
    for hour, column, value in _place_hours(week, hours):
        when = f"{week.days[hour.day]} {hour.hour:02d}:00"
        if value is None:
            kind, hint = "none", f"{when}: no data"
        else:
            shade = 0 if not most or value <= 0 else min(_SHADES, 1 + int(_SHADES * value / most * 0.9999))
            kind, hint = f"h{shade}", f"{when}: {hours_text(value)} {unit}"
        boxes.append(Box(kind, left + column * wide, top + hour.day * step, wide - 1, step - 1, hint))
    for day, name in enumerate(week.days):
        labels.append(Label(name, left - 5, top + day * step + 10, "end", soft=True))
    below = top + len(week.days) * step
    for clock in (0, 6, 12, 18):
        labels.append(Label(f"{clock:02d}", round(left + clock * wide, 1), below + 12, soft=True))
    # on a line of its own: between the clock and the edge there is no room for a large number
    boxes += [Box(f"h{shade}", left + shade * 6, below + 16, 5, 9) for shade in range(_SHADES + 1)]
    key = f"0 to {hours_text(most)} {unit} in an hour" if most else f"no {unit}"
    labels.append(Label(key, left + (_SHADES + 1) * 6 + 4, below + 24, soft=True))
    total = fsum(value for value in hours if value is not None)
    words = f"{what} by day and hour: {hours_text(total)} {unit} in all, at most {hours_text(most)} in an hour"
    return Chart(words, below + 28, boxes, (), labels, "heat")


def _place_hours(week: Week, hours: Hours) -> Iterator[tuple[Hour, int, float | None]]:
    """Each hour with its column: the hour of the clock, one further once clocks were put back that day."""
    seen: set[tuple[int, int]] = set()
    shift = 0
    day = -1
    for hour, value in zip(week.hours, hours, strict=True):
        if hour.day != day:
            day, shift = hour.day, 0
        if (hour.day, hour.hour) in seen:
            shift = 1
        seen.add((hour.day, hour.hour))
        yield hour, hour.hour + shift, value


# --- page one and beyond the week. What differs in colour differs in shape or place, too, so that paper shows it


def draw_share(share: float) -> Chart:
    """A bar as long as the share."""
    width = WIDTH * min(1.0, max(0.0, share))
    boxes = [Box("track", 0, 0, WIDTH, 10), Box("prefill", 0, 0, round(width, 1), 10)]
    return Chart(f"Share of the spend: {100 * share:.0f} %", 10, boxes, kind="bar", stretched=True)


def _draw_column(kind: str, x: float, base: float, width: float, tall: float, hint: str) -> Box:
    """A box that stands on a line."""
    return Box(kind, round(x, 1), round(base - tall, 1), round(width, 1), round(tall, 1), hint)


def draw_spark(weeks: Sequence[TrendWeek]) -> Chart:
    """A small column for each week, the last one dark; nothing where a week is not known."""
    most = _find_most(weeks)
    step = WIDTH / len(weeks)
    boxes = []
    for index, one in enumerate(weeks):
        if one.known is None:
            boxes.append(Box("none", index * step + 4, 50, step - 8, 10, f"{one.name}: not known"))
            continue
        kind = "prefill" if index == len(weeks) - 1 else "idle"
        hint = f"{one.name}: {usd(one.known.paid_usd)}"
        boxes.append(_draw_column(kind, index * step + 4, 60, step - 8, max(1.0, 60 * one.known.paid_usd / most), hint))
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
            boxes.append(_draw_column("none", x, base, width, 14, f"{one.name}: not known"))
            labels.append(Label("?", middle, base - 3, "middle", soft=True))
            continue
        tall = round(_TALLEST * one.known.paid_usd / most, 1)
        kind = "prefill" if one.known.hours_seen >= MOSTLY * one.known.week.length_hours else "decode"
        boxes.append(_draw_column(kind, x, base, width, tall, f"{one.name}: {usd(one.known.paid_usd)}"))
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
    if month.budget_usd is not None:
        at = round(min(WIDTH - 1.5, WIDTH * month.budget_usd / most), 1)
        rules.append(Rule("limit", at, 0, at, 20, f"budget: {usd(month.budget_usd)}"))
    return Chart(f"The month: {_describe_month(month)}", 20, boxes, rules, kind="bar", stretched=True)


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
            said = "not known" if day.usd is None else f"{usd(day.usd)}, {usd(total)} in all"
            kind, value, hint = "none" if day.usd is None else "prefill", total, f"{day.day:%-d %B}: {said}"
        else:
            value = month.usd + (month.forecast_usd - month.usd) * (number - len(month.days) + 1) / max(1, rest)
            hint, kind = f"day {number + 1}: {usd(value)} by the forecast", "ahead"
        tall = max(1.0 if kind != "none" else 8.0, height * value / most)
        boxes.append(_draw_column(kind, x, base, step - 2, tall, hint))
    for number in (0, 7, 14, 21, days - 1):
        labels.append(Label(str(number + 1), round((number + 0.5) * step, 1), base + 14, "middle", soft=True))
    rules.append(Rule("axis", 0, base, WIDTH, base))
    if month.budget_usd is not None:
        y = round(base - height * month.budget_usd / most, 1)
        rules.append(Rule("limit", 0, y, WIDTH, y))
        # above the line, or below it at the upper edge
        labels.append(Label(f"budget {usd(month.budget_usd)}", 2, y - 4 if y > top else y + 12))
    words = f"{month.first:%B %Y}, added up by day: {_describe_month(month)}"
    return Chart(words, base + 20, boxes, rules, labels)


def _describe_month(month: MonthToDate) -> str:
    budget = "" if month.budget_usd is None else f", budget {usd(month.budget_usd)}"
    return f"{usd(month.usd)} to date, forecast {usd(month.forecast_usd)}{budget}"


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
