"""The only mutable state: the latest immutable reading of each target and of the GPUs.

Writers replace whole values; readers take a view once and see one consistent instant. Each target has one writer (its job).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from llm_serving_exporter.model.gpu import GpuReadings, WorkerGpus
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.reading import DrillResult, ReviewRuns, TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason
from llm_serving_exporter.model.target import Target, WaitingPod


class Store:
    """Latest readings, replaced under a lock, read as a View."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # the last reading of each target, by its name
        self._targets: dict[str, TargetReading] = {}
        # the last pass over the GPUs; None where they are not read
        self._gpus: GpuReadings | None = None
        # by UUID
        self._gpu_peaks: Mapping[str, GpuPeaks] = {}
        # failed passes over the GPUs since the start
        self._nvml_failures: dict[FailureReason, int] = {}
        # whether dcgm-exporter could be read last; None where none is configured, or before its first scrape
        self._dcgm_ok: bool | None = None
        # the last question to the kubelet; None where it is not asked, or there is none. Failed ones since the start
        self._kubelet: Attempt | None = None
        self._kubelet_failures: dict[FailureReason, int] = {}
        # GPUs of this node, and pods here that work for targets of other exporters
        self._node_gpus: int | None = None
        self._workers: tuple[WorkerGpus, ...] = ()
        # of the configuration in force, "" before the first
        self._config_hash = ""
        # whether the last load of the configuration succeeded, and when the last good one was
        self._reload_ok = True
        self._reload_unix_seconds = 0.0
        # files and servers of discovery that could not be used since the start, and what is wrong with them now
        self._discovery_failures = 0
        self._discovery_problems: tuple[str, ...] = ()
        # targets of other shards, and of this one beyond what one exporter reads
        self._targets_elsewhere, self._targets_left_out = 0, 0
        # pods that are wanted, and no target yet
        self._waiting: tuple[WaitingPod, ...] = ()
        # the last result of each model and role
        self._drills: tuple[DrillResult, ...] = ()
        # None where this exporter does not tell of a cost review
        self._review: ReviewRuns | None = None

    def put_target(self, reading: TargetReading) -> None:
        """Replaces a target's reading. Ignored where the target was meanwhile removed or its configuration changed."""
        with self._lock:
            known = self._targets.get(reading.target.name)
            if known is not None and known.target == reading.target:
                self._targets[reading.target.name] = reading

    def add_target(self, target: Target) -> TargetReading:
        """Makes a target known, with an empty reading."""
        reading = TargetReading(target)
        with self._lock:
            self._targets[target.name] = reading
        return reading

    def relabel_target(self, target: Target) -> None:
        """Gives a known target other labels; what was read of it stays."""
        with self._lock:
            known = self._targets.get(target.name)
            if known is not None:
                self._targets[target.name] = replace(known, target=target)

    def remove_target(self, name: str) -> None:
        """Forgets a target and its series."""
        with self._lock:
            self._targets.pop(name, None)

    def target(self, name: str) -> TargetReading | None:
        """A target's latest reading; None for an unknown name."""
        with self._lock:
            return self._targets.get(name)

    def put_gpus(
        self,
        readings: GpuReadings,
        peaks: Mapping[str, GpuPeaks] | None = None,
        *,
        node_gpus: int | None = None,
        workers: tuple[WorkerGpus, ...] = (),
    ) -> None:
        """Replaces the GPU readings and counts a failure. `peaks` by UUID; None leaves the last known ones.

        `node_gpus`: how many GPUs the node has; None: not known. `workers`: pods here that work for targets of other exporters.
        """
        with self._lock:
            self._gpus = readings
            self._node_gpus, self._workers = node_gpus, workers
            if peaks is not None:
                self._gpu_peaks = peaks
            reason = readings.attempt.reason
            if reason is not None:
                self._nvml_failures[reason] = self._nvml_failures.get(reason, 0) + 1

    def clear_gpus(self) -> None:
        """Forgets the GPUs: they are no longer read."""
        with self._lock:
            self._gpus = None
            self._gpu_peaks = {}
            self._node_gpus, self._workers = None, ()

    def put_kubelet(self, attempt: Attempt | None) -> None:
        """Notes how a question to the kubelet went, and counts a failure; None: it is not asked, or there is none."""
        with self._lock:
            self._kubelet = attempt
            if attempt is not None and attempt.reason is not None:
                self._kubelet_failures[attempt.reason] = self._kubelet_failures.get(attempt.reason, 0) + 1

    def put_dcgm(self, ok: bool | None) -> None:
        """Notes whether dcgm-exporter could be read; None: none is configured, or it has not been read yet."""
        with self._lock:
            self._dcgm_ok = ok

    def put_config(self, config_hash: str, ok: bool, unix_seconds: float) -> None:
        """Notes a load of the configuration; a failed one changes neither hash nor time of the last good one."""
        with self._lock:
            self._reload_ok = ok
            if ok:
                self._config_hash = config_hash
                self._reload_unix_seconds = unix_seconds

    def put_discovery(self, problems: tuple[str, ...], failures: int, *, elsewhere: int = 0, left_out: int = 0) -> None:
        """Notes what is wrong with sources of targets now, adds to the count of failures, and notes how many targets are not read here:
        those of other shards, and those beyond what one exporter reads."""
        with self._lock:
            self._targets_elsewhere, self._targets_left_out = elsewhere, left_out
            self._discovery_problems = problems
            self._discovery_failures += failures

    def put_waiting(self, pods: tuple[WaitingPod, ...]) -> None:
        """Replaces the pods that are wanted, and no target yet."""
        with self._lock:
            self._waiting = pods

    def put_drills(self, results: tuple[DrillResult, ...]) -> None:
        """Replaces the results of drills; () where none are published."""
        with self._lock:
            self._drills = results

    def put_review(self, runs: ReviewRuns | None) -> None:
        """Replaces what is known of the scheduled cost review; None where there is none here."""
        with self._lock:
            self._review = runs

    def view(self) -> View:
        """Everything at one instant."""
        with self._lock:
            return View(
                targets=tuple(self._targets[name] for name in sorted(self._targets)),
                gpus=self._gpus,
                gpu_peaks=self._gpu_peaks,
                dcgm_ok=self._dcgm_ok,
                nvml_failures_total=dict(self._nvml_failures),
                config_hash=self._config_hash,
                reload_ok=self._reload_ok,
                reload_unix_seconds=self._reload_unix_seconds,
                discovery_failures_total=self._discovery_failures,
                discovery_problems=self._discovery_problems,
                targets_elsewhere=self._targets_elsewhere,
                targets_left_out=self._targets_left_out,
                waiting=self._waiting,
                drills=self._drills,
                review=self._review,
                kubelet=self._kubelet,
                kubelet_failures_total=dict(self._kubelet_failures),
                node_gpus=self._node_gpus,
                workers=self._workers,
            )
