"""How much of a shared GPU is whose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.gpus.ownership import Assignment, divide_gpus, share_cards
from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, MigInstance
from llm_serving_exporter.model.hardware import GpuPart, ShareSource
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Role, Target
from tests.support.rows import check_rows

A, B, C = (Target(name, f"http://localhost:{port}") for name, port in (("a", 8000), ("b", 8001), ("c", 8002)))
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


BOTH = {A: has("GPU-1"), B: has("GPU-1")}
NOT_KNOWN = {name: {"GPU-1": of_memory(None)} for name in "ab"}
HALF, SOME = GpuPart(0.5, KUBELET), GpuPart(None, KUBELET)


@check_rows(
    ("targets", "cards", "expected"),
    [
        (BOTH, [card("GPU-1", p10=20, p11=10, p20=10)], {"a": {"GPU-1": of_memory(0.75)}, "b": {"GPU-1": of_memory(0.25)}}),
        # each has another card too, which is its own
        ({A: has("GPU-1", "GPU-2"), B: has("GPU-1")}, [card("GPU-1", p10=1, p20=1), card("GPU-2", p11=9)],
         {"a": {"GPU-1": of_memory(0.5)}, "b": {"GPU-1": of_memory(0.5)}}),
        (BOTH, [card("GPU-1", p10=3, p20=1, p99=4)], {"a": {"GPU-1": of_memory(0.75, 0.5)}, "b": {"GPU-1": of_memory(0.25, 0.5)}}),
        # one alone has all of it, whoever else is there
        ({A: has("GPU-1")}, [card("GPU-1", p10=3, p99=4)], {"a": {}}),
        # not known: memory, processes of one, whose they are
        (BOTH, [card("GPU-1", p10=3, p20=None)], NOT_KNOWN),
        (BOTH, [card("GPU-1", p10=3, p20=1, p99=None)], NOT_KNOWN),
        (BOTH, [card("GPU-1", p10=3)], NOT_KNOWN),
        (BOTH, [replace(card("GPU-1"), processes=None)], NOT_KNOWN),
        (BOTH, [], NOT_KNOWN),
        ({A: has("GPU-1"), replace(B, name="twin"): has("GPU-1")}, [card("GPU-1", p10=3)],
         {"a": {"GPU-1": of_memory(None)}, "twin": {"GPU-1": of_memory(None)}}),
        # a front end has none
        ({A: has("GPU-1"), replace(B, role=Role.FRONTEND): has("GPU-1")}, [card("GPU-1", p10=3)], {"a": {}, "b": {}}),
        # what is stated comes first
        ({replace(A, gpu_share=0.4): has("GPU-1"), B: has("GPU-1"), C: has("GPU-1")}, [card("GPU-1", p10=8, p20=1, p30=2)],
         {"a": {"GPU-1": (0.4, CONFIGURED, 0.0)}, "b": {"GPU-1": of_memory(pytest.approx(0.2))},
          "c": {"GPU-1": of_memory(pytest.approx(0.4))}}),
        ({replace(A, gpu_share=1.0): has("GPU-1"), B: has("GPU-1")}, [card("GPU-1", p10=8, p20=1)],
         {"a": {"GPU-1": (1.0, CONFIGURED, 0.0)}, "b": {"GPU-1": of_memory(None)}}),
        ({replace(A, gpu_share=0.4): has("GPU-1")}, [card("GPU-1", p10=8)], {"a": {"GPU-1": (0.4, CONFIGURED, 0.0)}}),
        # and what the kubelet gave; a number of parts that it does not say may be told by memory
        ({A: has("GPU-1", GPU_1=HALF), B: has("GPU-1", GPU_1=HALF)}, [card("GPU-1", p10=9, p20=1)],
         {name: {"GPU-1": (0.5, KUBELET, 0.0)} for name in "ab"}),
        ({A: has("GPU-1", GPU_1=SOME), B: has("GPU-1", GPU_1=SOME)}, [card("GPU-1", p10=9, p20=1)],
         {"a": {"GPU-1": of_memory(0.9)}, "b": {"GPU-1": of_memory(0.1)}}),
        ({A: has("GPU-1", GPU_1=SOME)}, [card("GPU-1", p10=9)], {"a": {"GPU-1": (None, KUBELET, 0.0)}}),
        # two engines in one instance; what is stated is of the card, and an only target has all of its instance
        ({A: has("MIG-1"), B: has("MIG-1")}, [card("MIG-1", p10=1, p20=3)],
         {"a": {"MIG-1": of_memory(0.25)}, "b": {"MIG-1": of_memory(0.75)}}),
        ({replace(A, gpu_share=0.1): has("MIG-1")}, [card("MIG-1", p10=1)], {"a": {}}),
        ({replace(A, gpu_share=0.1): has("MIG-1"), B: has("MIG-1")}, [card("MIG-1", p10=1, p20=1)],
         {"a": {"MIG-1": (None, CONFIGURED, 0.0)}, "b": {"MIG-1": of_memory(None)}}),
    ],
)  # fmt: skip
def test_one_pass(targets: Mapping[Target, Assignment], cards: list[GpuReading], expected: object) -> None:
    assert parts(divide(targets, *cards)) == expected


def test_parts_of_an_instance_are_parts_of_its_part_of_the_card() -> None:
    reading = card("MIG-1", p10=1, p20=3)
    found = divide({A: has("MIG-1"), B: has("MIG-1")}, reading)
    assert share_cards(found["a"], [reading.identity]) == {"MIG-1": pytest.approx(1 / 28)}


def test_the_memory_of_a_targets_own_processes_is_told_with_its_part() -> None:
    found = divide({A: has("GPU-1"), B: has("GPU-1")}, card("GPU-1", p10=20, p11=10, p20=10))
    assert [found[name].parts["GPU-1"].memory_bytes for name in "ab"] == [30, 10]


def test_parts_hold_while_one_of_the_same_targets_has_no_process() -> None:
    both = {A: has("GPU-1"), B: has("GPU-1")}
    before = divide(both, card("GPU-1", p10=3, p20=1, p99=4))
    held = divide(both, card("GPU-1", p10=9), before=before)
    assert parts(held) == parts(before)
    assert [held[name].parts["GPU-1"].memory_bytes for name in "ab"] == [9, None]
    # the driver is away
    assert parts(divide(both, before=held)) == parts(before)
    # a remembered assignment says nothing of its own accord
    assert parts(divide({A: held["a"]}, card("GPU-1", p10=9), before=held)) == {"a": {}}
    three = {**both, C: has("GPU-1")}
    assert set(parts(divide(three, card("GPU-1", p10=9, p30=1), before=held))["b"].values()) == {of_memory(None)}


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 1 << 40), min_size=2), st.integers(0, 1 << 40), st.booleans()
)
def test_the_parts_of_a_gpu_add_up_to_all_of_it(held: dict[str, int], foreign: int, stated: bool) -> None:
    targets = {one.name: one for one in (A, B, C)}
    if stated:
        targets["c"] = replace(C, gpu_share=0.3)
    pids = {name: min(PIDS[name]) for name in held}
    processes = {f"p{pids[name]}": memory for name, memory in held.items()} | ({"p99": foreign} if foreign else {})
    found = divide({targets[name]: has("GPU-1") for name in held}, card("GPU-1", **processes))
    assert sum(one.parts["GPU-1"].share or 0.0 for one in found.values()) == pytest.approx(1.0, abs=1e-12)
    by_memory = [part for one in found.values() if (part := one.parts["GPU-1"]).source is MEMORY]
    assert {part.foreign for part in by_memory} == {foreign / (foreign + sum(held.values()))}
