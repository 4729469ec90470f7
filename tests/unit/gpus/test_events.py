"""XID events: counted by GPU in a thread that nothing stops but close()."""

from __future__ import annotations

import threading

import pytest

from llm_serving_exporter.gpus.events import GPUS_MAX, WATCHED_XIDS, XIDS_MAX, XidCounts
from tests.support.waiting import wait_until

WATCHED_AT_ZERO = dict.fromkeys(WATCHED_XIDS, 0)


def until(rig, gpu, wanted):
    """Read until the GPU's counts are as wanted; the thread takes the event when it comes."""
    wait_until(lambda: rig.read()[gpu].xid_events_total == wanted, f"counts of {wanted}")


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "nvml-xid-events"]


def test_watched_xids_stand_at_0_from_the_start(rig):
    rig.open(xid_events=True)
    (gpu,) = rig.read()
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
    (gpu,) = rig.read()
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
    ("function", "scope", "code", "absent"),
    [
        ("nvmlDeviceGetSupportedEventTypes", "gpu0", 3, "not_supported"),
        ("nvmlDeviceRegisterEvents", "gpu0", 4, "no_permission"),
        ("nvmlEventSetCreate", "sys", 999, "error"),
    ],
)
def test_where_events_cannot_be_had_there_are_no_counts_and_no_thread(rig, function, scope, code, absent):
    rig.state.fail(scope, function, code)
    rig.open(xid_events=True)
    rig.read()
    (gpu,) = rig.read()
    assert (gpu.xid_events_total, gpu.absent["xid_events_total"]) == (None, absent)
    assert gpu.power_watts == pytest.approx(612.345)
    assert rig.stub.calls(function) == 1
    assert threads() == []


def test_a_gpu_without_xid_events_is_not_registered(rig):
    rig.state.set("gpu0", event_types=0x100)
    rig.open(xid_events=True)
    (gpu,) = rig.read()
    assert (gpu.xid_events_total, gpu.absent["xid_events_total"]) == (None, "not_supported")
    assert rig.stub.calls("nvmlDeviceRegisterEvents") == 0


def test_switched_off_there_is_no_thread_and_no_call(rig):
    rig.open(xid_events=False)
    (gpu,) = rig.read()
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
