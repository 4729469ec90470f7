"""MIG: instances beside their GPU, what they have of their own, and changes while the exporter runs."""

from __future__ import annotations

import pytest

from tests.nvml_stub.stub import MEBIBYTE

NO_PERMISSION = 4


def test_instances_stand_beside_their_gpu_with_their_share_of_memory(rig):
    # memory sizes as an H100 80GB reports them for these profiles; slot 1 is a hole
    small = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    large = rig.state.mig(0, 2, "3g.40gb", 40192, gi=2)
    whole, first, second = rig.read()
    assert (whole.identity.uuid, whole.identity.mig) == (rig.state.uuid(0), None)
    assert (first.identity.uuid, second.identity.uuid) == (small, large)
    mig = first.identity.mig
    assert (mig.gpu_instance_id, mig.compute_instance_id, mig.profile) == (9, 0, "1g.10gb")
    assert (mig.parent_uuid, mig.memory_slices, mig.memory_slices_total) == (rig.state.uuid(0), 1, 8)
    assert second.identity.mig.memory_slices == 4
    assert second.identity.memory_total_bytes == 40192 * MEBIBYTE
    assert second.identity.name == "NVIDIA H100 80GB HBM3"
    # the peak stays the whole GPU's: the share is memory_slices / memory_slices_total
    assert second.identity.memory_bandwidth_peak_bytes_per_second == pytest.approx(3352.32e9)


@pytest.mark.parametrize(
    ("profile", "memory_mib", "slices"),
    [("1g.10gb", 9856, 1), ("1g.20gb", 19968, 2), ("2g.20gb", 19968, 2), ("4g.40gb", 40192, 4), ("7g.80gb", 80896, 8)],
)
def test_memory_slices_of_h100_profiles(rig, profile, memory_mib, slices):
    rig.state.mig(0, 0, profile, memory_mib, gi=1)
    assert rig.read()[1].identity.mig.memory_slices == slices


def test_a_card_of_four_slices_and_one_of_unknown_slices(rig):
    rig.state.mig(0, 0, "1g.6gb", 5952, gi=1)
    rig.state.set("gpu0", mig_max=4, memory_total=24576 * MEBIBYTE)  # A30
    mig = rig.read()[1].identity.mig
    assert (mig.memory_slices, mig.memory_slices_total) == (1, 4)
    rig.state.set("gpu0", mig_max=3)
    rig.state.reload_driver()
    rig.read_all()
    mig = rig.read()[1].identity.mig
    assert (mig.memory_slices, mig.memory_slices_total) == (None, None)


def test_what_only_the_whole_gpu_has_is_told(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    whole, instance = rig.read()
    assert (whole.busy_ratio, whole.absent["busy_ratio"]) == (None, "not_supported")
    assert whole.power_watts == pytest.approx(612.345)
    assert instance.power_watts is None
    for name in ("power_watts", "busy_ratio", "energy_joules_total", "xid_events_total", "pcie_bytes_total"):
        assert instance.absent[name] == "on_parent"
    assert instance.memory_used_bytes == 9856 * MEBIBYTE // 2


def test_gpm_of_an_instance_is_sampled_through_its_gpu(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.update("gpu0/gi9", {"gpm:10": 40.0, "gpm:2": 50.0, "gpm:5": 60.0})
    rig.read()
    whole, instance = rig.read()
    assert instance.dram_bandwidth_ratio == pytest.approx(0.4)
    assert whole.absent["dram_bandwidth_ratio"] == "on_instances"
    # a GPM call on the instance's own handle would be booked as misuse and fail the rig's last check
    assert rig.stub.calls("nvmlGpmMigSampleGet") == 2
    assert rig.stub.calls("nvmlGpmSampleGet") == 0


def test_memory_and_gpm_that_are_in_use_are_told_apart_from_not_supported(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.fail("gpu0", "nvmlGpmMigSampleGet", 19)
    rig.state.fail("gpu0/mig0", "nvmlDeviceGetMemoryInfo_v2", 19)  # as driver 535 does after GPM on MIG handles
    whole, instance = rig.read()
    assert instance.absent["memory_used_bytes"] == "in_use"
    assert instance.absent["dram_bandwidth_ratio"] == "in_use"
    assert whole.memory_used_bytes == 70000 * MEBIBYTE


def test_in_a_container_the_parent_s_memory_is_not_permitted(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.fail("gpu0", "nvmlDeviceGetMemoryInfo_v2", NO_PERMISSION)
    whole, instance = rig.read()
    assert whole.absent["memory_used_bytes"] == "no_permission"
    assert instance.memory_used_bytes == 9856 * MEBIBYTE // 2
    assert (instance.identity.mig.memory_slices, instance.identity.mig.memory_slices_total) == (None, 8)


def test_processes_of_an_instance_come_from_the_parent_where_the_driver_refuses_them(rig):
    rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.state.mig(0, 1, "1g.10gb", 9857, gi=11)
    rig.state.processes("gpu0", (1, 100, 9, 0), (2, 200, 11, 0))
    for slot in (0, 1):
        rig.state.fail(f"gpu0/mig{slot}", "nvmlDeviceGetComputeRunningProcesses_v3", 3)
        rig.state.fail(f"gpu0/mig{slot}", "nvmlDeviceGetComputeRunningProcesses_v2", 3)
    whole, first, second = rig.read()
    assert [p.pid for p in whole.processes] == [1, 2]
    assert [p.pid for p in first.processes] == [1]
    assert [p.pid for p in second.processes] == [2]
    assert "processes" not in first.absent


def test_instances_that_go_are_gone_and_new_ones_come_without_a_restart(rig):
    old = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    assert [gpu.identity.uuid for gpu in rig.read()] == [rig.state.uuid(0), old]
    rig.read()
    assert rig.stub.live_samples == 2
    rig.state.drop("gpu0/mig0")
    new = rig.state.mig(0, 3, "2g.20gb", 19968, gi=3)
    readings = rig.read()
    assert [(gpu.identity.uuid, gpu.lost) for gpu in readings] == [(rig.state.uuid(0), False), (new, False)]
    assert rig.stub.live_samples == 1  # the old instance's are freed
    rig.state.drop("gpu0/mig3")
    rig.state.set("gpu0", mig_mode=0)
    (whole,) = rig.read()
    assert whole.identity.uuid == rig.state.uuid(0)


def test_the_profile_is_built_from_slices_where_the_name_lacks_it(rig):
    rig.state.mig(0, 0, "", 19968, gi=1)
    rig.state.set("gpu0/mig0", name="NVIDIA H100 80GB HBM3", gpu_slices=2, compute_slices=1)
    assert rig.read()[1].identity.mig.profile == "1c.2g.20gb"


def test_instances_of_a_lost_gpu_are_lost_with_it(rig):
    rig.state.count(2)
    instance = rig.state.mig(0, 0, "1g.10gb", 9856, gi=9)
    rig.read()
    rig.state.fail("gpu0", "*", 15)
    readings = rig.read()
    assert {gpu.identity.uuid: gpu.lost for gpu in readings} == {
        rig.state.uuid(1): False,
        rig.state.uuid(0): True,
        instance: True,
    }
