"""Which GPUs belong to which target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llm_serving_exporter.model.device import GpuReading
from llm_serving_exporter.model.target import Target

# why a target has none, though its processes once named some
YIELDED = "the GPUs that its processes used are another target's now"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which GPUs a target has, and how that is known."""

    # () where they are not known
    uuids: tuple[str, ...]
    # configured, processes, only_target, or "" where they are not known
    origin: str
    # the reason where they, or some of them, are not known
    why: str = ""


def assign_gpus(
    targets: tuple[Target, ...],
    gpus: tuple[GpuReading, ...],
    pids_of_local_target: Mapping[str, frozenset[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Configured UUIDs or indices; else the GPUs whose processes are the engine's; else all, for a single local target.

    `pids_of_local_target`: for each target on this host (by name) the processes of its server, empty where they cannot be seen.
    GPUs once named by their processes (`previous`) stay while no process names others: an engine that is down or restarts
    has none, and must not be taken for the owner of every GPU meanwhile. Such a memory yields to what the processes of other targets name
    now, unless the target states its share of its GPUs. A MIG-enabled parent is never assigned when its
    instances are visible: they are GPUs of their own.
    """
    parents = {gpu.identity.mig.parent_uuid for gpu in gpus if gpu.identity.mig}
    usable = [gpu for gpu in gpus if gpu.identity.uuid not in parents]
    found = {target.name: _one(target, targets, gpus, usable, pids_of_local_target) for target in targets}
    named = {uuid for one in found.values() if one.origin == "processes" for uuid in one.uuids}
    shares = {target.name for target in targets if target.gpu_share is not None}
    for name, before in previous.items():
        remembered = before.origin == "processes" or before.why == YIELDED
        if name in found and remembered and found[name].origin in ("only_target", ""):
            left = before.uuids if name in shares else tuple(uuid for uuid in before.uuids if uuid not in named)
            found[name] = replace(before, uuids=left) if left else Assignment((), "", YIELDED)
    return found


def _one(
    target: Target,
    targets: tuple[Target, ...],
    gpus: tuple[GpuReading, ...],
    usable: list[GpuReading],
    pids: Mapping[str, frozenset[int]],
) -> Assignment:
    if target.gpus is not None:
        found = tuple(
            gpu.identity.uuid for gpu in gpus if gpu.identity.uuid in target.gpus or _index(gpu) in target.gpus
        )
        missing = len(target.gpus) - len(found)
        why = f"{missing} of the {len(target.gpus)} configured GPUs are not visible here" if missing > 0 else ""
        return Assignment(found, "configured", why)
    if target.name not in pids:
        return Assignment((), "", "the target's URL does not name this host: set gpus or gpu_count")
    own = pids[target.name]
    named = tuple(
        gpu.identity.uuid for gpu in usable if gpu.processes and any(process.pid in own for process in gpu.processes)
    )
    if named:
        return Assignment(named, "processes")
    if len(targets) == 1 and usable:
        return Assignment(tuple(gpu.identity.uuid for gpu in usable), "only_target")
    if not usable:
        return Assignment((), "", "no GPU is visible here")
    return Assignment((), "", "the GPUs' process lists do not show this engine (another PID namespace?): set gpus")


def _index(gpu: GpuReading) -> int | None:
    """An index names a whole GPU, never a MIG instance."""
    return gpu.identity.index if gpu.identity.mig is None else None
