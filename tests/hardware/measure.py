"""A load's truth beside what the exporter makes of the GPU's counters. Pure arithmetic, but for `measure`.

**Bandwidth.** The bytes of a copy loop are known. GPM says which share of the peak was used; its "theoretical maximum" is not documented
(the current or the highest memory clock, the bus width with or without what a driver counts too much: up to 4.3 % apart on H200
and B200), which is what the 5 % is for.

**Compute.** The exporter's ratio is FLOPs that it counted over (dense peak x time). Both are arithmetic, so it is held against something
that knows neither the FLOPs nor the clock the data sheet assumes: GPM's tensor activity is the share of cycles in which the tensor pipes
worked. A cycle of one SM's pipes does a fixed number of FLOPs, so

    FLOP/s = activity x SMs x FLOPs per SM and cycle x SM clock now
    ratio  = FLOP/s / dense peak = activity x SM clock now / data-sheet clock

where the data-sheet clock is the one at which the dense peak holds: peak / (SMs x FLOPs per SM and cycle), 1830 MHz for H100 SXM. It
is below the highest clock (1980 MHz), so a ratio slightly above 1 is possible. arXiv 2605.20799 finds tensor activity x clock within 2
percentage points of the FLOPs that the program knows of, on H100 and GB200, once unfilled tiles are accounted for; there are none
where the size is a multiple of every tile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llm_serving_exporter.model.gpu import GpuReading, GpuReadings
from tests.hardware.loads import Load, Progress, running

PASSES = 20
INTERVAL_SECONDS = 0.5
SETTLE_SECONDS = 2.0

# Dense BF16 FLOPs with FP32 sums of one SM in one cycle. Hopper: 4 tensor cores x 512 FMAs (H100 white paper: 989.4 TFLOP/s with 132 SMs
# at 1830 MHz). Blackwell data centre: twice that (B200: 2.25 PFLOP/s with 148 SMs makes 1856 MHz)
FLOPS_PER_SM_AND_CYCLE: Mapping[tuple[int, int], int] = {(9, 0): 4096, (10, 0): 8192}
# The data-sheet clock over the highest: H200 NVL 0.87, H100 SXM 0.92. Products slowed down for export lie far below (H20: 0.23)
DATA_SHEET_CLOCK_LOWEST_RATIO = 0.75


@dataclass(frozen=True, slots=True)
class Measured:
    """One GPU under one load: passes over it, `passes[0]` the baseline, and what the load did per second between first and last."""

    passes: tuple[GpuReadings, ...]
    gpus: tuple[GpuReading, ...]
    per_second: float
    multiprocessors: int

    @property
    def seconds(self) -> float:
        """From the first pass to the last."""
        return self.passes[-1].monotonic_seconds - self.passes[0].monotonic_seconds

    def mean(self, field: str) -> float | None:
        """A GPM ratio over all windows, weighted by their length; None where one lacks it."""
        total = weight = 0.0
        for gpu in self.gpus[1:]:
            value = getattr(gpu, field)
            if value is None or gpu.gpm_window_seconds is None:
                return None
            total += value * gpu.gpm_window_seconds
            weight += gpu.gpm_window_seconds
        return total / weight if weight else None

    def tensor_cycles_per_second(self) -> float | None:
        """Cycles a second in which an SM's tensor pipes worked: activity x SM clock (mean of a window's two ends); None where one lacks."""
        total = weight = 0.0
        for before, gpu in zip(self.gpus, self.gpus[1:], strict=False):
            clocks = [one.clock_hertz.get("sm") for one in (before, gpu)]
            if gpu.tensor_activity_ratio is None or gpu.gpm_window_seconds is None or None in clocks:
                return None
            clock = sum(value for value in clocks if value is not None) / 2
            total += gpu.tensor_activity_ratio * clock * gpu.gpm_window_seconds
            weight += gpu.gpm_window_seconds
        return total / weight if weight else None


def measure(
    load: Load,
    uuid: str,
    pci_bus_id: str,
    read: Callable[[], GpuReadings],
    *,
    passes: int = PASSES,
    interval_seconds: float = INTERVAL_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Measured:
    """Run the load, let clocks settle, read the GPU a number of times amid it. Raises CudaError where the load cannot run."""
    with running(load, pci_bus_id) as progress:
        progress.wait_until(progress.marks[0][0] + settle_seconds)
        taken = [read()]
        for _ in range(passes):
            time.sleep(interval_seconds)
            taken.append(read())
        progress.wait_until(taken[-1].monotonic_seconds)
    return measured(uuid, taken, progress)


def measured(uuid: str, passes: Sequence[GpuReadings], progress: Progress) -> Measured:
    """The passes of one GPU beside what was done in between. Raises ValueError where a pass does not show it."""
    gpus = [gpu for one in passes for gpu in one.gpus if gpu.identity.uuid == uuid and not gpu.lost]
    if len(gpus) < len(passes):
        raise ValueError(f"{len(passes) - len(gpus)} of {len(passes)} passes do not show {uuid}")
    rate = progress.per_second(passes[0].monotonic_seconds, passes[-1].monotonic_seconds)
    return Measured(tuple(passes), tuple(gpus), rate, progress.device.multiprocessors)


def data_sheet_clock_hertz(dense_flops_per_second: float, multiprocessors: int, flops_per_cycle: int) -> float:
    """The SM clock at which a dense peak holds."""
    return dense_flops_per_second / (multiprocessors * flops_per_cycle)
