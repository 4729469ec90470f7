"""Pods and their GPUs where the kubelet, its plugins or the driver misbehave: real gRPC, real NVML calls over the stub."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.kubelet import ALLOCATABLE_EVERY_SECONDS, KUBELET_KEPT_SECONDS
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import is_relabelled
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.gpu_node import CARDS, Exporter, Node, connect_to, pod
from tests.support.servers.kubelet import GPU, StubKubelet

COUNT = "target_gpus"
FIRST = "serving/vllm-0:8000"


def give_one_each(node: Node) -> Exporter:
    for number in range(CARDS):
        node.kubelet.give("serving", f"vllm-{number}", "vllm", GPU, [node.state.uuid(number)])
    exporter = node.start(*(pod(f"vllm-{number}") for number in range(CARDS)))
    exporter.tick()
    return exporter


def owners(page: Scraped) -> dict[str, list[str]]:
    """Targets by GPU."""
    found: dict[str, list[str]] = {}
    for labels in page.series("gpu_target_info"):
        named = dict(labels)
        found.setdefault(named["gpu"], []).append(named["target"])
    return found


# --- a kubelet that starts again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_answer", ["nothing", "its own files only", "pods without devices"])
def test_what_a_kubelet_does_not_say_while_it_starts_is_not_lost(node: Node, first_answer: str) -> None:
    """Its first answers list no pod, or those of its own files, or pods whose devices it has yet to load; the socket is a new one."""
    exporter = give_one_each(node)
    given = dict(node.kubelet.devices)
    node.kubelet.__exit__(None, None, None)
    node.kubelet.path.unlink(missing_ok=True)
    node.kubelet.devices = {}
    if first_answer == "its own files only":
        node.kubelet.give("kube-system", "etcd-node-a", "etcd")
    elif first_answer == "pods without devices":
        node.kubelet.devices = {key: {} for key in given}
    node.kubelet.says_nothing_there = True
    node.kubelet.__enter__()
    before = exporter.page().total("gpu_seconds_total")
    for _ in range(3):
        found = exporter.tick()
        assert found.value("kubelet_up") == 1
        assert found.total(COUNT) == len(owners(found)) == CARDS
    assert found.total("gpu_seconds_total") - before == pytest.approx(3 * 10 * CARDS)
    node.kubelet.devices, node.kubelet.says_nothing_there = given, False
    assert exporter.tick().total(COUNT) == CARDS


def test_what_a_kubelet_says_no_more_is_not_believed_for_ever(node: Node) -> None:
    exporter = give_one_each(node)
    node.kubelet.devices = {}
    assert exporter.tick().total(COUNT) == CARDS
    exporter.tick(KUBELET_KEPT_SECONDS - 30)
    found = exporter.tick(30)
    assert owners(found) == {}
    assert "lists no running pod" in exporter.origin(FIRST)


def test_a_device_that_another_pod_has_now_is_not_the_one_befores(node: Node) -> None:
    """The pod that had it is still in the cluster's list, as one that is evicted is for a while."""
    exporter = give_one_each(node)
    node.kubelet.take("serving", "vllm-0")
    node.kubelet.give("other", "job", "main", GPU, [node.state.uuid(0)])
    found = exporter.tick()
    assert node.state.uuid(0) not in owners(found)
    assert len(owners(found)) == CARDS - 1


def test_the_next_pod_of_a_name_does_not_inherit(node: Node) -> None:
    """A StatefulSet's: another UID under the same name, whose devices the kubelet has yet to list."""
    exporter = give_one_each(node)
    node.kubelet.take("serving", "vllm-0")
    old = exporter.host.targets[FIRST].target
    new = replace(old, identity=replace(old.identity, pod_uid="ffffffff-0000-4000-8000-000000000000"))
    exporter.host.remove_target(FIRST)
    exporter.store.remove_target(FIRST)
    exporter.store.add_target(new)
    exporter.host.add_target(new, connect=partial(connect_to, node.server.url))
    exporter.host.settle_targets()
    found = exporter.tick()
    assert node.state.uuid(0) not in owners(found)
    assert "lists no running pod" in exporter.origin(FIRST)


def test_a_pod_that_has_ended_has_nothing_though_it_was_remembered(node: Node) -> None:
    exporter = give_one_each(node)
    node.kubelet.take("serving", "vllm-0")
    exporter.host.gpus.set_pods(finished=[("serving", "vllm-0")])
    assert node.state.uuid(0) not in owners(exporter.tick())


