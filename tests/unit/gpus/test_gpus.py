"""Which GPUs belong to which target, how much of a shared one, what a kubelet calls them, and their peaks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.gpus.attribution import MOST_NAMES, GpuFacts
from llm_serving_exporter.gpus.ownership import (
    YIELDED,
    Assignment,
    Evidence,
    count_parts,
    divide_gpus,
    find_device,
    share_cards,
)
from llm_serving_exporter.gpus.ownership import assign_gpus as assign_after
from llm_serving_exporter.model.gpu import DeviceGrant, GpuIdentity, GpuProcess, GpuReading, MigInstance
from llm_serving_exporter.model.hardware import GpuPart, GpuPeaks, ShareSource
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, Role, Target
from tests.support.rows import check_rows


def gpu(index: int, *pids: int, mig_of: str | None = None) -> GpuReading:
    mig = MigInstance(1, 0, "1g.10gb", mig_of, 1, 8) if mig_of else None
    uuid = f"MIG-{index}" if mig_of else f"GPU-{index}"
    return GpuReading(
        GpuIdentity(uuid, index, "NVIDIA H100 80GB HBM3", mig=mig),
        processes=tuple(GpuProcess(pid, None) for pid in pids),
    )


def assign(
    targets: tuple[Target, ...],
    gpus: tuple[GpuReading, ...],
    pids: Mapping[str, frozenset[int]],
    previous: Mapping[str, Assignment] | None = None,
    **more: Any,
) -> dict[str, Assignment]:
    return assign_after(targets, gpus, Evidence(pids, **more), previous or {})


A, B = Target("a", "http://localhost:8000"), Target("b", "http://localhost:8001")


FAR, POD = (
    Target("a", "http://far:8000"),
    Target("a", "http://10.0.0.1:8000", identity=Identity(namespace="n", pod="p")),
)
TWO, NONE = (gpu(0), gpu(1)), frozenset[int]()
RUNNING = {"a": frozenset({10}), "b": frozenset({20})}
OF_ENVIRONMENT = {"a": ("GPU-1",), "b": ("GPU-1",)}


@check_rows(
    ("targets", "gpus", "pids", "evidence", "expected"),
    [
        # as configured, by UUID and by index, here or not
        ((replace(FAR, gpus=("GPU-1", 2)),), (*TWO, gpu(2)), {}, {}, {"a": (("GPU-1", "GPU-2"), "configured", "")}),
        ((replace(FAR, gpus=(0, 7)),), (gpu(0),), {}, {},
         {"a": (("GPU-0",), "configured", "1 of the 2 configured GPUs are not visible here")}),
        # as the process lists name the engine
        ((A, B), (gpu(0, 10), gpu(1, 11), gpu(2, 20)), {"a": frozenset({10, 11}), "b": frozenset({20})}, {},
         {"a": (("GPU-0", "GPU-1"), "process", ""), "b": (("GPU-2",), "process", "")}),
        # all of them, where every process is seen and none is foreign, or cannot be told to be the engine's
        ((A,), TWO, {"a": NONE}, {}, {"a": (("GPU-0", "GPU-1"), "only_target", "")}),
        ((A,), TWO, RUNNING, {}, {"a": (("GPU-0", "GPU-1"), "only_target", "")}),
        ((A,), TWO, RUNNING, {"blind": "the exporter is blind: set gpus"}, {"a": ((), "", "the exporter is blind: set gpus")}),
        ((A,), (gpu(0), gpu(1, 99)), RUNNING, {},
         {"a": ((), "", "processes that cannot be told to be the engine's use 1 of the 2 GPUs here: set gpus")}),
        ((A,), (gpu(0, 10),), {"a": NONE}, {},
         {"a": ((), "", "processes that cannot be told to be the engine's use 1 of the 1 GPU here: set gpus")}),
        ((A, B), TWO, {"a": frozenset({1}), "b": NONE}, {},
         dict.fromkeys("ab", ((), "", "the GPUs' process lists do not show this engine (another PID namespace?): set gpus"))),
        ((FAR,), (gpu(0),), {}, {}, {"a": ((), "", "the target's URL does not name this host: set gpus or gpu_count")}),
        # a parent with visible instances is not a GPU of its own
        ((A,), (gpu(0), gpu(5, mig_of="GPU-0")), {"a": NONE}, {}, {"a": (("MIG-5",), "only_target", "")}),
        ((A,), (), {"a": NONE}, {}, {"a": ((), "", "no GPU is visible here")}),
        # the environment counts after processes
        ((A, B), (gpu(0, 10), gpu(1)), RUNNING, {"environment": OF_ENVIRONMENT},
         {"a": (("GPU-0",), "process", ""), "b": (("GPU-1",), "environment", "")}),
        # why a pod's GPUs are not known is the kubelet's word first; what a sidecar's target lacks is both
        ((POD,), (gpu(0),), {}, {"kubelet_why": "no kubelet"}, {"a": ((), "", "no kubelet")}),
        ((POD,), (gpu(0),), {"a": NONE}, {"kubelet_why": "no kubelet", "blind": "blind"}, {"a": ((), "", "no kubelet; blind")}),
    ],
)  # fmt: skip
def test_whose_gpus_are_whose(
    targets: tuple[Target, ...],
    gpus: tuple[GpuReading, ...],
    pids: Mapping[str, frozenset[int]],
    evidence: dict[str, Any],
    expected: object,
) -> None:
    found = assign(targets, gpus, pids, **evidence)
    assert {name: (one.uuids, one.origin, one.why) for name, one in found.items()} == expected
    # an engine that is away keeps what its processes named
    quiet = tuple(replace(one, processes=()) for one in gpus)
    of_processes = {name: one for name, one in found.items() if one.origin in ("process", "environment")}
    away = assign(targets, quiet, dict.fromkeys(pids, NONE), found)
    assert {name: away[name] for name in of_processes} == of_processes


def test_gpus_named_by_processes_stay_while_the_engine_is_away() -> None:
    gpus = (gpu(0, 10), gpu(1, 11), gpu(2), gpu(3))
    running = assign((A,), gpus, {"a": frozenset({10, 11})})
    stopped = assign((A,), (gpu(0), gpu(1), gpu(2), gpu(3)), {"a": frozenset()}, running)
    assert stopped == running
    assert running["a"].uuids == ("GPU-0", "GPU-1")
    moved = assign((A,), (gpu(0), gpu(1), gpu(2, 20), gpu(3)), {"a": frozenset({20})}, stopped)
    assert moved["a"].uuids == ("GPU-2",)


def test_a_memory_yields_to_the_target_whose_processes_use_the_gpus_now() -> None:
    pids = {"a": frozenset({10, 11}), "b": frozenset[int]()}
    before = assign((A, B), (gpu(0, 10), gpu(1, 11)), pids)
    # a has stopped, b has one of its GPUs, then both, then stops as well
    pids = {"a": frozenset(), "b": frozenset({20, 21})}
    partly = assign((A, B), (gpu(0), gpu(1, 20)), pids, before)
    assert (partly["a"].uuids, partly["b"].uuids) == (("GPU-0",), ("GPU-1",))
    wholly = assign((A, B), (gpu(0, 21), gpu(1, 20)), pids, partly)
    assert (wholly["a"], wholly["b"].uuids) == (Assignment((), "", YIELDED), ("GPU-0", "GPU-1"))
    assert assign((A, B), (gpu(0), gpu(1)), pids, wholly) == wholly
    back = assign((A, B), (gpu(0, 10), gpu(1)), {"a": frozenset({10}), "b": frozenset()}, wholly)
    assert (back["a"].uuids, back["b"].uuids) == (("GPU-0",), ("GPU-1",))


def test_targets_that_share_gpus_keep_the_memory_of_theirs() -> None:
    shared = replace(A, gpu_share=0.5)
    before = assign((shared, B), (gpu(0, 10),), {"a": frozenset({10}), "b": frozenset()})
    after = assign((shared, B), (gpu(0, 20),), {"a": frozenset(), "b": frozenset({20})}, before)
    assert after["a"].uuids == after["b"].uuids == ("GPU-0",)


def test_targets_that_were_seen_together_on_a_gpu_keep_the_memory_of_it() -> None:
    pids = {"a": frozenset({10}), "b": frozenset({20})}
    parts = {"GPU-0": GpuPart(0.5, ShareSource.MEMORY)}
    before = {name: replace(found, parts=parts) for name, found in assign((A, B), (gpu(0, 10, 20),), pids).items()}
    stopped = assign((A, B), (gpu(0, 20),), pids, before)
    assert stopped["a"].uuids == stopped["b"].uuids == ("GPU-0",)
    # another one has come in its place
    other = replace(B, name="c")
    came = assign((A, B, other), (gpu(0, 20, 30),), {**pids, "c": frozenset({30})}, stopped)
    assert (came["a"], came["c"].uuids) == (Assignment((), "", YIELDED), ("GPU-0",))
    # without parts both would be without a cost as long as the one is away
    unknown = {
        name: replace(found, parts={"GPU-0": GpuPart(None, ShareSource.MEMORY)}) for name, found in before.items()
    }
    assert assign((A, B), (gpu(0, 20),), pids, unknown)["a"] == Assignment((), "", YIELDED)


def test_a_part_of_an_evenly_partitioned_card_is_that_part_of_it() -> None:
    """AMD's CPX: two of eight parts are a quarter of a card."""
    parts = [GpuIdentity(f"card-{number}", number, "MI300X", partitions=8) for number in range(8)]
    found = share_cards(Assignment(("card-0", "card-1"), "configured"), parts)
    assert found == {"card-0": 1 / 8, "card-1": 1 / 8}
    assert share_cards(Assignment(("card-0",), "configured"), [replace(parts[0], partitions=1)]) == {"card-0": 1.0}


