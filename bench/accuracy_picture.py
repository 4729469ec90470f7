"""The picture of docs/accuracy.md: the share of the expected value that each point reaches, decode by batch and prefill by prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_serving_review.pages.charts import WIDTH, Box, Chart, Label, Rule
from tests.support.models.points import Kind, Phase, Point

_LEFT, _RIGHT, _HEIGHT, _TOP, _GAP, _MARK = 44.0, WIDTH - 24.0, 130.0, 36.0, 52.0, 4.0
# the highest share that is drawn: a point above it would be a fault, and tests say so
_HIGHEST = 1.1
# class of the style that colours a kind of figure, and what the legend says
_KINDS = {Kind.MEASURED: ("bar", "measured"), Kind.KERNELS: ("other", "composed of measured kernels")}


@dataclass(frozen=True)
class _Field:
    """One of the two fields, with decades of what it goes by."""

    title: str
    phase: Phase
    # powers of ten at its edges
    first: int
    last: int
    top: float

    def place(self, point: Point) -> float:
        value = point.batch / point.gpus if self.phase is Phase.DECODE else point.prompt
        return self.at(max(math.log10(value), self.first))

    def at(self, power: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (power - self.first) / (self.last - self.first)

    def height(self, share: float) -> float:
        return self.top + _HEIGHT * (1 - min(share, _HIGHEST) / _HIGHEST)


def draw_shares(shown: Sequence[tuple[Point, float]]) -> Chart:
    """Of points and their shares, decode above and prefill below."""
    boxes: list[Box] = []
    rules: list[Rule] = []
    labels: list[Label] = []
    for number, (_, (kind, words)) in enumerate(_KINDS.items()):
        at = _LEFT + 90 * number
        boxes.append(Box(kind, at, 6, _MARK, _MARK))
        labels.append(Label(words, at + 8, 12))
    top = _TOP
    for title, phase, first, last in (
        ("decode: share of the expected tokens/s by sequences a GPU", Phase.DECODE, -1, 4),
        ("prefill: the same by tokens of a prompt", Phase.PREFILL, 2, 6),
    ):
        field = _Field(title, phase, first, last, top)
        rules += _draw_axes(field)
        labels += _draw_numbers(field)
        boxes += _draw_points(field, shown)
        top += _HEIGHT + _GAP
    shares = [share for _, share in shown]
    words = f"{len(shown)} points, from {100 * min(shares):.0f} to {100 * max(shares):.0f} % of what is expected"
    return Chart(f"Published figures by batch and prompt: {words}", top - _GAP + 20, boxes, rules, labels)


def _draw_axes(field: _Field) -> Iterator[Rule]:
    bottom = field.height(0)
    yield Rule("axis", _LEFT, bottom, _RIGHT, bottom)
    yield Rule("axis", _LEFT, field.height(1), _RIGHT, field.height(1), "the expected value")
    yield Rule("mark", _LEFT, field.height(0.5), _RIGHT, field.height(0.5))


def _draw_numbers(field: _Field) -> Iterator[Label]:
    yield Label(field.title, _LEFT, field.top - 4)
    for share in (0.0, 0.5, 1.0):
        yield Label(f"{100 * share:.0f} %", _LEFT - 4, field.height(share) + 4, "end")
    for power in range(field.first, field.last + 1):
        anchor = "end" if power == field.last else "middle"
        yield Label("0.1" if power < 0 else f"{10**power:,}", field.at(power), field.height(0) + 13, anchor)


def _draw_points(field: _Field, shown: Sequence[tuple[Point, float]]) -> Iterator[Box]:
    for point, share in shown:
        if point.phase is field.phase:
            kind, _ = _KINDS[point.source.kind]
            x, y = field.place(point) - _MARK / 2, field.height(share) - _MARK / 2
            yield Box(kind, x, y, _MARK, _MARK, f"{point}: {100 * share:.0f} %")