def test_parts_of_a_card_hold_through_a_start_that_lists_nothing(node: Node) -> None:
    card = node.state.uuid(0)
    node.kubelet.there[GPU] = [f"{card}::{part}" for part in range(4)]
    for part in range(4):
        node.kubelet.give("serving", f"p{part}", "vllm", GPU, [f"{card}::{part}"])
    exporter = node.start(*(pod(f"p{part}") for part in range(4)))
    exporter.tick()
    given, node.kubelet.devices, node.kubelet.says_nothing_there = node.kubelet.devices, {}, True
    assert exporter.tick(ALLOCATABLE_EVERY_SECONDS).total(COUNT) == 1
    node.kubelet.devices = given
    assert exporter.tick(ALLOCATABLE_EVERY_SECONDS).total(COUNT) == 1
    # one of four goes: its quarter is nobody's, the others keep theirs
    node.kubelet.says_nothing_there = False
    node.kubelet.take("serving", "p3")
    exporter.host.remove_target("serving/p3:8000")
    exporter.store.remove_target("serving/p3:8000")
    found = exporter.tick(ALLOCATABLE_EVERY_SECONDS)
    assert sorted(found.series(COUNT).values()) == [0.25] * 3
    assert not found.series("signal_available", signal="gpu_seconds_total", reason="gpu_claimed_twice")


def test_a_workers_gpus_hold_through_it_too(node: Node) -> None:
    uid = "11111111-0000-4000-8000-000000000001"
    node.kubelet.give("serving", "lws-0-1", "vllm", GPU, [node.state.uuid(1)])
    exporter = node.start()
    exporter.host.gpus.set_pods(workers=[Worker("serving", "lws-0-1", "serving/lws-0:8000", "m", "unified", uid)])
    assert exporter.tick().value("gpu_target_info", target="serving/lws-0:8000", gpu=node.state.uuid(1)) == 1
    node.kubelet.devices = {}
    assert exporter.tick().value("gpu_target_info", target="serving/lws-0:8000", gpu=node.state.uuid(1)) == 1


# --- a kubelet that is slow, or has a lot to say --------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_slow_kubelet_holds_up_neither_gpus_nor_targets(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = give_one_each(node)
    answered = threading.Event()
    original = StubKubelet._list

    def late(self: StubKubelet, request: bytes, context: object) -> bytes:
        answered.wait(20)
        return original(self, request, context)

    monkeypatch.setattr(StubKubelet, "_list", late)
    node.kubelet.__exit__(None, None, None)
    node.kubelet.__enter__()
    asking = threading.Thread(target=exporter.host.gpus.read_kubelet)
    asking.start()
    try:
        started = time.monotonic()
        readings = exporter.host.read_gpus()
        assert readings.attempt.ok
        assert asking.is_alive()
        assert time.monotonic() - started < 2.5
        asking.join(10)
        assert not asking.is_alive(), "it is given up at its deadline"
    finally:
        answered.set()
        asking.join(30)
    assert exporter.tick().value("kubelet_up") == 1


def test_two_thousand_pods_are_one_answer(node: Node) -> None:
    """On a node with eight cards; with seven plugins' devices and sidecars, about 1 MB."""
    for number in range(2000):
        for container in ("app", "istio-proxy", "logs"):
            node.kubelet.give("crowd", f"pod-{number}", container)
        node.kubelet.give("crowd", f"pod-{number}", "app", "rdma/hca", [f"mlx5_{n}" for n in range(8)])
    exporter = give_one_each(node)
    started = time.process_time()
    found = exporter.tick()
    # includes what the stub spends to make it; a bound against work that grows with the square
    assert time.process_time() - started < 5.0
    assert found.total(COUNT) == CARDS


def test_forty_starts_of_a_kubelet_leave_nothing_behind(tmp_path: Path, make_node: Callable[..., Node]) -> None:
    node = make_node()
    exporter = give_one_each(node)
    before = None
    for turn in range(40):
        node.kubelet.__exit__(None, None, None)
        exporter.host.gpus.read_kubelet()
        node.kubelet.__enter__()
        exporter.host.gpus.read_kubelet()
        if turn == 5:
            before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before[0] + 8
    assert threading.active_count() <= before[1] + 4
    assert exporter.tick().total(COUNT) == CARDS


# --- what the devices mean --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("volcano.sh/vgpu-number", "{uuid}-0"),
        ("nvidia.com/gpu", "{uuid}-3"),
        ("aliyun.com/gpu-mem", "{uuid}-_-7"),
        ("habana.ai/gaudi", "accel0"),
        ("google.com/tpu", "0"),
        ("accelerators.example.com/npu", "npu-3"),
    ],
)
def test_devices_that_are_not_known_are_named_and_claim_nothing(node: Node, resource: str, device: str) -> None:
    node.kubelet.give("serving", "other", "vllm", resource, [device.format(uuid=node.state.uuid(0))])
    exporter = node.start(pod("other"))
    found = exporter.tick()
    assert owners(found) == {}
    assert not found.series(COUNT)
    why = exporter.origin("serving/other:8000")
    assert resource in why
    assert "no GPU" not in why


def test_a_network_card_of_no_known_kind_does_not_hide_the_gpu_beside_it(node: Node) -> None:
    node.kubelet.give("serving", "p", "vllm", GPU, [node.state.uuid(0)])
    node.kubelet.give("serving", "p", "vllm", "fabric.example.com/nic-of-no-known-kind", ["x0"])
    assert owners(node.start(pod("p")).tick()) == {node.state.uuid(0): ["serving/p:8000"]}