# --- how much of a shared GPU is whose ---


PART_A, PART_B, C = (Target(name, f"http://localhost:{port}") for name, port in (("a", 8000), ("b", 8001), ("c", 8002)))
# "twin" has the same processes as a
PIDS = {"a": frozenset({10, 11}), "b": frozenset({20}), "c": frozenset({30}), "twin": frozenset({10, 11})}
CONFIGURED, KUBELET, MEMORY = ShareSource.CONFIGURED, ShareSource.KUBELET, ShareSource.MEMORY


def card(uuid: str, **held: int | None) -> GpuReading:
    """`held`: memory by pid, as in `p10=3`."""
    mig = MigInstance(1, 0, "1g.10gb", "GPU-1", 1, 8) if uuid.startswith("MIG") else None
    processes = tuple(GpuProcess(int(pid[1:]), memory) for pid, memory in held.items())
    return GpuReading(GpuIdentity(uuid, 0, "NVIDIA H100 80GB HBM3", mig=mig), processes=processes)


def has(*uuids: str, **parts: GpuPart) -> Assignment:
    return Assignment(uuids, "process", parts={uuid.replace("_", "-"): part for uuid, part in parts.items()})


def divide(
    targets: Mapping[Target, Assignment], *cards: GpuReading, before: Mapping[str, Assignment] | None = None
) -> dict[str, Assignment]:
    found = {target.name: one for target, one in targets.items()}
    return divide_gpus(tuple(targets), found, cards, PIDS, before or {})


