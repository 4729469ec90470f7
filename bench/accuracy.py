"""Published figures beside our bounds: the made parts of docs/accuracy.md, its points and its picture.

`python -m bench.accuracy --write` or `--check`. The points stand in tests/truth/points; nothing is measured here and nothing is fetched.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.pictures import render_picture
from bench.shared import write_table
from bench.what_if_tables import list_fleets, list_phases_told
from llm_serving_exporter.docgen.generated_files import write_or_check
from llm_serving_review.pages.charts import WIDTH, Box, Chart, Label, Rule
from tests.support.builders.h100 import Measured, list_all_phases, measure
from tests.support.models.points import Bounds, Kind, Phase, Point, Source, ask_bounds, points

PAGE, POINTS, PICTURE = Path("docs/accuracy.md"), Path("docs/accuracy-points.csv"), Path("docs/img/accuracy.svg")
# an engine that exists, or kernels that do: nothing of them may lie above an upper bound
REAL = (Kind.MEASURED, Kind.KERNELS)


@dataclass(frozen=True)
class Compared:
    point: Point
    bounds: Bounds

    @property
    def of_expected(self) -> float:
        return self.point.rate / self.bounds.expected

    @property
    def of_upper(self) -> float:
        return self.point.rate / self.bounds.upper


def compare() -> tuple[Compared, ...]:
    asked = ((point, ask_bounds(point)) for point in points())
    return tuple(Compared(point, bounds) for point, bounds in asked if bounds is not None)


# --- what share engines reach --------------------------------------------------------------------------------------------

_FEW, _MANY = 2, 32
_SHORT, _LONG = 1000, 10_000


def _pick_decode(least: float, most: float, fits: Callable[[Point], bool]) -> Callable[[Point], bool]:
    """Decode of least <= batch < most in a layout without attention data parallel."""

    def belongs(point: Point) -> bool:
        plain = point.phase is Phase.DECODE and point.dp == 1
        return plain and least <= point.batch < most and fits(point)

    return belongs


def _pick_prefill(least: float, most: float) -> Callable[[Point], bool]:
    return lambda point: point.phase is Phase.PREFILL and least <= point.prompt < most


def _is_mixed(point: Point) -> bool:
    return point.source.mixed


CASES: tuple[tuple[str, Callable[[Point], bool]], ...] = (
    ("decode, one sequence on one GPU", _pick_decode(0, _FEW, lambda point: point.gpus == 1)),
    ("decode, one sequence on 2 to 4 GPUs", _pick_decode(0, _FEW, lambda point: 1 < point.gpus <= 4)),
    ("decode, one sequence on 8 GPUs", _pick_decode(0, _FEW, lambda point: point.gpus > 4)),
    ("decode, 2 to 31 sequences, nothing beside it", _pick_decode(_FEW, _MANY, lambda point: not _is_mixed(point))),
    ("decode, 32 sequences and more, nothing beside it", _pick_decode(_MANY, 1e9, lambda point: not _is_mixed(point))),
    ("decode, 2 sequences and more while the server computes prompts", _pick_decode(_FEW, 1e9, _is_mixed)),
    (
        "decode, attention data parallel with expert parallel",
        lambda point: point.phase is Phase.DECODE and point.dp > 1,
    ),
    (f"prefill, prompts up to {_SHORT:,} tokens", _pick_prefill(0, _SHORT + 25)),
    (f"prefill, prompts up to {_LONG:,} tokens", _pick_prefill(_SHORT + 25, _LONG)),
    ("prefill, longer prompts", _pick_prefill(_LONG, 1e9)),
)


def list_shares(compared: Sequence[Compared]) -> Iterator[str]:
    """Lowest, median and highest share of the expected value by phase, batch and layout. Each point stands in one case."""
    rows = []
    for title, belongs in CASES:
        kinds = ([one for one in compared if one.point.source.kind is kind and belongs(one.point)] for kind in REAL)
        rows.append((title, *(_range([one.of_expected for one in found]) for found in kinds)))
    return write_table(("case", "measured", "kernels, composed"), rows)


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return "–"
    low, middle, high = (_digits(share) for share in (min(shares), statistics.median(shares), max(shares)))
    return f"{high} % (1)" if len(shares) == 1 else f"{low} to {high} %, median {middle} ({len(shares)})"


# --- each point ----------------------------------------------------------------------------------------------------------


_COLUMNS = (
    "source", "kind", "model", "weights", "gpus", "gpu", "layout", "step", "batch", "tokens", "tokens_behind",
    "tokens_per_second", "of_expected", "of_upper", "sol_of_expected", "how", "why_above",
)  # fmt: skip


def write_points(compared: Sequence[Compared], numbers: Sequence[Source]) -> str:
    """All points as CSV, numbered by their sources. What aiconfigurator says of the speed of light stands beside its kernels."""
    light = {one.point.call: one for one in compared if one.point.source.kind is Kind.SOL}
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for one in _leave_out_light(compared):
        point = one.point
        tokens = point.context if point.phase is Phase.DECODE else point.prompt - point.prefix
        sol = light[point.call] if point.source.kind is Kind.KERNELS else None
        shares = (one.of_expected, one.of_upper, sol.of_expected if sol is not None else None)
        table.writerow(
            (
                numbers.index(point.source) + 1, point.source.kind.value, point.model, point.weight_format, point.gpus, point.gpu,
                point.layout, point.phase.value, f"{point.batch:g}", f"{tokens:g}" if tokens else "", f"{point.prefix:g}",
                f"{point.rate:.1f}", *("" if share is None else f"{share:.3f}" for share in shares),
                point.source.inputs or point.source.call, point.above or (sol.point.above if sol is not None else ""),
            )
        )  # fmt: skip
    return out.getvalue()


def _leave_out_light(compared: Iterable[Compared]) -> Iterator[Compared]:
    """Without what aiconfigurator says of the speed of light at the points of its kernels."""
    return (one for one in compared if one.point.source.kind is not Kind.SOL or not one.point.call)


def count_points(compared: Sequence[Compared]) -> Iterator[str]:
    """How many points of each kind there are, and what cannot be asked for yet."""
    count = Counter(one.point.source.kind for one in _leave_out_light(compared))
    measured, kernels, analytical = (count[kind] for kind in (Kind.MEASURED, Kind.KERNELS, Kind.SOL))
    yield f"{measured} points are measured on hardware, {kernels} composed of measured kernels, {analytical} of an analytical model."
    waiting = [point for point in points() if ask_bounds(point) is None]
    if waiting:
        kinds = ", ".join(dict.fromkeys(f"{point.gpu} ({point.layout})" for point in waiting))
        yield f"{len(waiting)} points wait for GPUs or layouts that cannot be asked for yet: {kinds}."


def list_above(compared: Sequence[Compared]) -> Iterator[str]:
    """What lies above the expected value, by tool. Why it does stands beside each point."""
    above = [one for one in compared if one.of_expected > 1]
    if not any(one.point.source.kind in REAL for one in above):
        yield "No measured point does, and none that is composed of measured kernels."
        yield "What other tools call the speed of light sometimes does:"
        yield ""
    for title in dict.fromkeys(one.point.source.title for one in above):
        of_tool = [one for one in above if one.point.source.title == title]
        most, beyond = max(one.of_expected for one in of_tool), sum(one.of_upper > 1 for one in of_tool)
        models = ", ".join(dict.fromkeys(one.point.model for one in of_tool))
        yield f"- {title}: {len(of_tool)} points ({models}), up to {_percent(most)}; {beyond} lie above the upper bound too."


def list_layouts(compared: Sequence[Compared]) -> Iterator[str]:
    """The same kernels against the ceiling of tensor parallelism over as many GPUs."""
    rows = []
    for one in compared:
        point = one.point
        if (point.source.kind, point.model, point.dp, point.gpu) == (Kind.KERNELS, "DeepSeek-R1", 8, "H200"):
            asked = ask_bounds(point.as_tensor_parallel())
            assert asked is not None
            shares = (point.rate / asked.expected, one.of_expected)
            rows.append((*map(_number, (point.context, point.batch, point.rate)), *map(_percent, shares)))
    return write_table(("tokens", "batch", "kernels, tokens/s", "of `--tp 8`", "of `--tp 1 --dp 8 --ep 8`"), rows)


def list_sources(numbers: Sequence[Source]) -> Iterator[str]:
    """By their numbers: where, which version, and when. How batch and context are known stands beside each point."""
    for number, source in enumerate(numbers, 1):
        yield f"{number}. [{source.title}]({source.url}), {source.version}, {source.date}."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{_digits(share)} %"


def _digits(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1f}"


# --- memory bandwidth beside the hardware's own counter ------------------------------------------------------------------


def list_bandwidth(found: Iterable[Measured]) -> Iterator[str]:
    """A row a phase: GPM's share of the peak, ours, and what ours may lie between."""
    heads = "recording", "phase", "seconds", "GPM", "ours", "lower", "upper", "off", "limiter"
    off, rows = [], []
    for one in found:
        bounds, verdict = one.bounds, one.derived.verdict
        shares = (f"{100 * share:.1f}" for share in (one.gpm, one.expected, bounds.lower, bounds.upper))
        state = f"`{verdict.state.value}`" if verdict is not None else ""
        phase = one.phase
        rows.append((f"{phase.run}", phase.name, f"{phase.seconds:.0f}", *shares, f"{100 * one.off:+.1f} %", state))
        off.append(one.off)
    yield from write_table(heads, rows)
    worst, rms = max(map(abs, off)), statistics.fmean(each * each for each in off) ** 0.5
    yield ""
    yield f"Over these {len(off)} phases the difference is {100 * rms:.1f} % (rms), and {100 * worst:.1f} % at worst."


