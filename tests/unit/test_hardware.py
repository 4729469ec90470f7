"""What derive is given about a target's GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_serving_exporter.config.types import Config, DcgmConfig, SloConfig
from llm_serving_exporter.gpu_facts import GpuFacts
from llm_serving_exporter.hardware import DCGM_STALE_INTERVALS, Gpus, settings_of
from llm_serving_exporter.model.attempt import Attempt, FailureReason, Stage
from llm_serving_exporter.model.dcgm import DcgmReading, DcgmReadings
from llm_serving_exporter.model.device import GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target

OK = Attempt(Stage.GPU, None, "", 0.0, 0.0)
UUIDS = ("GPU-1", "GPU-2")
TARGET = Target("a", "http://localhost:8000")
CONFIG = Config(targets=(TARGET,))


def readings(now: float = 100.0, **changes: object) -> GpuReadings:
    gpus = tuple(
        GpuReading(
            GpuIdentity(uuid, index, "NVIDIA H100 80GB HBM3"), memory_used_bytes=10 * 10**9, dram_bandwidth_ratio=ratio
        )
        for index, (uuid, ratio) in enumerate(zip(UUIDS, (0.2, 0.4), strict=True))
    )
    return replace(GpuReadings(OK, "test", now, gpus), **changes)


def gpus(now: float = 100.0, dcgm_at: float | None = None) -> Gpus:
    read = readings(now)
    pages = tuple(DcgmReading(uuid, dram_bandwidth_ratio=0.6) for uuid in UUIDS)
    dcgm = None if dcgm_at is None else DcgmReadings(OK, dcgm_at, pages)
    return Gpus(read, dcgm, GpuFacts().of_gpus(read.gpus))


def test_nothing_seen_is_absent_with_its_reason() -> None:
    found = settings_of(CONFIG, TARGET, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert found.device is None
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN
    assert (found.hardware.parallel, found.hardware.gpus, found.hardware.version) == (None, None, None)


def test_gpus_seen_are_shared_by_the_engines() -> None:
    found = settings_of(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(version="0.32.0"), 1)
    assert (found.hardware.parallel, found.hardware.gpus, found.hardware.assumed_gpus) == (Parallel(2, 1, 1), 2.0, True)
    assert isinstance(found.hardware.peaks, GpuPeaks)
    assert found.hardware.version == (0, 32)
    two = settings_of(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 2)
    assert (two.hardware.parallel, two.hardware.gpus) == (Parallel(1, 1, 2), 1.0)


def test_a_configured_gpu_that_is_not_here_is_not_left_out_of_the_count() -> None:
    """One of two: half the peak, or one GPU's bandwidth, would pass for the target's."""
    target = replace(TARGET, gpus=(0, 1))
    found = settings_of(CONFIG, target, UUIDS[:1], gpus(), GpuFacts(), ServerFacts(), 1)
    assert (found.hardware.peaks, found.device) == (Absence.GPUS_UNKNOWN, None)
    assert (found.hardware.parallel, found.hardware.gpus) == (Parallel(2, 1, 1), 2.0)
    both = settings_of(CONFIG, target, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1)
    assert isinstance(both.hardware.peaks, GpuPeaks)
    assert both.device is not None


def test_a_remote_target_is_what_is_configured() -> None:
    remote = Target(
        "r", "http://far:8000", gpu_count=8, gpu_model="H100 SXM", tensor_parallel_size=4, pipeline_parallel_size=2
    )
    found = settings_of(CONFIG, remote, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert isinstance(found.hardware.peaks, GpuPeaks)
    assert (found.hardware.parallel, found.hardware.gpus) == (Parallel(4, 2, 1), 8.0)
    assert found.device is None


def test_thresholds_are_those_that_are_on() -> None:
    config = replace(CONFIG, slo=SloConfig(ttft_seconds=2.5, itl_seconds=None, e2e_seconds=30.0, errors=False))
    found = settings_of(config, TARGET, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert (found.slo_seconds, found.slo_errors) == ({"ttft": 2.5, "e2e": 30.0}, False)


def test_the_pass_is_the_mean_of_the_targets_gpus() -> None:
    found = settings_of(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1).device
    assert found is not None
    assert found.gpm_ratio == pytest.approx(0.3)
    assert found.memory_used_bytes == 20 * 10**9
    # dcgm-exporter is not configured
    assert (found.dcgm_ratio, found.absent["dcgm_ratio"]) == (None, Absence.NOT_CONFIGURED)


def test_a_pass_that_failed_is_none() -> None:
    failed = readings(attempt=Attempt(Stage.GPU, FailureReason.NO_DRIVER, "", 0.0, 0.0), gpus=())
    found = settings_of(CONFIG, TARGET, UUIDS, Gpus(failed), GpuFacts(), ServerFacts(), 1)
    assert found.device is None
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN


def test_dcgm_counts_until_it_missed_three_readings() -> None:
    config = replace(CONFIG, dcgm=DcgmConfig(url="http://localhost:9400", interval_seconds=10.0))

    def ratio(now: float) -> tuple[float | None, Absence | None]:
        found = settings_of(config, TARGET, UUIDS, gpus(now, dcgm_at=100.0), GpuFacts(), ServerFacts(), 1).device
        assert found is not None
        return found.dcgm_ratio, found.absent.get("dcgm_ratio")

    last = 100.0 + 10.0 * DCGM_STALE_INTERVALS
    assert ratio(100.0) == (pytest.approx(0.6), None)
    assert ratio(last) == (pytest.approx(0.6), None)
    stale, why = ratio(last + 0.1)
    assert stale is None
    assert why not in (None, Absence.AVAILABLE)
    unread = settings_of(config, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1).device
    assert unread is not None
    assert unread.dcgm_ratio is None
