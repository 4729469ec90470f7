"""Which GPUs belong to which target, how that is known, and how much of each card is the target's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from llm_serving_exporter.derive.grants import Grants, NodeGrants
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading, Worker, WorkerGpus
from llm_serving_exporter.model.hardware import GpuPart, ShareSource
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.text import count_nouns

# why a target has none, though its processes once named some
YIELDED = "the GPUs that its processes used are another target's now"


class Origin(StrEnum):
    """How a claim is known: the values of the label `origin`, the strongest first."""

    CONFIGURED = "configured"
    KUBELET = "kubelet"  # the devices of its container, by the kubelet's word
    PROCESS = "process"  # the driver's process lists name its processes
    ENVIRONMENT = "environment"  # full UUIDs in the environment of its processes
    # every process of every GPU is seen here, none is foreign, and it is the only target, and no pod
    ONLY_TARGET = "only_target"


# claims by what runs: an engine that restarts has none for a while
_OF_PROCESSES = (Origin.PROCESS, Origin.ENVIRONMENT)


class Assignment(Struct, frozen=True):
    """Which GPUs a target has, and how that is known."""

    # () where they are not known
    uuids: tuple[str, ...]
    # a value of Origin, or "" where they are not known
    origin: str
    # the reason where they, or some of them, are not known
    why: str = ""
    # how much of each GPU or instance in `uuids` is the target's, where that is not simply all of it
    parts: Mapping[str, GpuPart] = field(default_factory=dict)

    def is_part_known(self, uuid: str) -> bool:
        """Whether the GPU is shared, and it is known how much of it is the target's."""
        part = self.parts.get(uuid)
        return part is not None and part.share is not None


class Evidence(Struct, frozen=True):
    """What is known on this node, beside NVML, of who uses its GPUs."""

    # by target whose processes are looked for here: the processes of its server, empty where they cannot be seen
    pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # by target: GPUs that the environment of its processes names by full UUIDs
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # what the kubelet gave to whom; None: it does not say
    grants: NodeGrants | None = None
    # why the kubelet does not say
    kubelet_why: str = ""
    # why not every process of every GPU is seen here; "": each one is
    blind: str = ""


