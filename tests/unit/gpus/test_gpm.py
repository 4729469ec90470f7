"""GPM and busy time between two passes, and every way in which there is none; events of the driver."""

from __future__ import annotations

import threading

import pytest

from llm_serving_exporter.gpus.events import GPUS_MAX, WATCHED_XIDS, XIDS_MAX, XidCounts
from llm_serving_exporter.model.gpu import BusyTime
from llm_serving_exporter.model.hardware import BusySource
from tests.support.waiting import wait_until

RATIOS = ("dram_bandwidth_ratio", "sm_activity_ratio", "tensor_activity_ratio")


def ratios(gpu):
    return tuple(getattr(gpu, name) for name in RATIOS)


def absent(gpu):
    """Why it has no ratios."""
    return {gpu.absent[name] for name in RATIOS}


def test_ratios_need_two_passes_and_cover_the_time_between(rig):
    first = rig.one()
    assert ratios(first) == (None, None, None)
    assert absent(first) == {"no_window"}
    second = rig.one(after=5.0)
    assert ratios(second) == pytest.approx((0.625, 0.88, 0.22))
    assert second.gpm_window_seconds == pytest.approx(5.0)
    assert not set(RATIOS) & set(second.absent)


def test_windows_follow_one_another_with_one_sample_a_pass(rig):
    for _ in range(6):
        rig.read()
    assert rig.stub.calls("nvmlGpmSampleGet") == 6
    assert rig.stub.calls("nvmlGpmMetricsGet") == 5
    assert rig.stub.live_samples == 2


def test_a_pass_within_100_ms_serves_the_previous_result(rig):
    rig.read()
    rig.read()
    rig.state.update("gpu0", {"gpm:10": 10.0})
    soon = rig.one(after=0.05)
    assert (soon.dram_bandwidth_ratio, soon.gpm_window_seconds) == (pytest.approx(0.625), pytest.approx(5.0))
    later = rig.one(after=0.07)  # 120 ms after the last sample
    assert (later.dram_bandwidth_ratio, later.gpm_window_seconds) == (pytest.approx(0.1), pytest.approx(0.12))


def test_a_gap_beyond_ten_minutes_starts_anew(rig):
    rig.read()
    late = rig.one(after=601.0)
    assert ratios(late) == (None, None, None)
    assert late.absent["dram_bandwidth_ratio"] == "no_window"
    next_one = rig.one(after=5.0)
    assert next_one.gpm_window_seconds == pytest.approx(5.0)


def test_a_ratio_above_1_is_not_clamped_and_nan_is_absent(rig):
    rig.state.update("gpu0", {"gpm:10": 104.0, "gpm:2": "nan"})
    gpu = rig.one(passes=2)
    assert gpu.dram_bandwidth_ratio == pytest.approx(1.04)
    assert (gpu.sm_activity_ratio, gpu.absent["sm_activity_ratio"]) == (None, "no_data")
    assert gpu.tensor_activity_ratio == pytest.approx(0.22)


def test_a_metric_that_the_card_lacks_does_not_take_the_others_along(rig):
    rig.state.drop("gpu0", "gpm:5")
    gpu = rig.one(passes=2)
    assert (gpu.tensor_activity_ratio, gpu.absent["tensor_activity_ratio"]) == (None, "not_supported")
    assert gpu.dram_bandwidth_ratio == pytest.approx(0.625)


def test_a_card_before_hopper_is_never_sampled(rig):
    rig.state.set("gpu0", gpm=0)  # its driver exports the symbols nevertheless
    gpu = rig.one(passes=2)
    assert absent(gpu) == {"not_supported"}
    assert rig.stub.calls("nvmlGpmSampleAlloc") == rig.stub.calls("nvmlGpmSampleGet") == 0


@pytest.mark.parametrize(("code", "reason"), [(4, "no_permission"), (13, "not_supported"), (999, "error")])
@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"])
def test_a_refusal_leaves_the_other_readings_alone(rig, function, code, reason):
    rig.state.fail("sys" if function == "nvmlGpmSampleAlloc" else "gpu0", function, code)
    gpu = rig.one(passes=2)
    assert absent(gpu) == {reason}
    assert gpu.power_watts == pytest.approx(612.345)


def test_a_failed_sample_widens_the_next_window(rig):
    rig.read()
    rig.state.fail("gpu0", "nvmlGpmSampleGet", 999)
    assert rig.one().absent["dram_bandwidth_ratio"] == "error"
    rig.state.heal("gpu0")
    gpu = rig.one()
    assert (gpu.dram_bandwidth_ratio, gpu.gpm_window_seconds) == (pytest.approx(0.625), pytest.approx(10.0))


def test_a_sample_that_is_not_supported_is_not_taken_again(rig):
    rig.state.fail("gpu0", "nvmlGpmSampleGet", 3)
    for _ in range(4):
        rig.read()
    assert rig.stub.calls("nvmlGpmSampleGet") == 1


