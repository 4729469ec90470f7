"""The GPUs of this node: what reads them, what was read last, and which target uses which."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.derive.gpus import Assignment, assign_gpus
from llm_serving_exporter.devices.attribution import Gpus
from llm_serving_exporter.devices.locality import engine_pids_by_target
from llm_serving_exporter.devices.peaks import GpuFacts
from llm_serving_exporter.gpu.source import GpuSource
from llm_serving_exporter.model.dcgm import DcgmReadings
from llm_serving_exporter.model.device import GpuReadings
from llm_serving_exporter.model.target import Target

log = logging.getLogger("llm_serving_exporter.gpus")

# process lists are read from /proc for every local target: cheap, but not every tick
PIDS_EVERY_SECONDS = 30.0


class DcgmReader(Protocol):
    """What reads a dcgm-exporter: `devices.dcgm_source.DcgmSource`, or a simulated one."""

    def read(self) -> DcgmReadings:
        """One scrape. Never raises: what went wrong is in `attempt`."""
        ...

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        ...


def open_nvml(config: Config) -> GpuSource | None:
    """NVML as configured; None where GPUs are switched off."""
    if not config.gpu.enabled:
        return None
    # pynvml is 8,000 lines: imported only where GPUs are on
    from llm_serving_exporter.gpu.nvml import NvmlSource

    return NvmlSource(gpm=config.gpu.gpm)


class NodeGpus:
    """Reads the GPUs and assigns them to targets. May be used from several threads; each source is read by one thread at a time.

    `latest` and `assignments` are replaced whole, so that a tick in another thread sees one pass or the next, never a mixture.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # guards what follows against a source that is replaced while it is read
        self._lock = threading.Lock()
        self._source: GpuSource | None = None
        self._dcgm: DcgmReader | None = None
        # the processes of local targets, by target name, and when they are looked up again
        self._pids: Mapping[str, frozenset[int]] = {}
        self._pids_due_seconds = 0.0
        self.facts = GpuFacts()
        self.latest = Gpus()
        self.assignments: Mapping[str, Assignment] = {}

    @property
    def is_read(self) -> bool:
        """Whether there is a source of GPU readings."""
        return self._source is not None

    def set_source(self, source: GpuSource | None) -> None:
        """Replaces what reads the GPUs, and closes what read them before. None: they are read no more, and what was known is forgotten."""
        with self._lock:
            before, self._source = self._source, source
            if source is None:
                self.latest = Gpus(dcgm=self.latest.dcgm)
                self.assignments = {}
        if before is not None:
            before.close()

    def set_dcgm(self, source: DcgmReader | None) -> None:
        """The same for dcgm-exporter, whose last readings are forgotten in either case."""
        with self._lock:
            before, self._dcgm = self._dcgm, source
            self.latest = replace(self.latest, dcgm=None)
        if before is not None:
            before.close()

    def read(self, targets: Callable[[], Iterable[Target]]) -> GpuReadings | None:
        """One pass over the GPUs, and their assignment to the `targets` that there are at its end.

        None where there is no source, or another one since the pass began.
        """
        source = self._source
        if source is None:
            return None
        readings = source.read()
        with self._lock:
            if source is not self._source:
                return None
            peaks = self.facts.find_peaks(readings.gpus) if readings.attempt.ok else self.latest.peaks
            self.latest = replace(self.latest, readings=readings, peaks=peaks)
            # what is known of the assignment stays while the driver is away
            if readings.attempt.ok:
                self._assign(tuple(targets()), readings)
            return readings

    def read_dcgm(self) -> DcgmReadings | None:
        """One scrape of dcgm-exporter; None where there is none, or another one since the scrape began."""
        source = self._dcgm
        if source is None:
            return None
        readings = source.read()
        with self._lock:
            if source is not self._dcgm:
                return None
            self.latest = replace(self.latest, dcgm=readings)
            return readings

    def find_uuids(self, target: Target) -> tuple[str, ...]:
        """UUIDs of the GPUs that are here and belong to the target; () where they are not known."""
        assignment = self.assignments.get(target.name)
        return assignment.uuids if assignment is not None else ()

    def look_up_processes_soon(self) -> None:
        """Has the next pass look up the targets' processes, as after a change of targets."""
        with self._lock:
            self._pids_due_seconds = 0.0

    def forget_target(self, name: str) -> None:
        """Forgets a target's GPUs: another server may get its name."""
        with self._lock:
            self.assignments = {other: found for other, found in self.assignments.items() if other != name}
            self._pids_due_seconds = 0.0

    def close(self) -> None:
        """Closes both sources; what was read stays."""
        with self._lock:
            sources = (self._source, self._dcgm)
            self._source, self._dcgm = None, None
        for source in sources:
            if source is not None:
                source.close()

    def _assign(self, targets: tuple[Target, ...], readings: GpuReadings) -> None:
        now = self._monotonic()
        if now >= self._pids_due_seconds:
            self._pids = engine_pids_by_target(targets)
            self._pids_due_seconds = now + PIDS_EVERY_SECONDS
        before, self.assignments = self.assignments, assign_gpus(targets, readings.gpus, self._pids, self.assignments)
        for name, found in self.assignments.items():
            if found.origin == "configured" and found.why and (name not in before or before[name].why != found.why):
                log.warning("target=%s: %s; see nvidia-smi -L for those that are", name, found.why)
