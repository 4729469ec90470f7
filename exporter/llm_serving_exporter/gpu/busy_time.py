"""NVML's buffer of utilization samples -> how long a GPU was busy, without a gap between two passes.

`nvmlDeviceGetUtilizationRates` tells of the last sample alone, which is up to a second long: what happened between two passes is not in it.
The driver keeps the samples of the last seconds, and gives those that are newer than the last one seen.
"""

from __future__ import annotations

from llm_serving_exporter.gpu.calls import Device
from llm_serving_exporter.model.gpu import BusyTime
from llm_serving_exporter.model.hardware import BusySource

# nvmlSamplingType_t: percent of time in which a kernel ran
_UTILIZATION = 1
_PERCENT, _MICROSECONDS = 100.0, 1e6
# nvml.h: a sample covers 1/6 to 1 second by product; a longer step is a gap, or the wall clock that stamps them was set
LONGEST_SAMPLE_SECONDS = 2.0
# passes may follow one another faster than samples
_MOST_PASSES_WITHOUT_NEWS = 10
_FIELD = "busy_samples"


class UtilizationSamples:
    """Adds up the samples of one GPU, each of them once."""

    def __init__(self) -> None:
        self._last_microseconds = 0
        self._passes_without_news = 0
        self._total: BusyTime | None = None

    def read(self, device: Device) -> BusyTime | None:
        """The totals with what is new in the buffer; None where the card has no such buffer. Raises NvmlCallError where the GPU or the
        session is gone."""
        answer = device.read(_FIELD, ("nvmlDeviceGetSamples", _UTILIZATION, self._last_microseconds))
        # a buffer without news is an error to NVML, and why there is none is nobody's concern: the engine's page tells then
        device.absent.pop(_FIELD, None)
        if answer is None:
            self._passes_without_news += 1
            if self._passes_without_news >= _MOST_PASSES_WITHOUT_NEWS:
                # the wall clock, which stamps them, went back: nothing is newer than what was seen
                self._last_microseconds = self._passes_without_news = 0
            return self._total
        self._passes_without_news = 0
        busy, covered = (0.0, 0.0) if self._total is None else (self._total.busy_seconds, self._total.covered_seconds)
        before = self._last_microseconds
        for sample in sorted(answer[1], key=lambda one: one.timeStamp):
            seconds = (sample.timeStamp - before) / _MICROSECONDS
            before = sample.timeStamp
            percent = sample.sampleValue.uiVal
            if 0 < seconds <= LONGEST_SAMPLE_SECONDS and percent <= _PERCENT:
                busy += seconds * percent / _PERCENT
                covered += seconds
        self._last_microseconds = before
        self._total = BusyTime(BusySource.NVML, busy, covered)
        return self._total
