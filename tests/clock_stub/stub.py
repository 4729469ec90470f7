"""Clocks of a real process that a test moves: a C library that is preloaded into it."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.nvml_stub.stub import compile_library

SOURCE = Path(__file__).with_name("clock_stub.c")


class MovedClocks:
    """What a process reads from its clocks, moved by the test. `environment`: for the process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clocks"
        self._wall = self._suspended = 0.0
        self._write()
        library = compile_library(folder / "libclockstub.so", SOURCE)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_STUB_FILE": str(self._file)}

    def step_wall(self, seconds: float) -> None:
        """Steps the wall clock."""
        self._wall += seconds
        self._write()

    def suspend(self, seconds: float) -> None:
        """The machine slept: wall clock and CLOCK_BOOTTIME went on, CLOCK_MONOTONIC did not."""
        self._suspended += seconds
        self._write()

    def _write(self) -> None:
        # in place: the process has mapped the file
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("dd", self._wall, self._suspended))
