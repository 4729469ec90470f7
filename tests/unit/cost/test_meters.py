"""Who claims which GPU, and meters of targets that come and go."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from llm_serving_exporter.cost.meters import Costs, find_claimed_twice, list_claims
from llm_serving_exporter.cost.terms import COST
from llm_serving_exporter.gpus.ownership import YIELDED, Assignment
from llm_serving_exporter.model.gpu import GpuReading, GpuReadings, MigInstance
from llm_serving_exporter.model.hardware import GpuPart, ShareSource, TargetGpus
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, Role, Target
from llm_serving_exporter.settings.config import Config
from tests.support.builders.costmeter import BOOK, TARGET, WORKED, page, seconds, usd
from tests.support.builders.golden_pages import GPU
from tests.support.builders.target_readings import make_reading
from tests.support.quick import keep_quick


def readings(*uuids: str, parent: str = "GPU-1") -> GpuReadings:
    """Cards, and instances of `parent` with 1 of its 7 compute slices."""
    identities = [
        replace(
            GPU.identity, uuid=uuid, mig=MigInstance(1, 0, "1g.10gb", parent, 1, 8) if uuid.startswith("MIG") else None
        )
        for uuid in uuids
    ]
    attempt = Attempt(Stage.GPU, None, "", 0.0, 0.0)
    return GpuReadings(attempt, "nvml", 0.0, tuple(GpuReading(one) for one in identities))


def by_processes(*uuids: str, **more: Any) -> Assignment:
    return Assignment(uuids, "process", **more)


def test_slices_claim_their_part_of_the_card() -> None:
    seen = [gpu.identity for gpu in readings("GPU-1", "MIG-1", "MIG-2").gpus]
    assert list_claims(TARGET, by_processes("MIG-1", "MIG-2", "GPU-2"), seen) == {
        "GPU-1": pytest.approx(2 / 7),
        "GPU-2": 1.0,
    }
    # an instance whose card is not seen may be any part of it
    assert list_claims(TARGET, by_processes("MIG-3"), seen) == {"MIG-3": None}
    assert list_claims(replace(TARGET, gpu_share=0.5), by_processes("MIG-1"), seen) == {"GPU-1": 0.5}
    assert list_claims(TARGET, by_processes("GPU-1", parts={"GPU-1": GpuPart(0.25, ShareSource.KUBELET)}), seen) == {
        "GPU-1": 0.25
    }
    configured = replace(TARGET, gpus=("GPU-9", 2), nodes=("n",))
    assert list_claims(configured, None, seen) == {"GPU-9": 1.0, "n 2": 1.0}


def test_who_claims_a_gpu_twice() -> None:
    claims = {
        "a": {"1": 1.0, "2": 1.0}, "b": {"2": 1.0}, "c": {"3": 1.0}, "d": {"4": 0.5}, "e": {"4": 0.5}, "f": {"5": 0.8}, "g": {"5": 0.4},
        # parts of one card
        "h": {"6": 3 / 7}, "i": {"6": 4 / 7}, "j": {"7": None}, "k": {"7": 0.1}, "l": {"8": None},
    }  # fmt: skip
    assert find_claimed_twice(claims) == {"a", "b", "f", "g", "j", "k"}


def test_a_front_end_claims_no_gpu() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = make_reading(TARGET, total=TargetGpus(2, "H100"), **page(0, WORKED))
    costs.begin_target(TARGET)
    front = replace(TARGET, name="front", role=Role.FRONTEND)
    costs.update_claims([TARGET, front], {"t": by_processes("GPU-1"), "front": by_processes("GPU-1")}, None)
    found = costs.advance_target(ready, None, config, monotonic=5.0, unix=5.0).cost
    assert found is not None
    assert found.signals[COST] is Absence.AVAILABLE


def test_targets_that_their_processes_show_on_the_same_gpu_have_no_cost_until_shares_are_stated() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = make_reading(TARGET, total=TargetGpus(2, "H100"), **page(0, WORKED))

    def found(target: Target) -> dict[str, Absence]:
        return dict(
            costs.advance_target(replace(ready, target=target), None, config, monotonic=5.0, unix=5.0).cost.signals
        )

    other = replace(TARGET, name="other")
    costs.begin_target(Target("t", "http://t:1"))
    costs.begin_target(Target("other", "http://other:1"))
    found_by = {"t": by_processes("GPU-1", "GPU-2"), "other": by_processes("GPU-2")}
    costs.update_claims([TARGET, other], found_by, None)
    assert found(TARGET)[COST] == found(other)[COST] == Absence.GPU_CLAIMED_TWICE
    # one of the two has stopped, and the other's processes use the GPUs now
    yielded = Assignment((), "", YIELDED)
    costs.update_claims([TARGET, other], {"t": yielded, "gone": yielded, "other": by_processes("GPU-2")}, None)
    assert (found(TARGET)[COST], found(other)[COST]) == (Absence.GPU_CLAIMED_TWICE, "")
    shared = [replace(TARGET, gpu_share=0.5), replace(other, gpu_share=0.5)]
    costs.update_claims(shared, found_by, None)
    assert found(shared[0])[COST] == found(shared[1])[COST] == ""


def test_a_tick_under_way_does_not_bring_a_removed_target_back() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = make_reading(TARGET, total=TargetGpus(2, "H100"), **page(0, WORKED))

    def after(monotonic: float) -> TargetReading:
        return costs.advance_target(ready, None, config, monotonic=monotonic, unix=monotonic)

    assert after(0.0) is ready
    costs.begin_target(Target("t", "http://t:1"))
    after(5.0)
    assert usd(after(10.0).cost) == {"prefill": 2.5, "decode": 7.5}
    costs.drop_others(["other"])
    assert after(15.0) is ready
    # an hour later it is there again, under another configuration: the hour was nobody's
    costs.begin_target(Target("t", "http://t:1"))
    assert seconds(after(3600.0).cost) == {}
    # and two ticks that overtook one another count no second twice
    assert seconds(after(3598.0).cost) == {}
    assert seconds(after(3605.0).cost) == {"busy": 10.0}


def test_another_pod_of_the_same_name_starts_from_0_and_owes_nothing() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    first, second = (replace(TARGET, identity=Identity("prod", "chat-0", uid)) for uid in ("uid-1", "uid-2"))
    ready = make_reading(first, total=TargetGpus(2, "H100"), **page(0, WORKED))

    def after(target: Target, monotonic: float) -> TargetReading:
        return costs.advance_target(replace(ready, target=target), None, config, monotonic=monotonic, unix=monotonic)

    costs.begin_target(first)
    after(first, 0.0)
    assert seconds(after(first, 5.0).cost) == {"busy": 10.0}
    costs.begin_target(replace(first, identity=replace(first.identity, labels=(("team", "a"),))))
    assert seconds(after(first, 10.0).cost) == {"busy": 20.0}
    costs.begin_target(second)
    assert after(first, 12.0).cost is None  # a tick that was under way
    assert seconds(after(second, 15.0).cost) == {}
    assert seconds(after(second, 20.0).cost) == {"busy": 10.0}


@pytest.mark.parametrize("rounds", keep_quick([1000, 5000], lambda rounds: rounds == 1000))
def test_targets_come_and_go_while_ticks_are_under_way(rounds: int) -> None:
    costs, config, names = Costs(), Config(targets=(), prices=BOOK), [f"t{number}" for number in range(200)]
    ready = make_reading(TARGET, total=TargetGpus(2, "H100"), **page(0, WORKED))
    faults: list[BaseException] = []
    done = threading.Event()

    def tick() -> None:
        try:
            while not done.is_set():
                for name in names:
                    costs.advance_target(
                        replace(ready, target=replace(TARGET, name=name)), None, config, monotonic=1.0, unix=1.0
                    )
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=tick) for _ in range(2)]
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(rounds):
            costs.begin_target(Target(names[number % 200], "http://x:1"))
            costs.drop_others(names[number % 100 :])
    finally:
        done.set()
        sys.setswitchinterval(switched)
        for thread in threads:
            thread.join(10)
    assert faults == []


def test_what_a_target_claims() -> None:
    configured = replace(TARGET, gpus=(0, "GPU-12345678"))
    assert list_claims(configured, Assignment((), "configured"), ()) == {"a 0": 1.0, "GPU-12345678": 1.0}
    assert list_claims(configured, by_processes("GPU-1"), ()) == {"GPU-1": 1.0}
    assert list_claims(TARGET, None, ()) == {}
