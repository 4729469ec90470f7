"""docs/faults.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
SECTIONS = {
    "Network", "The metrics page", "The runtime", "NVML and driver", "GPUs", "Clock", "Disk and files",
    "Connections and threads", "Configuration", "Kubernetes", "Prometheus and Alertmanager", "A receiver of OTLP", "Signals",
}  # fmt: skip
ROW = re.compile(r"^\| (?P<fault>[^|]+) \| (?P<seen>[^|]+) \| (?P<shown>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)(?:\[(?P<case>[^\]]+)\])?`")


def rows() -> list[re.Match[str]]:
    return [row for row in ROW.finditer(DOCUMENT) if row["fault"] != "fault" and not row["fault"].startswith("--")]


def lacks(found: re.Match[str]) -> str:
    """What is wrong with the name of a test; "" where there is one."""
    file = TESTS / found["file"]
    if not file.is_file():
        return f"{found[0]}: no such file"
    source = file.read_text(encoding="utf-8")
    # cases for promtool are data, named by their alert
    is_there = (
        f"def {found['name']}(" in source if Path(found["file"]).name.startswith("test_") else found["name"] in source
    )
    if not is_there:
        return f"{found[0]}: no such test"
    return f"{found[0]}: no such case" if found["case"] and f'"{found["case"]}"' not in source else ""


def test_each_row_names_tests_that_there_are() -> None:
    silent = [row["fault"] for row in rows() if not TEST.search(row["shown"])]
    assert silent == []
    wrong = [problem for row in rows() for found in TEST.finditer(row["shown"]) if (problem := lacks(found))]
    assert not wrong, "\n".join(wrong)


def test_every_place_where_something_breaks_is_there() -> None:
    assert set(re.findall(r"^## (.+)$", DOCUMENT, re.MULTILINE)) == SECTIONS
    assert len(rows()) >= 60
    assert len({row["fault"] for row in rows()}) == len(rows())
