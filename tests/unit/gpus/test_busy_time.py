"""How long a GPU was busy: by GPM between two passes, else by the driver's buffer of utilization samples."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.gpu import BusyTime
from llm_serving_exporter.model.hardware import BusySource

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
    assert rig.read()[0].busy_time is None
    rig.read(after=5.0)
    rig.state.update("gpu0", {"gpm:1": 100.0})
    (gpu,) = rig.read(after=15.0)
    assert gpu.busy_time == BusyTime(BusySource.GPM, pytest.approx(1.0 + 15.0), pytest.approx(20.0))
    # what cannot be read, or cannot be, is not watched: the totals stay
    for bad in ("nan", 250.0, -1.0):
        rig.state.update("gpu0", {"gpm:1": bad})
        assert rig.read()[0].busy_time == gpu.busy_time


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
        (gpu,) = rig.read(after=between)
    assert gpu.busy_time.source is BusySource.NVML
    assert gpu.busy_time.covered_seconds == pytest.approx(60.0, abs=0.2)
    assert gpu.busy_time.busy_seconds / gpu.busy_time.covered_seconds == pytest.approx(truth, abs=0.005)
    assert not any(name.startswith("busy_samples") for name in gpu.absent)


def test_a_gap_a_set_clock_and_impossible_samples_are_not_counted(rig):
    rig.state.update("gpu0", {"gpm": 0, "samples": "1000000:50,1200000:50"})
    (gpu,) = rig.read()
    start = gpu.busy_time
    for odd in ("99000000:100", "99200000:101", "98000000:100"):
        rig.state.update("gpu0", {"samples": odd})
        assert rig.read()[0].busy_time == start
    rig.state.update("gpu0", {"samples": "99400000:100"})
    (gpu,) = rig.read()
    assert gpu.busy_time.covered_seconds == pytest.approx(start.covered_seconds + 0.2)


def test_samples_count_again_after_the_clock_that_stamps_them_went_back(rig):
    rig.state.update("gpu0", {"gpm": 0, "samples": "3600000000:50,3600200000:50"})
    start = rig.read()[0].busy_time
    for number in range(1, 31):
        rig.state.update("gpu0", {"samples": f"{number * 200_000}:100,{number * 200_000 + 100_000}:100"})
        (gpu,) = rig.read()
    assert gpu.busy_time.covered_seconds > start.covered_seconds + 1.0


def test_a_card_without_samples_has_no_busy_time(rig):
    rig.state.update("gpu0", {"gpm": 0})
    rig.read()
    (gpu,) = rig.read()
    assert gpu.busy_time is None
    assert gpu.power_watts is not None
