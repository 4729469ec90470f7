"""Which GPUs belong to which target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.gpus.ownership import YIELDED, Assignment, Evidence, share_cards
from llm_serving_exporter.gpus.ownership import assign_gpus as assign_after
from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, MigInstance
from llm_serving_exporter.model.hardware import GpuPart, ShareSource
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Target


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


def test_configured_gpus_win() -> None:
    target = Target("a", "http://far:8000", gpus=("GPU-1", 2))
    found = assign((target,), (gpu(0), gpu(1), gpu(2)), {})["a"]
    assert (found.uuids, found.origin, found.why) == (("GPU-1", "GPU-2"), "configured", "")


def test_a_configured_gpu_that_is_not_there_is_said() -> None:
    found = assign((Target("a", "http://far:8000", gpus=(0, 7)),), (gpu(0),), {})["a"]
    assert found.uuids == ("GPU-0",)
    assert found.why == "1 of the 2 configured GPUs are not visible here"


def test_the_process_list_names_the_engine() -> None:
    found = assign((A, B), (gpu(0, 10), gpu(1, 11), gpu(2, 20)), {"a": frozenset({10, 11}), "b": frozenset({20})})
    assert (found["a"].uuids, found["a"].origin) == (("GPU-0", "GPU-1"), "process")
    assert found["b"].uuids == ("GPU-2",)


def test_a_single_local_target_has_all() -> None:
    found = assign((A,), (gpu(0), gpu(1)), {"a": frozenset()})["a"]
    assert (found.uuids, found.origin) == (("GPU-0", "GPU-1"), "only_target")


def test_two_targets_without_processes_have_none_and_say_why() -> None:
    for found in assign((A, B), (gpu(0), gpu(1)), {"a": frozenset({1}), "b": frozenset()}).values():
        assert found.uuids == ()
        assert "set gpus" in found.why


def test_a_remote_target_has_none() -> None:
    found = assign((Target("a", "http://far:8000"),), (gpu(0),), {})["a"]
    assert (found.uuids, found.why) == ((), "the target's URL does not name this host: set gpus or gpu_count")


def test_a_parent_with_visible_instances_is_not_a_gpu_of_its_own() -> None:
    found = assign((A,), (gpu(0), gpu(5, mig_of="GPU-0")), {"a": frozenset()})["a"]
    assert found.uuids == ("MIG-5",)


def test_no_gpu_at_all() -> None:
    assert assign((A,), (), {"a": frozenset()})["a"].why == "no GPU is visible here"


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


def test_all_gpus_are_the_only_targets_where_every_process_is_seen_and_none_is_foreign() -> None:
    gpus, own = (gpu(0), gpu(1)), {"a": frozenset({10})}
    assert assign((A,), gpus, own)["a"].origin == "only_target"
    blind = assign((A,), gpus, own, blind="the exporter is blind: set gpus")["a"]
    assert (blind.uuids, blind.why) == ((), "the exporter is blind: set gpus")
    # somebody is there whose processes are not the engine's
    foreign = assign((A,), (gpu(0), gpu(1, 99)), own)["a"]
    assert foreign.uuids == ()
    assert "use 1 of the 2 GPUs here" in foreign.why
    # what cannot be told to be the engine's is foreign too
    assert assign((A,), (gpu(0, 10),), {"a": frozenset()})["a"].uuids == ()


def test_the_environment_counts_after_processes_and_stays_while_the_engine_is_away() -> None:
    gpus, own = (gpu(0, 10), gpu(1)), {"a": frozenset({10}), "b": frozenset({20})}
    stated = {"a": ("GPU-1",), "b": ("GPU-1",)}
    found = assign((A, B), gpus, own, environment=stated)
    assert (found["a"].uuids, found["a"].origin) == (("GPU-0",), "process")
    assert (found["b"].uuids, found["b"].origin) == (("GPU-1",), "environment")
    away = assign((A, B), (gpu(0), gpu(1)), {"a": frozenset(), "b": frozenset()}, found)
    assert away == found


def test_why_a_pods_gpus_are_not_known_is_the_kubelets_word_first() -> None:
    pod = replace(Target("p", "http://10.0.0.1:8000"), identity=Identity(namespace="n", pod="p"))
    assert assign((pod,), (gpu(0),), {}, kubelet_why="no kubelet")["p"].why == "no kubelet"
    # a sidecar's target is on this host: what it lacks is both
    why = assign((pod,), (gpu(0),), {"p": frozenset()}, kubelet_why="no kubelet", blind="blind")["p"].why
    assert why == "no kubelet; blind"


def test_a_part_of_an_evenly_partitioned_card_is_that_part_of_it() -> None:
    """AMD's CPX: two of eight parts are a quarter of a card."""
    parts = [GpuIdentity(f"card-{number}", number, "MI300X", partitions=8) for number in range(8)]
    found = share_cards(Assignment(("card-0", "card-1"), "configured"), parts)
    assert found == {"card-0": 1 / 8, "card-1": 1 / 8}
    assert share_cards(Assignment(("card-0",), "configured"), [replace(parts[0], partitions=1)]) == {"card-0": 1.0}
