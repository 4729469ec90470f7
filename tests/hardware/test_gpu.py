"""The GPU stage against a real NVIDIA GPU: `make test-hardware`. Where there is none, these fail and say so.

What GPM counts is held against known loads in test_roofline.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.gpu import GpuReading

pytestmark = pytest.mark.hardware


@pytest.fixture
def source() -> Iterator[NvmlSource]:
    opened = NvmlSource()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def read(source: NvmlSource) -> Callable[[], tuple[GpuReading, ...]]:
    def read_now() -> tuple[GpuReading, ...]:
        readings = source.read()
        if not readings.attempt.ok or not readings.gpus:
            pytest.fail(f"these tests need a real NVIDIA GPU: {readings.attempt.detail or readings.attempt.reason}")
        return readings.gpus

    return read_now


def whole_gpu(gpus: tuple[GpuReading, ...]) -> GpuReading:
    """The first GPU that is not cut into MIG instances."""
    parents = {gpu.identity.mig.parent_uuid for gpu in gpus if gpu.identity.mig}
    whole = [gpu for gpu in gpus if gpu.identity.mig is None and gpu.identity.uuid not in parents and not gpu.lost]
    if not whole:
        pytest.fail("this test needs a GPU that is not in MIG mode")
    return whole[0]


def test_identity_is_sane(read):
    for gpu in read():
        who = gpu.identity
        assert not gpu.lost
        assert who.uuid.startswith("MIG-" if who.mig else "GPU-")
        assert "NVIDIA" in who.name or "Tesla" in who.name
        assert who.pci_device_id is not None
        assert who.pci_device_id & 0xFFFF == 0x10DE
        assert who.architecture is not None
        assert who.compute_capability is not None
        assert who.compute_capability >= (5, 0)
        if who.memory_bandwidth_peak_bytes_per_second is not None:
            assert 100e9 < who.memory_bandwidth_peak_bytes_per_second < 20e12


def test_readings_are_sane_and_what_is_missing_has_a_reason(read):
    gpu = whole_gpu(read())
    assert gpu.power_watts is not None
    assert gpu.power_limit_watts is not None
    assert 0 < gpu.power_watts < 1.5 * gpu.power_limit_watts
    assert 0 < gpu.temperature_celsius["gpu"] < 120
    assert gpu.slowdown is not None
    assert gpu.memory_used_bytes is None or 0 <= gpu.memory_used_bytes <= gpu.memory_total_bytes
    for name in ("busy_ratio", "memory_active_ratio"):
        value = getattr(gpu, name)
        assert value is None or 0.0 <= value <= 1.0
    for name in ("memory_used_bytes", "busy_ratio", "energy_joules_total", "dram_bandwidth_ratio", "processes"):
        assert (getattr(gpu, name) is None) == (name in gpu.absent), name


def test_energy_grows_as_power_says(read):
    before = whole_gpu(read())
    started = time.monotonic()
    time.sleep(2.0)
    after = whole_gpu(read())
    seconds = time.monotonic() - started
    if before.energy_joules_total is None:
        assert before.identity.compute_capability < (7, 0), "an energy counter is expected since Volta"
        return
    watts = (after.energy_joules_total - before.energy_joules_total) / seconds
    assert 1.0 < watts < 1.5 * after.power_limit_watts


def test_counters_never_fall(read):
    earlier = whole_gpu(read())
    for _ in range(5):
        time.sleep(0.2)
        later = whole_gpu(read())
        for name in ("pcie_bytes_total", "nvlink_bytes_total", "ecc_errors_total", "xid_events_total"):
            before, now = getattr(earlier, name) or {}, getattr(later, name) or {}
            assert all(now[key] >= before[key] for key in before), name
        earlier = later


def test_passes_are_quick_and_leave_no_session_open(source, read):
    read()
    started = time.monotonic()
    for _ in range(10):
        read()
    # a pass that blocks for 20 ms a call, as the PCIe throughput call would, is far beyond this
    assert (time.monotonic() - started) / 10 < 1.0
    source.close()
    assert not source.read().attempt.ok