def test_switched_off_no_gpm_function_is_called(rig):
    rig.open(gpm=False)
    gpu = rig.one(passes=2)
    assert absent(gpu) == {"disabled"}
    functions = ("QueryDeviceSupport", "SampleAlloc", "SampleGet", "MigSampleGet", "MetricsGet", "SampleFree")
    assert {name: rig.stub.calls(f"nvmlGpm{name}") for name in functions} == dict.fromkeys(functions, 0)


# --- how long a GPU was busy ---


SAMPLE_MICROSECONDS = 200_000
# nvml.h: the buffer holds the samples of some seconds
KEPT_SECONDS = 20.0


def show_samples(rig, until_seconds, busy, **more):
    """The driver's buffer at a moment; `busy` says which percentage the sample that ends at a number of microseconds has."""
    first = max(0, int((until_seconds - KEPT_SECONDS) * 1e6)) // SAMPLE_MICROSECONDS + 1
    last = int(until_seconds * 1e6) // SAMPLE_MICROSECONDS
    stamps = [number * SAMPLE_MICROSECONDS for number in range(first, last + 1)]
    rig.state.update("gpu0", {"samples": ",".join(f"{stamp}:{busy(stamp)}" for stamp in stamps), **more})


def test_gpm_adds_up_the_time_in_which_anything_ran(rig):
    rig.state.update("gpu0", {"gpm:1": 20.0})
    assert rig.one().busy_time is None
    rig.read(after=5.0)
    rig.state.update("gpu0", {"gpm:1": 100.0})
    gpu = rig.one(after=15.0)
    assert gpu.busy_time == BusyTime(BusySource.GPM, pytest.approx(1.0 + 15.0), pytest.approx(20.0))
    # what cannot be read, or cannot be, is not watched: the totals stay
    for bad in ("nan", 250.0, -1.0):
        rig.state.update("gpu0", {"gpm:1": bad})
        assert rig.one().busy_time == gpu.busy_time


def test_a_card_with_gpm_is_not_asked_for_samples(rig):
    rig.state.update("gpu0", {"gpm:1": 20.0, "samples": "200000:50"})
    rig.read()
    rig.read()
    asked = rig.stub.calls("nvmlDeviceGetSamples")
    rig.read()
    assert rig.stub.calls("nvmlDeviceGetSamples") == asked


@pytest.mark.parametrize("between", [1.0, 5.0, 15.0])
@pytest.mark.parametrize("truth", [0.02, 0.05, 0.2, 0.5, 1.0])
def test_samples_between_two_passes_are_all_counted(rig, truth, between):
    """Bursts every two seconds, of which one look at the last sample would see none, or all."""
    per_burst = 10  # samples of 0.2 s in two seconds

    def busy(stamp):
        number = stamp // SAMPLE_MICROSECONDS % per_burst
        return round(100 * min(1.0, max(0.0, truth * per_burst - number)))

    now = 0.0
    for _ in range(round(60 / between)):
        now += between
        show_samples(rig, now, busy, gpm=0)
        gpu = rig.one(after=between)
    assert gpu.busy_time.source is BusySource.NVML
    assert gpu.busy_time.covered_seconds == pytest.approx(60.0, abs=0.2)
    assert gpu.busy_time.busy_seconds / gpu.busy_time.covered_seconds == pytest.approx(truth, abs=0.005)
    assert not any(name.startswith("busy_samples") for name in gpu.absent)


def test_a_gap_a_set_clock_and_impossible_samples_are_not_counted(rig):
    rig.state.update("gpu0", {"gpm": 0, "samples": "1000000:50,1200000:50"})
    gpu = rig.one()
    start = gpu.busy_time
    for odd in ("99000000:100", "99200000:101", "98000000:100"):
        rig.state.update("gpu0", {"samples": odd})
        assert rig.one().busy_time == start
    rig.state.update("gpu0", {"samples": "99400000:100"})
    gpu = rig.one()
    assert gpu.busy_time.covered_seconds == pytest.approx(start.covered_seconds + 0.2)


def test_samples_count_again_after_the_clock_that_stamps_them_went_back(rig):
    rig.state.update("gpu0", {"gpm": 0, "samples": "3600000000:50,3600200000:50"})
    start = rig.one().busy_time
    for number in range(1, 31):
        rig.state.update("gpu0", {"samples": f"{number * 200_000}:100,{number * 200_000 + 100_000}:100"})
        gpu = rig.one()
    assert gpu.busy_time.covered_seconds > start.covered_seconds + 1.0


def test_a_card_without_samples_has_no_busy_time(rig):
    rig.state.update("gpu0", {"gpm": 0})
    gpu = rig.one(passes=2)
    assert gpu.busy_time is None
    assert gpu.power_watts is not None


# --- XID events: counted by GPU in a thread that nothing stops but close() ---


WATCHED_AT_ZERO = dict.fromkeys(WATCHED_XIDS, 0)


def until(rig, gpu, wanted):
    """Read until the GPU's counts are as wanted; the thread takes the event when it comes."""
    wait_until(lambda: rig.read()[gpu].xid_events_total == wanted, f"counts of {wanted}")


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "nvml-xid-events"]