def parts(found: Mapping[str, Assignment]) -> dict[str, Any]:
    """By target and GPU: share, what says so, and what foreign processes take of it."""
    return {
        name: {uuid: (part.share, part.source, part.foreign) for uuid, part in one.parts.items()}
        for name, one in found.items()
    }


def of_memory(share: float | None, foreign: float = 0.0) -> tuple[float | None, ShareSource, float]:
    return share, MEMORY, foreign


BOTH = {PART_A: has("GPU-1"), PART_B: has("GPU-1")}
NOT_KNOWN = {name: {"GPU-1": of_memory(None)} for name in "ab"}
HALF, SOME = GpuPart(0.5, KUBELET), GpuPart(None, KUBELET)


@check_rows(
    ("targets", "cards", "expected"),
    [
        (BOTH, [card("GPU-1", p10=20, p11=10, p20=10)], {"a": {"GPU-1": of_memory(0.75)}, "b": {"GPU-1": of_memory(0.25)}}),
        # each has another card too, which is its own
        ({PART_A: has("GPU-1", "GPU-2"), PART_B: has("GPU-1")}, [card("GPU-1", p10=1, p20=1), card("GPU-2", p11=9)],
         {"a": {"GPU-1": of_memory(0.5)}, "b": {"GPU-1": of_memory(0.5)}}),
        (BOTH, [card("GPU-1", p10=3, p20=1, p99=4)], {"a": {"GPU-1": of_memory(0.75, 0.5)}, "b": {"GPU-1": of_memory(0.25, 0.5)}}),
        # one alone has all of it, whoever else is there
        ({PART_A: has("GPU-1")}, [card("GPU-1", p10=3, p99=4)], {"a": {}}),
        # not known: memory, processes of one, whose they are
        (BOTH, [card("GPU-1", p10=3, p20=None)], NOT_KNOWN),
        (BOTH, [card("GPU-1", p10=3, p20=1, p99=None)], NOT_KNOWN),
        (BOTH, [card("GPU-1", p10=3)], NOT_KNOWN),
        (BOTH, [replace(card("GPU-1"), processes=None)], NOT_KNOWN),
        (BOTH, [], NOT_KNOWN),
        ({PART_A: has("GPU-1"), replace(PART_B, name="twin"): has("GPU-1")}, [card("GPU-1", p10=3)],
         {"a": {"GPU-1": of_memory(None)}, "twin": {"GPU-1": of_memory(None)}}),
        # a front end has none
        ({PART_A: has("GPU-1"), replace(PART_B, role=Role.FRONTEND): has("GPU-1")}, [card("GPU-1", p10=3)], {"a": {}, "b": {}}),
        # what is stated comes first
        ({replace(PART_A, gpu_share=0.4): has("GPU-1"), PART_B: has("GPU-1"), C: has("GPU-1")}, [card("GPU-1", p10=8, p20=1, p30=2)],
         {"a": {"GPU-1": (0.4, CONFIGURED, 0.0)}, "b": {"GPU-1": of_memory(pytest.approx(0.2))},
          "c": {"GPU-1": of_memory(pytest.approx(0.4))}}),
        ({replace(PART_A, gpu_share=1.0): has("GPU-1"), PART_B: has("GPU-1")}, [card("GPU-1", p10=8, p20=1)],
         {"a": {"GPU-1": (1.0, CONFIGURED, 0.0)}, "b": {"GPU-1": of_memory(None)}}),
        ({replace(PART_A, gpu_share=0.4): has("GPU-1")}, [card("GPU-1", p10=8)], {"a": {"GPU-1": (0.4, CONFIGURED, 0.0)}}),
        # and what the kubelet gave; a number of parts that it does not say may be told by memory
        ({PART_A: has("GPU-1", GPU_1=HALF), PART_B: has("GPU-1", GPU_1=HALF)}, [card("GPU-1", p10=9, p20=1)],
         {name: {"GPU-1": (0.5, KUBELET, 0.0)} for name in "ab"}),
        ({PART_A: has("GPU-1", GPU_1=SOME), PART_B: has("GPU-1", GPU_1=SOME)}, [card("GPU-1", p10=9, p20=1)],
         {"a": {"GPU-1": of_memory(0.9)}, "b": {"GPU-1": of_memory(0.1)}}),
        ({PART_A: has("GPU-1", GPU_1=SOME)}, [card("GPU-1", p10=9)], {"a": {"GPU-1": (None, KUBELET, 0.0)}}),
        # two engines in one instance; what is stated is of the card, and an only target has all of its instance
        ({PART_A: has("MIG-1"), PART_B: has("MIG-1")}, [card("MIG-1", p10=1, p20=3)],
         {"a": {"MIG-1": of_memory(0.25)}, "b": {"MIG-1": of_memory(0.75)}}),
        ({replace(PART_A, gpu_share=0.1): has("MIG-1")}, [card("MIG-1", p10=1)], {"a": {}}),
        ({replace(PART_A, gpu_share=0.1): has("MIG-1"), PART_B: has("MIG-1")}, [card("MIG-1", p10=1, p20=1)],
         {"a": {"MIG-1": (None, CONFIGURED, 0.0)}, "b": {"MIG-1": of_memory(None)}}),
    ],
)  # fmt: skip
def test_one_pass(targets: Mapping[Target, Assignment], cards: list[GpuReading], expected: object) -> None:
    assert parts(divide(targets, *cards)) == expected


