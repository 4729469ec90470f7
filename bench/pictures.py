"""Pictures for docs/, of the shapes that the weekly review draws its charts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from llm_serving_exporter.report.pages.charts import WIDTH, Box, Chart, Label, Rule
from llm_serving_exporter.report.pages.page import make_environment

# legible on a light and on a dark page; a picture in a document has no style sheet beside it
_STYLE = (
    "<style>.chart { font: 11px sans-serif; fill: #808891 } .bar { fill: #3f7fd1 } .other { fill: #c98a2b } "
    ".axis { stroke: #808891 } .mark { stroke: #808891; stroke-dasharray: 3 2 }</style>"
)
_LEFT, _HEIGHT, _TOP, _GAP = 4.0, 70.0, 18.0, 34.0
# gaps are drawn as far off the interval as this share of it, and those further out in the last column
_WIDEST, _COLUMNS = 0.1, 40


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
        title = f"{program}: gaps between two ticks of a target, off the interval of {interval:g} s"
        edge = f"{100 * _WIDEST:.0f} %"
        boxes += _draw_columns(counts, kind, top, [f"{n} gaps" for n in counts])
        labels += [Label(title, _LEFT, top - 6), Label(f"-{edge}", _LEFT, top + _HEIGHT + 12)]
        labels += [
            Label("0", WIDTH / 2, top + _HEIGHT + 12, "middle"),
            Label(f"+{edge}", WIDTH, top + _HEIGHT + 12, "end"),
        ]
        rules += [
            Rule("axis", 0, top + _HEIGHT, WIDTH, top + _HEIGHT),
            Rule("mark", WIDTH / 2, top, WIDTH / 2, top + _HEIGHT),
        ]
        top += _HEIGHT + _GAP
        seconds = [0] * round(interval)
        for times in targets.values():
            for at in times:
                seconds[int(at % interval)] += 1
        boxes += _draw_columns(seconds, kind, top, [f"{n} ticks" for n in seconds])
        labels += [Label(f"{program}: ticks in each second of the interval", _LEFT, top - 6)]
        labels += [Label("0 s", _LEFT, top + _HEIGHT + 12), Label(f"{interval:g} s", WIDTH, top + _HEIGHT + 12, "end")]
        rules.append(Rule("axis", 0, top + _HEIGHT, WIDTH, top + _HEIGHT))
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


def write_picture(chart: Chart, path: Path) -> None:
    """The chart as a file of its own."""
    template = make_environment().from_string('{% from "parts.html" import chart with context %}{{ chart(drawn) }}')
    head, end, shapes = template.render(drawn=chart).strip().partition(">")
    text = f'{head} xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}"{end}{_STYLE}{shapes}\n'
    path.write_text(text, encoding="utf-8")
