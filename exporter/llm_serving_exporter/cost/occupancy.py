"""How much of a tick a target's GPUs were busy by what watches them, tick by tick."""

from __future__ import annotations

import math

from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.gpu import BusyTime, GpuReadings
from llm_serving_exporter.model.hardware import BusySource
from llm_serving_exporter.model.reading import TargetReading

# passes over the GPUs may be rarer than ticks: what the last one told holds so long
LONGEST_PASS_SECONDS = 60.0


class Occupancy:
    """The GPUs' busy time since the tick before. `advance` is called once a tick."""

    def __init__(self) -> None:
        # by UUID, at the last tick at which it had moved
        self._before: dict[str, BusyTime] = {}
        # of the GPUs together, at that tick, and who watched it; passes may be rarer than ticks
        self._share: float | None = None
        self._source = BusySource.GPM
        # monotonic seconds: when the share was worked out, and when a page last showed work
        self._shared_at = self._worked_at = -math.inf
        # that the last share is of, and the last tick
        self._covered_seconds = self._tick_seconds = 0.0
        self._now = 0.0

    @property
    def _worked_lately(self) -> bool:
        """Whether a page showed work since shortly before the last pass began: it and a tick are not of the same moment."""
        return self._now - self._worked_at <= 2 * (self._covered_seconds + self._tick_seconds)

    def advance(
        self, reading: TargetReading, gpus: GpuReadings | None, *, worked: bool, now: float, elapsed: float
    ) -> None:
        """Takes the last pass. `worked`: whether the page shows work of this tick; `now`: monotonic seconds, `elapsed`: the tick's."""
        self._now, self._tick_seconds = now, elapsed
        if worked:
            self._worked_at = now
        times = _find_times(reading, gpus)
        if times is None:
            self._before, self._share = {}, None
            return
        busy = covered = 0.0
        moved = False
        for uuid, time in times.items():
            before = self._before.get(uuid)
            if before is None or time.source is not before.source or time.covered_seconds < before.covered_seconds:
                self._before[uuid] = time
            elif time.covered_seconds > before.covered_seconds:
                moved = True
                busy += time.busy_seconds - before.busy_seconds
                covered += time.covered_seconds - before.covered_seconds
                self._before[uuid] = time
                self._source = time.source
        self._before = {uuid: self._before[uuid] for uuid in times}
        if moved:
            self._share, self._shared_at = min(1.0, max(0.0, busy / covered)), now
            self._covered_seconds = covered / len(times)
        elif now - self._shared_at > LONGEST_PASS_SECONDS:
            self._share = None

    def choose(self, tick: TickWork) -> tuple[float, BusySource] | None:
        """The share of the tick that was busy, and who says so: the best source that speaks. None: nothing ran in it."""
        if tick.device_share is not None:
            return (tick.device_share, BusySource.PAGE) if tick.busy or tick.device_share > 0 else None
        if self._share is not None:
            return (self._share, self._source) if tick.busy or self._worked_lately else None
        if not tick.busy:
            return None
        if tick.estimated_share is not None:
            return tick.estimated_share, BusySource.ESTIMATE
        return 1.0, BusySource.REQUESTS


def _find_times(reading: TargetReading, gpus: GpuReadings | None) -> dict[str, BusyTime] | None:
    """Busy times of the target's GPUs by UUID; None where one of them is not watched, or others work on it too."""
    uuids = reading.gpu_uuids
    if gpus is None or not gpus.attempt.ok or not uuids or reading.target.gpu_share not in (None, 1.0):
        return None
    if reading.target_gpus is None or reading.target_gpus.count != len(uuids):
        return None
    if any(part.share != 1.0 for part in reading.gpu_parts.values()):
        return None
    found = {gpu.identity.uuid: gpu.busy_time for gpu in gpus.gpus if gpu.identity.uuid in uuids}
    times = {uuid: time for uuid, time in found.items() if time is not None}
    return times if len(times) == len(uuids) else None
