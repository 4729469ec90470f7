"""What the exporter has counted of cost, as it outlives the process: by target, with what tells whether a later one may go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.cost import EngineTotals
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.record import Struct, field


class KeptEngine(Struct, frozen=True):
    """One engine's counters, under the labels that it was last seen with."""

    model_name: str  # as served
    engine: str  # the label `engine`
    role: str  # a value of Role
    totals: EngineTotals  # counted so far


class KeptCost(Struct, frozen=True):
    """What one target has cost so far."""

    name: str  # of the target
    identity: Identity  # whose cost it is: another pod of that name does not go on from it
    server: tuple[str, str] = (
        "",
        "",
    )  # digests of its address, and of its address and stated GPUs; "": no tick was counted
    gpu_uuids: tuple[str, ...] = ()  # of its GPUs at its last tick, as far as they were seen
    gpus: TargetGpus | None = None  # how many they were; None: not known
    counted_seconds: float | None = None  # when its last tick was counted, by the clock of the host's boot; None: never
    joules: Mapping[str, float] = field(
        default_factory=dict
    )  # what the energy counter of each GPU showed then, by UUID
    engines: tuple[KeptEngine, ...] = ()  # oldest first; those of its last good page at the end
    current: int = 0  # how many of them are of its last good page
    life: int = 0  # which counting of this process it is: another number where it began at 0 again; never written


class CostSnapshot(Struct, frozen=True):
    """What all targets of one exporter had cost at one moment."""

    boot: str  # of the host that it was taken on; "": not known
    boot_seconds: float  # when, by the clock of that boot
    unix_seconds: float  # when, by the wall clock
    targets: tuple[KeptCost, ...]  # in no order


class Storage(StrEnum):
    """Where the counters of cost are safe."""

    NONE = "none"  # nowhere: no folder is configured
    DISK = "disk"  # they are published as far as they are in the folder
    BEHIND = "behind"  # the folder cannot be written: they stand still at what is there
    MEMORY = "memory"  # they go on without the folder, and begin at 0 after a restart
    ELSEWHERE = "elsewhere"  # another exporter has the folder: as memory


class StorageReport(Struct, frozen=True):
    """How keeping the counters of cost goes."""

    storage: Storage = Storage.NONE  # where they are safe now
    snapshot_unix_seconds: float | None = (
        None  # when the last snapshot was taken that is on disk; None: none since the start
    )
    failures_total: int | None = None  # snapshots that could not be written; None: no folder is configured
