"""GPUs for one look, with a real NVML library below (the stub)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_exporter.config.types import Config, DcgmConfig
from llm_serving_exporter.gpu.nvml import NvmlSource
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import HttpSettings, Target
from llm_serving_exporter.targets.glance import Glance
from tests.nvml_stub.stub import StubState, loaded_stub

HERE, THERE = (
    Target("here", "http://127.0.0.1:9"),
    Target("there", "http://10.0.0.1:8000", gpu_model="L40S", gpu_count=1),
)
NOTHING = ServerFacts()


@pytest.fixture
def state(nvml_library: Path, tmp_path: Path) -> Iterator[StubState]:
    described = StubState(tmp_path / "state", gpus=2)
    with loaded_stub(nvml_library, described.path) as stub:
        yield described
        assert (stub.init_balance, stub.misuse) == (0, 0), "closing the glance closes NVML"


def source() -> NvmlSource:
    return NvmlSource(gpm=False, xid_events=False)


def test_without_gpus_there_is_what_is_configured() -> None:
    with closing(Glance(Config(targets=()), (HERE, THERE), None)) as glance:
        assert glance.settings(HERE, NOTHING, 1).hardware.peaks is Absence.GPUS_UNKNOWN
        named = glance.settings(THERE, NOTHING, 1).hardware
    assert isinstance(named.peaks, GpuPeaks)
    assert (named.peaks.name, named.parallel) == ("L40S", Parallel())


def test_all_gpus_are_the_only_local_targets(state: StubState) -> None:
    with closing(Glance(Config(targets=()), (HERE,), source())) as glance:
        found = glance.settings(HERE, NOTHING, 1)
        assert isinstance(found.hardware.peaks, GpuPeaks)
        assert found.hardware.peaks.bandwidth_bytes_per_second == 3.35232e12
        assert found.hardware.gpus == 2.0
        assert found.device is not None
        assert found.device.memory_used_bytes == 2 * 70000 << 20
        state.set("gpu0", memory_used=1000 << 20)
        again = glance.settings(HERE, NOTHING, 1).device
    assert again is not None
    assert again.memory_used_bytes == 71000 << 20, "each look reads anew"


def test_of_several_targets_none_takes_all(state: StubState) -> None:
    mine = Target("mine", "http://127.0.0.1:10", gpus=(1,))
    with closing(Glance(Config(targets=()), (HERE, mine), source())) as glance:
        assert glance.settings(HERE, NOTHING, 1).hardware.peaks is Absence.GPUS_UNKNOWN
        assert glance.settings(mine, NOTHING, 1).hardware.gpus == 1.0
    assert state.path.exists()


def test_a_driver_that_is_gone_is_no_exception(state: StubState) -> None:
    state.fail("sys", "nvmlInitWithFlags", 9)
    with closing(Glance(Config(targets=()), (HERE,), source())) as glance:
        found = glance.settings(HERE, NOTHING, 1)
    assert found.hardware.peaks is Absence.GPUS_UNKNOWN
    assert found.device is None


def test_a_dcgm_exporter_that_does_not_answer_is_a_reason(state: StubState) -> None:
    dcgm = DcgmConfig(url="http://127.0.0.1:9", interval_seconds=10.0, http=HttpSettings(timeout_seconds=1.0))
    with closing(Glance(Config(targets=(), dcgm=dcgm), (HERE,), source())) as glance:
        found = glance.settings(HERE, NOTHING, 1).device
    assert found is not None
    assert found.dcgm_ratio is None
    assert found.absent["dcgm_ratio"] is not Absence.AVAILABLE
    assert state.path.exists()