def test_parts_of_an_instance_are_parts_of_its_part_of_the_card() -> None:
    reading = card("MIG-1", p10=1, p20=3)
    found = divide({PART_A: has("MIG-1"), PART_B: has("MIG-1")}, reading)
    assert share_cards(found["a"], [reading.identity]) == {"MIG-1": pytest.approx(1 / 28)}


def test_the_memory_of_a_targets_own_processes_is_told_with_its_part() -> None:
    found = divide({PART_A: has("GPU-1"), PART_B: has("GPU-1")}, card("GPU-1", p10=20, p11=10, p20=10))
    assert [found[name].parts["GPU-1"].memory_bytes for name in "ab"] == [30, 10]


def test_parts_hold_while_one_of_the_same_targets_has_no_process() -> None:
    both = {PART_A: has("GPU-1"), PART_B: has("GPU-1")}
    before = divide(both, card("GPU-1", p10=3, p20=1, p99=4))
    held = divide(both, card("GPU-1", p10=9), before=before)
    assert parts(held) == parts(before)
    assert [held[name].parts["GPU-1"].memory_bytes for name in "ab"] == [9, None]
    # the driver is away
    assert parts(divide(both, before=held)) == parts(before)
    # a remembered assignment says nothing of its own accord
    assert parts(divide({PART_A: held["a"]}, card("GPU-1", p10=9), before=held)) == {"a": {}}
    three = {**both, C: has("GPU-1")}
    assert set(parts(divide(three, card("GPU-1", p10=9, p30=1), before=held))["b"].values()) == {of_memory(None)}


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 1 << 40), min_size=2), st.integers(0, 1 << 40), st.booleans()
)
def test_the_parts_of_a_gpu_add_up_to_all_of_it(held: dict[str, int], foreign: int, stated: bool) -> None:
    targets = {one.name: one for one in (PART_A, PART_B, C)}
    if stated:
        targets["c"] = replace(C, gpu_share=0.3)
    pids = {name: min(PIDS[name]) for name in held}
    processes = {f"p{pids[name]}": memory for name, memory in held.items()} | ({"p99": foreign} if foreign else {})
    found = divide({targets[name]: has("GPU-1") for name in held}, card("GPU-1", **processes))
    assert sum(one.parts["GPU-1"].share or 0.0 for one in found.values()) == pytest.approx(1.0, abs=1e-12)
    by_memory = [part for one in found.values() if (part := one.parts["GPU-1"]).source is MEMORY]
    assert {part.foreign for part in by_memory} == {foreign / (foreign + sum(held.values()))}


