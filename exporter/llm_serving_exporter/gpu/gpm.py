"""GPM samples -> DRAM bandwidth, SM and tensor activity as ratios over the time between two passes (Hopper and newer).

Metric numbers are nvml.h's `nvmlGpmMetricId_t`, constant across drivers and pynvml versions. One sample stays as the
baseline of the next pass, so each pass costs one sample and windows follow one another without a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.gpu.calls import NO_DATA, NO_WINDOW, NOT_SUPPORTED, Nvml, NvmlCallError, classify_refusal
from llm_serving_exporter.model.gpu import BusyTime
from llm_serving_exporter.model.hardware import BusySource
from llm_serving_exporter.model.record import Struct, field

METRICS = {"sm_activity_ratio": 2, "tensor_activity_ratio": 5, "dram_bandwidth_ratio": 10}  # percent
# share of time in which anything ran, percent
_GRAPHICS_UTIL = 1
# nvml.h: the two samples must be more than 100 ms apart, the driver refreshes no faster
SHORTEST_WINDOW_SECONDS = 0.1
# an average over a longer time says little about now: after such a gap a new window begins
LONGEST_WINDOW_SECONDS = 600.0
_PERCENT = 100.0
# what rounding makes of 100
_MOST_PERCENT = 101.0


class GpmReading(Struct, frozen=True):
    """Averages over the window between two samples."""

    ratios: Mapping[str, float] = field(default_factory=dict)  # name of the field in `GpuReading` -> 0 to 1
    window_seconds: float | None = None  # None where there is no ratio
    absent: Mapping[str, str] = field(default_factory=dict)  # field -> why it has no ratio
    busy_time: BusyTime | None = None  # over all windows so far; None: the card does not say


def make_absent_reading(reason: str) -> GpmReading:
    """A reading without any ratio, all for one reason."""
    return GpmReading(absent=dict.fromkeys(METRICS, reason))


def find_unsupported_reason(nvml: Nvml, handle: Any) -> str | None:
    """None where the GPU supports GPM, else the code for `absent`.

    Drivers export GPM's symbols on every card, so only this query tells; `handle` is never a MIG instance's (on driver
    535 GPM calls on those leave later memory queries failing with "in use").
    """
    try:
        support = nvml.call("nvmlGpmQueryDeviceSupport", handle)
    except NvmlCallError as error:
        return classify_refusal(error.code)
    return None if support.isSupportedDevice else NOT_SUPPORTED


class GpmSampler:
    """The rolling pair of samples of one GPU, or of one GPU instance of it (`gpu_instance_id`)."""

    def __init__(self, nvml: Nvml, gpu_instance_id: int | None = None) -> None:
        self._nvml = nvml
        self._gpu_instance_id = gpu_instance_id
        self._baseline: Any = None
        self._scratch: Any = None
        self._baseline_at: float | None = None
        self._last = make_absent_reading(NO_WINDOW)
        self._refused = False
        self._busy: BusyTime | None = None

    def read(self, handle: Any, clock: Callable[[], float]) -> GpmReading:
        """The averages since the last pass; the previous ones where that was too short ago.

        `handle` is the whole GPU's, `clock` gives monotonic seconds. Raises NvmlCallError where the GPU or the session
        is gone; another failure is a reason in `absent`, and the baseline stays.
        """
        if self._refused:
            return self._last
        now = clock()
        if self._baseline_at is not None and now - self._baseline_at <= SHORTEST_WINDOW_SECONDS:
            return self._last
        try:
            self._take_sample(handle)
            now = clock()
            baseline_at, self._baseline_at = self._baseline_at, now
            self._baseline, self._scratch = self._scratch, self._baseline
            if baseline_at is None or now - baseline_at > LONGEST_WINDOW_SECONDS:
                self._last = make_absent_reading(NO_WINDOW)
            else:
                self._last = self._compare_samples(self._scratch, self._baseline, now - baseline_at)
        except NvmlCallError as error:
            if error.ends_more_than_the_call:
                raise
            self._last = make_absent_reading(classify_refusal(error.code))
            self._refused = classify_refusal(error.code) == NOT_SUPPORTED
        return self._last

    def close(self) -> None:
        """Free the samples; must come before nvmlShutdown, their memory is the library's."""
        for sample in (self._baseline, self._scratch):
            if sample is not None:
                try:
                    self._nvml.call("nvmlGpmSampleFree", sample)
                except NvmlCallError:
                    continue  # a library that is gone has taken its memory with it
        self._baseline = self._scratch = self._baseline_at = None
        self._last = make_absent_reading(NO_WINDOW)

    def _take_sample(self, handle: Any) -> None:
        """A new sample into the scratch buffer."""
        if self._scratch is None:
            self._scratch = self._nvml.call("nvmlGpmSampleAlloc")
        if self._gpu_instance_id is None:
            self._nvml.call("nvmlGpmSampleGet", handle, self._scratch)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", handle, self._gpu_instance_id, self._scratch)

    def _compare_samples(self, earlier: Any, later: Any, window_seconds: float) -> GpmReading:
        request = self._nvml.module.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.module.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS) + 1
        request.sample1, request.sample2 = earlier, later
        for index, metric in enumerate(METRICS.values()):
            request.metrics[index].metricId = metric
        request.metrics[len(METRICS)].metricId = _GRAPHICS_UTIL
        self._nvml.call("nvmlGpmMetricsGet", request)
        ratios: dict[str, float] = {}
        absent: dict[str, str] = {}
        for index, name in enumerate(METRICS):
            answer = request.metrics[index]
            if answer.nvmlReturn != 0:
                absent[name] = classify_refusal(answer.nvmlReturn)
            elif math.isfinite(answer.value):
                ratios[name] = answer.value / _PERCENT
            else:
                absent[name] = NO_DATA  # NaN is a legal value: no sample of that unit
        self._add_busy_time(request.metrics[len(METRICS)], window_seconds)
        return GpmReading(ratios, window_seconds if ratios else None, absent, self._busy)

    def _add_busy_time(self, answer: Any, window_seconds: float) -> None:
        if answer.nvmlReturn != 0 or not 0 <= answer.value <= _MOST_PERCENT:  # NaN fails every comparison
            return
        busy, covered = (0.0, 0.0) if self._busy is None else (self._busy.busy_seconds, self._busy.covered_seconds)
        share = min(1.0, answer.value / _PERCENT)
        self._busy = BusyTime(BusySource.GPM, busy + share * window_seconds, covered + window_seconds)