# --- the picture: the share of the expected value that each point reaches, decode by batch and prefill by prompt

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


# --- the page


def fill_block(text: str, name: str, lines: Iterable[str], source: str = "tests/truth/points") -> str:
    """The page with what stands between two marks made anew. Raises ValueError where the marks are gone."""
    begin, end = f"<!-- {name}: made by `make generate` from {source} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{PAGE}: {begin} and {end} must be there once")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return "\n".join((f"{head}{begin}", "", *lines, "", f"{end}{tail}"))


def make_files() -> dict[Path, str]:
    compared = compare()
    numbers = list(dict.fromkeys(one.point.source for one in compared))
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in {
        "shares": list_shares(compared),
        "layouts": list_layouts(compared),
        "above": list_above(compared),
        "points": count_points(compared),
        "sources": list_sources(numbers),
    }.items():
        text = fill_block(text, name, lines)
    text = fill_block(
        text, "bandwidth", list_bandwidth(measure(phase) for phase in list_all_phases()), "tests/captures/h100-*"
    )
    text = fill_block(text, "what-if-h100", list_phases_told(), "tests/captures/h100-*")
    text = fill_block(text, "what-if-fleets", list_fleets(), "tests/truth/what_if.toml")
    shown = [(one.point, one.of_expected) for one in compared if one.point.source.kind in REAL]
    return {PAGE: text, POINTS: write_points(compared, numbers), PICTURE: render_picture(draw_shares(shown))}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks; 1 where a file differs."""
    return write_or_check("python -m bench.accuracy", __doc__, make_files(), (), argv)


if __name__ == "__main__":
    sys.exit(main())
