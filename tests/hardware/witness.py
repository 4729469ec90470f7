"""What a GPU's own counters say, by pynvml alone: nothing of the product's reading code, which is what this is held against."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml as nvml

# percent of the time between two samples
METRICS = {
    "sm": nvml.NVML_GPM_METRIC_SM_UTIL,
    "occ": nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "hmma": nvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "dram": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "gr": nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
}
# percent, watts, millijoules since the driver was loaded, MHz, bytes
READINGS: dict[str, Callable[[Any], float]] = {
    "util": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memutil": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "watts": lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "mj": nvml.nvmlDeviceGetTotalEnergyConsumption,
    "smclk": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memclk": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "used": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
}
# Hopper's and Blackwell's SMs have that many of what NVML counts as cores (white papers)
CORES_A_MULTIPROCESSOR = 128


class NoGpuError(RuntimeError):
    """NVML shows no such GPU."""


class NoGpmError(RuntimeError):
    """It has no GPM: Hopper and newer have it."""


class Witness:
    """One whole GPU, by its index. `close` gives its samples back."""

    def __init__(self, index: int = 0) -> None:
        self._samples: list[Any] = []
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise NoGpuError(str(error)) from error
        try:
            self._open(index)
        except BaseException:
            self.close()
            raise

    def _open(self, index: int) -> None:
        try:
            self._gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            raise NoGpuError(f"GPU {index}: {error}") from error
        name = nvml.nvmlDeviceGetName(self._gpu)
        if not nvml.nvmlGpmQueryDeviceSupport(self._gpu).isSupportedDevice:
            raise NoGpmError(f"{name} has no GPM, which Hopper and newer have")
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(self._gpu)
        self.uuid: str = nvml.nvmlDeviceGetUUID(self._gpu)
        self.card: dict[str, Any] = {
            "name": name,
            "compute_capability": [major, minor],
            "memory_clock_max_megahertz": nvml.nvmlDeviceGetMaxClockInfo(self._gpu, nvml.NVML_CLOCK_MEM),
            "bus_width_bits": nvml.nvmlDeviceGetMemoryBusWidth(self._gpu),
        }
        with suppress(nvml.NVMLError):
            self.card["multiprocessors"] = nvml.nvmlDeviceGetNumGpuCores(self._gpu) // CORES_A_MULTIPROCESSOR
        for _ in range(2):
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        nvml.nvmlGpmSampleGet(self._gpu, self._samples[0])

    def read(self) -> dict[str, float]:
        """The means since the last reading, more than 100 ms ago, and the readings of now; what the card does not say is left out."""
        before, now = self._samples
        nvml.nvmlGpmSampleGet(self._gpu, now)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        asked.sample1, asked.sample2 = before, now
        for place, number in enumerate(METRICS.values()):
            asked.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(asked)
        self._samples = [now, before]
        line = {"t": round(time.time(), 3)}
        for name, metric in zip(METRICS, asked.metrics, strict=False):
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value):
                line[name] = round(metric.value, 3)
        for name, read in READINGS.items():
            with suppress(nvml.NVMLError):
                line[name] = read(self._gpu)
        return line

    def close(self) -> None:
        while self._samples:
            nvml.nvmlGpmSampleFree(self._samples.pop())
        nvml.nvmlShutdown()
