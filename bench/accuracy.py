"""Published figures beside our bounds: the made parts of docs/accuracy.md and its picture, `--write` or `--check`.

The points stand in tests/truth/points; nothing is measured here and nothing is fetched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from bench.accuracy_picture import draw_shares
from bench.accuracy_tables import (
    REAL,
    compare,
    list_above,
    list_bandwidth,
    list_kernels,
    list_layouts,
    list_points,
    list_shares,
    list_sources,
    list_waiting,
)
from bench.pictures import render_picture
from bench.what_if_tables import list_fleets, list_phases_told
from llm_serving_exporter.docgen.generated_files import write_or_check
from tests.support.builders.h100 import list_all_phases, measure
from tests.support.models.points import Kind

PAGE, PICTURE = Path("docs/accuracy.md"), Path("docs/img/accuracy.svg")


def fill_block(text: str, name: str, lines: Iterable[str], source: str = "tests/truth/points") -> str:
    """The page with what stands between two marks made anew. Raises ValueError where the marks are gone."""
    begin, end = f"<!-- {name}: made by `make generate` from {source} -->", f"<!-- end of {name} -->"
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
        text = fill_block(text, name, lines)
    text = fill_block(
        text, "bandwidth", list_bandwidth(measure(phase) for phase in list_all_phases()), "tests/captures/h100-*"
    )
    text = fill_block(text, "what-if-h100", list_phases_told(), "tests/captures/h100-*")
    text = fill_block(text, "what-if-fleets", list_fleets(), "tests/truth/what_if.toml")
    shown = [(one.point, one.of_expected) for one in compared if one.point.source.kind in REAL]
    return {PAGE: text, PICTURE: render_picture(draw_shares(shown))}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks; 1 where a file differs."""
    return write_or_check("python -m bench.accuracy", __doc__, make_files(), (), argv)


if __name__ == "__main__":
    sys.exit(main())
