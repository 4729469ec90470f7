"""The fact table: absent is absent, sums are exact, and views have what they name."""

from __future__ import annotations

from math import fsum

from llm_serving_review.evidence.usage import Line, Usage, pack, sum_packed, unpack
from llm_serving_review.tables.facts import AT_RATES, BEFORE, NOW
from tests.support.builders.costevidence import WEEK, facts_of, flat, joined, owner, usage

A, B = owner("a:8000"), owner("b:8000", "other")
# a plain sum loses the 1
ODD = (1e16, 1.0, -1e16)


def test_hours_come_back_with_those_that_are_not_known() -> None:
    hours = (0.0, None, -1.5, 1e300, 5e-324)
    assert unpack(pack(hours)) == hours
    assert Line(A, (), hours) == Line(A, (), hours) != Line(A, (), (*hours[:-1], None))
    assert Line(A, (), hours).hours == hours


def test_an_hour_that_no_row_knows_is_not_known() -> None:
    assert sum_packed(map(pack, ((1.0, None, None), (2.0, 3.0, None)))) == pack((3.0, 3.0, None))
    assert sum_packed(map(pack, zip(ODD, strict=True))) == pack((1.0,))
    assert sum_packed(()) is None


def test_sums_are_exact_in_any_order_and_of_nothing_they_are_absent() -> None:
    for values in (ODD, ODD[::-1]):
        lines = tuple(Line(A, ("idle", "spot", str(index)), (value,) * 168) for index, value in enumerate(values))
        facts = facts_of(Usage(cost=lines))
        assert facts.sum_total(NOW, "quantity = 'cost'") == fsum(line.total for line in lines)
        assert facts.sum_hours(NOW, "quantity = 'cost'") == (1.0,) * 168
        assert facts.sum_total(NOW, "quantity = 'cost' and phase = 'decode'") is None
        assert facts.sum_hours(BEFORE, "quantity = 'cost'") == (None,) * len(WEEK.hours)


def test_rows_have_the_names_of_their_columns() -> None:
    facts = facts_of(joined(usage(A, {"idle": 4.0, "decode": 2.0}), usage(B, {"idle": 1.0}, rate="reserved")))
    (row,) = facts.rows("select 1 as number, null as absent, 2.0 as 'of.a', null as 'of.b', :text as text", text="'")
    assert row == {"number": 1, "absent": None, "of": {"a": 2.0}, "text": "'"}
    assert facts.sum_total(NOW, f"phase = 'idle' and {AT_RATES}", rates='["reserved"]') == 1.0


def test_lines_come_back_as_they_were_and_a_week_that_is_forgotten_is_gone() -> None:
    week = usage(A, {"decode": 2.0}, 1e6, 1e6)
    facts = facts_of(week, Usage(cost=(flat(B, ("idle", "spot", "x"), 1.0),)))
    assert facts.lines(NOW, "cost") == week.cost
    assert facts.lines(NOW, "cost", "phase = 'idle'") == ()
    facts.forget(BEFORE)
    assert facts.lines(BEFORE, "cost") == ()
    assert facts.lines(NOW, "cost") == week.cost
