"""The latest reading of a target, and one instant of everything that an exporter publishes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.cost import TargetCost
from llm_serving_exporter.model.derived import Derivation, Derived
from llm_serving_exporter.model.gpu import GpuReadings, WorkerGpus
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, ShareSource, TargetGpus
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import ServerFacts, Snapshot
from llm_serving_exporter.model.target import Identity, PodState, ReplicaPart, Role, Target, WaitingPod
from llm_serving_exporter.model.tenants import TenantReading


class DrillVerdict(StrEnum):
    """`aborted`: broken off before it could tell."""

    PASSED = "passed"
    FAILED = "failed"
    ABORTED = "aborted"


class DrillResult(Struct, frozen=True):
    """The last drill of a model's replicas in a role: one is taken away under load, on purpose."""

    model_name: str
    role: Role
    last_run_unix_seconds: float  # when a drill last took a replica away
    last_success_unix_seconds: float | None  # None: none has passed yet
    last_verdict: DrillVerdict
    # what tells these replicas from others of the same model and role
    identity: Identity = field(default_factory=Identity)


class ReviewRuns(Struct, frozen=True):
    """Times of the scheduled cost review in Unix seconds. None: that has not happened yet."""

    due: float | None = None  # when the first of the missed runs was due; where none was missed, when it was last due
    last_run: float | None = None  # when its schedule last started it, or when it ended, whatever the outcome
    last_success: float | None = None  # when it was last written, and sent where that is configured
    next_due: float | None = None  # None: the schedule names no time within a year


class OtlpReport(Struct, frozen=True):
    """How sending all series over OTLP has gone since the exporter's start."""

    exports_total: Mapping[str, int]  # by outcome: sent, failed
    rejected_points_total: int  # data points that the receiver said it did not take
    last_success_unix_seconds: float | None = None  # None: none has succeeded yet


RECENT_FAILURES = 10


class State(StrEnum):
    """What a target is doing. Not ready is not down: loading and sleeping page nobody."""

    READY = "ready"
    LOADING = "loading"
    SLEEPING = "sleeping"
    DOWN = "down"
    UNKNOWN = "unknown"


def _part_of(part: GpuPart | None) -> float:
    return 1.0 if part is None else part.share or 0.0


class ServerReading(Struct, frozen=True):
    """Who answers at a target's address, and what it is doing."""

    state: State = State.UNKNOWN  # after the last attempt
    pod: PodState | None = None  # as Kubernetes last described it; None: the target is not from there
    metrics_url: str = ""  # where its page was found; "" before the first page
    runtime: str = ""  # name of the runtime's table; "" before the first page
    missing: Mapping[str, str] = field(default_factory=dict)  # field -> why this runtime never says it
    facts: ServerFacts = field(default_factory=ServerFacts)  # what its side endpoints say
    model_name: str = ""  # of the last page that named one, else as configured; "": nothing names it
    # by name as served; or why nothing is known
    models: Mapping[str, ModelFacts | FactsError] = field(default_factory=dict)
    page_role: Role | None = None  # role that the last page said; None: it says none
    replica_part: ReplicaPart | None = (
        None  # its place in a replica of several targets; None: it is a replica by itself
    )
    # the engine's process start, else its last reset, else first seen; None: no page yet
    start_unix_seconds: float | None = None
    restarts_total: int = 0  # of the engine, as far as they were seen since the exporter's start


class PageReading(Struct, frozen=True):
    """Attempts to read a target's page, the last good page, and what follows from it. Counts are since the exporter's start."""

    up: bool | None = None  # whether the last attempt yielded a page; None: not tried yet
    problem: str = ""  # a sentence for a person on what is wrong now; "": nothing
    last: Attempt | None = None  # the last attempt; None: not tried yet
    recent_failures: tuple[Attempt, ...] = ()  # the last RECENT_FAILURES failed attempts, oldest first
    attempts_total: int = 0
    failures_total: Mapping[tuple[Stage, FailureReason], int] = field(default_factory=dict)
    # by field or derived series: values that could not be true
    implausible_total: Mapping[str, int] = field(default_factory=dict)
    snapshot: Snapshot | None = None  # the last good page, however old: see `is_fresh`; None: never read
    derivation: Derivation | None = None
    tenants: TenantReading | None = None  # what a front door counts by tenant; None: that is off, or it is an engine

    @property
    def derived(self) -> Derived | None:
        """Everything that follows from the last good page and those before it; for whoever shows it, no tick asks."""
        return self.derivation.whole() if self.derivation is not None else None

    def is_fresh(self, now_monotonic_seconds: float, stale_after_seconds: float) -> bool:
        """Whether the last good page is young enough to be shown."""
        return (
            self.snapshot is not None and now_monotonic_seconds - self.snapshot.monotonic_seconds <= stale_after_seconds
        )


