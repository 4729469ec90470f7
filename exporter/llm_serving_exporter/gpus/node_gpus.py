"""The GPUs of this node: what reads them, what was read last, and which target uses which."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.gpus.attribution import GpuFacts, Gpus
from llm_serving_exporter.gpus.exporter_source import DeviceExporterSource
from llm_serving_exporter.gpus.kubelet import KubeletMemory
from llm_serving_exporter.gpus.ownership import Assignment, Evidence, Origin, assign_gpus, assign_workers, divide_gpus
from llm_serving_exporter.gpus.processes import (
    are_pids_of_here,
    count_driver_gpus,
    engine_pids_by_target,
    explain_blindness,
    find_environment_gpus,
    read_commands,
    read_listener,
)
from llm_serving_exporter.gpus.source import DcgmReader, GpuSource, KubeletReader, drop_implausible
from llm_serving_exporter.model.gpu import (
    DcgmReadings,
    GpuIdentity,
    GpuReading,
    GpuReadings,
    KubeletReadings,
    Worker,
    WorkerGpus,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config

log = logging.getLogger("llm_serving_exporter.gpus")

# process lists are read from /proc for every local target: cheap, but not every tick
PIDS_EVERY_SECONDS = 30.0


def open_gpus(config: Config) -> GpuSource | None:
    """What reads the GPUs, as configured: a device exporter, else NVML; None where GPUs are switched off.

    Raises ConfigError where the device exporter cannot be asked as configured.
    """
    if config.device_exporter is not None:
        return DeviceExporterSource(config.device_exporter)
    if not config.gpu.enabled:
        return None
    # pynvml is 8,000 lines: imported only where GPUs are on
    from llm_serving_exporter.gpus.nvml import NvmlSource

    return NvmlSource(gpm=config.gpu.gpm)


class NodeGpus:
    """Reads the GPUs and assigns them to targets. May be used from several threads; each source is read by one thread at a time.

    `latest` and `assignments` are replaced whole, so that a tick in another thread sees one pass or the next, never a mixture.
    """

    def __init__(self, monotonic: Callable[[], float] = elapsed_seconds, proc_root: Path = Path("/proc")) -> None:
        self._monotonic, self._proc_root = monotonic, proc_root
        # guards what follows against a source that is replaced while it is read
        self._lock = threading.Lock()
        self._source: GpuSource | None = None
        self._dcgm: DcgmReader | None = None
        self._kubelet: KubeletReader | None = None
        self._kubelet_said = KubeletMemory()
        # by target name, and when they are looked up again: the processes of its server, and the GPUs that their environment names
        self._pids: Mapping[str, frozenset[int]] = {}
        self._environment: Mapping[str, tuple[str, ...]] = {}
        self._pids_due_seconds = 0.0
        # what discovery says of pods: those that have ended, those that work for another pod's target, UUIDs of claimed devices
        self._finished: frozenset[tuple[str, str]] = frozenset()
        self._workers: tuple[Worker, ...] = ()
        self._slices: Mapping[tuple[str, str], str] = {}
        self.facts = GpuFacts()
        self.latest = Gpus()
        self.assignments: Mapping[str, Assignment] = {}
        # as of the last pass that went well: a claim by number holds while the driver is away
        self._known: tuple[GpuIdentity, ...] = ()
        # GPUs here of targets that another exporter reads
        self.workers: tuple[WorkerGpus, ...] = ()
        # GPUs that the driver holds on this node; None: not known
        self.node_count: int | None = None

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
                self.assignments, self.workers, self.node_count = {}, (), None
        if before is not None:
            before.close()

    def set_dcgm(self, source: DcgmReader | None) -> None:
        """The same for dcgm-exporter, whose last readings are forgotten in either case."""
        with self._lock:
            before, self._dcgm = self._dcgm, source
            self.latest = replace(self.latest, dcgm=None)
        if before is not None:
            before.close()

    def set_kubelet(self, source: KubeletReader | None) -> None:
        """The same for the kubelet; what it said is forgotten in either case."""
        with self._lock:
            before, self._kubelet = self._kubelet, source
            self._kubelet_said = KubeletMemory()
        if before is not None:
            before.close()

    def set_pods(
        self,
        *,
        finished: Collection[tuple[str, str]] = (),
        workers: Collection[Worker] = (),
        slices: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """What discovery knows of this node's pods, replaced whole; the next pass over the GPUs uses it.

        `finished`: namespaces and names of pods that have ended (Succeeded, Failed): kubelets before 1.34 list them on. `workers`: pods
        that work for another pod's target. `slices`: UUIDs of claimed devices by pool and name, out of ResourceSlices.
        """
        with self._lock:
            self._finished, self._workers, self._slices = frozenset(finished), tuple(workers), dict(slices or {})

    def read(self, targets: Callable[[], Iterable[Target]]) -> GpuReadings | None:
        """One pass over the GPUs, and their assignment to the `targets` that there are at its end.

        None where there is no source, or another one since the pass began.
        """
        source = self._source
        if source is None:
            return None
        readings = drop_implausible(source.read())
        with self._lock:
            if source is not self._source:
                return None
            peaks = self.facts.find_peaks(readings.gpus) if readings.attempt.ok else self.latest.peaks
            self.latest = replace(self.latest, readings=readings, peaks=peaks)
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

    def read_kubelet(self) -> KubeletReadings | None:
        """One question to the kubelet; None where there is none to ask, or another one since the question began."""
        source = self._kubelet
        if source is None:
            return None
        readings = source.read()
        with self._lock:
            if source is not self._kubelet:
                return None
            self._kubelet_said.note_answer(readings)
            return readings

    def find_uuids(self, target: Target) -> tuple[str, ...]:
        """UUIDs of the GPUs that are here and belong to the target; () where they are not known."""
        assignment = self.assignments.get(target.name)
        return assignment.uuids if assignment is not None else ()

    def read_commands(self, target: Target) -> tuple[frozenset[tuple[str, ...]], ...]:
        """The command lines of the target's processes on this host, as words: first of what listens at its address, which may be a proxy,
        then of the one program that the driver names on its GPUs.

        Each is empty where none is seen. Another PID or network namespace is never asked.
        """
        listening, readings = read_listener(target, proc_root=self._proc_root), self.latest.readings
        uuids, gpus = self.find_uuids(target), readings.gpus if readings is not None else ()
        if not uuids or not are_pids_of_here(gpus, self._proc_root):
            return (listening,)
        pids = {process.pid for gpu in gpus if gpu.identity.uuid in uuids for process in gpu.processes or ()}
        named = read_commands(pids, self._proc_root)
        # of several programs on a card nobody says which is the target's
        return listening, named if len(named) == 1 else frozenset()

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
        """Closes the sources; what was read stays."""
        with self._lock:
            sources = (self._source, self._dcgm, self._kubelet)
            self._source, self._dcgm, self._kubelet = None, None, None
        for source in sources:
            if source is not None:
                source.close()

    def _assign(self, targets: tuple[Target, ...], readings: GpuReadings) -> None:
        """Replaces what is known of the assignment. While the driver is away it stays, but for what the kubelet says."""
        now = self._monotonic()
        if readings.attempt.ok:
            self._known = tuple(gpu.identity for gpu in readings.gpus)
        evidence = self._gather_evidence(targets, readings.gpus, now)
        before = self.assignments
        found = assign_gpus(targets, readings.gpus, evidence, before)
        self.workers = assign_workers(self._workers, targets, found, evidence)
        if not readings.attempt.ok:
            found = {name: one for name, one in found.items() if one.origin == Origin.KUBELET}
            found = {**{name: one for name, one in before.items() if one.origin != Origin.KUBELET}, **found}
        self.assignments = found = divide_gpus(targets, found, readings.gpus, evidence.pids, before)
        for name, one in found.items():
            if one.origin == Origin.CONFIGURED and one.why and (name not in before or before[name].why != one.why):
                log.warning("target=%s: %s; see nvidia-smi -L for those that are", name, one.why)

    def _gather_evidence(self, targets: tuple[Target, ...], gpus: tuple[GpuReading, ...], now: float) -> Evidence:
        if now >= self._pids_due_seconds:
            self._pids = engine_pids_by_target(targets, proc_root=self._proc_root)
            self._environment = {
                target.name: find_environment_gpus(self._pids.get(target.name, ()), self._proc_root)
                for target in targets
                if target.gpus is None
            }
            self.node_count = count_driver_gpus()
            self._pids_due_seconds = now + PIDS_EVERY_SECONDS
        comparable = are_pids_of_here(gpus, self._proc_root)
        said = self._kubelet_said
        return Evidence(
            pids=self._pids if comparable else dict.fromkeys(self._pids, frozenset()),
            environment=self._environment,
            grants=said.find_grants(targets, self._workers, self._known, self._finished, self._slices, now),
            kubelet_why=said.explain_silence(),
            blind=explain_blindness(gpus, self._proc_root, self.node_count),
        )
