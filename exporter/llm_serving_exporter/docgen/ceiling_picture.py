"""docs/img/ceiling.svg: tokens/s by batch of the replica in docs/ceiling.md, at two lengths of context, as the ceiling command has them."""

from __future__ import annotations

import math
from html import escape

from llm_serving_exporter.commands.ceiling.answer import Answer, answer
from llm_serving_exporter.commands.ceiling.question import parser, question

# the replica of the page's first example
_WORDS = ("--model", "Llama-3.1-70B", "--gpu", "H100 SXM", "--tp", "4", "--dtype", "fp8")
_NAME = "Llama-3.1-70B in FP8 on four H100"
# tokens of context of each curve, and its colour
_CURVES = ((256, "#2f6fb3"), (4096, "#b36b00"))
_BATCHES = tuple(2**power for power in range(13))
_WIDTH, _HEIGHT = 720, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 160, 34, 44
_LEAST, _MOST = 100.0, 100_000.0
_STYLE = (
    ".chart { font: 12px sans-serif } .grid { stroke: #d5dae0 } .word { fill: #66707a } .text { fill: #1f2933 } "
    ".curve { fill: none; stroke-width: 2.5 } .roof { stroke: #2f8f4e; stroke-dasharray: 5 4; stroke-width: 1.5 }"
)


def find_ceilings(context_tokens: int) -> Answer:
    """What the ceiling command says of the replica at this context."""
    batches = ",".join(str(batch) for batch in _BATCHES)
    words = [*_WORDS, "--context", str(context_tokens), "--batches", batches]
    return answer(question(parser().parse_args(words), {}))


def ceiling_svg() -> str:
    """The picture as SVG: both axes logarithmic, the ridge dashed."""
    title = f"{_NAME}: the most tokens/s by batch, with {' and '.join(f'{context:,}' for context, _ in _CURVES)} tokens of context"
    lines = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style><title>{escape(title)}</title>',
        f'<rect x="0" y="0" width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text class="text" x="{_LEFT}" y="20">{escape(_NAME)}: the most tokens/s, by batch</text>',
        *_draw_axes(),
    ]
    for context, colour in _CURVES:
        lines += _draw_curve(context, colour, find_ceilings(context))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _draw_axes() -> list[str]:
    lines = []
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for rate in (100, 1_000, 10_000, 100_000):
        y = _place_rate(rate)
        lines.append(f'<path class="grid" d="M{_LEFT} {y:.1f} H{right}"/>')
        lines.append(f'<text class="word" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:,}</text>')
    for batch in _BATCHES[::2]:
        x = _place_batch(batch)
        lines.append(f'<text class="word" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{batch:,}</text>')
    middle = (_LEFT + right) / 2
    lines.append(
        f'<text class="word" x="{middle:.1f}" y="{bottom + 34}" text-anchor="middle">sequences in the batch</text>'
    )
    return lines


def _draw_curve(context: int, colour: str, found: Answer) -> list[str]:
    points = [(_place_batch(line.batch), _place_rate(line.ceiling.tokens_per_second)) for line in found.lines]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[-1]
    last = found.lines[-1].ceiling
    lines = [
        f'<path class="curve" stroke="{colour}" d="M{path}"/>',
        f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{context:,} tokens: {last.bound}</text>',
    ]
    if found.ridge_batch is not None and math.isfinite(found.ridge_batch):
        at, bottom = _place_batch(found.ridge_batch), _HEIGHT - _BOTTOM
        lines.append(f'<path class="roof" d="M{at:.1f} {bottom} V{y:.1f}"/>')
        lines.append(
            f'<text class="word" x="{at + 6:.1f}" y="{bottom - 8}">ridge: from {found.ridge_batch:.0f} on</text>'
        )
    return lines


def _place_batch(batch: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(batch) / math.log(_BATCHES[-1])


def _place_rate(rate: float) -> float:
    height = _HEIGHT - _TOP - _BOTTOM
    return _TOP + height * (1 - math.log(rate / _LEAST) / math.log(_MOST / _LEAST))
