"""GPUs that several targets have, or that one has a stated part of -> how much of each GPU is whose (design section 8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from llm_serving_exporter.derive.gpus import Assignment
from llm_serving_exporter.model.gpu import GpuProcess, GpuReading
from llm_serving_exporter.model.hardware import GpuPart, ShareSource
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import Role, Target


class _Memory(Struct, frozen=True):
    """GPU memory that the processes of one GPU hold."""

    # by target; None: its processes are not among those that the driver lists, or are not its own alone, or without their memory
    own: Mapping[str, int | None]
    # of processes that are no target's of this GPU; None: the driver does not say it of one of them
    foreign: int | None


def divide_gpus(
    targets: Collection[Target],
    found: Mapping[str, Assignment],
    gpus: Collection[GpuReading],
    pids: Mapping[str, frozenset[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """`found` with the part that each target has of every GPU that it shares: as it states, else as the kubelet gave it, else by memory.

    `pids`: the processes of each target, as far as they are seen. By memory: what is not stated is divided among the others in the
    proportion of what their processes hold, so that all parts add up to 1; processes of no target take the same part of each. Where
    one of the targets has no process now (it is down, or restarts), the parts of the pass before (`previous`) hold, if the GPU was these
    targets' then too; else they are not known.
    """
    processes = {gpu.identity.uuid: gpu.processes for gpu in gpus}
    # what else a remembered assignment has is of the pass before
    parts = {
        name: {uuid: part for uuid, part in one.parts.items() if part.source is ShareSource.KUBELET}
        for name, one in found.items()
    }
    # a front end has no cost
    engines = [target for target in targets if target.role is not Role.FRONTEND]
    before = {uuid: [one.name for one in owners] for uuid, owners in _group_by_gpu(engines, previous).items()}
    for uuid, owners in _group_by_gpu(engines, found).items():
        memory = _add_memory([one.name for one in owners], processes.get(uuid) or (), pids)
        stated = _list_stated(uuid, owners, parts)
        rest = [one.name for one in owners if one.name not in stated]
        if len(owners) > 1 and rest:
            taken = [part.share for part in stated.values()]
            left = None if None in taken else 1.0 - add_up(share or 0.0 for share in taken)
            held = {}
            if set(before.get(uuid, ())) == {one.name for one in owners}:
                held = {name: part for name in rest if (part := previous[name].parts.get(uuid)) is not None}
            stated |= _divide_by_memory(rest, left, memory, held)
        for name, part in stated.items():
            parts[name][uuid] = replace(part, memory_bytes=memory.own[name])
    return {name: replace(one, parts=parts[name]) for name, one in found.items()}


def _group_by_gpu(targets: Collection[Target], assignments: Mapping[str, Assignment]) -> dict[str, list[Target]]:
    owners: dict[str, list[Target]] = {}
    for target in targets:
        for uuid in assignments[target.name].uuids if target.name in assignments else ():
            owners.setdefault(uuid, []).append(target)
    return owners


def _list_stated(
    uuid: str, owners: Sequence[Target], granted: Mapping[str, Mapping[str, GpuPart]]
) -> dict[str, GpuPart]:
    """By target: the part that configuration or kubelet state; of a GPU's only target also that it is not known."""
    stated = {}
    for target in owners:
        given = granted[target.name].get(uuid)
        if target.gpu_share is not None:
            # it is of the card: how much of an instance that is does not follow from it, and an only target has all of that
            if not uuid.startswith("MIG-"):
                stated[target.name] = GpuPart(target.gpu_share, ShareSource.CONFIGURED)
            elif len(owners) > 1:
                stated[target.name] = GpuPart(None, ShareSource.CONFIGURED)
        elif given is not None and (given.share is not None or len(owners) == 1):
            stated[target.name] = given
    return stated


def _add_memory(names: Sequence[str], processes: Collection[GpuProcess], pids: Mapping[str, frozenset[int]]) -> _Memory:
    own: dict[str, list[int | None]] = {name: [] for name in names}
    foreign: list[int | None] = []
    for process in processes:
        whose = [name for name in names if process.pid in pids.get(name, ())]
        for name in whose:
            # of two targets with the same processes nobody knows which holds what
            own[name].append(process.memory_bytes if len(whose) == 1 else None)
        if not whose:
            foreign.append(process.memory_bytes)
    return _Memory({name: _add(held) if held else None for name, held in own.items()}, _add(foreign))


def _add(numbers: Collection[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return add_up(known) if len(known) == len(numbers) else None


def _divide_by_memory(
    names: Sequence[str], left: float | None, memory: _Memory, held: Mapping[str, GpuPart]
) -> dict[str, GpuPart]:
    """Parts of `names`, which have `left` of the GPU together. `held`: their parts at the pass before, where these still hold."""
    unknown = dict.fromkeys(names, GpuPart(None, ShareSource.MEMORY))
    if left is None or left <= 0:
        return unknown
    own = {name: number for name, number in memory.own.items() if number}
    if len(own) < len(memory.own) or memory.foreign is None:
        known = [part.share for part in held.values() if part.source is ShareSource.MEMORY]
        return dict(held) if len(known) == len(names) and None not in known else unknown
    foreign = memory.foreign / (memory.foreign + add_up(own.values()))
    together = add_up(own[name] for name in names)
    return {name: GpuPart(left * own[name] / together, ShareSource.MEMORY, foreign) for name in names}
