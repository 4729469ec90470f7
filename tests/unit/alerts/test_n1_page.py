"""docs/internals-n1.md: its examples are the fleets that promtool judges, and its arithmetic comes out."""

from __future__ import annotations

import math
import re

from tests.pack.fleets_node_loss import _CAPACITY, _NODES, _ROLES, N1_LOAD, SUFFICIENT
from tests.pack.samples import Fleet
from tests.support.paths import ROOT
from tests.support.rows import check_rows

PAGE = (ROOT / "docs/internals-n1.md").read_text()
FLEETS = {fleet.model_name: fleet for fleet in (*_NODES, *_CAPACITY, *_ROLES)}
ROWS = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([\d./ +]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


def expected(fleet: Fleet, record: str, **labels: str) -> float | None:
    found = [one.value for one in fleet.expected if one.record == record and one.labels == labels]
    assert len(found) == 1
    return found[0]


def total(sums: str) -> float:
    """`600/1200 + 180/600`"""
    return math.fsum(float(over) / float(under) for over, under in (part.split("/") for part in sums.split(" + ")))


@check_rows(("name", "sums", "value"), ROWS)
def test_an_example_is_the_tests_and_its_sum_is_right(name: str, sums: str, value: str) -> None:
    assert expected(FLEETS[name], N1_LOAD, resource="phases") == float(value)
    assert round(total(sums), 3) == float(value)


def test_there_are_examples() -> None:
    assert len(ROWS) == 10


def test_what_has_no_number_has_none() -> None:
    sentence = PAGE.split("And where there is no number:")[1].split("## ")[0]
    unknown = re.findall(r"`([\w-]+)` \(", sentence)
    assert len(unknown) == 5
    assert [expected(FLEETS[name], SUFFICIENT) for name in unknown] == [None] * 5
    assert expected(FLEETS["unknown-short"], SUFFICIENT) == 0
