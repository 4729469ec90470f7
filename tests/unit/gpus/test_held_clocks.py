"""How long the driver says that it held the clocks: out of its field values, in a library that serves them and in one that does not."""

from __future__ import annotations

import pynvml
import pytest

from llm_serving_exporter.gpus.reading import HELD_NANOSECONDS


def test_seconds_by_reason(rig):
    rig.state.update("gpu0", {"field:74": "ull 12500000000", "field:75": "ull 0", "field:271": "ull 2000000000"})
    (gpu,) = rig.read()
    assert gpu.held_seconds_total == pytest.approx(
        {"sw_power_cap": 12.5, "thermal": 0.0, "hw_power_brake_slowdown": 2.0}
    )
    rig.state.update("gpu0", {"field:74": "ull 17500000000"})
    (gpu,) = rig.read()
    assert gpu.held_seconds_total["sw_power_cap"] == pytest.approx(17.5)


def test_a_driver_that_lacks_them(rig):
    (gpu,) = rig.read()
    assert gpu.held_seconds_total == {}
    assert gpu.slowdown["sw_power_cap"] is True, "it still names what holds them now"


def test_the_numbers_are_nvmls():
    """Newer bindings have the names; older ones lack them, so that the numbers stand in the code."""
    names = {
        "sw_power_cap": "NVML_FI_DEV_PERF_POLICY_POWER", "thermal": "NVML_FI_DEV_PERF_POLICY_THERMAL",
        "sw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        "hw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        "hw_power_brake_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    }  # fmt: skip
    known = {reason: getattr(pynvml, name) for reason, name in names.items() if hasattr(pynvml, name)}
    assert known
    assert known == {reason: HELD_NANOSECONDS[reason][0] for reason in known}
