"""What a card cannot measure is said of that card: by architecture, vGPU and MIG, out of what its driver says."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.gpus.attribution import DCGM, ENERGY, GPM, find_lacks
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.gpus.source import GpuSource
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders import views
from tests.support.builders.recordings import page
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter, HandClock
from tests.support.servers.replica import Replica

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
        with (
            Replica({"/metrics": page("vllm-0.32", 50)}) as server,
            DrivenExporter(server.url, gpus=(0,)) as exporter,
        ):
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