# --- A device as a kubelet names it -> which GPU it is, or why that is not known ---


def uuid(number: int, kind: str = "GPU") -> str:
    return f"{kind}-0a1b2c3d-0000-4000-8000-{number:012d}"


def instance(card: int, number: int, gpu_instance: int, compute: int = 0) -> GpuIdentity:
    mig = MigInstance(gpu_instance, compute, "1g.10gb", uuid(card), 1, 8)
    return GpuIdentity(uuid(number, "MIG"), card, "NVIDIA H100", minor_number=card, mig=mig)


# cards 0 and 1 whole; 2 cut into instances, the second GPU instance into two compute instances; 4 and 5 swapped by minor number
GPUS = (
    GpuIdentity(uuid(0), 0, "NVIDIA H100", minor_number=0),
    GpuIdentity(uuid(1), 1, "NVIDIA H100", minor_number=1),
    GpuIdentity(uuid(2), 2, "NVIDIA H100", minor_number=2),
    instance(2, 21, 7),
    instance(2, 22, 9, 0),
    instance(2, 23, 9, 1),
    GpuIdentity(uuid(4), 4, "NVIDIA H100", minor_number=5),
    GpuIdentity(uuid(5), 5, "NVIDIA H100", minor_number=4),
)
NVIDIA = "nvidia.com/gpu"


@check_rows(
    ("resource", "device", "found", "is_part"),
    [
        (NVIDIA, uuid(1), uuid(1), False),
        (NVIDIA, uuid(1).upper(), uuid(1), False),
        # one that NVML does not show here is certain all the same
        (NVIDIA, uuid(99), uuid(99), False),
        ("nvidia.com/gpu.shared", f"{uuid(0)}::3", uuid(0), True),
        ("nvidia.com/mig-1g.10gb", uuid(21, "MIG"), uuid(21, "MIG"), False),
        ("nvidia.com/mig-1g.10gb.shared", f"{uuid(21, 'MIG')}::0", uuid(21, "MIG"), True),
        ("nvidia.com/mig-1g.5gb", f"MIG-{uuid(7)}/1/0", f"MIG-{uuid(7)}/1/0", False),
        # a plugin may rename its resources
        ("example.com/h100", uuid(0), uuid(0), False),
        (NVIDIA, "nvidia1", uuid(1), False),
        (NVIDIA, "nvidia5", uuid(4), False),
        (NVIDIA, "nvidia0/vgpu2", uuid(0), True),
        (NVIDIA, "nvidia2/gi7", uuid(21, "MIG"), False),
        (NVIDIA, "nvidia2/gi7/vgpu0", uuid(21, "MIG"), True),
    ],
)
def test_a_known_form_is_a_gpu(resource: str, device: str, found: str, is_part: bool) -> None:
    one = find_device(DeviceGrant(resource, device), GPUS, {})
    assert (one.uuid, one.is_part, one.why) == (found, is_part, "")


