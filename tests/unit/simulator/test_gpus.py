"""Simulated GPU readings: they follow the load, say what they are, and energy is power over time."""

from __future__ import annotations

import pytest

from llm_serving_simulator.demo import ReplayGpuSource
from llm_serving_simulator.replay import Timeline
from tests.support.builders.recordings import recording

DECODE_HEAVY, PREFILL_HEAVY, IDLE = 160.5, 135.5, 5.5  # seconds into the recording


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(clock: Clock) -> ReplayGpuSource:
    return ReplayGpuSource(Timeline(recording("vllm-0.32"), clock), clock, lambda: 1.8e9)


def test_readings_say_that_they_are_simulated(source: ReplayGpuSource) -> None:
    readings = source.read()
    assert readings.source == "simulated"
    assert readings.attempt.ok
    assert readings.attempt.at_unix_seconds == 1.8e9
    assert readings.driver_version is None
    assert len({gpu.identity.uuid for gpu in readings.gpus}) == 2
    assert {gpu.identity.name for gpu in readings.gpus} == {"Simulated H100 (replay)"}
    assert all(gpu.identity.uuid.startswith("GPU-00000000-5151-") for gpu in readings.gpus)


def test_a_closed_source_is_a_failed_attempt(source: ReplayGpuSource) -> None:
    source.close()
    source.close()
    readings = source.read()
    assert not readings.attempt.ok
    assert readings.gpus == ()


def test_an_idle_gpu_draws_idle_power_and_moves_nothing(clock: Clock, source: ReplayGpuSource) -> None:
    clock.now = IDLE
    for gpu in source.read().gpus:
        assert gpu.power_watts == 120.0
        assert gpu.busy_ratio == gpu.dram_bandwidth_ratio == gpu.tensor_activity_ratio == 0.0
        assert gpu.memory_used_bytes == 72 * 1024**3


def test_decode_moves_memory_and_prefill_fills_tensor_cores(clock: Clock, source: ReplayGpuSource) -> None:
    clock.now = DECODE_HEAVY
    decode = source.read().gpus[0]
    clock.now = PREFILL_HEAVY
    prefill = source.read().gpus[0]
    assert decode.dram_bandwidth_ratio is not None
    assert prefill.dram_bandwidth_ratio is not None
    assert decode.dram_bandwidth_ratio > 0.4 > prefill.dram_bandwidth_ratio
    assert decode.tensor_activity_ratio is not None
    assert prefill.tensor_activity_ratio is not None
    assert prefill.tensor_activity_ratio > decode.tensor_activity_ratio


def test_readings_stay_in_range_all_the_way(clock: Clock, source: ReplayGpuSource) -> None:
    watts = []
    for second in range(221):
        clock.now = second + 0.5
        for gpu in source.read().gpus:
            assert gpu.power_watts is not None
            watts.append(gpu.power_watts)
            for name in (
                "busy_ratio",
                "memory_active_ratio",
                "dram_bandwidth_ratio",
                "sm_activity_ratio",
                "tensor_activity_ratio",
            ):
                assert 0.0 <= getattr(gpu, name) <= 1.0, (second, name)
    assert min(watts) == 120.0
    assert 500.0 < max(watts) <= 650.0


def test_energy_is_power_over_time_however_often_it_is_read(clock: Clock, source: ReplayGpuSource) -> None:
    reference = ReplayGpuSource(Timeline(recording("vllm-0.32"), clock), clock, lambda: 1.8e9)
    integrated = joules = 0.0
    steps = 4000
    for step in range(steps):
        clock.now = 500.0 * step / steps
        gpu = source.read().gpus[1]
        assert gpu.power_watts is not None
        assert gpu.energy_joules_total is not None
        assert gpu.energy_joules_total >= joules
        joules = gpu.energy_joules_total
        integrated += gpu.power_watts * 500.0 / steps
    assert joules == pytest.approx(integrated, rel=0.01)
    clock.now = 500.0 * (steps - 1) / steps
    assert reference.read().gpus[1].energy_joules_total == joules


def test_the_same_moment_gives_the_same_reading(clock: Clock, source: ReplayGpuSource) -> None:
    clock.now = 75.0
    assert source.read() == source.read()