def test_watched_xids_stand_at_0_from_the_start(rig):
    rig.open(xid_events=True)
    gpu = rig.one()
    assert gpu.xid_events_total == {48: 0, 62: 0, 64: 0, 74: 0, 79: 0, 95: 0, 119: 0, 120: 0}
    assert "xid_events_total" not in gpu.absent


def test_events_count_on_the_gpu_that_they_name(rig):
    rig.state.count(2)
    rig.open(xid_events=True)
    rig.read()
    rig.state.xid(1, 79)
    rig.state.xid(1, 13)
    rig.state.xid(1, 79)
    until(rig, 1, {**WATCHED_AT_ZERO, 79: 2, 13: 1})
    assert rig.read()[0].xid_events_total == WATCHED_AT_ZERO


def test_counts_survive_a_driver_reload(rig):
    rig.open(xid_events=True)
    rig.read()
    rig.state.xid(0, 48)
    until(rig, 0, {**WATCHED_AT_ZERO, 48: 1})
    rig.state.reload_driver()
    assert not rig.read_all().attempt.ok
    rig.state.xid(0, 48)
    until(rig, 0, {**WATCHED_AT_ZERO, 48: 2})


def test_a_lost_gpu_still_tells_its_xids(rig):
    rig.open(xid_events=True)
    rig.read()
    rig.state.xid(0, 79)  # fallen off the bus
    until(rig, 0, {**WATCHED_AT_ZERO, 79: 1})
    rig.state.fail("gpu0", "*", 15)
    gpu = rig.one()
    assert gpu.lost
    assert gpu.xid_events_total == {**WATCHED_AT_ZERO, 79: 1}


def test_the_thread_outlives_errors_of_the_wait(rig, gpu_log):
    rig.open(xid_events=True)
    rig.read()
    rig.state.fail("sys", "nvmlEventSetWait_v2", 999)
    wait_until(lambda: "XID events cannot be read" in gpu_log.text, "a line in the log")
    assert gpu_log.text.count("XID events cannot be read") == 1
    rig.state.heal("sys")
    rig.state.xid(0, 64)
    until(rig, 0, {**WATCHED_AT_ZERO, 64: 1})


@pytest.mark.parametrize(
    ("function", "scope", "code", "reason"),
    [
        ("nvmlDeviceGetSupportedEventTypes", "gpu0", 3, "not_supported"),
        ("nvmlDeviceRegisterEvents", "gpu0", 4, "no_permission"),
        ("nvmlEventSetCreate", "sys", 999, "error"),
    ],
)
def test_where_events_cannot_be_had_there_are_no_counts_and_no_thread(rig, function, scope, code, reason):
    rig.state.fail(scope, function, code)
    rig.open(xid_events=True)
    gpu = rig.one(passes=2)
    assert (gpu.xid_events_total, gpu.absent["xid_events_total"]) == (None, reason)
    assert gpu.power_watts == pytest.approx(612.345)
    assert rig.stub.calls(function) == 1
    assert threads() == []


def test_a_gpu_without_xid_events_is_not_registered(rig):
    rig.state.set("gpu0", event_types=0x100)
    rig.open(xid_events=True)
    gpu = rig.one()
    assert (gpu.xid_events_total, gpu.absent["xid_events_total"]) == (None, "not_supported")
    assert rig.stub.calls("nvmlDeviceRegisterEvents") == 0


def test_switched_off_there_is_no_thread_and_no_call(rig):
    rig.open(xid_events=False)
    gpu = rig.one()
    assert (gpu.xid_events_total, gpu.absent["xid_events_total"]) == (None, "disabled")
    assert rig.stub.calls("nvmlEventSetCreate") == rig.stub.calls("nvmlDeviceGetSupportedEventTypes") == 0
    assert threads() == []


def test_close_ends_the_thread_and_frees_the_set(rig):
    rig.open(xid_events=True)
    rig.read()
    assert threads() == ["nvml-xid-events"]
    assert rig.stub.live_event_sets == 1
    rig.source.close()
    assert threads() == []
    assert (rig.stub.live_event_sets, rig.stub.init_balance, rig.stub.misuse) == (0, 0, 0)


def test_the_number_of_distinct_xids_is_bounded():
    counts = XidCounts()
    counts.start_counts("GPU-a")
    for xid in range(1000, 2000):
        counts.count_event("GPU-a", xid)
    counts.count_event("GPU-never-watched", 79)
    counted = counts.copy_counts("GPU-a")
    assert len(counted) == XIDS_MAX
    assert sum(counted.values()) == 1000  # none is dropped: the rest counts as NVML's own "unknown"
    assert counts.copy_counts("GPU-never-watched") is None


def test_gpus_that_come_and_go_never_keep_out_those_that_are_there():
    counts = XidCounts()
    for number in range(2 * GPUS_MAX):
        for uuid in ("GPU-stays", f"GPU-{number}"):  # as each session does
            counts.start_counts(uuid)
        counts.count_event("GPU-stays", 79)
        counts.count_event(f"GPU-{number}", 79)
        assert counts.copy_counts(f"GPU-{number}")[79] == 1
    assert counts.copy_counts("GPU-stays")[79] == 2 * GPUS_MAX
    assert counts.copy_counts("GPU-0") is None
