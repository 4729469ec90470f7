"""Who claims which GPU, and meters of targets that come and go."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.cost.meter import COST
from llm_serving_exporter.cost.meters import Costs, find_cards, find_claimed_twice, list_claims
from llm_serving_exporter.model.attempt import Attempt, Stage
from llm_serving_exporter.model.device import GpuReading, GpuReadings, MigInstance
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Target
from tests.support.builders.costmeter import BOOK, TARGET, WORKED, page, seconds, usd
from tests.unit.test_golden import GPU


def test_slices_claim_their_card() -> None:
    mig = MigInstance(1, 0, "1g.10gb", "GPU-1", 1, 8)
    identities = (replace(GPU.identity, uuid="GPU-1"), replace(GPU.identity, uuid="MIG-1", mig=mig))
    gpus = GpuReadings(
        Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, tuple(GpuReading(one) for one in identities)
    )
    assert find_cards(("MIG-1", "GPU-2"), gpus) == {"GPU-1", "GPU-2"}
    assert find_cards(("MIG-1",), None) == {"MIG-1"}


def test_who_claims_a_gpu_twice() -> None:
    claims = {"a": ["1", "2"], "b": ["2"], "c": ["3"], "d": ["4"], "e": ["4"], "f": ["5"], "g": ["5"]}
    shares = {"d": 0.5, "e": 0.5, "f": 0.8, "g": 0.4}
    targets = {name: replace(TARGET, name=name, gpu_share=shares.get(name)) for name in claims}
    assert find_claimed_twice(claims, targets) == {"a", "b", "f", "g"}


def test_targets_that_their_processes_show_on_the_same_gpu_have_no_cost_until_shares_are_stated() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))

    def found(target: Target) -> dict[str, Absence]:
        return dict(
            costs.advance_target(replace(ready, target=target), None, config, monotonic=5.0, unix=5.0).cost.signals
        )

    other = replace(TARGET, name="other")
    costs.begin_target(Target("t", "http://t:1"))
    costs.begin_target(Target("other", "http://other:1"))
    uuids = {"t": ("GPU-1", "GPU-2"), "other": ("GPU-2",)}
    costs.update_claims([TARGET, other], uuids)
    assert found(TARGET)[COST] == found(other)[COST] == Absence.GPU_CLAIMED_TWICE
    # one of the two has stopped, and the other's processes use the GPUs now
    costs.update_claims([TARGET, other], {"t": (), "other": ("GPU-2",)}, ["t", "gone"])
    assert (found(TARGET)[COST], found(other)[COST]) == (Absence.GPU_CLAIMED_TWICE, "")
    shared = [replace(TARGET, gpu_share=0.5), replace(other, gpu_share=0.5)]
    costs.update_claims(shared, uuids)
    assert found(shared[0])[COST] == found(shared[1])[COST] == ""


def test_a_tick_under_way_does_not_bring_a_removed_target_back() -> None:
    costs, config = Costs(), Config(targets=(), prices=BOOK)
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))

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
    ready = TargetReading(first, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))

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


def test_targets_come_and_go_while_ticks_are_under_way() -> None:
    costs, config, names = Costs(), Config(targets=(), prices=BOOK), [f"t{number}" for number in range(200)]
    ready = TargetReading(TARGET, target_gpus=TargetGpus(2, "H100"), **page(0, WORKED))
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
        for number in range(5000):
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
    assert list_claims(configured, ()) == {"a 0", "GPU-12345678"}
    assert list_claims(configured, ("GPU-1",)) == {"GPU-1"}
    assert list_claims(TARGET, ()) == set()
