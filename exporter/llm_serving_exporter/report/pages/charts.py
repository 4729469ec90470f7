"""Charts as SVG: no script, colours from the style sheet, each with a text that says what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_serving_exporter.render.numbers import hours as hours_text
from llm_serving_exporter.render.numbers import signed_usd, usd
from llm_serving_exporter.render.report_html import text
from llm_serving_exporter.report.evidence.usage import Hours
from llm_serving_exporter.report.evidence.week import Hour, Week

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WIDTH = 420
_STEPS = 5


def stacked(parts: Sequence[tuple[str, float]], total: float) -> str:
    """One bar of parts, each as wide as its share."""
    pieces, at = [], 0.0
    for name, value in parts:
        width = _WIDTH * value / total if total else 0.0
        if width > 0:
            pieces.append(
                f'<rect class="{name}" x="{at:.2f}" y="0" width="{width:.2f}" height="22"><title>{name}: {usd(value)}</title></rect>'
            )
            at += width
    words = ", ".join(f"{name} {usd(value)}" for name, value in parts if value)
    return _svg(24, f"Spend by what it went to: {words}", "".join(pieces), "bar")


def causes(parts: Sequence[tuple[str, float]]) -> str:
    """Bars to the left (less) and to the right (more) of a line."""
    most = max((abs(value) for _, value in parts), default=0.0) or 1.0
    left, middle, reach, high = 92, 240, 116, 26
    pieces = []
    for index, (name, value) in enumerate(parts):
        y, width = index * high + 4, reach * abs(value) / most
        x = middle if value >= 0 else middle - width
        label_x, anchor = (middle + width + 5, "start") if value >= 0 else (middle - width - 5, "end")
        pieces.append(
            f'<text class="soft" x="{left - 4}" y="{y + 13}" text-anchor="end">{text(name)}</text>'
            f'<rect class="{"up" if value > 0 else "fall"}" x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="18"/>'
            f'<text x="{label_x:.1f}" y="{y + 13}" text-anchor="{anchor}">{signed_usd(value)}</text>'
        )
    height = len(parts) * high + 4
    pieces.append(f'<line class="axis" x1="{middle}" x2="{middle}" y1="0" y2="{height}"/>')
    words = ", ".join(f"{name} {signed_usd(value)}" for name, value in parts)
    return _svg(height, f"Why the spend changed: {words}", "".join(pieces))


def days(by_phase: Mapping[str, Sequence[float | None]], before: Sequence[float | None]) -> str:
    """A column a day, stacked by phase, with a mark for the same day of the week before."""
    sums = [sum(values[day] or 0.0 for values in by_phase.values()) for day in range(7)]
    most = max((*sums, *(value or 0.0 for value in before)), default=0.0) or 1.0
    top, height, step, width = 18, 116, _WIDTH / 7, 38
    pieces = []
    for day, name in enumerate(DAYS):
        x, y = day * step + (step - width) / 2, float(top + height)
        for phase, values in by_phase.items():
            tall = height * (values[day] or 0.0) / most
            if tall > 0:
                y -= tall
                pieces.append(
                    f'<rect class="{phase}" x="{x:.1f}" y="{y:.2f}" width="{width}" height="{tall:.2f}">'
                    f"<title>{name} {phase}: {usd(values[day])}</title></rect>"
                )
        middle = x + width / 2
        if sums[day]:
            pieces.append(f'<text x="{middle:.1f}" y="{y - 5:.1f}" text-anchor="middle">{usd(sums[day])}</text>')
        earlier = before[day]
        if earlier is not None:
            mark = top + height - height * earlier / most
            pieces.append(
                f'<line class="mark" x1="{x - 4:.1f}" x2="{x + width + 4:.1f}" y1="{mark:.2f}" y2="{mark:.2f}">'
                f"<title>the week before: {usd(earlier)}</title></line>"
            )
        pieces.append(f'<text class="soft" x="{middle:.1f}" y="{top + height + 14}" text-anchor="middle">{name}</text>')
    pieces.append(f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{top + height}" y2="{top + height}"/>')
    words = ", ".join(f"{name} {usd(value)}" for name, value in zip(DAYS, sums, strict=True))
    return _svg(top + height + 20, f"Spend by day: {words}", "".join(pieces))


def heatmap(what: str, unit: str, week: Week, hours: Hours) -> str:
    """Days by hours of the clock; the darker the more. An hour that clocks put back is beside its twin; without data: an outline."""
    columns = _columns(week)
    most = max((value for value in hours if value is not None), default=0.0)
    left, top, high = 30, 4, 14
    wide = (_WIDTH - left) / columns
    pieces = []
    for hour, column, value in _placed(week, hours):
        x, y = left + column * wide, top + hour.day * high
        box = f'x="{x:.2f}" y="{y}" width="{wide - 1:.2f}" height="{high - 1}"'
        when = f"{DAYS[hour.day]} {hour.hour:02d}:00"
        if value is None:
            pieces.append(f'<rect class="none" {box}><title>{when}: no data</title></rect>')
        else:
            level = 0 if not most or value <= 0 else min(_STEPS, 1 + int(_STEPS * value / most * 0.9999))
            pieces.append(
                f'<rect class="h{level}" {box}><title>{when}: {hours_text(value)} {text(unit)}</title></rect>'
            )
    for day, name in enumerate(DAYS):
        pieces.append(f'<text class="soft" x="{left - 5}" y="{top + day * high + 10}" text-anchor="end">{name}</text>')
    for clock in (0, 6, 12, 18):
        pieces.append(f'<text class="soft" x="{left + clock * wide:.1f}" y="{top + 7 * high + 12}">{clock:02d}</text>')
    total = sum(value for value in hours if value is not None)
    words = f"{what} by day and hour: {hours_text(total)} {unit} in all, at most {hours_text(most)} in an hour"
    scale = "".join(
        f'<rect class="h{step}" x="{_WIDTH - 152 + step * 13}" y="{top + 7 * high + 4}" width="12" height="9"/>'
        for step in range(6)
    )
    peak = f'<text class="soft" x="{_WIDTH}" y="{top + 7 * high + 12}" text-anchor="end">to {hours_text(most)} an hour</text>'
    return _svg(top + 7 * high + 16, words, "".join(pieces) + scale + peak, "heat")


def _columns(week: Week) -> int:
    most = max(sum(1 for hour in week.hours if hour.day == day) for day in range(7))
    return max(24, most)


def _placed(week: Week, hours: Hours) -> Iterator[tuple[Hour, int, float | None]]:
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


def _svg(height: float, words: str, body: str, kind: str = "") -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{text(words)}">'
        f"<title>{text(words)}</title>{body}</svg>"
    )
