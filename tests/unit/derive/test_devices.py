"""A target's GPUs taken together and over a window, what holds their clock, and what a card cannot measure."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.derive.devices import average_samples, find_cap, keep_samples
from llm_serving_exporter.gpus.attribution import DCGM, ENERGY, GPM, find_lacks, make_sample
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.gpus.source import GpuSource
from llm_serving_exporter.model.derived import Cap
from llm_serving_exporter.model.gpu import GpuAbsence, GpuReading, GpuReadings
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import Clocks, DeviceSample
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders import views
from tests.support.builders.recordings import page
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter, HandClock
from tests.support.servers.replica import Replica

# --- A target's GPUs taken together, and over a window


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


# --- What holds the clock of a target's GPUs, over a window of passes


SLOW = Clocks(1.383e9, 1.98e9, 698.0, 700.0, {"power": 1.0, "thermal": 0.0})
FULL = Clocks(1.98e9, 1.98e9, 442.0, 700.0, {"power": 0.0, "thermal": 0.0})
REASONS = dict.fromkeys(
    (
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    ),
    False,
)


def passes(*clocks: Clocks | None, seconds: float = 5.0) -> tuple[DeviceSample, ...]:
    return tuple(DeviceSample(seconds * number, 1, clocks=one) for number, one in enumerate(clocks))


def share(*clocks: Clocks | None) -> float:
    found = find_cap(passes(*clocks))
    return found.share


def test_a_power_cap_with_its_figures() -> None:
    assert find_cap(passes(SLOW, SLOW, SLOW, SLOW)) == Cap("power", 1.0, 1.383e9, 1.98e9, 698.0, 700.0)
    mixed = find_cap(passes(SLOW, None, FULL, SLOW))
    assert (mixed.share, mixed.sm_hertz, mixed.power_watts) == pytest.approx((2 / 3, 1.582e9, 612.667))
    assert find_cap(passes(None, None)) is None
    assert find_cap(()) is None


def test_a_clock_near_its_maximum_is_not_held_whatever_the_driver_names() -> None:
    """695 W at 1,924 MHz: 2.8 % below the maximum."""
    assert share(*[replace(SLOW, sm_hertz=1.924e9)] * 4) == 0.0
    assert share(*[replace(SLOW, sm_hertz=1.88e9)] * 4) == 1.0


def test_heat() -> None:
    hot = replace(SLOW, held_now={"power": 0.0, "thermal": 1.0})
    found = find_cap(passes(hot, hot, hot))
    assert (found.reason, found.share) == ("thermal", 1.0)


def test_a_clock_that_the_user_or_an_idle_card_set_is_not_held() -> None:
    assert share(*[replace(SLOW, held_now={"power": 0.0, "thermal": 0.0})] * 4) == 0.0


@check_rows(
    ("totals", "expected"),
    [
        # of 15 s: the counter, and not the passes, says for how long
        ([100.0, 103.0, 105.0, 106.0], 0.4), ([100.0, 105.0, 110.0, 115.0], 1.0), ([0.0, 9.0, 18.0, 27.0], 1.0),
        # one that stands still beside passes that name the cap does not count, and one that fell was reset
        ([7.0, 7.0, 7.0, 7.0], 1.0), ([100.0, 105.0, 1.0, 2.0], 1.0), ([None, None, None, None], 1.0), ([None, 1.0, 2.0, 3.0], 1.0),
    ],
)  # fmt: skip
def test_time_by_the_drivers_counters(totals: list[float | None], expected: float) -> None:
    clocks = [replace(SLOW, held_seconds_total={} if total is None else {"sw_power_cap": total}) for total in totals]
    assert share(*clocks) == pytest.approx(expected)


def test_the_counter_of_any_reason_of_a_cause() -> None:
    named = replace(SLOW, held_now={"power": 0.0, "thermal": 0.0})
    for reason, cause in (
        ("thermal", "thermal"), ("sw_thermal_slowdown", "thermal"), ("hw_thermal_slowdown", "thermal"),
        ("hw_power_brake_slowdown", "power"),
    ):  # fmt: skip
        counted = [replace(named, held_seconds_total={reason: 4.5 * number}) for number in range(4)]
        found = find_cap(passes(*counted))
        assert (found.reason, found.share) == (cause, pytest.approx(0.9))


def gpu(index: int, **more: object) -> GpuReading:
    shown = {
        "clock_hertz": {"sm": 1.4e9}, "slowdown": {**REASONS, "sw_power_cap": True}, "power_watts": 690.0, "power_limit_watts": 700.0,
        "held_seconds_total": {"sw_power_cap": 10.0, "thermal": 1.0},
    }  # fmt: skip
    made = views.gpu(index, **{**shown, **more})
    return replace(made, identity=replace(made.identity, sm_clock_max_hertz=1.98e9))


def clocks_of(*gpus: GpuReading) -> Clocks | None:
    made = make_sample([one.identity.uuid for one in gpus], views.gpus(*gpus))
    return made.clocks


def test_means_over_the_gpus_of_a_target() -> None:
    free = gpu(
        1, clock_hertz={"sm": 1.98e9}, slowdown=REASONS, power_watts=500.0, held_seconds_total={"sw_power_cap": 2.0}
    )
    assert clocks_of(gpu(0), free) == Clocks(
        pytest.approx(1.69e9), 1.98e9, 595.0, 700.0, {"power": 0.5, "thermal": 0.0}, {"sw_power_cap": 6.0}
    )


def test_one_gpu_that_does_not_show_its_clock_or_what_holds_it_leaves_none_for_all() -> None:
    assert clocks_of(gpu(0), gpu(1, clock_hertz={})) is None
    assert clocks_of(gpu(0), gpu(1, slowdown=None)) is None
    unknown = gpu(1)
    assert clocks_of(gpu(0), replace(unknown, identity=replace(unknown.identity, sm_clock_max_hertz=None))) is None
    found = clocks_of(gpu(0), gpu(1, power_watts=None))
    assert found.power_watts is None


# --- What a card cannot measure is said of that card: by architecture, vGPU and MIG, out of what its driver says


GB10 = Path(__file__).parents[2] / "field" / "11a-gb10-nvml" / "nvml.state"
_GPM = ("gpm", "gpm:2", "gpm:5", "gpm:10")
A100 = {"name": "NVIDIA A100-SXM4-80GB", "architecture": 7, "compute_capability": "8.0"}


@contextmanager
def driver(library: Path, folder: Path, lacks: tuple[str, ...], says: Mapping[str, object]) -> Iterator[StubState]:
    """A driver of one card: an H100 but for what it lacks and says otherwise. `lacks` is the card's: GPM, and the names of its keys."""
    state = StubState(folder / "nvml-state.txt")
    if lacks:
        state.drop("gpu0", *lacks)
    state.update("gpu0", says)
    with loaded_stub(library, state.path):
        yield state


