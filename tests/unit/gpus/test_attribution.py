"""What derive is given about a target's GPUs."""

from __future__ import annotations

import pytest

from llm_serving_exporter.gpus.attribution import (
    DCGM_STALE_INTERVALS,
    GpuCounter,
    GpuFacts,
    Gpus,
    SettingsBuilder,
    count_target_gpus,
)
from llm_serving_exporter.gpus.ownership import Assignment
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, Parallel, ShareSource, TargetGpus
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, ServerFacts, Snapshot
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.settings.config import Config, DcgmConfig, SloConfig
from tests.support.builders.target_readings import change_reading, make_reading

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
    return Gpus(read, dcgm, GpuFacts().find_peaks(read.gpus))


def test_nothing_seen_is_absent_with_its_reason() -> None:
    found = SettingsBuilder().build(CONFIG, TARGET, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert found.device is None
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN
    assert (found.hardware.parallel, found.hardware.gpus, found.hardware.version) == (None, None, None)


def test_gpus_seen_are_shared_by_the_engines() -> None:
    found = SettingsBuilder().build(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(version="0.32.0"), 1)
    assert (found.hardware.parallel, found.hardware.gpus, found.hardware.assumed_gpus) == (Parallel(2, 1, 1), 2.0, True)
    assert isinstance(found.hardware.peaks, GpuPeaks)
    assert found.hardware.version == (0, 32)
    two = SettingsBuilder().build(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 2)
    assert (two.hardware.parallel, two.hardware.gpus) == (Parallel(1, 1, 2, 2), 1.0)


def test_a_configured_gpu_that_is_not_here_is_not_left_out_of_the_count() -> None:
    """One of two: half the peak, or one GPU's bandwidth, would pass for the target's."""
    target = replace(TARGET, gpus=(0, 1))
    found = SettingsBuilder().build(CONFIG, target, UUIDS[:1], gpus(), GpuFacts(), ServerFacts(), 1)
    assert (found.hardware.peaks, found.device) == (Absence.GPUS_UNKNOWN, None)
    assert (found.hardware.parallel, found.hardware.gpus) == (Parallel(2, 1, 1), 2.0)
    both = SettingsBuilder().build(CONFIG, target, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1)
    assert isinstance(both.hardware.peaks, GpuPeaks)
    assert both.device is not None


def test_a_remote_target_is_what_is_configured() -> None:
    remote = Target(
        "r", "http://far:8000", gpu_count=8, gpu_model="H100 SXM", tensor_parallel_size=4, pipeline_parallel_size=2
    )
    found = SettingsBuilder().build(CONFIG, remote, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert isinstance(found.hardware.peaks, GpuPeaks)
    assert (found.hardware.parallel, found.hardware.gpus) == (Parallel(4, 2, 1), 8.0)
    assert found.device is None


def test_thresholds_are_those_that_are_on() -> None:
    config = replace(CONFIG, slo=SloConfig(ttft_seconds=2.5, itl_seconds=None, e2e_seconds=30.0, errors=False))
    found = SettingsBuilder().build(config, TARGET, (), Gpus(), GpuFacts(), ServerFacts(), 1)
    assert (found.slo_seconds, found.slo_errors) == ({"ttft": 2.5, "e2e": 30.0}, False)


def test_the_pass_is_the_mean_of_the_targets_gpus() -> None:
    found = SettingsBuilder().build(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1).device
    assert found.gpm_ratio == pytest.approx(0.3)
    assert found.memory_used_bytes == 20 * 10**9
    # dcgm-exporter is not configured
    assert (found.dcgm_ratio, found.absent["dcgm_ratio"]) == (None, Absence.NOT_CONFIGURED)


def test_a_pass_that_failed_is_none() -> None:
    failed = readings(attempt=Attempt(Stage.GPU, FailureReason.NO_DRIVER, "", 0.0, 0.0), gpus=())
    found = SettingsBuilder().build(CONFIG, TARGET, UUIDS, Gpus(failed), GpuFacts(), ServerFacts(), 1)
    assert found.device is None
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN


def test_dcgm_counts_until_it_missed_three_readings() -> None:
    config = replace(CONFIG, dcgm=DcgmConfig(url="http://localhost:9400", interval_seconds=10.0))

    def ratio(now: float) -> tuple[float | None, Absence | None]:
        found = (
            SettingsBuilder()
            .build(config, TARGET, UUIDS, gpus(now, dcgm_at=100.0), GpuFacts(), ServerFacts(), 1)
            .device
        )
        return found.dcgm_ratio, found.absent.get("dcgm_ratio")

    last = 100.0 + 10.0 * DCGM_STALE_INTERVALS
    assert ratio(100.0) == (pytest.approx(0.6), None)
    assert ratio(last) == (pytest.approx(0.6), None)
    stale, why = ratio(last + 0.1)
    assert stale is None
    assert why not in (None, Absence.AVAILABLE)
    unread = SettingsBuilder().build(config, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1).device
    assert unread.dcgm_ratio is None


def test_what_the_driver_measures_of_a_shared_gpu_is_nobodys() -> None:
    shared = {UUIDS[0]: GpuPart(0.5, ShareSource.KUBELET)}
    found = SettingsBuilder().build(CONFIG, TARGET, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1, shared)
    assert (found.device.gpm_ratio, found.device.memory_used_bytes) == (None, None)
    assert set(found.device.absent.values()) == {Absence.GPU_SHARED}
    # its peak is the card's all the same
    assert isinstance(found.hardware.peaks, GpuPeaks)


H100 = "H100 SXM 80GB"


def count(
    target: Target, uuids: tuple[str, ...] = (), said: ServerFacts | None = None, engines: int = 1
) -> TargetGpus | None:
    return count_target_gpus(target, uuids, gpus(), GpuFacts(), said or ServerFacts(), engines)


def test_the_gpus_of_a_target_are_those_of_all_its_engines() -> None:
    assert count(TARGET) is None
    assert count(TARGET, UUIDS) == count(TARGET, UUIDS, engines=2) == TargetGpus(2, H100)
    # three engines that share two GPUs have two thirds of one each
    assert count(TARGET, UUIDS, engines=3) == TargetGpus(2, H100)
    # what the server says is of one engine
    of_one = ServerFacts(gpu_count=4, gpu_name="NVIDIA H100 80GB HBM3")
    assert count(TARGET, said=of_one, engines=2) == TargetGpus(8, H100)
    assert count(TARGET, said=ServerFacts(tensor_parallel_size=4, pipeline_parallel_size=2), engines=2) == TargetGpus(
        16
    )
    # parts of cards: as known, as stated, and not known
    parts = {UUIDS[0]: 0.5, UUIDS[1]: 0.25}
    counted = [
        count_target_gpus(target, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1, shares)
        for target, shares in ((TARGET, parts), (replace(TARGET, gpu_share=0.1), parts), (TARGET, {UUIDS[0]: None}))
    ]
    assert counted == [TargetGpus(2, H100, 0.375), TargetGpus(2, H100, 0.1), TargetGpus(2, H100, None)]
    # two nodes of eight: on this one, eight of them are configured
    spans = replace(TARGET, gpus=tuple(range(8)), nodes=("a", "b"), tensor_parallel_size=16)
    assert count(spans) == TargetGpus(16)


def test_a_stated_number_counts_where_the_gpus_of_other_nodes_cannot_be_seen() -> None:
    spans = replace(TARGET, gpu_count=16, nodes=("a", "b"))
    assert count(spans, UUIDS) == count(spans, UUIDS, engines=0) == TargetGpus(16, H100)
    assert SettingsBuilder().build(CONFIG, spans, UUIDS, gpus(), GpuFacts(), ServerFacts(), 1).hardware.gpus == 16
    # what is seen is believed on one node, and where it is more
    assert (
        count(replace(spans, nodes=("a",)), UUIDS) == count(replace(spans, gpu_count=1), UUIDS) == TargetGpus(2, H100)
    )


def test_a_guess_how_gpus_share_the_work_is_none_about_their_number() -> None:
    remote = replace(TARGET, gpu_count=8, gpu_model="H100 SXM")
    assert SettingsBuilder().build(CONFIG, remote, (), Gpus(), GpuFacts(), ServerFacts(), 1).hardware.assumed_gpus
    assert count(remote) == TargetGpus(8, H100)


def test_before_the_first_page_only_what_is_said_of_the_whole_target_counts() -> None:
    assert count(replace(TARGET, gpu_count=8), engines=0) == TargetGpus(8)
    assert count(TARGET, UUIDS, engines=0) == TargetGpus(2, H100)
    assert count(replace(TARGET, tensor_parallel_size=4), engines=0) is None


def test_a_server_without_a_gpu_has_no_number_of_them() -> None:
    assert count(replace(TARGET, gpus=()), said=ServerFacts(tensor_parallel_size=1)) is None


def test_a_configured_gpu_that_is_not_here_counts_and_is_called_as_those_that_are() -> None:
    assert count(replace(TARGET, gpus=(0, 1)), UUIDS[:1]) == TargetGpus(2, H100)


def seen(target: Target = TARGET, **changes: object) -> TargetReading:
    snapshot = Snapshot((EngineSnapshot("m", "0", requests_running=1.0),), "any", 0.0, 0.0)
    return change_reading(make_reading(target, snapshot=snapshot), **changes)


def known(before: TargetReading, now: TargetReading, uuids: tuple[str, ...] = ()) -> TargetGpus | None:
    assignment = Assignment(uuids, "configured") if uuids else None
    return GpuCounter().keep_known(before, now, assignment, gpus(), GpuFacts())


def test_what_was_known_of_a_targets_gpus_stays_while_nothing_is_said() -> None:
    four = ServerFacts(gpu_count=4, gpu_name="L40S")
    first = known(seen(), seen(facts=four))
    assert first == TargetGpus(4, "L40S")
    before = seen(facts=four, total=first)
    assert known(before, seen(facts=ServerFacts())) == first
    # the kind alone is not said any more
    assert known(before, seen(facts=replace(four, gpu_count=2, gpu_name=None))) == TargetGpus(2, "L40S")
    assert known(before, seen(facts=replace(four, gpu_count=8))) == TargetGpus(8, "L40S")


def test_a_restarted_server_is_believed_once_it_was_asked_again() -> None:
    """Two of its four GPUs are seen here; that it has four, it says itself."""
    before = seen(facts=ServerFacts(tensor_parallel_size=4), total=TargetGpus(4, H100))
    again = seen(facts=ServerFacts(), restarts_total=1)
    assert known(before, again, UUIDS) == TargetGpus(4, H100)
    now = change_reading(again, total=TargetGpus(4, H100))
    assert known(now, change_reading(now, facts=ServerFacts(tensor_parallel_size=2)), UUIDS) == TargetGpus(2, H100)


def test_a_front_end_has_no_gpus() -> None:
    known_as = seen(replace(TARGET, gpu_count=8), total=TargetGpus(8))
    assert known(known_as, known_as) == TargetGpus(8)
    assert known(known_as, change_reading(known_as, page_role=Role.FRONTEND)) is None
