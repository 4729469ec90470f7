"""GPU time to states and its price to phases: every cent to one place, and seed figures of the cost of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.cost.attribution import (
    add_energy,
    add_savings,
    advance_totals,
    split_busy_time,
    usd_by_phase,
    usd_per_million_tokens,
    window_cost,
)
from llm_serving_exporter.derive.busy import LONGEST_PENDING_SECONDS
from llm_serving_exporter.model.cost import (
    Attribution,
    EngineTotals,
    GpuState,
    Method,
    Power,
    Price,
    Rate,
    RateKind,
    TickWork,
)
from llm_serving_exporter.model.target import Role
from tests.support.rows import check_rows

BUSY, IDLE, DOWN, UNKNOWN = GpuState.BUSY, GpuState.IDLE, GpuState.DOWN, GpuState.UNKNOWN
# 3600 USD an hour: a USD a GPU second
DOLLAR = Price(3600.0, Rate("reserved", RateKind.RESERVED))
DEAR = Price(7200.0, Rate("spot", RateKind.SPOT))
HALVES = {"prefill": 1.0, "decode": 1.0}


def tick(before: EngineTotals, state: GpuState, shares: Any = None, **how: Any) -> EngineTotals:
    settings: dict[str, Any] = {"seconds": 5.0, "gpus": 2.0, "price": DOLLAR, "method": Method.ROOFLINE, **how}
    return advance_totals(before, state=state, shares=shares, **settings)


def phases(totals: EngineTotals) -> dict[str, float]:
    return {phase: usd for phase, usd in usd_by_phase(totals.usd).items() if usd}


def states(totals: EngineTotals) -> dict[str, float]:
    return {state: seconds for (state, _), seconds in totals.gpu_seconds.items() if seconds}


def test_each_state_has_its_place() -> None:
    found = EngineTotals()
    for state, shares in ((BUSY, HALVES), (IDLE, {}), (DOWN, {}), (UNKNOWN, {})):
        found = tick(found, state, shares)
    assert states(found) == {"busy": 10.0, "idle": 10.0, "down": 10.0, "unknown": 10.0}
    assert phases(found) == {"prefill": 5.0, "decode": 5.0, "idle": 10.0, "down": 10.0, "unattributed": 10.0}


def test_what_foreign_processes_take_is_unattributed_whatever_the_engine_does() -> None:
    found = EngineTotals()
    for state, shares in ((BUSY, HALVES), (IDLE, {}), (DOWN, {}), (UNKNOWN, {})):
        found = tick(found, state, shares, foreign=0.2)
    assert states(found) == pytest.approx({"busy": 8.0, "idle": 8.0, "down": 8.0, "unknown": 16.0})
    expected = {"prefill": 4.0, "decode": 4.0, "idle": 8.0, "down": 8.0, "unattributed": 16.0}
    assert phases(found) == pytest.approx(expected)
    # time that waits for its tokens goes on waiting
    found = tick(tick(EngineTotals(), BUSY, {}, foreign=0.2), BUSY, {"decode": 1.0}, foreign=0.2)
    assert phases(found) == pytest.approx({"decode": 16.0, "unattributed": 4.0})


def test_every_counter_is_there_at_0_from_the_first_tick() -> None:
    found = tick(EngineTotals(), IDLE, {}, seconds=0.0)
    assert set(found.gpu_seconds) == {(state, "reserved") for state in ("busy", "idle", "down", "unknown")}
    assert {phase for phase, _, _ in found.usd} == {"prefill", "decode", "idle", "down", "unattributed"}
    assert set(found.usd.values()) | set(found.gpu_seconds.values()) == {0.0}


def test_busy_time_waits_for_its_tokens() -> None:
    waiting = tick(tick(EngineTotals(), BUSY, {}), BUSY, {})
    assert phases(waiting) == {}
    assert phases(tick(waiting, BUSY, {"prefill": 3.0, "decode": 1.0})) == {"prefill": 22.5, "decode": 7.5}


def test_it_waits_no_longer_than_five_minutes() -> None:
    found = EngineTotals()
    for _ in range(60):
        found = tick(found, BUSY, {})
    assert phases(found) == {}
    found = tick(found, BUSY, {})
    assert phases(found) == {"unattributed": 610.0}
    assert found.pending_seconds == 0.0
    assert LONGEST_PENDING_SECONDS == 300.0


def test_it_waits_through_idle_time_too() -> None:
    found = tick(EngineTotals(), BUSY, {})
    for _ in range(58):
        found = tick(found, IDLE, {})
    assert "unattributed" not in phases(found)
    assert phases(tick(tick(found, IDLE, {}), IDLE, {}))["unattributed"] == 10.0


@pytest.mark.parametrize("state", [DOWN, UNKNOWN])
def test_what_waits_when_the_engine_goes_is_unattributed(state: GpuState) -> None:
    found = phases(tick(tick(EngineTotals(), BUSY, {}), state))
    assert found["unattributed"] == (10.0 if state is DOWN else 20.0)


def test_what_waits_when_the_engine_begins_another_life_is_unattributed() -> None:
    found = phases(tick(tick(EngineTotals(), BUSY, {}), BUSY, HALVES, new_life=True))
    assert found == {"unattributed": 10.0, "prefill": 5.0, "decode": 5.0}


def test_without_anything_to_split_by_it_is_unattributed_at_once() -> None:
    assert phases(tick(EngineTotals(), BUSY, None)) == {"unattributed": 10.0}


def test_without_a_price_gpu_seconds_go_on_and_nothing_else() -> None:
    found = tick(EngineTotals(), BUSY, HALVES, price=None)
    assert states(found) == {"busy": 10.0}
    assert found.usd == {}
    assert found.gpu_seconds["busy", ""] == 10.0
    # with one again it begins there, and does not make up
    assert phases(tick(found, BUSY, HALVES)) == {"prefill": 5.0, "decode": 5.0}


def test_what_waited_is_booked_at_the_rate_and_price_of_its_time() -> None:
    found = tick(tick(EngineTotals(), BUSY, {}), BUSY, {"decode": 1.0}, price=DEAR)
    assert found.usd["decode", "reserved", "roofline"] == 10.0
    assert found.usd["decode", "spot", "roofline"] == 20.0


_TICK = st.tuples(
    st.sampled_from([BUSY, IDLE, DOWN, UNKNOWN]),
    st.sampled_from([None, {}, HALVES, {"decode": 1.0}, {"prefill": 0.0, "decode": 0.0}]),
    st.sampled_from([DOLLAR, DEAR, None]),
    st.floats(0.0, 400.0),
    st.booleans(),
)


@given(st.lists(_TICK, max_size=40))
def test_every_cent_is_in_one_place(ticks: list[Any]) -> None:
    found, worth, seconds = EngineTotals(), 0.0, 0.0
    for state, shares, price, elapsed, new_life in ticks:
        found = tick(found, state, shares, price=price, seconds=elapsed, new_life=new_life)
        seconds += elapsed * 2
        worth += elapsed * 2 * (price.usd_per_gpu_hour if price else 0.0) / 3600
    assert sum(found.gpu_seconds.values()) == pytest.approx(seconds)
    assert sum(found.usd.values()) + sum(found.pending_usd.values()) == pytest.approx(worth)
    assert found.pending_seconds <= LONGEST_PENDING_SECONDS + 400
    # at the end of a life nothing waits
    last = tick(found, DOWN, seconds=0.0)
    assert not last.pending_usd
    assert sum(last.usd.values()) == pytest.approx(worth)


WORK = TickWork(True, {"prefill": 0.2, "decode": 0.6}, prefill_tokens=3000.0, decode_tokens=500.0)


@check_rows(
    ("how", "role", "expected"),
    [
        (Attribution(), Role.UNIFIED, {"prefill": 0.2, "decode": 0.6}),
        (Attribution(Method.FLAT), Role.UNIFIED, {"prefill": 3000.0, "decode": 500.0}),
        (Attribution(Method.OUTPUT_ONLY), Role.UNIFIED, {"decode": 1.0}),
        (Attribution(Method.PRICE_RATIO, 4.0), Role.UNIFIED, {"prefill": 3000.0, "decode": 2000.0}),
        (Attribution(Method.POOLS), Role.PREFILL, {"prefill": 1.0}),
        (Attribution(Method.POOLS), Role.DECODE, {"decode": 1.0}),
        (Attribution(Method.POOLS), Role.UNIFIED, None),
    ],
)
def test_the_methods(how: Attribution, role: Role, expected: dict[str, float] | None) -> None:
    assert split_busy_time(how, WORK, role) == expected


def test_a_method_without_its_inputs_is_none_of_the_others() -> None:
    blind = TickWork(True, None, None, None)
    for method in (Method.ROOFLINE, Method.FLAT, Method.OUTPUT_ONLY, Method.PRICE_RATIO):
        assert split_busy_time(Attribution(method), blind, Role.UNIFIED) is None
    prefill_only = TickWork(True, None, 10.0, 0.0)
    assert split_busy_time(Attribution(Method.OUTPUT_ONLY), prefill_only, Role.UNIFIED) == {}


# --- what tokens cost ----------------------------------------------------------------------------------------------


def per_million(usd_per_hour: float, tokens_per_second: float) -> float:
    """An hour of decode alone."""
    found = usd_per_million_tokens(
        {"decode": usd_per_hour, "prefill": 0.0, "idle": 0.0},
        prefill_tokens=0.0,
        decode_tokens=3600 * tokens_per_second,
        prompt_tokens=0.0,
    )
    assert found["decode", "busy"] == found["decode", "allocated"] == found["blended", "allocated"]
    return found["decode", "busy"]


def test_the_seeds_figures() -> None:
    # facts model-math A: O34, O29, O30
    assert per_million(3, 5000) == pytest.approx(0.16667, abs=5e-6)
    assert per_million(16, 286) == pytest.approx(15.540, abs=5e-4)
    assert per_million(16, 7200) == pytest.approx(0.6173, abs=5e-5)
    # O35: from the rounded price 0.17, and unrounded
    assert 700 * round(per_million(3, 5000), 2) / 1e6 == pytest.approx(0.000119, abs=1e-9)
    assert 700 * per_million(3, 5000) / 1e6 == pytest.approx(0.00011667, abs=5e-9)


def test_allocated_phases_add_up_to_the_spend() -> None:
    usd = {"prefill": 2.0, "decode": 6.0, "idle": 10.0, "down": 1.0, "unattributed": 1.0}
    found = usd_per_million_tokens(usd, prefill_tokens=4e6, decode_tokens=1e6, prompt_tokens=5e6)
    assert found["prefill", "busy"] == 0.5
    assert found["decode", "busy"] == 6.0
    assert found["prefill", "allocated"] * 4 + found["decode", "allocated"] * 1 == pytest.approx(20.0)
    assert found["blended", "busy"] == pytest.approx(8 / 6)
    assert found["blended", "allocated"] == pytest.approx(20 / 6)


def test_what_cannot_be_divided_is_absent() -> None:
    idle = {"prefill": 0.0, "decode": 0.0, "idle": 10.0}
    assert usd_per_million_tokens(idle, prefill_tokens=0.0, decode_tokens=0.0, prompt_tokens=0.0) == {}
    found = usd_per_million_tokens(idle, prefill_tokens=5.0, decode_tokens=0.0, prompt_tokens=None)
    assert found == {}
    # all of the busy time could not be split: the tokens took something, and it is not known what
    blind = {"prefill": 0.0, "decode": 0.0, "unattributed": 10.0}
    assert usd_per_million_tokens(blind, prefill_tokens=5.0, decode_tokens=5.0, prompt_tokens=5.0) == {}
    waits = {"prefill": 0.0, "decode": 0.0, "unattributed": 0.0}
    of = window_cost(waits, prefill_tokens=None, decode_tokens=None, prompt_tokens=None, requests=2.0, joules=None)
    assert of.usd_per_request is None
    nothing = window_cost({}, prefill_tokens=5.0, decode_tokens=5.0, prompt_tokens=5.0, requests=1.0, joules=20.0)
    assert (nothing.usd_per_million_tokens, nothing.tokens_per_usd, nothing.usd_per_request) == ({}, None, None)
    assert nothing.joules_per_token == 2.0


def test_cost_per_request_and_tokens_per_usd_are_of_all_cost() -> None:
    usd = {"prefill": 1.0, "decode": 2.0, "idle": 5.0}
    found = window_cost(usd, prefill_tokens=10.0, decode_tokens=30.0, prompt_tokens=50.0, requests=4.0, joules=None)
    assert found.usd_per_request == 2.0
    assert found.tokens_per_usd == 10.0
    assert found.joules_per_token is None


# --- electricity, savings ------------------------------------------------------------------------------------------

OWNED = Price(1.0, Rate("owned", RateKind.OWNED, includes_power=False))


def test_electricity_costs_only_where_the_rate_leaves_it_out() -> None:
    power = Power(0.20, 1.5, 400.0)
    kwh = 3.6e6
    own = add_energy(EngineTotals(), joules=kwh, price=OWNED, power=power)
    assert (own.energy_joules, own.energy_usd, own.carbon_grams) == (kwh, pytest.approx(0.30), pytest.approx(600.0))
    rented = add_energy(EngineTotals(), joules=kwh, price=DOLLAR, power=power)
    assert (rented.energy_usd, rented.carbon_grams) == (None, pytest.approx(600.0))
    assert add_energy(EngineTotals(), joules=kwh, price=OWNED, power=Power()).energy_usd is None
    assert add_energy(EngineTotals(), joules=None, price=OWNED, power=power) == EngineTotals()


def test_savings_are_the_time_that_cached_tokens_would_have_taken() -> None:
    assert add_savings(EngineTotals(), cached_seconds=3.0, gpus=2.0, price=DOLLAR).savings_usd == 6.0
    assert add_savings(EngineTotals(), cached_seconds=None, gpus=2.0, price=DOLLAR).savings_usd is None
    assert add_savings(EngineTotals(), cached_seconds=3.0, gpus=2.0, price=None).savings_usd is None
