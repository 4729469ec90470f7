"""Totals over counters that wrap and restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.gpus.calls import WRAP_32_BITS, Total, Totals
from tests.support.rows import check_rows


@check_rows(
    ("raws", "totals"),
    [
        pytest.param([5, 5, 9], [5, 5, 9], id="starts at the raw value"),
        pytest.param([WRAP_32_BITS - 1, 0], [WRAP_32_BITS - 1, WRAP_32_BITS], id="wraps"),
        pytest.param([100, 40], [100, WRAP_32_BITS + 40], id="a fall below 32 bits is a wrap"),
        pytest.param(
            [WRAP_32_BITS + 7, 40, 50], [WRAP_32_BITS + 7, WRAP_32_BITS + 47, WRAP_32_BITS + 57], id="restarts"
        ),
    ],
)
def test_totals(raws, totals):
    total = Total()
    assert [total.update(raw) for raw in raws] == totals


@given(st.integers(0, WRAP_32_BITS - 1), st.lists(st.integers(0, WRAP_32_BITS - 1), max_size=30))
def test_a_32_bit_counter_read_often_enough_gives_the_exact_total(first, steps):
    total, true = Total(), first
    assert total.update(first) == first
    for step in steps:
        true += step
        assert total.update(true % WRAP_32_BITS) == true


@given(st.lists(st.integers(0, 1 << 64), min_size=1, max_size=30))
def test_a_total_never_falls(raws):
    total = Total()
    seen = [total.update(raw) for raw in raws]
    assert seen == sorted(seen)


def test_totals_are_kept_apart_by_name():
    totals = Totals()
    assert (totals.update("tx", 5), totals.update("rx", 7), totals.update("tx", 6)) == (5, 7, 6)