@check_rows(
    ("resource", "device", "why"),
    [
        (NVIDIA, "nvidia7", "/dev/nvidia7 is not visible to NVML here"),
        (NVIDIA, "nvidia2/gi9", "/dev/nvidia2, GPU instance 9, is 2 instances"),
        # HAMi: the card is chosen elsewhere
        (NVIDIA, f"{uuid(0)}-3", "is in a form that is not known"),
        (NVIDIA, "tegra", "is in a form that is not known"),
        (NVIDIA, f"{uuid(0)}::", "is in a form that is not known"),
        ("amd.com/gpu", "0000:1b:00.0", "amd.com/gpu 0000:1b:00.0 is in a form that is not known"),
        ("gpu.intel.com/i915", "card0-0", "gpu.intel.com/i915"),
        ("habana.ai/gaudi", "AC0", "habana.ai/gaudi"),
        ("google.com/tpu", "0", "google.com/tpu"),
        ("aws.amazon.com/neuroncore", "0", "aws.amazon.com/neuroncore"),
        ("amd.com/gpu", "x\n" * 1000, "amd.com/gpu x?x?"),
        # GPUs of plugins that share by memory: the id is made of a UUID
        ("volcano.sh/vgpu-number", f"{uuid(0)}-0", "volcano.sh/vgpu-number"),
        ("volcano.sh/vgpu-memory", "7", "volcano.sh/vgpu-memory 7"),
        ("aliyun.com/gpu-mem", f"{uuid(0)}-_-11", "aliyun.com/gpu-mem"),
        ("tencent.com/vcuda-core", "nvidia0-0", "tencent.com/vcuda-core"),
        ("cards.example.com/part", f"{uuid(0)}/half", "is in a form that is not known"),
        ("nvidia.com/GRID_A100-4C", "4711", "nvidia.com/GRID_A100-4C"),
    ],
)
def test_another_form_is_named_and_not_known(resource: str, device: str, why: str) -> None:
    one = find_device(DeviceGrant(resource, device), GPUS, {})
    assert one.uuid is None
    assert why in one.why
    assert len(one.why) < 200
    assert one.why.isprintable()


@check_rows(
    ("grant", "named"),
    [
        (DeviceGrant("accelerators.example.com/npu", "npu-3"), "accelerators.example.com/npu npu-3"),
        (DeviceGrant("example.com/h100", "0"), "example.com/h100 0"),
        (DeviceGrant("hami-core.example.io", "gpu-0", "node-a"), "gpu-0 of hami-core.example.io"),
        (DeviceGrant("x\n" * 1000, "y"), "x?x?"),
    ],
)
def test_what_nobody_has_heard_of_may_be_an_accelerator(grant: DeviceGrant, named: str) -> None:
    one = find_device(grant, GPUS, {})
    assert (one.uuid, one.is_doubtful) == (None, True)
    assert named in one.why
    assert "may be an accelerator" in one.why
    assert len(one.why) < 250
    assert one.why.isprintable()


@check_rows(
    "grant",
    [
        DeviceGrant("rdma/hca_shared", "mlx5_0"), DeviceGrant("nvidia.com/hostdev", "0000:3b:00.2"),
        DeviceGrant("vpc.amazonaws.com/efa", "efa0"),
        DeviceGrant("devices.kubevirt.io/kvm", "kvm1"), DeviceGrant("dranet", "eth1", "node-a"),
        DeviceGrant("compute-domain.nvidia.com", "channel-0", "node-a"), DeviceGrant("nvidia.com/mlnxnics", "0"),
        DeviceGrant("intel.com/sriov_netdevice", "0000:3b:00.2"), DeviceGrant("smarter-devices/fuse", "fuse0"),
        DeviceGrant("squat.ai/tun", "1"), DeviceGrant("openshift.io/mellanoxnics", "2"), DeviceGrant("sgx.intel.com/epc", "3"),
    ],
)  # fmt: skip
def test_what_is_no_accelerator_is_none(grant: DeviceGrant) -> None:
    assert find_device(grant, GPUS, {}) is None


