"""What a healthy GPU shows: every field and its unit, clocks that are held, what cannot be true, what an older driver lacks."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.gpus.calls import WRAP_32_BITS, Total
from llm_serving_exporter.gpus.inventory import peak_bandwidth_bytes_per_second
from llm_serving_exporter.gpus.reading import HELD_NANOSECONDS
from llm_serving_exporter.gpus.source import drop_implausible
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.render.sentences import why_gpu_absent
from tests.nvml_stub.stub import ALL_LINKS, MEBIBYTE, StubState
from tests.support.rows import check_rows

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, UNKNOWN = 3, 4, 13, 999


def test_an_h100_is_identified_with_its_published_peak_bandwidth(rig):
    gpu = rig.one()
    who = gpu.identity
    assert (who.uuid, who.index, who.name) == ("GPU-00000000-0000-0000-0000-000000000000", 0, "NVIDIA H100 80GB HBM3")
    assert (who.pci_bus_id, who.pci_device_id, who.minor_number) == ("00000000:1A:00.0", 0x233010DE, 0)
    assert (who.architecture, who.compute_capability) == ("hopper", (9, 0))
    assert who.memory_total_bytes == 81559 * MEBIBYTE
    assert who.memory_bus_width_bits == 5120
    assert (who.sm_clock_max_hertz, who.memory_clock_max_hertz) == (1.98e9, 2.619e9)
    # 2 x 2619 MHz x 5120 bit / 8 = 3352.32 GB/s; NVIDIA's data sheet says 3.35 TB/s
    assert who.memory_bandwidth_peak_bytes_per_second == pytest.approx(3352.32e9, rel=1e-12)
    assert who.mig is None


@check_rows(
    ("megahertz", "bits", "data_sheet_gigabytes", "tolerance"),
    [
        pytest.param(2619, 5120, 3350, 0.002, id="H100 SXM5"),
        pytest.param(1593, 5120, 2039, 0.001, id="H100 PCIe, A100-SXM4-80GB"),
        pytest.param(2619, 6016, 3938, 0.001, id="H100 NVL"),
        pytest.param(3201, 6016, 4800, 0.004, id="H200"),
        pytest.param(3201, 6144, 4800, 0.025, id="H200, drivers that say 6144"),
        pytest.param(2619, 6144, 4000, 0.006, id="GH200"),
        pytest.param(3996, 7680, 7700, 0.005, id="B200"),
        pytest.param(3996, 8192, 8000, 0.024, id="B200, older drivers"),
        pytest.param(1215, 5120, 1555, 0.001, id="A100 40GB"),
        pytest.param(1512, 5120, 1935, 0.001, id="A100 80GB PCIe"),
        pytest.param(1215, 3072, 933, 0.001, id="A30"),
        pytest.param(6251, 192, 300, 0.001, id="L4"),
        pytest.param(9001, 384, 864, 0.001, id="L40S"),
        pytest.param(6251, 384, 600, 0.001, id="A10"),
        pytest.param(7251, 384, 696, 0.001, id="A40"),
        pytest.param(5001, 256, 320, 0.001, id="T4"),
        pytest.param(877, 4096, 900, 0.003, id="V100"),
        pytest.param(1107, 4096, 1134, 0.001, id="V100S"),
        pytest.param(10501, 384, 1008, 0.001, id="RTX 4090"),
        pytest.param(9751, 384, 936, 0.001, id="RTX 3090"),
        pytest.param(11501, 256, 736, 0.001, id="RTX 4080 SUPER"),
        pytest.param(7751, 256, 496, 0.001, id="RTX 2080 SUPER"),
        pytest.param(14001, 512, 1792, 0.001, id="RTX 5090"),
        pytest.param(10001, 384, 960, 0.001, id="RTX 6000 Ada"),
        pytest.param(12481, 512, 1597, 0.001, id="RTX PRO 6000 Server"),
    ],
)
def test_peak_bandwidth_agrees_with_data_sheets(megahertz, bits, data_sheet_gigabytes, tolerance):
    peak = peak_bandwidth_bytes_per_second(megahertz * 1e6, bits)
    assert peak == pytest.approx(data_sheet_gigabytes * 1e9, rel=tolerance)


@check_rows(("hertz", "bits"), [(None, 5120), (2.619e9, None), (2.619e9, 0), (0.0, 5120)])
def test_peak_bandwidth_is_absent_where_clock_or_bus_width_is(hertz, bits):
    assert peak_bandwidth_bytes_per_second(hertz, bits) is None


def test_every_reading_comes_in_base_units(rig):
    rig.state.processes("gpu0", (4242, 123456789), (4243, "-"))
    gpu = rig.one()
    assert gpu.lost is False
    assert gpu.memory_used_bytes == 70000 * MEBIBYTE
    assert gpu.memory_reserved_bytes == 479 * MEBIBYTE
    assert gpu.memory_total_bytes == 81559 * MEBIBYTE
    assert (gpu.busy_ratio, gpu.memory_active_ratio) == (1.0, 0.08)
    assert gpu.power_watts == pytest.approx(612.345)
    assert gpu.power_limit_watts == pytest.approx(700.0)
    assert gpu.energy_joules_total == pytest.approx(123456.789)
    assert gpu.temperature_celsius == {"gpu": 61.0, "memory": 72.0}
    assert gpu.clock_hertz == {"sm": 1.755e9, "memory": 2.619e9}
    assert gpu.ecc_errors_total == {"corrected": 3, "uncorrected": 0}
    assert gpu.remapped_rows == {"correctable": 1, "uncorrectable": 0}
    assert (gpu.remap_pending, gpu.remap_failed) == (False, False)
    assert gpu.pcie_bytes_total == {"tx": 1000000, "rx": 2000000}
    assert gpu.nvlink_bytes_total == {"tx": 4096 * 1024, "rx": 8192 * 1024}
    assert [(p.pid, p.memory_bytes) for p in gpu.processes] == [(4242, 123456789), (4243, None)]
    # GPM has one sample so far
    assert set(gpu.absent) == {"dram_bandwidth_ratio", "sm_activity_ratio", "tensor_activity_ratio", "xid_events_total"}


def test_the_pass_says_when_and_by_which_driver(rig):
    readings = rig.read_all()
    assert (readings.source, readings.driver_version, readings.monotonic_seconds) == ("nvml", "580.95.05", 1005.0)
    assert readings.attempt.at_unix_seconds == 1_700_000_000.0
    assert readings.attempt.detail == ""


@pytest.mark.parametrize(
    ("mask", "holding"),
    [
        (0x0, set()),
        (0x1 | 0x2 | 0x100, set()),  # idle, user's clocks and display setting are no slowdown
        (0x4, {"sw_power_cap"}),
        (0x8 | 0x80, {"hw_slowdown", "hw_power_brake_slowdown"}),
        (0x10, {"sync_boost"}),
        (0x20 | 0x40, {"sw_thermal_slowdown", "hw_thermal_slowdown"}),
    ],
)
@pytest.mark.parametrize("old_driver", [False, True])
def test_slowdown_reasons_have_names(rig, mask, holding, old_driver):
    rig.state.set("gpu0", event_reasons=mask)
    if old_driver:  # before 535 the call has another name
        rig.state.fail("gpu0", "nvmlDeviceGetCurrentClocksEventReasons", FUNCTION_NOT_FOUND)
    gpu = rig.one()
    assert {reason for reason, holds in gpu.slowdown.items() if holds} == holding
    assert len(gpu.slowdown) == 6


USED, RESERVED, TOTAL = 70000 * MEBIBYTE, 479 * MEBIBYTE, 81559 * MEBIBYTE
# what an older driver says counts reserved memory as used
OLD_MEMORY = {"memory_used_bytes": USED + RESERVED, "memory_reserved_bytes": None, "memory_total_bytes": TOTAL}
WHOLE_LINKS = (f"field:138:{ALL_LINKS}", f"field:139:{ALL_LINKS}")
LINKS = {"field:202:0": "ull 10", "field:202:1": "ull 20", "field:204:0": "ull 3", "field:204:1": "ull 4"}


def fields(**answers: str) -> Callable[[StubState], None]:
    """A card that answers fields by their numbers so, as in `f197="uint 500"`."""
    return lambda state: state.update("gpu0", {name.replace("f", "field:"): text for name, text in answers.items()})


def lacks(*keys: str) -> Callable[[StubState], None]:
    return lambda state: state.drop("gpu0", *keys)


def refuses(function: str, code: int) -> Callable[[StubState], None]:
    return lambda state: state.fail("gpu0", function, code)


@pytest.mark.parametrize(
    ("scripts", "shows", "absent"),
    [
        ([lambda state: state.set("gpu0", remapped_rows="2 5 1 1")],
         {"remapped_rows": {"correctable": 2, "uncorrectable": 5}, "remap_pending": True, "remap_failed": True}, {}),
        ([refuses("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND)], OLD_MEMORY, {}),
        ([refuses("nvmlDeviceGetMemoryInfo_v2", 25)], OLD_MEMORY, {}),
        # GDDR cards answer 0 for the memory's temperature; one missing member is told by its own name
        ([fields(f82="uint 0"), lacks("clock_memory")], {"temperature_celsius": {"gpu": 61.0}, "clock_hertz": {"sm": 1.755e9}},
         {"temperature_celsius.memory": "not_supported", "clock_hertz.memory": "not_supported"}),
        # by their type; an unknown one is not guessed at
        *(
            ([fields(f82=text)], {"temperature_celsius": {"gpu": 61.0, "memory": celsius}}, {})
            for text, celsius in (("uint 70", 70.0), ("int 71", 71.0), ("ushort 72", 72.0), ("ull 73", 73.0), ("double 74.5", 74.5))
        ),
        ([fields(f82="int -3")], {"temperature_celsius": {"gpu": 61.0}}, {"temperature_celsius.memory": "not_supported"}),
        ([fields(f197="42 7")], {"pcie_bytes_total": {"rx": 2000000}}, {}),
        # NVLink 5 has no sum of its own; beyond the last link: invalid argument
        ([lacks(*WHOLE_LINKS), lambda state: state.update("gpu0", {**LINKS, "field:202:2": "fail 2"})],
         {"nvlink_bytes_total": {"tx": 30, "rx": 7}}, {}),
        ([lacks("field:82", "field:197", "field:198", *WHOLE_LINKS)], {"pcie_bytes_total": {}, "nvlink_bytes_total": {}},
         {"pcie_bytes_total": "not_supported", "nvlink_bytes_total": "not_supported"}),
        # how long the driver says that it held the clocks; older ones lack it, and still name what holds them now
        ([fields(f74="ull 12500000000", f75="ull 0", f271="ull 2000000000")],
         {"held_seconds_total": pytest.approx({"sw_power_cap": 12.5, "thermal": 0.0, "hw_power_brake_slowdown": 2.0})}, {}),
        ([], {"held_seconds_total": {}}, {}),
    ],
)  # fmt: skip
def test_what_a_card_or_driver_says(rig, scripts, shows, absent):
    for script in scripts:
        script(rig.state)
    gpu = rig.one()
    assert {name: getattr(gpu, name) for name in shows} == shows
    assert {name: gpu.absent.get(name) for name in absent} == absent
    assert gpu.slowdown["sw_power_cap"] is True


def test_fields_that_are_not_supported_are_asked_no_more(rig):
    rig.state.drop("gpu0", "field:82", "field:197", "field:198", *WHOLE_LINKS)
    rig.one(passes=2)
    assert rig.stub.calls("nvmlDeviceGetFieldValues") == 1


def test_a_driver_without_the_old_temperature_call_is_asked_the_new_way(rig):
    rig.state.fail("gpu0", "nvmlDeviceGetTemperature", FUNCTION_NOT_FOUND)
    gpu = rig.one()
    # pynvml has the new call's wrapper since 12.570
    assert gpu.temperature_celsius.get("gpu") == (61.0 if hasattr(pynvml, "nvmlDeviceGetTemperatureV") else None)


def test_a_driver_without_the_newest_process_call_is_asked_the_old_way(rig):
    # pynvml turns the missing symbol into NVMLLibraryMismatchError, which is no NVMLError
    rig.state.fail("gpu0", "nvmlDeviceGetComputeRunningProcesses_v3", FUNCTION_NOT_FOUND)
    rig.state.processes("gpu0", (7, 11))
    gpu = rig.one()
    if gpu.processes is None:  # pynvml 13 has dropped the second version's wrapper
        assert gpu.absent["processes"] == "not_supported"
    else:
        assert [p.pid for p in gpu.processes] == [7]


def test_a_card_that_has_nothing_but_a_name_is_read_without_a_zero(rig):
    rig.state.drop("gpu0")
    rig.state.set("gpu0", uuid="GPU-bare", name="NVIDIA GB10")
    rig.open(xid_events=True)
    gpu = rig.one()
    assert gpu.identity.uuid == "GPU-bare"
    assert gpu.identity.memory_bandwidth_peak_bytes_per_second is None
    assert gpu.identity.architecture is None
    numbers = ("memory_used_bytes", "memory_total_bytes", "busy_ratio", "memory_active_ratio", "dram_bandwidth_ratio")
    numbers += ("power_watts", "power_limit_watts", "energy_joules_total", "slowdown", "remap_pending")
    numbers += ("xid_events_total",)
    assert {name: getattr(gpu, name) for name in numbers} == dict.fromkeys(numbers)
    maps = ("temperature_celsius", "clock_hertz", "ecc_errors_total", "remapped_rows", "pcie_bytes_total")
    assert [getattr(gpu, name) for name in maps] == [{}] * len(maps)
    missing = {*numbers, *maps, "nvlink_bytes_total"} - {"memory_total_bytes", "remap_pending"}
    assert missing <= set(gpu.absent)
    assert set(gpu.absent.values()) == {"not_supported"}
    assert gpu.processes == ()  # the call works and there is none


def test_what_is_not_supported_is_asked_once(rig):
    rig.state.drop("gpu0", "power_mw", "utilization_gpu")
    rig.read()
    gpu = rig.one(passes=2)
    assert gpu.absent["power_watts"] == gpu.absent["busy_ratio"] == gpu.absent["memory_active_ratio"] == "not_supported"
    assert rig.stub.calls("nvmlDeviceGetPowerUsage") == 1
    assert rig.stub.calls("nvmlDeviceGetUtilizationRates") == 1
    assert rig.stub.calls("nvmlDeviceGetEnforcedPowerLimit") == 3


@pytest.mark.parametrize(
    ("code", "absent"), [(NO_PERMISSION, "no_permission"), (UNKNOWN, "error"), (19, "in_use"), (27, "no_data")]
)
def test_a_refusal_that_may_pass_is_told_and_asked_again(rig, code, absent):
    rig.state.fail("gpu0", "nvmlDeviceGetPowerUsage", code)
    gpu = rig.one()
    assert (gpu.power_watts, gpu.absent["power_watts"]) == (None, absent)
    rig.state.heal("gpu0")
    gpu = rig.one()
    assert gpu.power_watts == pytest.approx(612.345)
    assert "power_watts" not in gpu.absent


def test_an_identity_that_could_not_be_read_whole_is_asked_again(rig):
    rig.state.fail("gpu0", "nvmlDeviceGetMaxClockInfo", UNKNOWN)
    gpu = rig.one()
    assert gpu.identity.memory_bandwidth_peak_bytes_per_second is None
    rig.state.heal("gpu0")
    gpu = rig.one()
    assert gpu.identity.memory_bandwidth_peak_bytes_per_second == pytest.approx(3352.32e9)
    calls = rig.stub.calls("nvmlDeviceGetMaxClockInfo")
    rig.read()
    assert rig.stub.calls("nvmlDeviceGetMaxClockInfo") == calls


def test_a_wrapped_pcie_counter_becomes_a_growing_total(rig):
    rig.state.update("gpu0", {"field:197": f"uint {(1 << 32) - 1000}"})
    assert rig.one().pcie_bytes_total["tx"] == (1 << 32) - 1000
    rig.state.update("gpu0", {"field:197": "uint 500"})
    assert rig.one().pcie_bytes_total["tx"] == (1 << 32) + 500
    rig.state.update("gpu0", {"field:197": "uint 700"})
    assert rig.one().pcie_bytes_total["tx"] == (1 << 32) + 700


def test_bytes_of_links_are_totals_of_each(rig):
    rig.state.drop("gpu0", *WHOLE_LINKS)
    for first, bytes_ in ((10, 30), (25, 45), (3, 45 + (1 << 32) - 22)):
        rig.state.update("gpu0", {**LINKS, "field:202:0": f"ull {first}"})
        assert rig.one().nvlink_bytes_total == {"tx": bytes_, "rx": 7}


def test_two_gpus_are_told_apart(rig):
    rig.state.count(2)
    rig.state.set("gpu1", power_mw=100000)
    first, second = rig.read()
    assert (first.identity.uuid, second.identity.uuid) == (rig.state.uuid(0), rig.state.uuid(1))
    assert (first.power_watts, second.power_watts) == (pytest.approx(612.345), pytest.approx(100.0))


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


# --- what a driver says of a GPU and cannot be true is absent, with its reason ---


WHO = GpuIdentity("GPU-0", 0, "NVIDIA H100 80GB HBM3")


def dropped(**values: object) -> GpuReading:
    gpu = GpuReading(WHO, power_watts=300.0, **values)
    found = drop_implausible(GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,)))
    assert found.gpus[0].power_watts == 300.0
    return found.gpus[0]


@check_rows("value", [nan, inf, -1.0, 1e308])
@check_rows("field", ["energy_joules_total", "busy_ratio", "dram_bandwidth_ratio", "memory_used_bytes"])
def test_a_value_outside_its_range_is_absent(field: str, value: float) -> None:
    found = dropped(**{field: value})
    assert getattr(found, field) is None
    assert found.absent == {field: "implausible"}
    assert "cannot be true" in why_gpu_absent("implausible")


def test_of_several_values_the_others_stay() -> None:
    found = dropped(temperature_celsius={"gpu": 61.0, "memory": 1e9})
    assert found.temperature_celsius == {"gpu": 61.0}
    assert found.absent == {"temperature_celsius.memory": "implausible"}


def test_what_can_be_stays_as_it_is() -> None:
    gpu = GpuReading(WHO, busy_ratio=1.0, temperature_celsius={"gpu": -5.0}, xid_events_total={79: 1}, lost=False)
    readings = GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,))
    assert drop_implausible(readings).gpus[0] is gpu


# --- totals over counters that wrap and restart ---


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