def assign_gpus(
    targets: tuple[Target, ...],
    gpus: tuple[GpuReading, ...],
    evidence: Evidence,
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """By target: as configured; else by the kubelet; else by processes; else by their environment; else all, for an only target.

    What processes once said (`previous`) stays while no process says anything else: an engine that is down or restarts has none, and must
    not be taken for the owner of every GPU meanwhile. Such a memory yields to what the processes of other targets name
    now, unless the target states its share of its GPUs, or had the GPU together with these before. A MIG-enabled parent is
    never assigned by processes when its instances are visible: they are GPUs of their own.
    """
    parents = {gpu.identity.mig.parent_uuid for gpu in gpus if gpu.identity.mig}
    usable = [gpu for gpu in gpus if gpu.identity.uuid not in parents]
    granted = {target.name: _find_grants(target, evidence) for target in targets}
    named = {target.name: _find_named(usable, evidence.pids.get(target.name, frozenset())) for target in targets}
    apart = _tell_apart(targets, granted, named)
    found: dict[str, Assignment] = {}
    for target in targets:
        if target.gpus is not None:
            found[target.name] = _assign_configured(target, gpus)
        elif granted[target.name].shares:
            found[target.name] = _assign_granted(granted[target.name], apart.get(target.name), gpus)
        else:
            found[target.name] = _assign_seen(target, len(targets) == 1, usable, named[target.name], granted, evidence)
    _recall(found, previous, frozenset(target.name for target in targets if target.gpu_share is not None))
    return found


def share_cards(assignment: Assignment, gpus: Collection[GpuIdentity]) -> dict[str, float | None]:
    """By UUID of the assignment: which part of its card is the target's, above 0, up to 1; None where it is not known.

    A MIG instance is its part of the card's compute slices; an instance that NVML does not show is a part that is not known.
    """
    instances = {gpu.uuid: gpu.mig for gpu in gpus if gpu.mig is not None}
    parts = {gpu.uuid: gpu.partitions for gpu in gpus}
    found: dict[str, float | None] = {}
    for uuid in assignment.uuids:
        part, mig = assignment.parts.get(uuid), instances.get(uuid)
        own = 1.0 if part is None else part.share
        of_card = (
            mig.compute_share if mig is not None else None if uuid.startswith("MIG-") else 1.0 / parts.get(uuid, 1)
        )
        found[uuid] = None if own is None or of_card is None else own * of_card
    return found


def assign_workers(
    workers: Collection[Worker], targets: Collection[Target], found: dict[str, Assignment], evidence: Evidence
) -> tuple[WorkerGpus, ...]:
    """The GPUs of pods on this node that work for another pod's target, by the kubelet.

    Where `found`, which is of `targets`, has the leader's target, they are added there: by the kubelet too, or without any GPU by its word.
    What is returned belongs to targets of other exporters.
    """
    # that only lead, such as Ray's heads
    without = {target.name for target in targets if target.gpus is None and _find_grants(target, evidence).is_none}
    elsewhere = []
    for worker in workers:
        grants = Grants(why=evidence.kubelet_why)
        if evidence.grants is not None:
            grants = evidence.grants.find(worker.namespace, worker.pod)
        leader = found.get(worker.target)
        if leader is None:
            elsewhere.append(WorkerGpus(worker, tuple(grants.shares), grants.why, grants.shares))
        elif grants.shares and (leader.origin == Origin.KUBELET or (not leader.origin and worker.target in without)):
            uuids = tuple(dict.fromkeys((*leader.uuids, *grants.shares)))
            parts = {**leader.parts, **_granted_parts(grants, grants.shares)}
            found[worker.target] = Assignment(uuids, Origin.KUBELET, leader.why if leader.uuids else "", parts)
    return tuple(elsewhere)


def _find_grants(target: Target, evidence: Evidence) -> Grants:
    """What the kubelet gave the target's container; nothing, with the reason, where it does not say or the target is no pod."""
    place = target.identity
    if not place.pod:
        return Grants()
    if evidence.grants is None:
        return Grants(why=evidence.kubelet_why)
    return evidence.grants.find(place.namespace, place.pod, place.container)


def _find_named(usable: Sequence[GpuReading], own: frozenset[int]) -> tuple[str, ...]:
    """GPUs that list one of the processes."""
    return tuple(gpu.identity.uuid for gpu in usable if any(process.pid in own for process in gpu.processes or ()))


def _tell_apart(
    targets: Sequence[Target], granted: Mapping[str, Grants], named: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Targets with the same container, each with the GPUs that its own processes name; left out where that does not tell them from another.

    Without it they have one claim together: the whole container's.
    """
    groups: dict[tuple[str, str, frozenset[str]], list[str]] = {}
    for target in targets:
        if target.gpus is None and granted[target.name].bases:
            place = target.identity
            groups.setdefault((place.namespace, place.pod, granted[target.name].bases), []).append(target.name)
    apart: dict[str, tuple[str, ...]] = {}
    for names in groups.values():
        if len(names) < 2:
            continue
        own = {name: [uuid for uuid in named[name] if uuid in granted[name].shares] for name in names}
        every = [uuid for uuids in own.values() for uuid in uuids]
        if all(own.values()) and len(every) == len(set(every)):
            apart.update({name: tuple(uuids) for name, uuids in own.items()})
    return apart


def _assign_configured(target: Target, gpus: Sequence[GpuReading]) -> Assignment:
    assert target.gpus is not None
    found = tuple(gpu.identity.uuid for gpu in gpus if gpu.identity.uuid in target.gpus or _index(gpu) in target.gpus)
    missing = len(target.gpus) - len(found)
    why = f"{missing} of the {len(target.gpus)} configured GPUs are not visible here" if missing > 0 else ""
    return Assignment(found, Origin.CONFIGURED, why)


def _assign_granted(grants: Grants, apart: tuple[str, ...] | None, gpus: Sequence[GpuReading]) -> Assignment:
    uuids = apart if apart is not None else tuple(grants.shares)
    seen = {gpu.identity.uuid for gpu in gpus}
    hidden = sum(uuid not in seen for uuid in uuids)
    of_all = count_nouns(len(uuids), "GPU is", "GPUs are")
    why = (
        f"{hidden} of its {of_all} not visible to NVML here: the exporter wants NVIDIA_VISIBLE_DEVICES=all"
        if hidden
        else ""
    )
    return Assignment(uuids, Origin.KUBELET if apart is None else Origin.PROCESS, why, _granted_parts(grants, uuids))


def _granted_parts(grants: Grants, uuids: Iterable[str]) -> dict[str, GpuPart]:
    return {uuid: GpuPart(grants.shares[uuid], ShareSource.KUBELET) for uuid in uuids if grants.shares[uuid] != 1.0}


def _assign_seen(
    target: Target,
    alone: bool,
    usable: Sequence[GpuReading],
    named: tuple[str, ...],
    granted: Mapping[str, Grants],
    evidence: Evidence,
) -> Assignment:
    """By what is seen of the target's processes; else all GPUs, where it is the only target and every process is seen."""
    if named:
        return Assignment(named, Origin.PROCESS)
    stated = evidence.environment.get(target.name, ())
    if stated:
        return Assignment(stated, Origin.ENVIRONMENT)
    kubelet = granted[target.name].why
    if target.name not in evidence.pids:
        return Assignment((), "", kubelet or "the target's URL does not name this host: set gpus or gpu_count")
    if not usable:
        return Assignment((), "", kubelet or "no GPU is visible here")
    if not alone:
        why = "the GPUs' process lists do not show this engine (another PID namespace?): set gpus"
        return Assignment((), "", kubelet or why)
    if evidence.blind:
        return Assignment((), "", f"{kubelet}; {evidence.blind}" if kubelet else evidence.blind)
    if target.identity.pod:
        # the node's GPUs are those of many pods, and one that still loads has no process on any
        return Assignment((), "", kubelet or "its processes name no GPU so far, and those of a node are many pods'")
    own = evidence.pids[target.name]
    foreign = sum(any(process.pid not in own for process in gpu.processes or ()) for gpu in usable)
    if foreign:
        why = f"processes that cannot be told to be the engine's use {foreign} of the {count_nouns(len(usable), 'GPU')} here: set gpus"
        return Assignment((), "", why)
    return Assignment(tuple(gpu.identity.uuid for gpu in usable), Origin.ONLY_TARGET)


def _recall(found: dict[str, Assignment], previous: Mapping[str, Assignment], sharing: Collection[str]) -> None:
    """Puts back into `found` what processes said of targets of which nothing better is known now."""
    named = _list_owners({name: one for name, one in found.items() if one.origin in (Origin.KUBELET, *_OF_PROCESSES)})
    together = _list_owners(previous)
    for name, before in previous.items():
        remembered = before.origin in _OF_PROCESSES or before.why == YIELDED
        if name in found and remembered and found[name].origin in (Origin.ONLY_TARGET, ""):
            left = tuple(
                uuid
                for uuid in before.uuids
                if name in sharing
                or uuid not in named
                or (before.is_part_known(uuid) and named[uuid] <= together[uuid] - {name})
            )
            found[name] = replace(before, uuids=left) if left else Assignment((), "", YIELDED)


def _list_owners(assignments: Mapping[str, Assignment]) -> dict[str, set[str]]:
    """The targets that have each GPU, by its UUID."""
    owners: dict[str, set[str]] = {}
    for name, one in assignments.items():
        for uuid in one.uuids:
            owners.setdefault(uuid, set()).add(name)
    return owners


def _index(gpu: GpuReading) -> int | None:
    """An index names a whole GPU, never a MIG instance."""
    return gpu.identity.index if gpu.identity.mig is None else None