def test_a_head_with_a_device_of_no_known_kind_may_have_gpus_of_its_own(node: Node) -> None:
    node.kubelet.give("serving", "head", "ray-head", "accelerators.example.com/npu", ["npu-0"])
    node.kubelet.give("serving", "w", "ray-worker", GPU, [node.state.uuid(1)])
    head = pod("head", "ray-head")
    exporter = node.start(head)
    exporter.host.gpus.set_pods(workers=[Worker("serving", "w", head.name)])
    assert not exporter.tick().series(COUNT)


def test_two_containers_with_one_claim_have_it_together(node: Node) -> None:
    """A ResourceClaim that both containers of a pod name: none is charged for all of it."""
    for container in ("prefill", "decode"):
        node.kubelet.claim(
            "serving", "p", container, "gpu.nvidia.com", "node-a", "gpu-0", [f"nvidia.com/gpu={node.state.uuid(0)}"]
        )
    targets = [pod("p", "prefill", port=1), pod("p", "decode", port=2)]
    found = node.start(*targets).tick()
    assert owners(found) == {node.state.uuid(0): ["serving/p:1", "serving/p:2"]}
    assert not found.series("gpu_seconds_total")
    halves = node.start(*(replace(target, gpu_share=0.5) for target in targets))
    halves.tick()
    assert halves.tick().total("gpu_seconds_total") == pytest.approx(10.0)


def test_instances_that_are_cut_anew_while_engines_run(node: Node) -> None:
    """The kubelet names instances that are gone until its plugin has listed the new ones: nothing of them is counted."""
    old = [node.state.mig(0, slot, "1g.10gb", 9856, gi=slot + 1) for slot in range(7)]
    node.kubelet.give("serving", "p", "vllm", "nvidia.com/mig-1g.10gb", [old[0]])
    exporter = node.start(pod("p"))
    exporter.tick()
    assert exporter.tick().value(COUNT) == pytest.approx(1 / 7)
    for slot in range(7):
        node.state.set(f"gpu0/mig{slot}", uuid=f"MIG-99999999-0000-4000-8000-{slot:012d}")
    during = exporter.tick()
    assert not during.series("gpu_memory_used_bytes", gpu=old[0])
    assert list(owners(during)) == [old[0]], "the kubelet's word"
    # what part of a card it was is not known any more: nothing is charged by a guess
    seconds = during.total("gpu_seconds_total")
    assert exporter.tick().total("gpu_seconds_total") - seconds <= 10 / 7 + 1e-9
    node.kubelet.take("serving", "p")
    node.kubelet.give("serving", "p", "vllm", "nvidia.com/mig-1g.10gb", ["MIG-99999999-0000-4000-8000-000000000003"])
    exporter.tick()
    after = exporter.tick()
    assert list(owners(after)) == ["MIG-99999999-0000-4000-8000-000000000003"]
    assert after.value(COUNT) == pytest.approx(1 / 7)


def test_a_claim_by_number_follows_the_cards_that_are_numbered_anew(node: Node) -> None:
    """As after a reset on GKE: /dev/nvidia0 is another card."""
    node.kubelet.give("serving", "p", "vllm", GPU, ["nvidia0"])
    exporter = node.start(pod("p"))
    assert list(owners(exporter.tick())) == [node.state.uuid(0)]
    node.state.set("gpu0", uuid=node.state.uuid(1))
    node.state.set("gpu1", uuid=node.state.uuid(0))
    node.state.reload_driver()
    exporter.tick()
    assert list(owners(exporter.tick())) == [node.state.uuid(1)]


def test_a_pod_with_gpus_whose_engine_does_not_use_them_has_them_all_the_same(node: Node) -> None:
    """They are nobody else's: its cost is theirs."""
    exporter = give_one_each(node)
    for card in range(CARDS):
        node.state.processes(f"gpu{card}")
    assert exporter.tick().total(COUNT) == CARDS


def test_workers_that_are_heard_of_later_do_not_make_another_server_of_their_leader(node: Node) -> None:
    """What its exporter has counted goes on."""
    node.kubelet.give("serving", "lws-0", "vllm", GPU, [node.state.uuid(card) for card in range(CARDS)])
    early = pod("lws-0", lacks_pods=True)
    later = replace(early, lacks_pods=False, gpu_count=16, nodes=("node-a", "node-b"))
    assert is_relabelled(early, later)
    exporter = node.start(early)
    exporter.tick()
    assert not exporter.tick().series(COUNT)
    exporter.host.targets[early.name].relabel(later)
    exporter.store.relabel_target(later)
    found = exporter.tick()
    assert (found.total(COUNT), found.value("scrape_attempts_total", target=early.name)) == (16, 3)


def test_a_head_whose_workers_are_not_known_is_counted_by_its_parallel_sizes(node: Node) -> None:
    """KServe's multi-node InferenceService: nothing on its pods says how many there are."""
    node.kubelet.give("serving", "head", "kserve-container", GPU, [node.state.uuid(card) for card in range(CARDS)])
    target = pod("head", "kserve-container", gpu_count=8, tensor_parallel_size=8, pipeline_parallel_size=2)
    exporter = node.start(target)
    exporter.tick()
    found = exporter.tick()
    assert found.total(COUNT) == 16
    assert found.total("gpu_seconds_total") == pytest.approx(160.0)
