"""Loads of which every byte and every FLOP is known: a copy loop and a matmul loop, and what each has done by when.

A load runs in a thread of its own for as long as it is measured, so that the counters are read amid steady work: how stale a driver's
sample is, and when exactly the loop began, then count for nothing.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tests.hardware import cublas, cuda
from tests.hardware.cuda import CudaError

# An L2 cache (H200 60 MB, B200 126 MB) can keep at most 1.5 % of what a copy touches from going to DRAM
COPY_BYTES = 4 << 30
# Both matrices are far beyond L2, and 8192 is a multiple of every tile that cuBLAS uses: no FLOP is done beyond 2 n^3
MATRIX_SIZE = 8192
# two buffers or three matrices, the CUDA context and what cuBLAS takes for itself
NEEDED_BYTES = 2 * COPY_BYTES + (1 << 30)
# Work between two waits, tens of milliseconds: the wait itself, some 10 us, is lost in it
COPIES_A_BATCH = 16
PRODUCTS_A_BATCH = 32
# A GPU that never gets ready, or hangs, ends the test
START_SECONDS = 60.0
END_SECONDS = 60.0
# and a test that hangs ends the load
LONGEST_SECONDS = 120.0
MARKS_MAX = 100_000

BF16_ONE = 0x3F80

# Does one batch, waits for it, returns how much it did
Batch = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Device:
    """What a load found out about its GPU."""

    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A load that may begin."""

    batch: Batch
    device: Device


@dataclass(frozen=True, slots=True)
class Load:
    """`unit` of what `opened` counts. `opened(pci_bus_id)` raises CudaError where it cannot run, and is used by one thread only."""

    name: str
    unit: str
    opened: Callable[[str], AbstractContextManager[Ready]]


@contextmanager
def copying(
    pci_bus_id: str, *, library: str = cuda.DRIVER_LIBRARY, size: int = COPY_BYTES, batch: int = COPIES_A_BATCH
) -> Iterator[Ready]:
    """Copies of `size` bytes from one buffer to another. Counts bytes: a copy reads and writes each, so it moves 2 x `size`."""
    with cuda.opened(pci_bus_id, library) as gpu:
        source, target = gpu.allocate(size), gpu.allocate(size)

        def once() -> int:
            for _ in range(batch):
                gpu.copy(target, source, size)
            gpu.wait()
            return 2 * size * batch

        yield Ready(once, Device(gpu.multiprocessors))


@contextmanager
def multiplying(
    pci_bus_id: str,
    *,
    library: str = cuda.DRIVER_LIBRARY,
    blas: str | None = None,
    size: int = MATRIX_SIZE,
    batch: int = PRODUCTS_A_BATCH,
) -> Iterator[Ready]:
    """Products of two square bf16 matrices. Counts FLOPs: 2 x `size`^3 each.

    Every element is 1, so that each of the product is `size`, which is checked: the FLOPs were really done. Bits that do not flip cost
    little power, which keeps the clock up and steady; tensor cores skip nothing for it. `blas`: cuBLAS's path, else it is looked for.
    """
    with cuda.opened(pci_bus_id, library) as gpu:
        path = blas or cublas.find(gpu.cuda_major)
        elements = size * size
        left, right, result = (gpu.allocate(2 * elements) for _ in range(3))
        gpu.fill(left, BF16_ONE, elements)
        gpu.fill(right, BF16_ONE, elements)
        gpu.fill(result, 0, elements)
        with cublas.opened(path) as blas_handle:

            def once() -> int:
                for _ in range(batch):
                    blas_handle.multiply(left, right, result, size)
                gpu.wait()
                return 2 * size**3 * batch

            once()
            for place in (0, elements - 1):
                word = gpu.word(result + 2 * place)
                if word != bf16(size):
                    raise CudaError(f"element {place} of the product is {word:#06x}, not {size} in bf16: {path}")
            yield Ready(once, Device(gpu.multiprocessors))


COPY = Load("copy", "bytes", copying)
MATMUL = Load("matmul", "flops", multiplying)


def bf16(power_of_two: int) -> int:
    """The bits of a power of two: bf16 is sign, eight bits of exponent over 127, seven of fraction, 0 here."""
    exponent = power_of_two.bit_length() - 1
    if power_of_two != 1 << exponent:
        raise ValueError(f"{power_of_two} is not a power of two")
    return (127 + exponent) << 7


@dataclass(slots=True)
class Progress:
    """What a running load has done: (monotonic seconds, total), the first mark at 0 when it began."""

    device: Device
    marks: list[tuple[float, int]] = field(default_factory=list)
    failure: Exception | None = None

    def per_second(self, start: float, end: float) -> float:
        """Mean rate between two moments of the run, taken as steady within a batch. Raises what the load failed with.

        Raises ValueError where the load did not run all that time.
        """
        if self.failure is not None:
            raise self.failure
        marks = tuple(self.marks)
        if not (marks and marks[0][0] <= start < end <= marks[-1][0]):
            raise ValueError(f"the load did not run from {start} to {end}")
        return (_at(marks, end) - _at(marks, start)) / (end - start)

    def wait_until(self, moment: float, timeout_seconds: float = START_SECONDS) -> None:
        """Until a batch has ended at or after a moment. Raises what the load failed with; CudaError where none ends in time."""
        give_up = time.monotonic() + timeout_seconds
        while self.failure is None and not (self.marks and self.marks[-1][0] >= moment):
            if time.monotonic() > give_up:
                raise CudaError(f"no batch ended within {timeout_seconds:.0f} s")
            time.sleep(0.005)
        if self.failure is not None:
            raise self.failure


def _at(marks: tuple[tuple[float, int], ...], moment: float) -> float:
    after = min(bisect_right(marks, moment, key=lambda mark: mark[0]), len(marks) - 1)
    (begun, before), (ended, total) = marks[after - 1], marks[after]
    return before + (total - before) * (moment - begun) / (ended - begun)


@contextmanager
def running(
    load: Load,
    pci_bus_id: str,
    *,
    longest_seconds: float = LONGEST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """The load, running until the end of the block, `longest_seconds` at most. Raises CudaError where it cannot begin."""
    stop, ready = threading.Event(), threading.Event()
    progress = Progress(Device(0))

    def work() -> None:
        try:
            with load.opened(pci_bus_id) as opened:
                progress.device = opened.device
                total, begun = 0, clock()
                progress.marks.append((begun, total))
                ready.set()
                while not stop.is_set() and clock() - begun < longest_seconds and len(progress.marks) < MARKS_MAX:
                    total += opened.batch()
                    progress.marks.append((clock(), total))
        except Exception as error:  # raised again in the thread that asked
            progress.failure = error
        finally:
            ready.set()

    thread = threading.Thread(target=work, name=f"load-{load.name}", daemon=True)
    thread.start()
    try:
        if not ready.wait(START_SECONDS):
            raise CudaError(f"the {load.name} loop did not begin within {START_SECONDS:.0f} s")
        if progress.failure is not None:
            raise progress.failure
        yield progress
    finally:
        stop.set()
        thread.join(END_SECONDS)
