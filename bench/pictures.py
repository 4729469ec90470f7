"""Pictures for docs/, of the shapes that the weekly review draws its charts with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from llm_serving_review.pages.charts import WIDTH, Box, Chart, Label, Rule
from llm_serving_review.pages.page import make_environment

# legible on a light and on a dark page; a picture in a document has no style sheet beside it
_STYLE = (
    "<style>.chart { font: 11px sans-serif; fill: #808891 } .bar { fill: #3f7fd1 } .other { fill: #c98a2b } "
    ".axis { stroke: #808891 } .mark { stroke: #808891; stroke-dasharray: 3 2 } "
    ".ours { stroke: #3f7fd1; stroke-width: 2 } .ours-scraped { stroke: #3f7fd1; stroke-width: 2; stroke-dasharray: 6 3 } "
    ".peer { stroke: #c98a2b; stroke-width: 2 }</style>"
)
_LEFT, _HEIGHT, _TOP, _GAP = 4.0, 70.0, 18.0, 34.0
# gaps are drawn as far off the interval as this share of it, and those further out in the last column
_WIDEST, _COLUMNS = 0.1, 40
# the field of lines: its left and right edges leave room for numbers, its height is that of a picture beside text
_FIELD_LEFT, _FIELD_RIGHT, _FIELD_HEIGHT, _LEGEND = 44.0, WIDTH - 20.0, 160.0, 14.0


@dataclass(frozen=True)
class Line:
    label: str
    # class of the style: ours, ours-scraped or peer
    kind: str
    # what it was asked to do, and what that cost
    points: Sequence[tuple[float, float]]


def draw_ticks(by_program: Mapping[str, Mapping[str, Sequence[float]]], interval: float) -> Chart:
    """How even ticks come. `by_program`: of each program the moments at which each target was asked, in seconds.

    Two rows of columns for each program: gaps between two ticks of one target, by how far they are off the interval, and ticks in each
    second of the interval, all targets together.
    """
    boxes: list[Box] = []
    rules: list[Rule] = []
    labels: list[Label] = []
    top, words = _TOP, []
    for number, (program, targets) in enumerate(by_program.items()):
        kind = "bar" if number == 0 else "other"
        gaps = [later - earlier for times in targets.values() for earlier, later in pairwise(sorted(times))]
        off = [(gap - interval) / interval for gap in gaps]
        counts = [0] * _COLUMNS
        for share in off:
            counts[min(_COLUMNS - 1, max(0, int((share + _WIDEST) / (2 * _WIDEST) * _COLUMNS)))] += 1
        seconds = [0] * round(interval)
        for times in targets.values():
            for at in times:
                seconds[int(at % interval)] += 1
        edge = f"{100 * _WIDEST:.0f} %"
        for unit, columns, title, marks in (
            ("gaps", counts, f"gaps between two ticks of a target, off the interval of {interval:g} s", (f"-{edge}", "0", f"+{edge}")),
            ("ticks", seconds, "ticks in each second of the interval", ("0 s", "", f"{interval:g} s")),
        ):  # fmt: skip
            boxes += _draw_columns(columns, kind, top, [f"{n} {unit}" for n in columns])
            labels.append(Label(f"{program}: {title}", _LEFT, top - 6))
            places = (_LEFT, "start"), (WIDTH / 2, "middle"), (WIDTH, "end")
            labels += [
                Label(mark, x, top + _HEIGHT + 12, anchor)
                for mark, (x, anchor) in zip(marks, places, strict=True)
                if mark
            ]
            rules.append(Rule("axis", 0, top + _HEIGHT, WIDTH, top + _HEIGHT))
            if marks[1]:
                rules.append(Rule("mark", WIDTH / 2, top, WIDTH / 2, top + _HEIGHT))
            top += _HEIGHT + _GAP
        words.append(
            f"{program}: {len(gaps)} gaps, {max(seconds)} ticks in the fullest second, {min(seconds)} in the emptiest"
        )
    return Chart("; ".join(words), top - _GAP + 18, boxes, rules, labels)


def _draw_columns(counts: Sequence[int], kind: str, top: float, hints: Sequence[str]) -> list[Box]:
    most, wide = max(counts) or 1, WIDTH / len(counts)
    return [
        Box(kind, place * wide, top + _HEIGHT * (1 - count / most), wide - 1, _HEIGHT * count / most, hint)
        for place, (count, hint) in enumerate(zip(counts, hints, strict=True))
        if count
    ]


def draw_lines(title: str, x_unit: str, y_unit: str, lines: Sequence[Line], *, logarithmic: bool = False) -> Chart:
    """Costs upwards against what they depend on. `logarithmic`: both ways, where every value has to be above 0; else from 0 on."""
    across = sorted({x for line in lines for x, _ in line.points})
    costs = [y for line in lines for _, y in line.points]
    marks = _mark_decades(min(costs), max(costs)) if logarithmic else _mark_steps(max(costs))
    left, right = (across[0], across[-1]) if logarithmic else (0.0, across[-1])
    to_x = _scale(left, right, _FIELD_LEFT, _FIELD_RIGHT, logarithmic)
    top = _TOP + _LEGEND * len(lines)
    bottom = top + _FIELD_HEIGHT
    to_y = _scale(marks[0], marks[-1], bottom, top, logarithmic)
    rules = [Rule("axis", _FIELD_LEFT, bottom, _FIELD_RIGHT, bottom)]
    rules += [Rule("mark", _FIELD_LEFT, to_y(mark), _FIELD_RIGHT, to_y(mark)) for mark in marks[1:]]
    labels = [Label(title, _LEFT, 12)]
    labels += [Label(f"{mark:g}", _FIELD_LEFT - 4, to_y(mark) + 4, "end") for mark in marks]
    labels += [Label(f"{x:,g}", to_x(x), bottom + 13, "middle") for x in across]
    labels += [Label(y_unit, _LEFT, top - 6), Label(x_unit, _FIELD_RIGHT, bottom + 27, "end")]
    words = []
    for number, line in enumerate(lines):
        at = _TOP + _LEGEND * number + 4
        rules.append(Rule(line.kind, _FIELD_LEFT + 40, at, _FIELD_LEFT + 70, at))
        labels.append(Label(line.label, _FIELD_LEFT + 76, at + 4))
        points = sorted(line.points)
        for (x1, y1), (x2, y2) in pairwise(points):
            hint = f"{line.label}: {y1:.3g} {y_unit} at {x1:,g} {x_unit}, {y2:.3g} at {x2:,g}"
            rules.append(Rule(line.kind, to_x(x1), to_y(y1), to_x(x2), to_y(y2), hint))
        words.append(f"{line.label}: " + ", ".join(f"{y:.3g} at {x:,g}" for x, y in points))
    return Chart(f"{title}, {y_unit} by {x_unit}; " + "; ".join(words), bottom + 32, (), rules, labels)


def _scale(least: float, most: float, at_least: float, at_most: float, logarithmic: bool) -> Callable[[float], float]:
    """Where a value lies between two edges. All in the middle where there is but one value."""

    def share(value: float) -> float:
        if least == most:
            return 0.5
        if logarithmic:
            return math.log(value / least) / math.log(most / least)
        return (value - least) / (most - least)

    return lambda value: at_least + (at_most - at_least) * share(value)


def _mark_steps(most: float) -> list[float]:
    """Round values from 0 to `most` or just above, four to ten of them."""
    decade = 10.0 ** math.floor(math.log10(most))
    step = next(decade * part for part in (0.2, 0.5, 1.0, 2.0) if most / (decade * part) <= 8)
    return [round(step * number, 12) for number in range(math.ceil(most / step - 1e-9) + 1)]


def _mark_decades(least: float, most: float) -> list[float]:
    """Powers of ten, from the last one that is not above `least` to the first one that is not below `most`."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def write_picture(chart: Chart, path: Path) -> None:
    path.write_text(render_picture(chart), encoding="utf-8")


def render_picture(chart: Chart) -> str:
    template = make_environment().from_string('{% from "parts.html" import chart with context %}{{ chart(drawn) }}')
    head, end, shapes = template.render(drawn=chart).strip().partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}"{end}{_STYLE}{shapes}\n'
