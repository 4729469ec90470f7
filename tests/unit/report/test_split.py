"""The split of the change: exact, and each cause alone lands in its own part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.report.figures.split import Cell, logarithmic_mean, scale_to_million, split_change

amounts = st.floats(1e-3, 1e9)
keys = st.tuples(st.sampled_from("abc"), st.just("unified"), st.sampled_from(("prefill", "decode")))
cell = st.builds(Cell, amounts, amounts, amounts)
# some without money or GPU time
odd = st.builds(Cell, amounts, st.just(0.0) | amounts, st.just(0.0) | amounts)
weeks = st.dictionaries(keys, cell, min_size=1)
factors = st.floats(0.01, 100.0)


def usd(week: dict[tuple[str, ...], Cell]) -> float:
    return sum(one.usd for one in week.values())


def size(*weeks: dict[tuple[str, ...], Cell]) -> float:
    return sum(map(usd, weeks))


@given(st.dictionaries(keys, odd), st.dictionaries(keys, odd), st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_parts_add_up_to_the_change(before, after, idle_before, idle_after) -> None:
    found = split_change(before, after, idle_before, idle_after)
    change = usd(after) + idle_after - usd(before) - idle_before
    assert abs(found.total - change) <= 1e-9 * (size(before, after) + idle_before + idle_after)


def scaled(week, tokens=1.0, gpu_hours=1.0, usd=1.0):
    return {key: Cell(one.tokens * tokens, one.gpu_hours * gpu_hours, one.usd * usd) for key, one in week.items()}


@given(weeks, factors)
def test_a_change_of_price_alone_is_price(week, factor) -> None:
    other = scaled(week, usd=factor)
    found = split_change(week, other)
    slack = 1e-9 * size(week, other)
    assert abs(found.price - (usd(other) - usd(week))) <= slack
    assert max(map(abs, (found.volume, found.mix, found.utilisation))) <= slack


@given(weeks, factors)
def test_a_change_of_volume_alone_is_volume(week, factor) -> None:
    other = scaled(week, factor, factor, factor)
    found = split_change(week, other)
    slack = 1e-9 * size(week, other)
    assert abs(found.volume - (usd(other) - usd(week))) <= slack
    assert max(map(abs, (found.price, found.mix, found.utilisation))) <= slack


@given(weeks, factors)
def test_a_change_of_utilisation_alone_is_utilisation(week, factor) -> None:
    other = scaled(week, 1.0, factor, factor)
    found = split_change(week, other)
    slack = 1e-9 * size(week, other)
    assert abs(found.utilisation - (usd(other) - usd(week))) <= slack
    assert max(map(abs, (found.price, found.mix, found.volume))) <= slack


@given(weeks, st.floats(0, 1e6), st.floats(0, 1e6))
def test_what_serves_nothing_is_utilisation(week, before, after) -> None:
    found = split_change(week, week, before, after)
    assert abs(found.utilisation - (after - before)) <= 1e-9 * (usd(week) + before + after)


def test_cells_that_came_or_went_are_mix() -> None:
    left, right = ("a", "unified", "decode"), ("b", "unified", "decode")
    one, other = Cell(10.0, 1.0, 5.0), Cell(10.0, 1.0, 8.0)
    found = split_change({left: one}, {right: other})
    assert (found.mix, found.price, found.volume, found.utilisation) == (3.0, 0.0, 0.0, 0.0)
    assert split_change({}, {right: other}).mix == 8.0
    assert split_change({left: one}, {}).mix == -5.0


def test_tokens_moving_to_a_dearer_model_are_mix() -> None:
    cheap, dear = ("a", "unified", "decode"), ("b", "unified", "decode")
    before = {cheap: Cell(900.0, 9.0, 9.0), dear: Cell(100.0, 10.0, 10.0)}
    after = {cheap: Cell(100.0, 1.0, 1.0), dear: Cell(900.0, 90.0, 90.0)}
    found = split_change(before, after)
    assert abs(found.mix - 72.0) < 1e-9
    assert abs(found.price) + abs(found.volume) + abs(found.utilisation) < 1e-9


@given(weeks, weeks)
def test_a_split_of_unit_costs_has_no_volume(before, after) -> None:
    old, new = scale_to_million(before), scale_to_million(after)
    found = split_change(old, new)
    assert abs(found.volume) <= 1e-9 * size(old, new)
    assert abs(found.total - (usd(new) - usd(old))) <= 1e-9 * size(old, new)


@given(amounts, factors)
def test_the_logarithmic_mean_lies_between(value, factor) -> None:
    mean = logarithmic_mean(value * factor, value)
    assert min(value, value * factor) * (1 - 1e-9) <= mean <= max(value, value * factor) * (1 + 1e-9)
