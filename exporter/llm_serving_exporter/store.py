"""The only mutable state: the latest immutable reading of each target and of the GPUs.

Writers replace whole values; readers take a view once and see one consistent instant. Each target has one writer (its job).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.attempt import Attempt, FailureReason, Stage
from llm_serving_exporter.model.cost import TargetCost
from llm_serving_exporter.model.derived import Derived
from llm_serving_exporter.model.device import GpuReadings
from llm_serving_exporter.model.drill import DrillResult
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.hardware import GpuPeaks, TargetGpus
from llm_serving_exporter.model.review import ReviewRuns
from llm_serving_exporter.model.snapshot import Snapshot
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.model.weights import ModelFacts

RECENT_FAILURES = 10


class State(StrEnum):
    """What a target is doing. Not ready is not down: loading and sleeping page nobody."""

    READY = "ready"
    LOADING = "loading"
    SLEEPING = "sleeping"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TargetReading:
    """Everything known about one target at one instant.

    `snapshot` and `derived` are the last good ones, whatever came after; the reader drops them once they are older than
    `stale_after`. `model_name` is the last known one. `failures` counts by stage and reason since the exporter's start.
    `start_unix_seconds`: the engine's start, None before the first page. `problem` is a sentence for a person on what is
    wrong now, "" where nothing is. `models`: by served name, what is known about the model, or why nothing is. `gpu_origin` says how
    `gpu_uuids` were found, or why they are not known. `page_role`: the role that the page last said, None where it does not.
    `target_gpus`: how many GPUs its engines use, seen here or not; the last known. `missing`: fields that the runtime never says, and why.
    `cost`: since the exporter's start, whatever the target's state; None before its first tick.
    """

    target: Target
    state: State = State.UNKNOWN
    metrics_url: str = ""
    runtime: str = ""
    facts: ServerFacts = field(default_factory=ServerFacts)
    model_name: str = ""
    up: bool | None = None
    last: Attempt | None = None
    recent_failures: tuple[Attempt, ...] = ()
    attempts_total: int = 0
    failures_total: Mapping[tuple[Stage, FailureReason], int] = field(default_factory=dict)
    restarts_total: int = 0
    snapshot: Snapshot | None = None
    derived: Derived | None = None
    start_unix_seconds: float | None = None
    gpu_uuids: tuple[str, ...] = ()
    gpu_origin: str = ""
    target_gpus: TargetGpus | None = None
    models: Mapping[str, ModelFacts | FactsError] = field(default_factory=dict)
    problem: str = ""
    page_role: Role | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    cost: TargetCost | None = None

    @property
    def role(self) -> Role:
        """What the target does: as configured, else as its page says, else both phases."""
        return self.target.role or self.page_role or Role.UNIFIED

    def fresh(self, now_monotonic_seconds: float, stale_after_seconds: float) -> bool:
        """Whether the last good page is young enough to be shown."""
        return (
            self.snapshot is not None and now_monotonic_seconds - self.snapshot.monotonic_seconds <= stale_after_seconds
        )


@dataclass(frozen=True, slots=True)
class View:
    """One instant of everything. `targets` in order of their names. `gpu_peaks` by UUID. `nvml_failures_total` by reason.
    `drills`: the last result of each model and role. `review`: of the scheduled cost review, None where this
    exporter does not tell of it."""

    targets: tuple[TargetReading, ...]
    gpus: GpuReadings | None
    gpu_peaks: Mapping[str, GpuPeaks]
    dcgm_ok: bool | None
    nvml_failures_total: Mapping[FailureReason, int]
    config_hash: str
    reload_ok: bool
    reload_unix_seconds: float
    discovery_failures_total: int
    discovery_problems: tuple[str, ...]
    drills: tuple[DrillResult, ...] = ()
    review: ReviewRuns | None = None


class Store:
    """Latest readings, replaced under a lock, read as a View."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._targets: dict[str, TargetReading] = {}
        self._gpus: GpuReadings | None = None
        self._gpu_peaks: Mapping[str, GpuPeaks] = {}
        self._nvml_failures: dict[FailureReason, int] = {}
        self._dcgm_ok: bool | None = None
        self._config_hash = ""
        self._reload_ok = True
        self._reload_unix_seconds = 0.0
        self._discovery_failures = 0
        self._discovery_problems: tuple[str, ...] = ()
        self._drills: tuple[DrillResult, ...] = ()
        self._review: ReviewRuns | None = None

    def put_target(self, reading: TargetReading) -> None:
        """Replaces a target's reading. A target that was removed or configured anew meanwhile is left alone."""
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

    def remove_target(self, name: str) -> None:
        """Forgets a target and its series."""
        with self._lock:
            self._targets.pop(name, None)

    def target(self, name: str) -> TargetReading | None:
        """A target's latest reading; None for an unknown name."""
        with self._lock:
            return self._targets.get(name)

    def put_gpus(self, readings: GpuReadings, peaks: Mapping[str, GpuPeaks] | None = None) -> None:
        """Replaces the GPU readings and counts a failure. `peaks` by UUID; None leaves the last known ones."""
        with self._lock:
            self._gpus = readings
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

    def put_discovery(self, problems: tuple[str, ...], failures: int) -> None:
        """Notes what is wrong with discovery files now, and adds to the count of failures."""
        with self._lock:
            self._discovery_problems = problems
            self._discovery_failures += failures

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
                drills=self._drills,
                review=self._review,
            )
