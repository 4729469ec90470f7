"""The small formulas of planning, beyond the seeds' oracles (tests/truth/test_oracles.py)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.planning import (
    replicas,
    speculated_tokens,
    usd_per_million_tokens,
)
from tests.support.rows import check_rows


def test_mean_length_of_speculation() -> None:
    """Facts D.4: acceptance 0.8 and 4 drafts give 3.3616 tokens a step."""
    assert speculated_tokens(0.8, 4) == pytest.approx(3.3616)
    assert speculated_tokens(0.0, 4) == 1
    assert speculated_tokens(1.0, 4) == 5
    assert speculated_tokens(0.5, 0) == 1


@check_rows(("acceptance", "drafts"), [(-0.1, 4), (1.1, 4), (math.nan, 4), (0.8, -1)])
def test_speculation_outside_of_its_range(acceptance: float, drafts: int) -> None:
    assert speculated_tokens(acceptance, drafts) is None


@given(st.floats(0, 1), st.integers(0, 32))
def test_mean_length_lies_between_one_and_all_drafts(acceptance: float, drafts: int) -> None:
    length = speculated_tokens(acceptance, drafts)
    assert 1 - 1e-9 <= length <= 1 + drafts + 1e-9


@pytest.mark.parametrize("tokens", [0.0, -5.0])
def test_no_throughput_has_no_price(tokens: float) -> None:
    assert usd_per_million_tokens(16, tokens) is None


@check_rows(("throughput", "share"), [(0, 0.7), (5000, 0), (-1, 0.7), (5000, math.nan)])
def test_replicas_that_do_nothing_are_never_enough(throughput: float, share: float) -> None:
    assert replicas(10, 500, 200, throughput, share) is None


def test_a_whole_number_of_replicas_is_not_rounded_up() -> None:
    """10 x 700 / (5000 x 0.7) = 2, but for the last digit."""
    found = replicas(10, 500, 200, 5000, 0.7)
    assert found.whole == 2
    none = replicas(0, 500, 200, 5000, 0.7)
    assert none.whole == 0
