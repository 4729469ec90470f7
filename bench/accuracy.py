"""Published figures beside our bounds: the made parts of docs/accuracy.md and its picture, `--write` or `--check`.

The points stand in tests/truth/points; nothing is measured here and nothing is fetched.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.accuracy_picture import draw_shares
from bench.pictures import render_picture
from llm_serving_exporter.docgen.generated_files import write_or_check
from tests.support.models.point_bounds import Bounds, ask_bounds
from tests.support.models.points import Kind, Phase, Point, Source, points

PAGE, PICTURE = Path("docs/accuracy.md"), Path("docs/img/accuracy.svg")
# an engine that exists, or kernels that do: nothing of them may lie above an upper bound
REAL = (Kind.MEASURED, Kind.KERNELS)


@dataclass(frozen=True)
class Compared:
    """A point with what we say of it."""

    point: Point
    bounds: Bounds

    @property
    def of_expected(self) -> float:
        return self.point.rate / self.bounds.expected

    @property
    def of_upper(self) -> float:
        return self.point.rate / self.bounds.upper


def compare() -> tuple[Compared, ...]:
    """All points that something can be said of."""
    asked = ((point, ask_bounds(point)) for point in points())
    return tuple(Compared(point, bounds) for point, bounds in asked if bounds is not None)


# --- what share engines reach --------------------------------------------------------------------------------------------

_FEW, _MANY = 2, 32
_SHORT, _LONG = 1000, 10_000


def _decodes(least: float, most: float, fits: Callable[[Point], bool]) -> Callable[[Point], bool]:
    """Decode of least <= batch < most in a layout without attention data parallel."""

    def belongs(point: Point) -> bool:
        plain = point.phase is Phase.DECODE and point.dp == 1
        return plain and least <= point.batch < most and fits(point)

    return belongs


def _prefills(least: float, most: float) -> Callable[[Point], bool]:
    return lambda point: point.phase is Phase.PREFILL and least <= point.prompt < most


def _mixed(point: Point) -> bool:
    return point.source.mixed


_CASES: tuple[tuple[str, Callable[[Point], bool]], ...] = (
    ("decode, one sequence on one GPU", _decodes(0, _FEW, lambda point: point.gpus == 1)),
    ("decode, one sequence on 2 to 4 GPUs", _decodes(0, _FEW, lambda point: 1 < point.gpus <= 4)),
    ("decode, one sequence on 8 GPUs", _decodes(0, _FEW, lambda point: point.gpus > 4)),
    ("decode, 2 to 31 sequences, nothing beside it", _decodes(_FEW, _MANY, lambda point: not _mixed(point))),
    ("decode, 32 sequences and more, nothing beside it", _decodes(_MANY, 1e9, lambda point: not _mixed(point))),
    ("decode, 2 sequences and more while the server computes prompts", _decodes(_FEW, 1e9, _mixed)),
    (
        "decode, attention data parallel with expert parallel",
        lambda point: point.phase is Phase.DECODE and point.dp > 1,
    ),
    (f"prefill, prompts up to {_SHORT:,} tokens", _prefills(0, _SHORT + 25)),
    (f"prefill, prompts up to {_LONG:,} tokens", _prefills(_SHORT + 25, _LONG)),
    ("prefill, longer prompts", _prefills(_LONG, 1e9)),
)


def list_shares(compared: Sequence[Compared]) -> Iterator[str]:
    """Lowest, median and highest share of the expected value by phase, batch and layout. Each point stands in one case."""
    yield "| case | measured | kernels, composed |"
    yield "|---|---|---|"
    for title, belongs in _CASES:
        cells = [
            _range([one.of_expected for one in compared if one.point.source.kind is kind and belongs(one.point)])
            for kind in REAL
        ]
        yield f"| {title} | {' | '.join(cells)} |"


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return "–"
    low, middle, high = (_percent(share) for share in (min(shares), statistics.median(shares), max(shares)))
    return f"{high} % (1)" if len(shares) == 1 else f"{low} to {high} %, median {middle} ({len(shares)})"


# --- each point ----------------------------------------------------------------------------------------------------------


def list_points(compared: Sequence[Compared], numbers: Sequence[Source]) -> Iterator[str]:
    """One row a point, numbered by its source."""
    yield "| source | model | weights | GPUs | step | batch | tokens | tokens/s | of expected | of upper |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in compared:
        point = one.point
        yield (
            f"| [{numbers.index(point.source) + 1}] | {point.model} | {point.weight_format} | {_gpus(point)} | {point.phase} "
            f"| {_number(point.batch)} | {_tokens(point)} | {_number(point.rate)} "
            f"| {_percent(one.of_expected)} % | {_percent(one.of_upper)} % |"
        )


def list_kernels(compared: Sequence[Compared]) -> Iterator[str]:
    """One row a question to aiconfigurator, with both of its answers."""
    yield "| model | weights | GPUs | step | batch | tokens | kernels, tokens/s | of expected | of upper | its SOL, of expected |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    by_call = {(one.point.call, one.point.source.kind): one for one in compared}
    for (call, kind), one in by_call.items():
        if kind is not Kind.KERNELS:
            continue
        point, light = one.point, by_call[call, Kind.SOL]
        yield (
            f"| {point.model} | {point.weight_format} | {_gpus(point)} | {point.phase} | {_number(point.batch)} | {_tokens(point)} "
            f"| {_number(point.rate)} | {_percent(one.of_expected)} % | {_percent(one.of_upper)} % | {_percent(light.of_expected)} % |"
        )


def list_above(compared: Sequence[Compared]) -> Iterator[str]:
    """What lies above the expected value, by why it does."""
    above = [one for one in compared if one.of_expected > 1]
    if not any(one.point.source.kind in REAL for one in above):
        yield "No measured point does, and none that is composed of measured kernels."
        yield "What other tools call the speed of light sometimes does:"
        yield ""
    for reason in dict.fromkeys(one.point.above for one in above):
        told = [one for one in above if one.point.above == reason]
        listed = "; ".join(
            f"{point.model} on {_gpus(point)}, {point.phase} of {_number(point.batch)} at {_tokens(point)} tokens, {_above(one)}"
            for one, point in ((one, one.point) for one in told)
        )
        yield f"- {told[0].point.source.title}: {listed}. {reason[:1].upper()}{reason[1:]}."


def _above(one: Compared) -> str:
    beyond = f" ({100 * one.of_upper:.1f} of the upper bound)" if one.of_upper > 1 else ""
    return f"{100 * one.of_expected:.1f} %{beyond}"


def list_layouts(compared: Sequence[Compared]) -> Iterator[str]:
    """The same kernels against the ceiling of tensor parallelism over as many GPUs."""
    yield "| tokens | batch | kernels, tokens/s | of `--tp 8` | of `--tp 1 --dp 8 --ep 8` |"
    yield "|---|---|---|---|---|"
    for one in compared:
        point = one.point
        if (point.source.kind, point.model, point.dp, point.gpu) == (Kind.KERNELS, "DeepSeek-R1", 8, "H200"):
            asked = ask_bounds(point.as_tensor_parallel())
            assert asked is not None
            tensor = point.rate / asked.expected
            yield (
                f"| {_tokens(point)} | {_number(point.batch)} | {_number(point.rate)} | {_percent(tensor)} % "
                f"| {_percent(one.of_expected)} % |"
            )


def list_sources(numbers: Sequence[Source]) -> Iterator[str]:
    """By their numbers: where, which version, when, and how batch and context are known or what was asked."""
    for number, source in enumerate(numbers, 1):
        told = source.inputs or source.call
        yield f"{number}. [{source.title}]({source.url}), {source.version}, {source.date}: {told}."


def list_waiting() -> Iterator[str]:
    """What is among the data and cannot be asked for yet."""
    waiting = [point for point in points() if ask_bounds(point) is None]
    if waiting:
        kinds = ", ".join(dict.fromkeys(f"{point.gpu} ({point.layout})" for point in waiting))
        yield f"{len(waiting)} points wait for GPUs or layouts that cannot be asked for yet: {kinds}."


def _gpus(point: Point) -> str:
    return f"{point.gpu}" if point.gpus == 1 else f"{point.gpus} x {point.gpu}, {point.layout}"


def _tokens(point: Point) -> str:
    if point.phase is Phase.DECODE:
        return _number(point.context) if point.context else "–"
    behind = f" behind {_number(point.prefix)}" if point.prefix else ""
    return f"{_number(point.prompt - point.prefix)}{behind}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1f}"


# --- the files -----------------------------------------------------------------------------------------------------------


def _fill(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with what stands between two marks made anew. Raises ValueError where the marks are gone."""
    begin, end = f"<!-- {name}: made by `make generate` from tests/truth/points -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{PAGE}: {begin} and {end} must be there once")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return "\n".join((f"{head}{begin}", "", *lines, "", f"{end}{tail}"))


def make_files() -> dict[Path, str]:
    """The page and the picture as they should be."""
    compared = compare()
    numbers = list(dict.fromkeys(one.point.source for one in compared))
    own = [one for one in compared if one.point.source.kind is Kind.MEASURED]
    tools = [one for one in compared if one.point.source.kind is Kind.SOL and not one.point.call]
    waiting = list(list_waiting())
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in {
        "shares": list_shares(compared),
        "layouts": list_layouts(compared),
        "above": list_above(compared),
        "measured": [*list_points(own, numbers), *([""] * bool(waiting)), *waiting],
        "kernels": list_kernels(compared),
        "analytical": list_points(tools, numbers),
        "sources": list_sources(numbers),
    }.items():
        text = _fill(text, name, lines)
    shown = [(one.point, one.of_expected) for one in compared if one.point.source.kind in REAL]
    return {PAGE: text, PICTURE: render_picture(draw_shares(shown))}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks; 1 where a file differs."""
    return write_or_check("python -m bench.accuracy", __doc__, make_files(), (), argv)


if __name__ == "__main__":
    sys.exit(main())
