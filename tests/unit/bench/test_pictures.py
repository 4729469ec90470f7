"""Lines of costs: where a point lies, by hand, and what is written of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.pictures import Line, draw_lines, write_picture
from llm_serving_review.pages.charts import Rule

_SVG = "{http://www.w3.org/2000/svg}"


def _segments(rules: object, kind: str) -> list[Rule]:
    """The line's own, without its sample in the legend, which has no hint."""
    assert isinstance(rules, list)
    return [rule for rule in rules if rule.kind == kind and rule.hint]


def test_lines_lie_where_their_values_are() -> None:
    # the field goes from 44 to 400 and is 160 high; one line's legend puts its upper edge at 18 + 14
    chart = draw_lines("CPU", "KB", "ms", [Line("ours", "ours", [(100.0, 1.0), (50.0, 0.5), (200.0, 2.0)])])
    first, second = _segments(chart.rules, "ours")
    assert (first.x1, first.x2, second.x2) == pytest.approx((44 + 356 / 4, 44 + 356 / 2, 400))
    assert (first.y1, first.y2, second.y2) == pytest.approx((32 + 120, 32 + 80, 32))


def test_equal_factors_are_equally_far_apart_on_a_logarithmic_scale() -> None:
    points = [(1.0, 0.1), (10.0, 1.0), (100.0, 10.0)]
    chart = draw_lines("CPU", "targets", "%", [Line("ours", "ours", points)], logarithmic=True)
    first, second = _segments(chart.rules, "ours")
    assert (first.x1, first.x2, second.x2) == pytest.approx((44, 44 + 178, 400))
    assert (first.y1, first.y2, second.y2) == pytest.approx((192, 112, 32))


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (13.0, ["0", "2", "4", "6", "8", "10", "12", "14"]),
        (1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.07, ["0", "0.01", "0.02", "0.03", "0.04", "0.05", "0.06", "0.07"]),
    ],
)
def test_the_scale_has_round_marks_up_to_the_greatest_value(most: float, marks: list[str]) -> None:
    chart = draw_lines("CPU", "KB", "ms", [Line("ours", "ours", [(50.0, most)])])
    assert [label.text for label in chart.labels if label.anchor == "end" and label.text != "KB"] == marks


def test_a_picture_says_its_numbers(tmp_path: Path) -> None:
    lines = [
        Line("ours", "ours", [(56.4, 1.12), (544.0, 6.5)]),
        Line("vmagent", "peer", [(56.4, 1.1), (544.0, 12.7)]),
    ]
    write_picture(draw_lines("CPU a scrape", "KB", "ms", lines), tmp_path / "page-size.svg")
    root = ElementTree.parse(tmp_path / "page-size.svg").getroot()
    assert root.tag == f"{_SVG}svg"
    assert root.attrib["aria-label"] == (
        "CPU a scrape, ms by KB; ours: 1.12 at 56.4, 6.5 at 544; vmagent: 1.1 at 56.4, 12.7 at 544"
    )
    texts = [element.text for element in root.iter(f"{_SVG}text")]
    assert {"ours", "vmagent", "56.4", "544", "ms", "KB"} <= set(texts)
    kinds = [element.attrib["class"] for element in root.iter(f"{_SVG}line")]
    # in the legend, and between two points
    assert (kinds.count("ours"), kinds.count("peer")) == (2, 2)