def test_a_claimed_device_is_known_only_where_it_is_certain() -> None:
    def claimed(device: str, *cdi: str, driver: str = "gpu.nvidia.com", **slices: str) -> tuple[str | None, str]:
        grant = DeviceGrant(driver, device, "node-a", cdi)
        one = find_device(grant, GPUS, {("node-a", name.replace("_", "-")): of for name, of in slices.items()})
        return one.uuid, one.why

    assert claimed("gpu-1") == (uuid(1), "")
    # minor number and index name two cards
    assert claimed("gpu-4")[0] is None
    assert claimed("gpu-4", gpu_4=uuid(4)) == (uuid(4), "")
    assert claimed("gpu-4", f"nvidia.com/gpu={uuid(5)}") == (uuid(5), "")
    assert claimed("gpu-4", "k8s.gpu.nvidia.com/claim=0a-gpu-4")[0] is None
    unknown, why = claimed("gpu-2-mig-19-0-1")
    assert (unknown, "ResourceSlices" in why) == (None, True)
    assert claimed("gpu-2-mig-19-0-1", gpu_2_mig_19_0_1=uuid(21, "MIG")) == (uuid(21, "MIG"), "")
    assert claimed("gpu-0", driver="gpu.intel.com") == (None, "claims of gpu.intel.com are not known")


def test_parts_are_counted_by_physical_device() -> None:
    every = [f"{uuid(0)}::{n}" for n in range(4)] + [uuid(1)] + [f"nvidia2/gi7/vgpu{n}" for n in range(2)]
    assert count_parts([DeviceGrant(NVIDIA, one) for one in every]) == {uuid(0): 4, "nvidia2/gi7": 2}


def test_parts_of_several_resources_are_of_sizes_that_are_not_known() -> None:
    """As of plugins that share a card by memory: 10 GB are one part, 20 GB are one."""
    small = [DeviceGrant("nvidia.com/gpu-10gb", f"{uuid(0)}::{n}") for n in range(2)]
    large = [DeviceGrant("nvidia.com/gpu-20gb", f"{uuid(0)}::2")]
    assert count_parts([*small, *large]) == {}
    assert count_parts(small) == {uuid(0): 2}


# --- peaks of targets' GPUs: by NVML, by a configured name, together ---


def peak_gpu(uuid: str, name: str = "NVIDIA H100 80GB HBM3", bandwidth: float | None = 3.35232e12) -> GpuReading:
    return GpuReading(GpuIdentity(uuid, 0, name, memory_bandwidth_peak_bytes_per_second=bandwidth))


def target(gpu_model: str | None = None) -> Target:
    return Target("a", "http://a:8000", gpu_model=gpu_model)


def test_peaks_by_uuid_are_worked_out_once_and_forgotten_with_the_gpu(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.INFO):
        first = facts.find_peaks([peak_gpu("GPU-1"), peak_gpu("GPU-2", "Unheard of", None)])
        again = facts.find_peaks([peak_gpu("GPU-1")])
    assert first["GPU-1"].bandwidth_bytes_per_second == 3.35232e12
    assert (first["GPU-2"].bandwidth_bytes_per_second, first["GPU-2"].origin, first["GPU-2"].flops) == (None, "", {})
    assert again["GPU-1"] is first["GPU-1"]
    assert set(again) == {"GPU-1"}
    assert [record.getMessage() for record in caplog.records] == [
        "gpu=GPU-1 (NVIDIA H100 80GB HBM3): peak bandwidth 3352 GB/s by nvml, dense rates for fp32, bf16, fp8, int8",
        "gpu=GPU-2 (Unheard of): peak bandwidth unknown by nothing, dense rates for no precision",
    ]


def test_a_configured_name_wins_over_what_is_seen() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([peak_gpu("GPU-1")])
    found = facts.find_target_peaks(target("L40S"), ("GPU-1",), known)
    assert isinstance(found, GpuPeaks)
    assert (found.name, found.origin) == ("L40S", "catalogue")
    # of a remote target nothing is seen
    assert facts.find_target_peaks(target("L40S"), (), {}) is found


