"""The latest reading of a target, and one instant of everything."""

from __future__ import annotations

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
