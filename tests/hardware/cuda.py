"""The CUDA driver API (libcuda.so.1) through ctypes: one GPU, memory on it, and work handed to it.

Its primary context is used, so that cuBLAS, whose own runtime takes that one, works on the same memory. The names are those that
cuda.h maps its functions to; they have stayed through CUDA 11, 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_ushort, c_void_p
from typing import Any

DRIVER_LIBRARY = "libcuda.so.1"
CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16  # cuda.h, CUdevice_attribute

# cuda.h. CUdevice is int, CUdeviceptr 64 bits; without these ctypes would pass every Python int as 32 bits
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD16_v2": (c_uint64, c_ushort, c_size_t),
}


class CudaError(RuntimeError):
    """CUDA cannot be used, or a call failed; the message names the call and its code."""


class Library:
    """A C library whose functions return 0 or a code: `call` raises CudaError for the latter."""

    def __init__(self, path: str, signatures: dict[str, tuple[Any, ...]]) -> None:
        try:
            library = ctypes.CDLL(path)
            self._functions = {name: getattr(library, name) for name in signatures}
        except (OSError, AttributeError) as error:
            raise CudaError(f"{path} cannot be used: {error}") from error
        for name, arguments in signatures.items():
            self._functions[name].argtypes = arguments
            self._functions[name].restype = c_int

    def call(self, function: str, *arguments: Any) -> None:
        code = self._functions[function](*arguments)
        if code != 0:
            raise CudaError(f"{function} failed with code {code}")


class Gpu:
    """One GPU, its context current in the thread that opened it. Addresses are ints, sizes bytes."""

    def __init__(self, driver: Library, device: int) -> None:
        self._driver = driver
        self._device = device
        self._held: list[int] = []

    @property
    def multiprocessors(self) -> int:
        """SMs that are switched on."""
        return self._int("cuDeviceGetAttribute", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, self._device)

    @property
    def cuda_major(self) -> int:
        """The newest CUDA that the driver runs: 13 for 13.1."""
        return self._int("cuDriverGetVersion") // 1000

    def allocate(self, size: int) -> int:
        """Memory of that many bytes; freed when the GPU is closed. What it holds is not defined."""
        address = c_uint64()
        self._driver.call("cuMemAlloc_v2", byref(address), size)
        self._held.append(address.value)
        return address.value

    def fill(self, address: int, value: int, count: int) -> None:
        """Write `count` 16-bit words of one value."""
        self._driver.call("cuMemsetD16_v2", address, value, count)

    def copy(self, target: int, source: int, size: int) -> None:
        """Hand over a copy; `wait` waits for it."""
        self._driver.call("cuMemcpyDtoD_v2", target, source, size)

    def word(self, address: int) -> int:
        """The 16-bit word at an address."""
        word = c_ushort()
        self._driver.call("cuMemcpyDtoH_v2", byref(word), address, 2)
        return word.value

    def wait(self) -> None:
        """Until everything that was handed over is done."""
        self._driver.call("cuCtxSynchronize")

    def free(self) -> None:
        """Free everything that was allocated."""
        while self._held:
            self._driver.call("cuMemFree_v2", self._held.pop())

    def _int(self, function: str, *arguments: int) -> int:
        value = c_int()
        self._driver.call(function, byref(value), *arguments)
        return value.value


@contextmanager
def opened(pci_bus_id: str, library: str = DRIVER_LIBRARY) -> Iterator[Gpu]:
    """The GPU at an NVML bus id ("00000000:1A:00.0"), for this thread. Raises CudaError where CUDA cannot use it."""
    driver = Library(library, SIGNATURES)
    driver.call("cuInit", 0)
    device = _device(driver, pci_bus_id)
    context = c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", byref(context), device)
    gpu = Gpu(driver, device)
    try:
        driver.call("cuCtxSetCurrent", context)
        yield gpu
    finally:
        try:
            gpu.free()
        finally:
            driver.call("cuCtxSetCurrent", None)
            driver.call("cuDevicePrimaryCtxRelease_v2", device)


def _device(driver: Library, pci_bus_id: str) -> int:
    """CUDA's handle of a GPU: found by bus id, for CUDA and NVML count in different orders."""
    count = c_int()
    driver.call("cuDeviceGetCount", byref(count))
    for ordinal in range(count.value):
        device = c_int()
        driver.call("cuDeviceGet", byref(device), ordinal)
        text = ctypes.create_string_buffer(32)
        driver.call("cuDeviceGetPCIBusId", text, len(text), device.value)
        # CUDA writes the domain with four digits ("0000:1A:00.0"), NVML with eight
        if text.value.decode().lower()[-12:] == pci_bus_id.lower()[-12:]:
            return device.value
    raise CudaError(f"CUDA shows no GPU at {pci_bus_id} (CUDA_VISIBLE_DEVICES?)")
