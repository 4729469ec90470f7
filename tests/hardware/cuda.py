"""Device-to-device copies through the CUDA driver API (libcuda.so.1): a load whose DRAM traffic is known to the byte.

A copy reads and writes each byte once, so it moves 2 x its size. The primary context is used: its calls have kept their
names through every CUDA version.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager

# far beyond any L2 cache (126 MB on B200), so that every byte comes from and goes to DRAM
COPY_BYTES = 1 << 30
# copies between two waits: tens of milliseconds, so that the loop ends close to its deadline
COPIES_A_BATCH = 32
BATCHES_MAX = 100_000


class CudaError(RuntimeError):
    """A CUDA driver call failed; the message names the call and its CUresult."""


class Copier:
    """Two buffers on one GPU; `run` copies one into the other."""

    def __init__(self, cuda: ctypes.CDLL, source: int, target: int) -> None:
        self._cuda = cuda
        self._source = ctypes.c_uint64(source)
        self._target = ctypes.c_uint64(target)

    def run(self, seconds: float) -> int:
        """Copy for about `seconds`, wait for the last copy, return the bytes moved (read plus written)."""
        deadline = time.monotonic() + seconds
        copies = 0
        for _ in range(BATCHES_MAX):
            for _ in range(COPIES_A_BATCH):
                size = ctypes.c_size_t(COPY_BYTES)
                _check("cuMemcpyDtoD", self._cuda.cuMemcpyDtoD_v2(self._target, self._source, size))
            _check("cuCtxSynchronize", self._cuda.cuCtxSynchronize())
            copies += COPIES_A_BATCH
            if time.monotonic() >= deadline:
                break
        return 2 * COPY_BYTES * copies


@contextmanager
def copier(pci_bus_id: str) -> Iterator[Copier]:
    """A copier on the GPU at an NVML bus id ("00000000:1A:00.0"). Raises CudaError where CUDA cannot use it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"the CUDA driver library cannot be loaded: {error}") from error
    _check("cuInit", cuda.cuInit(0))
    device = _device(cuda, pci_bus_id)
    context = ctypes.c_void_p()
    _check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    buffers: list[ctypes.c_uint64] = []
    try:
        _check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
        for _ in range(2):
            buffer = ctypes.c_uint64()
            _check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(COPY_BYTES)))
            buffers.append(buffer)
        yield Copier(cuda, buffers[0].value, buffers[1].value)
    finally:
        for buffer in buffers:
            cuda.cuMemFree_v2(buffer)
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def _device(cuda: ctypes.CDLL, pci_bus_id: str) -> ctypes.c_int:
    """CUDA's ordinal of a GPU: found by bus id, for CUDA and NVML count in different orders."""
    count = ctypes.c_int()
    _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    for ordinal in range(count.value):
        device = ctypes.c_int()
        _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), ordinal))
        text = ctypes.create_string_buffer(32)
        _check("cuDeviceGetPCIBusId", cuda.cuDeviceGetPCIBusId(text, 32, device))
        # CUDA writes the domain with four digits ("0000:1A:00.0"), NVML with eight
        if text.value.decode().lower()[-12:] == pci_bus_id.lower()[-12:]:
            return device
    raise CudaError(f"CUDA shows no GPU at {pci_bus_id} (CUDA_VISIBLE_DEVICES?)")


def _check(call: str, result: int) -> None:
    if result != 0:
        raise CudaError(f"{call} failed with CUresult {result}")
