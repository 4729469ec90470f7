"""What holds the clock of a target's GPUs, over a window of passes."""

import pytest

from llm_serving_exporter.derive.devices import find_cap
from llm_serving_exporter.gpus.attribution import make_sample
from llm_serving_exporter.model.derived import Cap
from llm_serving_exporter.model.gpu import GpuReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.window import Clocks, DeviceSample
from tests.support.builders import views
from tests.support.rows import check_rows

SLOW = Clocks(1.383e9, 1.98e9, 698.0, 700.0, {"power": 1.0, "thermal": 0.0})
FULL = Clocks(1.98e9, 1.98e9, 442.0, 700.0, {"power": 0.0, "thermal": 0.0})
REASONS = dict.fromkeys(
    (
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    ),
    False,
)


def passes(*clocks: Clocks | None, seconds: float = 5.0) -> tuple[DeviceSample, ...]:
    return tuple(DeviceSample(seconds * number, 1, clocks=one) for number, one in enumerate(clocks))


def share(*clocks: Clocks | None) -> float:
    found = find_cap(passes(*clocks))
    return found.share


def test_a_power_cap_with_its_figures() -> None:
    assert find_cap(passes(SLOW, SLOW, SLOW, SLOW)) == Cap("power", 1.0, 1.383e9, 1.98e9, 698.0, 700.0)
    mixed = find_cap(passes(SLOW, None, FULL, SLOW))
    assert (mixed.share, mixed.sm_hertz, mixed.power_watts) == pytest.approx((2 / 3, 1.582e9, 612.667))
    assert find_cap(passes(None, None)) is None
    assert find_cap(()) is None


def test_a_clock_near_its_maximum_is_not_held_whatever_the_driver_names() -> None:
    """695 W at 1,924 MHz: 2.8 % below the maximum."""
    assert share(*[replace(SLOW, sm_hertz=1.924e9)] * 4) == 0.0
    assert share(*[replace(SLOW, sm_hertz=1.88e9)] * 4) == 1.0


def test_heat() -> None:
    hot = replace(SLOW, held_now={"power": 0.0, "thermal": 1.0})
    found = find_cap(passes(hot, hot, hot))
    assert (found.reason, found.share) == ("thermal", 1.0)


def test_a_clock_that_the_user_or_an_idle_card_set_is_not_held() -> None:
    assert share(*[replace(SLOW, held_now={"power": 0.0, "thermal": 0.0})] * 4) == 0.0


@check_rows(
    ("totals", "expected"),
    [
        # of 15 s: the counter, and not the passes, says for how long
        ([100.0, 103.0, 105.0, 106.0], 0.4), ([100.0, 105.0, 110.0, 115.0], 1.0), ([0.0, 9.0, 18.0, 27.0], 1.0),
        # one that stands still beside passes that name the cap does not count, and one that fell was reset
        ([7.0, 7.0, 7.0, 7.0], 1.0), ([100.0, 105.0, 1.0, 2.0], 1.0), ([None, None, None, None], 1.0), ([None, 1.0, 2.0, 3.0], 1.0),
    ],
)  # fmt: skip
def test_time_by_the_drivers_counters(totals: list[float | None], expected: float) -> None:
    clocks = [replace(SLOW, held_seconds_total={} if total is None else {"sw_power_cap": total}) for total in totals]
    assert share(*clocks) == pytest.approx(expected)


def test_the_counter_of_any_reason_of_a_cause() -> None:
    named = replace(SLOW, held_now={"power": 0.0, "thermal": 0.0})
    for reason, cause in (
        ("thermal", "thermal"), ("sw_thermal_slowdown", "thermal"), ("hw_thermal_slowdown", "thermal"),
        ("hw_power_brake_slowdown", "power"),
    ):  # fmt: skip
        counted = [replace(named, held_seconds_total={reason: 4.5 * number}) for number in range(4)]
        found = find_cap(passes(*counted))
        assert (found.reason, found.share) == (cause, pytest.approx(0.9))


def gpu(index: int, **more: object) -> GpuReading:
    shown = {
        "clock_hertz": {"sm": 1.4e9}, "slowdown": {**REASONS, "sw_power_cap": True}, "power_watts": 690.0, "power_limit_watts": 700.0,
        "held_seconds_total": {"sw_power_cap": 10.0, "thermal": 1.0},
    }  # fmt: skip
    made = views.gpu(index, **{**shown, **more})
    return replace(made, identity=replace(made.identity, sm_clock_max_hertz=1.98e9))


def clocks_of(*gpus: GpuReading) -> Clocks | None:
    made = make_sample([one.identity.uuid for one in gpus], views.gpus(*gpus))
    return made.clocks


def test_means_over_the_gpus_of_a_target() -> None:
    free = gpu(
        1, clock_hertz={"sm": 1.98e9}, slowdown=REASONS, power_watts=500.0, held_seconds_total={"sw_power_cap": 2.0}
    )
    assert clocks_of(gpu(0), free) == Clocks(
        pytest.approx(1.69e9), 1.98e9, 595.0, 700.0, {"power": 0.5, "thermal": 0.0}, {"sw_power_cap": 6.0}
    )


def test_one_gpu_that_does_not_show_its_clock_or_what_holds_it_leaves_none_for_all() -> None:
    assert clocks_of(gpu(0), gpu(1, clock_hertz={})) is None
    assert clocks_of(gpu(0), gpu(1, slowdown=None)) is None
    unknown = gpu(1)
    assert clocks_of(gpu(0), replace(unknown, identity=replace(unknown.identity, sm_clock_max_hertz=None))) is None
    found = clocks_of(gpu(0), gpu(1, power_watts=None))
    assert found.power_watts is None
