"""Floating commitments of each kind, worked out by hand to the cent."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.target import NodePlace
from llm_serving_review.evidence.usage import Gap
from llm_serving_review.figures.pool_hours import find_family, sum_moves
from llm_serving_review.figures.pools import PoolRow, Pools, measure_pools
from llm_serving_review.tables.sums import sum_by_key
from tests.support.builders.poolweek import EAST_A, H100, L4, P5, PoolWeek
from tests.support.rows import check_rows

HOUR = 3600.0
ALL = range(168)


def quantity(gpus: float = 8.0, price: float = 2.5, **more: object) -> Pool:
    """GPUs of p5.48xlarge wherever they stand, unless said otherwise."""
    given = {"name": "reserved", "use": PoolUse(instance_type=P5), **more}
    return Pool(kind=PoolKind.QUANTITY, gpus=gpus, usd_per_gpu_hour=price, **given)


def spend(usd_per_hour: float, *rates: tuple[PoolUse, float], **more: object) -> Pool:
    """A savings plan."""
    given = {"name": "plan", **more}
    of = tuple(SpendRate(*rate) for rate in rates)
    return Pool(kind=PoolKind.SPEND, usd_per_hour=usd_per_hour, rates=of, **given)


def row(found: Pools, name: str) -> PoolRow:
    return next(one for one in found.rows if one.pool.name == name)


def cents(value: float | None) -> float:
    assert value is not None
    assert value == pytest.approx(round(value, 2), abs=1e-7), "not a whole number of cents"
    return round(value, 2)


def test_a_quantity_covers_each_utc_hour_by_itself() -> None:
    week = PoolWeek()
    # two hours: 12 GPUs, then 3; each $4 without a commitment
    week.add("a", {10: 12.0, 11: 3.0})
    # in force from 10:00 to 12:00
    begin = week.week.begin + 10 * HOUR
    found = week.measure(quantity(from_unix_seconds=begin, until_unix_seconds=begin + 2 * HOUR))
    # 2 h x 8 x $2.50 = $40.00 committed. 10 h: 8 of 12 covered, 4 x $4 = $16 beyond. 11 h: 3 covered, 5 x $2.50 = $12.50 unused,
    # which does not make up for the 4 of the hour before. Used (8 + 3) x $2.50 = $27.50 for what costs (8 + 3) x $4 = $44.00.
    one = row(found, "reserved")
    assert (cents(one.committed_usd), cents(one.used_usd), cents(one.unused_usd), one.unknown_usd) == (
        40.0,
        27.5,
        12.5,
        0.0,
    )
    assert (one.committed_gpu_hours, one.used_gpu_hours, one.unused_gpu_hours) == (16.0, 11.0, 5.0)
    assert (cents(one.uncommitted_usd), cents(one.benefit_usd), cents(one.saved_usd)) == (44.0, 16.5, 4.0)
    # metered 15 x $4 = $60.00; paid $40.00 + $16.00 = $56.00
    assert cents(60.0 + found.effect_usd) == 56.0
    # the model bears what it used: $27.50 + $16.00
    (model,) = found.models
    assert (cents(model.usd), cents(model.paid_usd), model.covered_gpu_hours) == (60.0, 43.5, 11.0)


def test_a_pool_is_shared_by_gpu_hours() -> None:
    week = PoolWeek()
    week.add("a", {0: 6.0}, model="big")
    week.add("b", {0: 10.0}, model="small")
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    found = week.measure(quantity(**hour))
    # 8 of 16 covered, of each model half: big 3 x $2.50 + 3 x $4 = $19.50, small 5 x $2.50 + 5 x $4 = $32.50
    assert {one.model_name: cents(one.paid_usd) for one in found.models} == {"small": 32.5, "big": 19.5}
    # 8 x $2.50 + 8 x $4 = $52.00 is all of it
    assert cents(sum(one.paid_usd for one in found.hours)) == 52.0


def test_parts_of_an_hour() -> None:
    week = PoolWeek()
    # a target was there for half an hour with 8 GPUs: 4 GPU-hours
    week.add("a", {5: 4.0})
    at = week.week.begin + 5 * HOUR
    # the commitment begins at 5:45: a quarter of the hour, 8 x 0.25 = 2 GPU-hours, and covers at most a quarter of the use, 1 GPU-hour
    found = week.measure(quantity(from_unix_seconds=at + 2700, until_unix_seconds=at + HOUR))
    one = row(found, "reserved")
    assert (one.committed_gpu_hours, one.used_gpu_hours, one.unused_gpu_hours) == (2.0, 1.0, 1.0)
    # 2 x $2.50; paid 1 x $2.50 used, 1 x $2.50 unused, 3 x $4 beyond = $17.00
    assert cents(16.0 + found.effect_usd) == 17.0


def test_a_spend_goes_to_the_highest_discount_first() -> None:
    week = PoolWeek()
    small = NodePlace("us-east-1", "us-east-1b", "g6.xlarge")
    week.add("big", {0: 8.0}, 4.0, model="big")
    week.add("small", {0: 10.0}, 1.0, model="small", gpu_name=L4, place=small)
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    # p5 $4 -> $3, 25 % off; g6 $1 -> $0.60, 40 % off: g6 first, though it saves less in all
    plan = spend(15.0, (PoolUse(instance_type=P5), 3.0), (PoolUse(gpu_name=L4), 0.6), **hour)
    found = week.measure(plan)
    # g6: 10 x $0.60 = $6.00 for what costs $10.00. $9.00 are left: 3 of 8 GPU-hours of p5 at $3 for what costs $12.00. 5 x $4 = $20 beyond.
    one = row(found, "plan")
    assert (cents(one.committed_usd), cents(one.used_usd), cents(one.unused_usd)) == (15.0, 15.0, 0.0)
    assert (one.used_gpu_hours, cents(one.uncommitted_usd), cents(one.benefit_usd)) == (13.0, 22.0, 7.0)
    assert one.committed_gpu_hours is None
    assert one.unused_gpu_hours is None
    # metered 8 x $4 + 10 x $1 = $42.00, paid $35.00: big 3 x $3 + 5 x $4, small $6
    assert cents(42.0 + found.effect_usd) == 35.0
    assert {model.model_name: cents(model.paid_usd) for model in found.models} == {"big": 29.0, "small": 6.0}


def test_an_hour_that_is_booked_late_keeps_its_discount() -> None:
    week = PoolWeek()
    # both half off at the stated prices; of the first hour a twelfth of the cost was booked in the second, as busy time waits for tokens
    week.add("big", {0: 2.0, 1: 2.0}, 4.0, model="big")
    week.add("small", {0: 2.0, 1: 2.0}, 1.0, model="small", gpu_name=L4, place=NodePlace(instance_type="g6.xlarge"))
    week.book_late("small", 0, 1 / 12)
    two = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + 2 * HOUR}
    found = week.measure(spend(3.0, (PoolUse(gpu_name=H100), 2.0), (PoolUse(gpu_name=L4), 0.5), **two))
    # in both hours the L4 first, $1.00, then 1 GPU-hour of the H100 at $2.00 and 1 at $4.00
    assert {model.model_name: cents(model.paid_usd) for model in found.models} == {"big": 12.0, "small": 2.0}
    assert cents(16.0 + 4.0 + found.effect_usd) == 14.0


def test_what_is_left_of_a_spend_is_lost_and_equal_discounts_go_to_the_lowest_price() -> None:
    week = PoolWeek()
    week.add("big", {0: 2.0, 1: 2.0}, 4.0, model="big")
    week.add("small", {1: 2.0}, 1.0, model="small", gpu_name=L4, place=NodePlace(instance_type="g6.xlarge"))
    two = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + 2 * HOUR}
    # both half off; $3 an hour
    plan = spend(3.0, (PoolUse(gpu_name=H100), 2.0), (PoolUse(gpu_name=L4), 0.5), **two)
    found = week.measure(plan)
    # hour 0: 1.5 of 2 GPU-hours at $2 use all $3; 0.5 x $4 = $2.00 beyond. Hour 1: the L4 first, 2 x $0.50 = $1.00, then 1 GPU-hour of
    # the H100 at $2.00; 1 x $4.00 beyond.
    assert {model.model_name: cents(model.paid_usd) for model in found.models} == {"big": 11.0, "small": 1.0}
    assert cents(row(found, "plan").unused_usd) == 0.0
    # at $10 an hour: 0 h uses 2 x $2, loses $6; 1 h uses $4 + $1, loses $5
    found = week.measure(spend(10.0, (PoolUse(gpu_name=H100), 2.0), (PoolUse(gpu_name=L4), 0.5), **two))
    assert (cents(row(found, "plan").used_usd), cents(row(found, "plan").unused_usd)) == (9.0, 11.0)


def test_the_example_of_the_savings_plans_user_guide() -> None:
    """https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html, with machines for its vCPU and GB: $4.00 on demand and
    $2.00 committed (50 % off), $10.00 and $8.00 (20 %), $1.50 and $1.00 (33.3 %), $2.00 and $1.00 (50 %)."""
    week = PoolWeek()
    prices = {
        "c5.9xlarge": (4.0, 2.0, 1.0),
        "c5.24xlarge": (10.0, 8.0, 1.0),
        "vcpu": (1.5, 1.0, 10.0),
        "gb": (2.0, 1.0, 5.0),
    }
    for name, (full, _, number) in prices.items():
        week.add(name, {0: number}, full, model=name, place=NodePlace(instance_type=name))
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    rates = [(PoolUse(instance_type=name), low) for name, (_, low, _) in prices.items()]
    # $25 an hour is what all of it comes to at committed prices: 2 + 8 + 10 + 5
    found = week.measure(spend(25.0, *rates, **hour))
    assert cents(sum(one.paid_usd for one in found.hours)) == 25.0
    assert cents(row(found, "plan").unused_usd) == 0.0
    # $2 an hour: the 50 % first, and of these the lower price: 2 of the 5 GB
    found = week.measure(spend(2.0, *rates, **hour))
    paid = {one.model_name: cents(one.paid_usd) for one in found.models}
    assert paid == {"c5.9xlarge": 4.0, "c5.24xlarge": 10.0, "vcpu": 15.0, "gb": 2 * 1.0 + 3 * 2.0}


def test_a_window_is_prepaid_and_use_inside_it_costs_nothing_more() -> None:
    week = PoolWeek()
    week.add("a", dict.fromkeys(range(24, 72), 8.0))
    # Tuesday 6:00 to Wednesday 6:00, $480 for 8 GPUs: $20 an hour, $2.50 a GPU-hour
    begin = week.week.begin + 30 * HOUR
    block = Pool(
        "block", PoolKind.WINDOW, PoolUse(instance_type=P5), 8.0, 480.0 / 8 / 24,
        from_unix_seconds=begin, until_unix_seconds=begin + 24 * HOUR,
    )  # fmt: skip
    found = week.measure(block)
    one = row(found, "block")
    assert (cents(one.committed_usd), cents(one.used_usd), cents(one.unused_usd)) == (480.0, 480.0, 0.0)
    assert one.used_gpu_hours == pytest.approx(192.0)
    # 48 h x 8 x $4 = $1,536.00 metered; 24 h of it are prepaid: 24 x 8 x $4 + $480 = $1,248.00
    assert cents(1536.0 + found.effect_usd) == 1248.0
    outside = [piece for piece in found.hours if not begin <= piece.utc_begin < begin + 24 * HOUR]
    assert {piece.paid_usd for piece in outside} == {32.0}


def test_windows_then_quantities_then_spends() -> None:
    week = PoolWeek()
    week.add("a", {0: 10.0})
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    # as the file has them: the other way round
    pools = (
        spend(6.0, (PoolUse(gpu_name=H100), 3.0), **hour),
        quantity(4.0, 2.5, **hour),
        Pool("block", PoolKind.WINDOW, PoolUse(instance_type=P5), 2.0, 1.0, **hour),
    )
    found = week.measure(*pools)
    assert [one.pool.name for one in found.rows] == ["block", "reserved", "plan"]
    # 2 of the window, 4 of the quantity, $6 / $3 = 2 of the spend; 2 are left at $4
    assert [one.used_gpu_hours for one in found.rows] == [2.0, 4.0, 2.0]
    # $2 + $10 + $6 + $8
    assert cents(sum(one.paid_usd for one in found.hours)) == 26.0


def test_a_type_counts_for_its_own_type_unless_sizes_are_flexible() -> None:
    week = PoolWeek()
    week.add("a", {0: 4.0}, place=NodePlace("us-east-1", "us-east-1a", "p5.4xlarge"))
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    assert row(week.measure(quantity(**hour)), "reserved").used_gpu_hours == 0.0
    assert row(week.measure(quantity(**hour, size_flexible=True)), "reserved").used_gpu_hours == 4.0
    # names as the clouds publish them
    for one, other in (
        ("g6.xlarge", "g6.48xlarge"), ("a2-highgpu-1g", "a2-highgpu-8g"), ("Standard_NC24ads_A100_v4", "Standard_NC96ads_A100_v4"),
    ):  # fmt: skip
        assert find_family(one) == find_family(other), one
    for one, other in (
        ("p5.48xlarge", "p5en.48xlarge"), ("a2-highgpu-8g", "a2-ultragpu-8g"), ("Standard_NC24ads_A100_v4", "Standard_ND96isr_H100_v5"),
    ):  # fmt: skip
        assert find_family(one) != find_family(other), one


@check_rows(
    ("use", "covered"),
    [
        (PoolUse(gpu_name=H100), 8.0),
        (PoolUse(gpu_name=H100, region="us-east-1"), 8.0),
        (PoolUse(instance_type=P5, zone="us-east-1a"), 8.0),
        (PoolUse(gpu_name=H100, region="us-west-2"), 0.0),
        (PoolUse(instance_type=P5, zone="us-east-1b"), 0.0),
        (PoolUse(gpu_name=L4), 0.0),
    ],
)
def test_a_pool_is_for_its_place_and_kind(use: PoolUse, covered: float) -> None:
    week = PoolWeek()
    week.add("a", {0: 8.0})
    assert row(week.measure(quantity(use=use)), "reserved").used_gpu_hours == covered


def test_slices_of_a_card_are_shares_of_it() -> None:
    week = PoolWeek()
    week.add("a", {0: 0.5}, gpu_name=f"{H100} MIG 3g.40gb")
    assert row(week.measure(quantity(use=PoolUse(gpu_name=H100))), "reserved").used_gpu_hours == 0.5


def test_nodes_of_which_nothing_is_known_are_not_covered_and_that_is_said() -> None:
    week = PoolWeek()
    week.add("a", {0: 8.0}, place=NodePlace())
    week.add("b", {0: 8.0}, gpu_name=L4, place=NodePlace())
    found = week.measure(quantity())
    assert row(found, "reserved").used_gpu_hours == 0.0
    assert len(found.notes) == 1
    assert found.notes[0].startswith(
        "16.0 GPU-hours at the rate pool ran on nodes whose region, zone or instance type is not known"
    )
    # a pool of a kind of GPU asks nothing of the node
    found = week.measure(quantity(use=PoolUse(gpu_name=H100)))
    assert row(found, "reserved").used_gpu_hours == 8.0
    assert found.notes == ()


def test_other_rates_are_not_touched() -> None:
    week = PoolWeek()
    week.add("a", dict.fromkeys(ALL, 8.0), rate="on_demand")
    found = week.measure(quantity(4.0))
    assert row(found, "reserved").used_gpu_hours == 0.0
    assert all(piece.paid_usd == piece.usd for piece in found.hours)


def test_hours_of_a_gap_are_unknown_and_not_unused() -> None:
    week = PoolWeek()
    # 8 GPUs all week, but for two hours of Monday of which nothing is known
    week.add("a", {hour: 8.0 for hour in ALL if hour not in (5, 6)})
    at = week.week.begin + 5 * HOUR
    gap = Gap((), "a", at, at + 2 * HOUR, True, 8.0, 4.0)
    found = week.measure(quantity(10.0, 2.5), gaps=(gap,))
    one = row(found, "reserved")
    # 166 h x 2 unused x $2.50 = $830.00; 2 h x 10 x $2.50 = $50.00 unknown
    assert (cents(one.unused_usd), cents(one.unknown_usd), one.unused_gpu_hours) == (830.0, 50.0, pytest.approx(332.0))
    assert cents(one.committed_usd) == 168 * 25.0
    # another target's gap hides nothing, and one of a target that was removed is none
    assert row(week.measure(quantity(10.0), gaps=(Gap((), "b", at, at + HOUR, True),)), "reserved").unknown_usd == 0.0
    assert cents(row(week.measure(quantity(10.0, 2.5)), "reserved").unused_usd) == 830.0 + 50.0


def test_so_are_those_of_a_spend() -> None:
    week = PoolWeek()
    week.add("a", {hour: 1.0 for hour in ALL if hour != 5})
    at = week.week.begin + 5 * HOUR
    found = week.measure(spend(3.0, (PoolUse(gpu_name=H100), 2.5)), gaps=(Gap((), "a", at + 600, at + 3000, True),))
    one = row(found, "plan")
    # $3 an hour: $2.50 used and $0.50 lost in 167 hours, and one of which nobody knows
    assert (cents(one.used_usd), cents(one.unused_usd), cents(one.unknown_usd)) == (417.5, 83.5, 3.0)


def test_hours_before_the_first_data_are_in_no_figure() -> None:
    week = PoolWeek()
    week.add("a", {hour: 8.0 for hour in ALL if hour >= 84})
    one = row(week.measure(quantity(8.0, 2.5), begins=84), "reserved")
    assert (cents(one.committed_usd), cents(one.unused_usd)) == (84 * 20.0, 0.0)


def test_a_week_in_berlin_begins_an_hour_earlier_in_utc() -> None:
    week = PoolWeek("Europe/Berlin")
    week.add("a", dict.fromkeys(ALL, 8.0))
    # from Monday, midnight UTC: 1:00 in Berlin, so that the first hour of the week is not covered and the last is
    monday = week.week.begin + HOUR
    assert monday % (24 * HOUR) == 0
    found = week.measure(quantity(8.0, 2.5, from_unix_seconds=monday))
    one = row(found, "reserved")
    assert (cents(one.committed_usd), one.used_gpu_hours) == (167 * 20.0, 167 * 8.0)
    first, second = list(sum_by_key((one.utc_begin, one.paid_usd) for one in found.hours).values())[:2]
    assert (cents(first), cents(second)) == (32.0, 20.0)


def test_a_week_in_kolkata_has_half_a_utc_hour_at_each_edge() -> None:
    week = PoolWeek("Asia/Kolkata")
    # 10 GPUs in the first hour of the week, 6 in the second, none later
    week.add("a", {0: 10.0, 1: 6.0})
    begin = week.week.begin
    assert begin % HOUR == 1800
    # in force for the first three UTC hours that the week touches
    found = week.measure(quantity(8.0, 2.5, until_unix_seconds=begin - 1800 + 3 * HOUR))
    one = row(found, "reserved")
    # the half hour at the edge: 8 x 0.5 = 4 committed, 10 x 0.5 = 5 used, 4 covered, 1 beyond. The first whole UTC hour: 8 committed, half
    # of either hour of the week = 5 + 3 = 8 used and covered. The next: 8 committed, 3 covered, 5 unused.
    assert (one.committed_gpu_hours, one.used_gpu_hours, one.unused_gpu_hours) == (20.0, 15.0, 5.0)
    # 15 x $2.50 + 1 x $4 = $41.50 for the model, 5 x $2.50 = $12.50 unused
    assert cents(found.models[0].paid_usd) == 41.5
    assert cents(64.0 + found.effect_usd) == 54.0


def test_pools_out_of_their_time_are_none() -> None:
    week = PoolWeek()
    week.add("a", {0: 8.0})
    over = quantity(until_unix_seconds=week.week.begin)
    assert measure_pools(week.usage, week.book, week.week, None) is None
    assert measure_pools(week.usage, week.book, week.week, PoolBook((over,))) is None


def test_a_move_is_worth_what_is_paid_on_demand_and_no_hour_is_promised_twice() -> None:
    week = PoolWeek()
    # by day 8 on demand, by night 2; the pool of 6 stands unused all day
    week.add("d", {0: 8.0, 1: 2.0}, 4.0, rate="on_demand")
    two = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + 2 * HOUR}
    found = week.measure(quantity(6.0, 2.5, **two))
    # min(6, 8) + min(6, 2) = 8 GPU-hours at $4
    assert sum_moves(found.moves) == {H100: 8.0}
    assert [(one.pool, one.gpu_hours, cents(one.usd)) for one in found.moves] == [("reserved", 8.0, 32.0)]
    second = quantity(6.0, 2.5, name="second", **two)
    found = week.measure(quantity(6.0, 2.5, **two), second)
    # the second has what the first leaves: 2 + 0
    assert [(one.pool, one.gpu_hours) for one in found.moves] == [("reserved", 8.0), ("second", 2.0)]
    # another kind of GPU cannot take it over
    assert week.measure(quantity(6.0, use=PoolUse(gpu_name=L4), **two)).moves == ()


def test_pool_load_elsewhere_may_move_too() -> None:
    week = PoolWeek()
    week.add("west", {0: 8.0}, 4.0, place=NodePlace("us-west-2", "us-west-2a", P5))
    week.add("east", {0: 2.0}, 4.0)
    hour = {"from_unix_seconds": week.week.begin, "until_unix_seconds": week.week.begin + HOUR}
    found = week.measure(quantity(6.0, use=PoolUse(instance_type=P5, region=EAST_A.region), **hour))
    assert [(one.pool, one.gpu_hours, cents(one.usd)) for one in found.moves] == [("reserved", 4.0, 16.0)]
    # nobody would reserve it: it is not at an on-demand rate
    assert sum_moves(found.moves) == {}
