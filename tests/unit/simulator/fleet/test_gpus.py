"""GPUs of the simulated fleet: activity and energy against what the engines moved and computed."""

from __future__ import annotations

import pytest

from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.gpus import FleetGpuSource, gpu_uuid, gpus_of
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Request
from tests.support.builders.simfleet import TraceWorkload, small_fleet


def test_decode_alone_shows_the_efficiency_as_bandwidth() -> None:
    spec = EngineSpec(overhead_seconds=0.0, bandwidth_efficiency=0.8)
    fleet = Fleet([ReplicaSpec("a", ("n",), spec)], TraceWorkload([Request(0.0, 100, 20000)]))
    source = FleetGpuSource(fleet)
    fleet.advance(10.0)
    source.read()
    fleet.advance(20.0)
    (gpu,) = source.read().gpus
    # every step takes bytes / (0.8 x bandwidth), so that 0.8 of the peak is moved; a step under way is booked at its end
    assert gpu.dram_bandwidth_ratio == pytest.approx(0.8, rel=0.005)
    assert gpu.busy_ratio == pytest.approx(1.0, rel=0.005)
    assert gpu.tensor_activity_ratio is not None
    assert 0 < gpu.tensor_activity_ratio < 0.05
    assert gpu.memory_used_bytes == pytest.approx(0.9 * 85520809984, rel=1e-4)


def test_energy_is_power_times_time_however_often_it_is_read() -> None:
    energies = []
    for step in (120.0, 6.0, 1.3):
        fleet = small_fleet(1)
        source = FleetGpuSource(fleet)
        at, joules, before = 0.0, 0.0, 0.0
        while at < 120.0:
            at = min(at + step, 120.0)
            fleet.advance(at)
            (gpu,) = source.read().gpus
            joules += (gpu.power_watts or 0.0) * (at - before)
            before = at
        energies.append(gpu.energy_joules_total)
        if step > 5.0:  # the window of power is the time between two reads
            assert joules == pytest.approx(gpu.energy_joules_total, rel=1e-6)
    assert energies[0] == pytest.approx(energies[1]) == pytest.approx(energies[2])
    assert energies[0] is not None
    assert 0.17 * 700 * 120 < energies[0] < 700 * 120


def test_a_node_has_the_gpus_that_stand_in_it_and_none_when_it_is_lost() -> None:
    wide = EngineSpec(model="meta-llama/Llama-3.1-70B-Instruct", tensor=4, pipeline=2)
    fleet = Fleet([ReplicaSpec("a", ("n0", "n1"), wide), ReplicaSpec("b", ("n1",), EngineSpec())], TraceWorkload([]))
    one, other = FleetGpuSource(fleet, "n0"), FleetGpuSource(fleet, "n1")
    assert [gpu.identity.uuid for gpu in one.read().gpus] == list(gpus_of(fleet, "a")[:4])
    assert [gpu.identity.uuid for gpu in other.read().gpus] == [*gpus_of(fleet, "a")[4:], gpu_uuid("b", 0)]
    assert [gpu.identity.index for gpu in other.read().gpus] == [0, 1, 2, 3, 4]
    fleet.lose_node("n1")
    lost = other.read()
    assert not lost.attempt.ok
    assert lost.gpus == ()
    assert one.read().attempt.ok
    one.close()
    assert not one.read().attempt.ok


def test_faults_are_shown_as_scripted() -> None:
    fleet = small_fleet(1)
    source = FleetGpuSource(fleet)
    fault = source.fault(gpu_uuid("r0", 0))
    (gpu,) = source.read().gpus
    assert gpu.xid_events_total is not None
    assert set(gpu.xid_events_total.values()) == {0}
    fault.xids[79] = 1
    fault.slowdown.add("hw_thermal_slowdown")
    (gpu,) = source.read().gpus
    assert gpu.xid_events_total is not None
    assert gpu.slowdown is not None
    assert gpu.xid_events_total[79] == 1
    assert [reason for reason, holds in gpu.slowdown.items() if holds] == ["hw_thermal_slowdown"]
    fault.lost = True
    (gpu,) = source.read().gpus
    assert (gpu.lost, gpu.power_watts) == (True, None)