class AssignedGpus(Struct, frozen=True):
    """Whose work the GPUs do: those of a target, seen on this node or not."""

    uuids: tuple[str, ...] = ()  # seen here; (): not known, for the reason `origin`
    origin: str = ""  # how they were found, in words, or why they are not known
    parts: Mapping[str, GpuPart] = field(default_factory=dict)  # of those that are not simply all its own
    total: TargetGpus | None = None  # seen here or not, as last known; None: never known
    lacks: Mapping[str, str] = field(default_factory=dict)  # signal -> why these GPUs cannot measure it, and what helps

    @property
    def shares_by_memory(self) -> bool:
        """Whether what the target has of them rests on the memory that processes hold: it holds as long as these are looked at."""
        return any(part.source is ShareSource.MEMORY for part in self.parts.values())

    @property
    def foreign_share(self) -> float:
        """Which part of what the target has of them processes take that are no target's, 0 to 1; 0 where nothing is known of any."""
        if self.total is None or not any(part.foreign for part in self.parts.values()):
            return 0.0
        parts = [self.parts.get(uuid) for uuid in self.uuids]
        whole = max(self.total.count, len(parts)) - len(parts) + add_up(_part_of(part) for part in parts)
        return add_up(part.foreign * _part_of(part) for part in parts if part is not None) / whole


class TargetReading(Struct, frozen=True):
    """Everything known about one target at one instant."""

    target: Target
    server: ServerReading = field(default_factory=ServerReading)
    page: PageReading = field(default_factory=PageReading)
    gpus: AssignedGpus = field(default_factory=AssignedGpus)
    cost: TargetCost | None = None  # since the exporter's start; None before its first tick

    @property
    def role(self) -> Role:
        """What the target does: as configured, else as its page says, else both phases."""
        return self.target.role or self.server.page_role or Role.UNIFIED

    @property
    def gpu_share(self) -> float | None:
        """Which part of each of its cards is the target's: as stated, else as known; None where neither says it."""
        return self.target.gpu_share or (self.gpus.total.share if self.gpus.total is not None else None)


class View(Struct, frozen=True):
    """One instant of everything."""

    targets: tuple[TargetReading, ...]
    gpus: GpuReadings | None  # the last pass over this node; None: none was made
    gpu_peaks: Mapping[str, GpuPeaks]  # by UUID
    dcgm_ok: bool | None  # whether dcgm-exporter's page could be read; None: not configured, or not tried yet
    nvml_failures_total: Mapping[FailureReason, int]  # since the exporter's start
    config_hash: str  # SHA-256 of the configuration in force
    reload_ok: bool  # of the last load of the configuration
    reload_unix_seconds: float  # when it last went well
    discovery_failures_total: int  # files and servers with targets that could not be used, counted at each try
    discovery_problems: tuple[str, ...]  # sentences on what is wrong with them now
    waiting: tuple[WaitingPod, ...] = ()  # pods that are wanted, and no target yet
    drills: tuple[DrillResult, ...] = ()  # the last of each model and role
    targets_elsewhere: int = 0  # known here, and read by the exporters of other shards
    targets_left_out: int = 0  # of this shard, beyond what one exporter reads
    review: ReviewRuns | None = None  # of the scheduled cost review; None: this exporter has no schedule
    kubelet: Attempt | None = None  # the last question to the kubelet; None: it is not asked, or there is none
    kubelet_failures_total: Mapping[FailureReason, int] = field(default_factory=dict)  # since the exporter's start
    node_gpus: int | None = None  # GPUs that the driver holds on this node, seen by NVML here or not; None: not known
    workers: tuple[WorkerGpus, ...] = ()  # pods of this node that work for targets of other exporters
