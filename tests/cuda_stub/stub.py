"""Build the CUDA stub and load it. Its path goes wherever a path of libcuda or libcublas is taken."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.nvml_stub.stub import compile_library

SOURCE = Path(__file__).with_name("cuda_stub.c")
# as NVML names the GPUs of the stub: CUDA's ordinal 1 and 0
FIRST, SECOND = "00000000:1A:00.0", "00000000:1B:00.0"
MULTIPROCESSORS = 132


class CudaStub:
    """The stub loaded in this process. `left`: contexts, memory and handles not given back."""

    def __init__(self, folder: Path) -> None:
        self.path = str(compile_library(folder / "libcuda_stub.so", SOURCE))
        self._library = ctypes.CDLL(self.path)

    @property
    def left(self) -> int:
        return int(self._library.stub_left())

    @property
    def products(self) -> int:
        return int(self._library.stub_products())

    def break_products(self, count: int) -> None:
        """The last element of the next products comes out as 0."""
        self._library.stub_break_products(count)
