"""The split of the change at last week's prices: exact, and each cause alone lands in its own part; cents that add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llm_serving_review.figures.split import (
    Cell,
    Split,
    add_splits,
    logarithmic_mean,
    round_parts,
    round_splits,
    split_use,
)
from llm_serving_review.pages.spend import write_change

amounts = st.floats(1e-3, 1e9)
keys = st.tuples(st.sampled_from("abc"), st.just("unified"), st.sampled_from(("prefill", "decode")))
cell = st.builds(Cell, amounts, amounts, amounts, amounts)
# some without money or GPU time
odd = st.builds(Cell, amounts, st.just(0.0) | amounts, st.just(0.0) | amounts, st.just(0.0) | amounts)
weeks = st.dictionaries(keys, cell, min_size=1)
factors = st.floats(0.01, 100.0)

Week = dict[tuple[str, ...], Cell]


def usd(week: Week) -> float:
    return sum(one.usd for one in week.values())


def size(*weeks: Week) -> float:
    return sum(map(usd, weeks))


def split(before: Week, after: Week) -> Split:
    return add_splits(split_use(before, after).values())


@given(st.dictionaries(keys, odd), st.dictionaries(keys, odd))
def test_the_parts_add_up_to_the_change(before: Week, after: Week) -> None:
    assert abs(split(before, after).total - (usd(after) - usd(before))) <= 1e-9 * size(before, after)


def scaled(week: Week, tokens: float = 1.0, busy: float = 1.0, hours: float = 1.0) -> Week:
    """At the same prices: USD go with the GPU-hours."""
    return {
        key: Cell(one.tokens * tokens, one.busy_hours * busy, one.gpu_hours * hours, one.usd * hours)
        for key, one in week.items()
    }


def only(cause: str, before: Week, after: Week) -> None:
    found = split(before, after).parts()
    slack = 1e-9 * size(before, after) + 1e-9
    assert abs(found.pop(cause) - (usd(after) - usd(before))) <= slack
    assert max(map(abs, found.values())) <= slack


@given(weeks, factors)
def test_a_change_of_volume_alone_is_volume(week: Week, factor: float) -> None:
    only("volume", week, scaled(week, factor, factor, factor))


@given(weeks, factors)
def test_busy_time_for_a_token_alone_is_efficiency(week: Week, factor: float) -> None:
    only("efficiency", week, scaled(week, 1.0, factor, factor))


@given(weeks, factors)
def test_time_that_was_not_busy_alone_is_idle(week: Week, factor: float) -> None:
    only("idle", week, scaled(week, 1.0, 1.0, factor))


def test_cells_that_came_or_went_are_mix() -> None:
    left, right = ("a", "unified", "decode"), ("b", "unified", "decode")
    one, other = Cell(10.0, 1.0, 1.0, 5.0), Cell(10.0, 1.0, 1.0, 8.0)
    assert split({left: one}, {right: other}) == Split(mix=3.0)
    assert split({}, {right: other}).mix == 8.0
    assert split({left: one}, {}).mix == -5.0


def test_tokens_moving_to_a_dearer_model_are_mix() -> None:
    cheap, dear = ("a", "unified", "decode"), ("b", "unified", "decode")
    before = {cheap: Cell(900.0, 9.0, 9.0, 9.0), dear: Cell(100.0, 10.0, 10.0, 10.0)}
    after = {cheap: Cell(100.0, 1.0, 1.0, 1.0), dear: Cell(900.0, 90.0, 90.0, 90.0)}
    only("mix", before, after)


@given(amounts, factors)
def test_the_logarithmic_mean_lies_between(value: float, factor: float) -> None:
    mean = logarithmic_mean(value * factor, value)
    assert min(value, value * factor) * (1 - 1e-9) <= mean <= max(value, value * factor) * (1 + 1e-9)


dollars = st.floats(-1e6, 1e6)


@given(st.lists(dollars, min_size=1, max_size=12))
def test_whole_cents_add_up_and_stay_near(parts: list[float]) -> None:
    total = round(100 * sum(parts))
    cents = round_parts(parts, total)
    assert sum(cents) == total
    assert all(abs(found - 100 * part) < 1.01 for found, part in zip(cents, parts, strict=True))


def test_what_gives_way_is_what_rounding_moved_furthest() -> None:
    # 33.3, 33.3 and 33.4 cents are 1.00, and 0 stays 0
    assert round_parts([1 / 3, 1 / 3, 1 / 3, 0.0], 100) in ([34, 33, 33, 0], [33, 34, 33, 0], [33, 33, 34, 0])
    assert round_parts([0.0149, 0.0149, 0.0], 3) in ([2, 1, 0], [1, 2, 0])
    assert round_parts([], 5) == []


@given(st.dictionaries(st.sampled_from("abcd"), st.builds(Split, dollars, dollars, dollars, mix=dollars), min_size=1))
def test_models_and_causes_add_up_both_ways(splits: dict[str, Split]) -> None:
    total = round(100 * add_splits(splits.values()).total)
    found = round_splits(splits, total)
    assert sum(round(100 * split.total) for split in found.values()) == total
    assert sum(round(100 * value) for split in found.values() for value in split.parts().values()) == total


def test_causes_that_cancel_are_written_as_nothing() -> None:
    split = Split(volume=0.1, mix=0.2, idle=-0.3)
    assert split.total != 0
    assert write_change(split.total) == write_change(0.0) == "0"
    assert write_change(-0.01) == "−0.01"