def read_twice(clock: HandClock) -> GpuReadings:
    source = NvmlSource(xid_events=False, monotonic=clock.monotonic, wall=clock.wall)
    try:
        for _ in range(2):
            clock.seconds += 5.0
            found = source.read()
    finally:
        source.close()
    assert found.attempt.ok
    return found


_NO_HELP = "no setting helps"


@check_rows(
    ("lacks", "says", "gpm", "dcgm", "energy"),
    [
        pytest.param((), {}, None, None, None, id="an H100"),
        pytest.param(_GPM, A100, None, None, None, id="an A100: dcgm-exporter helps, as the signal's own sentence says"),
        pytest.param(
            _GPM, {"name": "NVIDIA GB10", "architecture": 10, "compute_capability": "12.1"},
            f"NVIDIA GB10 has no GPM, and DCGM does not profile it: nothing measures its bandwidth in use; {_NO_HELP}.", _NO_HELP, None,
            id="a GB10",
        ),
        pytest.param(
            (*_GPM, "energy_mj", "power_mw"), {"name": "Orin (nvgpu)", "architecture": 7, "compute_capability": "8.7"},
            _NO_HELP, _NO_HELP, f"does not count the energy of Orin (nvgpu); {_NO_HELP}.", id="a Jetson",
        ),
        pytest.param(
            (*_GPM, "energy_mj"), {"name": "GRID A100-40C", "architecture": 7, "compute_capability": "8.0"},
            "GRID A100-40C is a virtual GPU (vGPU)", "virtual GPU", "GRID A100-40C is a virtual GPU (vGPU): a guest has no energy counter",
            id="a guest of vGPU by its name",
        ),
        pytest.param(
            (*_GPM, "energy_mj"), {"name": "NVIDIA H100XL-1-12CME"}, "virtual GPU", "virtual GPU", "virtual GPU", id="of a MIG slice",
        ),
        pytest.param(
            (*_GPM, "energy_mj"), {"virtualization_mode": 2}, "virtual GPU", "virtual GPU", "virtual GPU", id="by its driver's word",
        ),
        pytest.param((), {"virtualization_mode": 1}, None, None, None, id="a card that is passed through is a whole one"),
        pytest.param(
            _GPM, {"name": "NVIDIA GeForce RTX 4090", "architecture": 8, "compute_capability": "8.9"},
            "datacenter cards only", "NVIDIA GeForce RTX 4090 is none", None, id="a consumer card",
        ),
        pytest.param(
            _GPM, {"name": "NVIDIA GeForce RTX 5090", "architecture": 10, "compute_capability": "12.0"},
            f"NVIDIA GeForce RTX 5090 is new enough for GPM, but its driver has none of it; {_NO_HELP}.", "takes it from the driver's GPM",
            None, id="a newer one",
        ),
        pytest.param(
            (*_GPM, "energy_mj"), {"name": "Tesla P100-SXM2-16GB", "architecture": 4, "compute_capability": "6.0"},
            "needs Hopper or newer, DCGM's profiling Volta", "needs Volta or newer", "energy counter needs Volta or newer", id="a Pascal",
        ),
        pytest.param(
            (*_GPM, "compute_capability"), {"name": "x", "architecture": 13}, "new enough for GPM", "takes it from", None,
            id="by its architecture",
        ),
    ],
    shared=("nvml_library", "tmp_path"),
)  # fmt: skip
def test_each_card_has_a_sentence_of_its_own(lacks, says, gpm, dcgm, energy, nvml_library, tmp_path):
    with driver(nvml_library, tmp_path, lacks, says):
        readings = read_twice(HandClock())
    found = find_lacks([StubState.uuid(0)], readings)
    for signals, said in (((GPM,), gpm), ((DCGM,), dcgm), (ENERGY, energy)):
        for signal in signals:
            assert (signal in found) == (said is not None), found
            assert said is None or said in found[signal]


