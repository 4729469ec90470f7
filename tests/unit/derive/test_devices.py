"""A target's GPUs taken together, and over a window."""

import pytest

from llm_serving_exporter.derive.devices import average_samples, keep_samples
from llm_serving_exporter.gpus.attribution import make_sample
from llm_serving_exporter.model.gpu import GpuAbsence, GpuReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample
from tests.support.builders import views
from tests.support.rows import check_rows

FIRST = views.gpu(0, dram_bandwidth_ratio=0.4, memory_used_bytes=10)
SECOND = views.gpu(1, dram_bandwidth_ratio=0.6, memory_used_bytes=30)
BOTH = (FIRST.identity.uuid, SECOND.identity.uuid)


def of(*gpus: GpuReading, dcgm=Absence.NOT_CONFIGURED, uuids=BOTH) -> DeviceSample:
    made = make_sample(uuids, views.gpus(*gpus), dcgm)
    assert made is not None
    return made


def test_ratios_are_means_and_memory_a_sum() -> None:
    found = of(FIRST, SECOND, views.gpu(2, dram_bandwidth_ratio=0.0), dcgm={BOTH[0]: 0.3, BOTH[1]: 0.5, "GPU-2": 0.0})
    assert (found.gpus, found.gpm_ratio, found.dcgm_ratio, found.memory_used_bytes) == (2, 0.5, 0.4, 40)
    assert found.absent == {}


def test_one_gpu_without_the_reading_leaves_none_for_all() -> None:
    found = of(FIRST, replace(SECOND, dram_bandwidth_ratio=None, absent={"dram_bandwidth_ratio": "not_supported"}))
    assert found.gpm_ratio is None
    assert found.absent["gpm_ratio"] is Absence.NOT_EXPORTED
    assert found.memory_used_bytes == 40


@check_rows(
    ("why", "told"),
    [
        (GpuAbsence.NOT_SUPPORTED, Absence.NOT_EXPORTED), (GpuAbsence.NO_PERMISSION, Absence.NO_PERMISSION),
        (GpuAbsence.DISABLED, Absence.NOT_CONFIGURED), (GpuAbsence.NO_WINDOW, Absence.WARMING_UP),
        (GpuAbsence.NO_DATA, Absence.WARMING_UP), (GpuAbsence.ON_INSTANCES, Absence.NOT_EXPORTED),
    ],
)  # fmt: skip
def test_why_a_reading_is_not_there(why: GpuAbsence, told: Absence) -> None:
    absent = {"dram_bandwidth_ratio": why.value}
    found = of(replace(FIRST, dram_bandwidth_ratio=None, absent=absent), SECOND)
    assert found.absent["gpm_ratio"] is told
    assert average_samples((found,), "gpm_ratio") is told


def test_a_gpu_that_is_gone_or_lost_has_no_reading() -> None:
    assert of(FIRST).absent["gpm_ratio"] is Absence.GPUS_UNKNOWN
    lost = replace(SECOND, lost=True, dram_bandwidth_ratio=None, memory_used_bytes=None)
    assert of(FIRST, lost).absent["gpm_ratio"] is Absence.GPUS_UNKNOWN


def test_a_dcgm_exporter_that_lacks_a_gpu_says_nothing() -> None:
    assert of(FIRST, SECOND, dcgm={BOTH[0]: 0.3}).absent["dcgm_ratio"] is Absence.NOT_EXPORTED
    assert of(FIRST, SECOND).absent["dcgm_ratio"] is Absence.NOT_CONFIGURED


def test_without_gpus_or_with_a_failed_pass_there_is_no_sample() -> None:
    assert make_sample((), views.gpus(FIRST)) is None
    assert make_sample(BOTH, None) is None
    assert make_sample(BOTH, views.gpus(reason=FailureReason.INTERNAL)) is None


def at(seconds: float, gpus: int = 1, ratio: float | None = 0.5) -> DeviceSample:
    return DeviceSample(
        seconds, gpus, gpm_ratio=ratio, absent={} if ratio is not None else {"gpm_ratio": Absence.WARMING_UP}
    )


def test_samples_of_the_span_are_kept_and_each_pass_once() -> None:
    samples: tuple[DeviceSample, ...] = ()
    for seconds in (0.0, 5.0, 5.0, 10.0, 65.0):
        samples = keep_samples(samples, at(seconds), seconds, 60.0)
    assert [one.monotonic_seconds for one in samples] == [5.0, 10.0, 65.0]
    assert keep_samples(samples, None, 66.0, 60.0) == samples[1:]
    assert keep_samples(samples, at(3.0), 66.0, 60.0) == samples[1:]


def test_other_gpus_start_the_samples_anew() -> None:
    assert [one.gpus for one in keep_samples((at(0.0), at(5.0)), at(10.0, gpus=2), 10.0, 60.0)] == [2]


def test_mean_over_the_samples_that_have_it() -> None:
    assert average_samples((at(0, ratio=None), at(5, ratio=0.2), at(10, ratio=0.4)), "gpm_ratio") == pytest.approx(0.3)
    assert average_samples((at(0, ratio=None),), "gpm_ratio") is Absence.WARMING_UP
    assert average_samples((), "gpm_ratio") is Absence.GPUS_UNKNOWN
