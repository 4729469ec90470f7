"""The only mutable state: the latest immutable reading of each target and of the GPUs.

Writers replace whole values; readers take a view once and see one consistent instant. Each target has one writer (its job).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.model.gpu import GpuReadings, WorkerGpus
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason
from llm_serving_exporter.model.target import Target


class Store:
    """Latest readings, replaced under a lock, read as a View."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # the last reading of each target, by its name
        self._targets: dict[str, TargetReading] = {}
        # everything else: nothing was read yet
        self._view = View(
            targets=(),
            gpus=None,
            gpu_peaks={},
            dcgm_ok=None,
            nvml_failures_total={},
            config_hash="",
            reload_ok=True,
            reload_unix_seconds=0.0,
            discovery_failures_total=0,
            discovery_problems=(),
        )

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

    def put_values(self, **values: Any) -> None:
        """Replaces fields of the view that are neither targets nor counted. Raises TypeError for a name that it does not have."""
        with self._lock:
            self._view = replace(self._view, **values)

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
            view = self._view
            self._view = replace(
                view,
                gpus=readings,
                gpu_peaks=view.gpu_peaks if peaks is None else peaks,
                nvml_failures_total=_count(view.nvml_failures_total, readings.attempt),
                node_gpus=node_gpus,
                workers=workers,
            )

    def put_kubelet(self, attempt: Attempt | None) -> None:
        """Notes how a question to the kubelet went, and counts a failure; None: it is not asked, or there is none."""
        with self._lock:
            failures = _count(self._view.kubelet_failures_total, attempt)
            self._view = replace(self._view, kubelet=attempt, kubelet_failures_total=failures)

    def put_config(self, config_hash: str, ok: bool, unix_seconds: float) -> None:
        """Notes a load of the configuration; a failed one changes neither hash nor time of the last good one."""
        good = {"config_hash": config_hash, "reload_unix_seconds": unix_seconds} if ok else {}
        self.put_values(reload_ok=ok, **good)

    def put_discovery(self, problems: tuple[str, ...], failures: int, *, elsewhere: int = 0, left_out: int = 0) -> None:
        """Notes what is wrong with sources of targets now, adds to the count of failures, and notes how many targets are not read here:
        those of other shards, and those beyond what one exporter reads."""
        with self._lock:
            self._view = replace(
                self._view,
                discovery_problems=problems,
                discovery_failures_total=self._view.discovery_failures_total + failures,
                targets_elsewhere=elsewhere,
                targets_left_out=left_out,
            )

    def view(self) -> View:
        """Everything at one instant."""
        with self._lock:
            return replace(self._view, targets=tuple(self._targets[name] for name in sorted(self._targets)))


def _count(failures: Mapping[FailureReason, int], attempt: Attempt | None) -> Mapping[FailureReason, int]:
    """The failures with that of one more attempt, where it has failed."""
    if attempt is None or attempt.reason is None:
        return failures
    return {**failures, attempt.reason: failures.get(attempt.reason, 0) + 1}
