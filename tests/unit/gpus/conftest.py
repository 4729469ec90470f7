"""Fixtures of the GPU tests: the stub built once, loaded afresh for each test, and a clock that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.gpu import GpuReading
from tests.nvml_stub.stub import StubLibrary, StubState, loaded_stub


class Clock:
    """Monotonic seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Rig:
    """One source over one stub: the test scripts the state, lets time pass and reads."""

    def __init__(self, state: StubState, stub: StubLibrary, make: Callable[..., NvmlSource]) -> None:
        self.state = state
        self.stub = stub
        self.clock = Clock()
        self.make = make
        self.source: NvmlSource | None = None

    def open(self, **options: Any) -> NvmlSource:
        """A source; without the XID thread unless asked for, whose end costs half a second."""
        options = {"xid_events": False, **options}
        self.source = self.make(monotonic=self.clock, wall=lambda: 1_700_000_000.0, **options)
        return self.source

    def read(self, after: float = 5.0) -> tuple[GpuReading, ...]:
        """The GPUs of the next pass, which must go well."""
        readings = self.read_all(after)
        assert readings.attempt.ok, readings.attempt
        return readings.gpus

    def one(self, after: float = 5.0, *, passes: int = 1) -> GpuReading:
        """The only GPU of the last of so many passes."""
        for _ in range(passes):
            (gpu,) = self.read(after)
        return gpu

    def read_all(self, after: float = 5.0) -> Any:
        """The next pass, `after` seconds later."""
        if self.source is None:
            self.open()
        assert self.source is not None
        self.clock.sleep(after)
        return self.source.read()


@pytest.fixture
def rig(nvml_library: Path, tmp_path: Path) -> Iterator[Rig]:
    """A source over one H100. At the end it is closed, and everything taken from NVML must have been given back."""
    state = StubState(tmp_path / "nvml-state.txt")
    with loaded_stub(nvml_library, state.path) as stub:
        opened: list[NvmlSource] = []

        def make(**options: Any) -> NvmlSource:
            opened.append(NvmlSource(**options))
            return opened[-1]

        yield Rig(state, stub, make)
        for source in opened:
            source.close()
        left = (stub.live_samples, stub.live_event_sets, stub.init_balance, stub.misuse)
        assert left == (0, 0, 0, 0), "samples, event sets, nvmlInit without nvmlShutdown, misuse"


@pytest.fixture
def gpu_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="llm_serving_exporter.gpu")
    return caplog
