"""The independent witness over the NVML stub: what a line holds, what is left out, and that all is given back."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.hardware.witness import NoGpmError, NoGpuError, Witness
from tests.nvml_stub.stub import StubState, loaded_stub


@pytest.fixture
def state(tmp_path):
    return StubState(tmp_path / "state.txt", gpus=2)


@pytest.fixture
def nvml(nvml_library, state):
    with loaded_stub(nvml_library, state.path) as stub:
        yield stub
        assert (stub.live_samples, stub.init_balance, stub.misuse) == (0, 0, 0)


def test_a_line_has_what_gpm_says_in_percent_and_the_readings_of_now(state, nvml):
    state.update("gpu1", {"gpm:10": 62.5, "gpm:5": 22.0, "gpm:2": 88.0, "gpm:1": 91.0, "power_mw": 345_000})
    with closing(Witness(1)) as witness:
        first, second = witness.read(), witness.read()
    assert second.pop("t") >= first.pop("t") > 1e9
    assert first == second == {
        "sm": 88.0, "tensor": 22.0, "dram": 62.5, "gr": 91.0, "util": 100, "memutil": 8, "watts": 345.0, "mj": 123456789,
        "smclk": 1755, "memclk": 2619, "used": (70000 + 479) << 20,
    }  # fmt: skip
    assert nvml.calls("nvmlGpmSampleGet") == 3  # windows follow one another


def test_what_a_card_does_not_say_is_left_out(state, nvml):
    state.drop("gpu0", "energy_mj", "gpm:5")
    state.update("gpu0", {"gpm:10": "nan"})
    with closing(Witness()) as witness:
        assert not {"mj", "tensor", "dram", "occ"} & set(witness.read())


def test_the_card_is_described_as_its_driver_does(state, nvml):
    with closing(Witness()) as witness:
        assert witness.card == {
            "name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "memory_clock_max_megahertz": 2619, "bus_width_bits": 5120,
            "multiprocessors": 132,
        }  # fmt: skip
        assert witness.uuid == StubState.uuid(0)
    state.drop("gpu0", "cores")
    with closing(Witness()) as witness:
        assert "multiprocessors" not in witness.card


def test_no_gpu_and_no_gpm_are_told_apart(state, nvml):
    with pytest.raises(NoGpuError, match="GPU 2: Invalid Argument"):
        Witness(2)
    state.set("gpu0", gpm=0)
    with pytest.raises(NoGpmError, match="NVIDIA H100 80GB HBM3 has no GPM"):
        Witness()
    state.fail("sys", "nvmlInitWithFlags", 9)
    with pytest.raises(NoGpuError, match="Driver Not Loaded"):
        Witness()