def test_an_old_driver_is_told_of_a_new_card(nvml_library, tmp_path):
    with driver(nvml_library, tmp_path, _GPM, {}) as state:
        state.update("sys", {"driver": "520.61.05"})
        readings = read_twice(HandClock())
    assert find_lacks([StubState.uuid(0)], readings)[GPM] == "NVML's GPM needs driver 525 or newer."


@check_rows(
    ("says", "gpm", "dcgm"),
    [
        # dcgm-exporter has a figure for each instance of an A100: the sentence that names dcgm.url stands
        pytest.param({**A100, "gpm": 0}, None, None, id="of an A100"),
        pytest.param({"gpm": 0}, f"no GPM of this MIG instance; {_NO_HELP}.", "this MIG instance does not have", id="of an H100"),
        pytest.param(
            {"gpm": 0, "name": "NVIDIA B200", "architecture": 10, "compute_capability": "10.0"}, "no GPM of this MIG instance",
            "this MIG instance does not have", id="of a B200",
        ),
    ],
    shared=("nvml_library", "tmp_path"),
)  # fmt: skip
def test_an_instance_is_no_card(says, gpm, dcgm, nvml_library, tmp_path):
    with driver(nvml_library, tmp_path, (), says) as state:
        uuid = state.mig(0, 0, "3g.40gb", 40000, gi=1)
        readings = read_twice(HandClock())
    found = find_lacks([uuid], readings)
    assert (
        found[ENERGY[0]] == "A MIG instance has no energy counter: gpu_energy_joules_total has that of the whole card."
    )
    assert (
        (found.get(GPM, "") + found.get(DCGM, "") == "") if gpm is None else (gpm in found[GPM] and dcgm in found[DCGM])
    )


def test_a_card_in_mig_mode_says_whose_the_counters_are(nvml_library, tmp_path):
    with driver(nvml_library, tmp_path, (), {}) as state:
        state.mig(0, 0, "3g.40gb", 40000, gi=1)
        readings = read_twice(HandClock())
    found = find_lacks([StubState.uuid(0)], readings)
    assert set(found) == {GPM}
    assert "in MIG mode, where the instances have GPM: set targets[].gpus" in found[GPM]


def test_other_vendors_cards_are_not_told_of_nvidias_generations():
    card = views.gpu(0, dram_bandwidth_ratio=None, energy_joules_total=None)
    readings = views.gpus(card)
    found = find_lacks([card.identity.uuid], GpuReadings(readings.attempt, "amd", 0.0, readings.gpus))
    assert all("device exporter" in found[signal] for signal in (GPM, DCGM, *ENERGY))


def test_the_first_card_that_lacks_it_decides():
    full, old = (
        views.gpu(0),
        views.gpu(
            1, dram_bandwidth_ratio=None, energy_joules_total=1.0, absent={"dram_bandwidth_ratio": "not_supported"}
        ),
    )
    readings = views.gpus(full, old)
    assert set(find_lacks([full.identity.uuid, old.identity.uuid], readings)) <= {GPM, DCGM}
    assert find_lacks([full.identity.uuid], readings) == {}
    assert find_lacks([], readings) == {}
    assert find_lacks(["GPU-of-another-node"], None) == {}


def read_with(library: Path, state: Path) -> TargetReading:
    """A vLLM on the first card of a driver, after two ticks."""
    with loaded_stub(library, state):
        source: GpuSource = NvmlSource(xid_events=False)
        with Replica({"/metrics": page("vllm-0.32", 50)}) as server, DrivenExporter(server.url, gpus=(0,)) as exporter:
            exporter.host.gpus.set_source(source)
            for _ in range(2):
                (found,) = exporter.tick()
        source.close()
    return found


def test_a_gb10_is_not_sent_to_hardware_that_it_is_newer_than(nvml_library, tmp_path):
    state = Path(shutil.copy(GB10, tmp_path))
    found = read_with(nvml_library, state)
    # no setting of dcgm.url would help: it is not among what somebody can set
    assert found.page.derived.signals[DCGM] is Absence.NOT_EXPORTED
    assert found.page.derived.signals[GPM] is Absence.NOT_EXPORTED
    shown = as_table(found, everything=True)
    assert "NVIDIA GB10 has no GPM" in shown
    assert "Hopper" not in shown
    assert "dcgm.url" not in shown