def test_a_name_that_a_discovered_target_has_and_the_catalogue_not(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.WARNING):
        assert facts.find_target_peaks(target("H1000"), (), {}) is Absence.PEAK_UNKNOWN
        assert facts.find_target_peaks(target("H1000"), (), {}) is Absence.PEAK_UNKNOWN
    (record,) = caplog.records
    assert record.getMessage().startswith("target=a: GPU 'H1000' is not in the catalogue; nearest: ")


def test_names_without_end_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    facts = GpuFacts()
    with caplog.at_level(logging.WARNING):
        for number in (*range(MOST_NAMES + 1), 0):
            assert facts.find_target_peaks(target(f"no {number}"), (), {}) is Absence.PEAK_UNKNOWN
    # the first was forgotten and is said again
    assert len(caplog.records) == MOST_NAMES + 2


def test_gpus_that_are_not_known() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([peak_gpu("GPU-1")])
    assert facts.find_target_peaks(target(), (), known) is Absence.GPUS_UNKNOWN
    assert facts.find_target_peaks(target(), ("GPU-9",), known) is Absence.GPUS_UNKNOWN
    # one of two is not the target's GPUs
    assert facts.find_target_peaks(target(), ("GPU-1", "GPU-9"), known) is Absence.GPUS_UNKNOWN


def test_gpus_that_differ_count_as_the_lowest() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([peak_gpu("GPU-1"), peak_gpu("GPU-2"), peak_gpu("GPU-3", "NVIDIA A100-SXM4-80GB", None)])
    alike = facts.find_target_peaks(target(), ("GPU-1", "GPU-2"), known)
    mixed = facts.find_target_peaks(target(), ("GPU-1", "GPU-3"), known)
    assert alike == known["GPU-1"]
    assert isinstance(mixed, GpuPeaks)
    assert mixed.name == "A100 SXM 80GB + H100 SXM 80GB (lowest of each)"
    assert mixed.bandwidth_bytes_per_second == 2.039e12


def test_a_servers_own_word_for_its_gpu_stands_where_none_is_seen() -> None:
    facts = GpuFacts()
    seen = facts.find_target_peaks(target(), (), {}, "NVIDIA H200")
    assert not isinstance(seen, Absence)
    # HBM3e of the H200: 4.8 TB/s (facts nvml-gpus A.11)
    assert seen.bandwidth_bytes_per_second == pytest.approx(4.8e12, rel=0.01)
    assert facts.find_target_peaks(target(), (), {}, "a card nobody knows") is Absence.GPUS_UNKNOWN
    assert facts.find_target_peaks(target("L40S"), (), {}, "NVIDIA H200") == facts.find_target_peaks(
        target("L40S"), (), {}
    )


def test_a_kind_of_gpu_has_one_spelling_whoever_names_it() -> None:
    facts = GpuFacts()
    known = facts.find_peaks(
        [peak_gpu("GPU-1"), peak_gpu("GPU-2", "NVIDIA L40S", None), peak_gpu("GPU-3", "NVIDIA Unheard of", None)]
    )
    seen, configured = (
        facts.name_target_gpus(target(), ("GPU-1",), known),
        facts.name_target_gpus(target("h100"), (), {}),
    )
    said = facts.name_target_gpus(target(), (), known, "NVIDIA-H100-80GB-HBM3")
    assert seen == configured == said == "H100 SXM 80GB"
    # the configuration is believed first, then NVML
    assert facts.name_target_gpus(target("L40S"), ("GPU-1",), known, "A100") == "L40S"
    assert facts.name_target_gpus(target(), ("GPU-2",), known, "A100") == "L40S"
    assert facts.name_target_gpus(target(), ("GPU-1", "GPU-2", "GPU-1"), known) == "H100 SXM 80GB + L40S"


def test_a_gpu_that_the_catalogue_does_not_know_is_called_as_its_source_calls_it() -> None:
    facts = GpuFacts()
    known = facts.find_peaks([peak_gpu("GPU-3", "NVIDIA Unheard of", None)])
    assert facts.name_target_gpus(target(), ("GPU-3",), known) == "NVIDIA Unheard of"
    assert facts.name_target_gpus(target("H1000"), (), {}) == "H1000"
    assert facts.name_target_gpus(target(), (), {}, "Gaudi 4") == "Gaudi 4"
    assert facts.name_target_gpus(target(), ("GPU-9",), known) == ""
