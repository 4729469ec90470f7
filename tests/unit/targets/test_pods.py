"""Pods and their GPUs: real NVML calls over the stub, a real kubelet, real pages; what a node publishes, also where one misbehaves."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.kubelet import ALLOCATABLE_EVERY_SECONDS, KUBELET_KEPT_SECONDS
from llm_serving_exporter.gpus.node_gpus import PIDS_EVERY_SECONDS
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target, is_relabelled
from tests.nvml_stub.stub import StubState
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.gpu_node import CARDS, Exporter, Node, connect_to, pod
from tests.support.servers.kubelet import GPU, StubKubelet

COUNT = "target_gpus"


def total(pages: Iterable[Scraped], name: str = COUNT) -> float:
    return sum(sum(one.series(name).values()) for one in pages)


def claims(*pages: Scraped) -> dict[str, list[str]]:
    """Targets by GPU, as all pages together say."""
    found: dict[str, list[str]] = {}
    for one in pages:
        for labels in one.series("gpu_target_info"):
            named = dict(labels)
            found.setdefault(named["gpu"], []).append(named["target"])
    return found


# --- one GPU each -------------------------------------------------------------------------------------------------------


def give_one_each(node: Node) -> list[Target]:
    for number in range(CARDS):
        node.kubelet.give("serving", f"vllm-{number}", "vllm", GPU, [node.state.uuid(number)])
    return [pod(f"vllm-{number}") for number in range(CARDS)]


def test_a_daemonset_counts_each_gpu_once(node: Node) -> None:
    exporter = node.start(*give_one_each(node))
    exporter.tick()
    found = exporter.tick()
    assert found.total(COUNT) == CARDS
    assert set(found.series(COUNT).values()) == {1.0}
    assert claims(found) == {node.state.uuid(number): [f"serving/vllm-{number}:8000"] for number in range(CARDS)}
    assert len(found.series("gpu_target_info", origin="kubelet")) == CARDS
    assert found.total("gpu_target_share_ratio") == CARDS
    # ten seconds of eight GPUs
    assert found.total("gpu_seconds_total") == pytest.approx(80.0)
    assert found.total("cost_usd_total") == pytest.approx(0.08)
    assert found.value("kubelet_up") == 1


def test_a_sidecar_claims_nothing_that_it_cannot_know(node: Node) -> None:
    """Each sees all eight GPUs, as a privileged container does, and one target: this is what made 64 of 8."""
    sidecars = [node.start(pod(f"vllm-{number}"), kubelet=False) for number in range(CARDS)]
    pages = [one.tick() for one in sidecars]
    assert total(pages) == 0
    assert claims(*pages) == {}
    assert total(pages, "gpu_seconds_total") == 0
    for number, one in enumerate(sidecars):
        why = one.origin(f"serving/vllm-{number}:8000")
        assert "set gpus" in why
        assert "DaemonSet" in why
        assert pages[number].value("signal_available", signal="cost_usd_total", reason="gpus_unknown") == 0
        assert (
            pages[number].value("signal_available", signal="bandwidth_ceiling_bytes_per_second", reason="gpus_unknown")
            == 0
        )


def test_a_sidecar_in_the_hosts_pid_namespace_sees_that_others_use_the_gpus(node: Node) -> None:
    node.state.processes("gpu3", (4711, 1 << 30))
    proc = write_proc_folder(node.folder / "host", Process(4711))
    target = Target("here", "http://127.0.0.1:8000", metrics_path="/metrics")
    exporter = node.start(target, kubelet=False, proc=proc)
    assert claims(exporter.tick()) == {}
    assert "use 1 of the 8 GPUs" in exporter.origin("here")
    node.state.processes("gpu3")
    found = exporter.tick()
    assert len(found.series("gpu_target_info", origin="only_target")) == CARDS


def test_sidecars_in_the_hosts_pid_namespace_claim_nothing_while_their_engines_load(node: Node) -> None:
    """None of eight engines has a process on a GPU yet: no pod is taken for the only one of its node."""
    pages = []
    for number in range(CARDS):
        proc = write_proc_folder(node.folder / f"loading{number}", Process(70, ports=[8000]))
        place = pod(f"vllm-{number}")
        target = Target(place.name, "http://127.0.0.1:8000", metrics_path="/metrics", identity=place.identity)
        exporter = node.start(target, kubelet=False, proc=proc)
        pages.append(exporter.tick())
    assert (total(pages), claims(*pages)) == (0, {})
    assert "set gpus" in exporter.origin("serving/vllm-7:8000")
    # its own process is on one card
    node.state.processes("gpu3", (70, 1 << 30))
    assert exporter.tick().total(COUNT) == 1


def test_a_sidecar_that_reads_its_engines_environment_claims_its_gpus(node: Node) -> None:
    pages = []
    for number in range(CARDS):
        # the pod shares its PID namespace and its user; the server listens on the loopback address too
        engine = Process(
            7, ports=[8000], environment={"NVIDIA_VISIBLE_DEVICES": node.state.uuid(number), "HF_TOKEN": "hunter2"}
        )
        proc = write_proc_folder(node.folder / f"pod{number}", engine, namespace=OWN_PID_NAMESPACE)
        # NVML lists the host's processes, one of which has the engine's number
        node.state.processes("gpu0", (7, 1 << 30), (50_000, 1 << 30))
        target = pod(f"vllm-{number}")
        target = Target(target.name, "http://127.0.0.1:8000", metrics_path="/metrics", identity=target.identity)
        pages.append(node.start(target, kubelet=False, proc=proc).tick())
    assert total(pages) == CARDS
    assert claims(*pages) == {node.state.uuid(number): [f"serving/vllm-{number}:8000"] for number in range(CARDS)}
    assert all(len(one.series("gpu_target_info", origin="environment")) == 1 for one in pages)


# --- parts of cards -----------------------------------------------------------------------------------------------------


def cut_cards(state: StubState, *profiles: tuple[str, int]) -> list[str]:
    """Every card cut into these instances (profile, MiB); their UUIDs."""
    return [
        state.mig(card, slot, profile, mebibytes, gi=slot + 1)
        for card in range(CARDS)
        for slot, (profile, mebibytes) in enumerate(profiles)
    ]


@pytest.mark.parametrize(
    ("profiles", "cards"),
    [
        ([("1g.10gb", 9856)] * 7, 8.0),
        ([("3g.40gb", 40192), ("4g.40gb", 40192)], 8.0),
        # a third of these cards is nobody's
        ([("3g.40gb", 40192), ("3g.40gb", 40192)], 8 * 6 / 7),
    ],
)
def test_instances_add_up_to_their_cards(node: Node, profiles: list[tuple[str, int]], cards: float) -> None:
    uuids = cut_cards(node.state, *profiles)
    for number, uuid in enumerate(uuids):
        node.kubelet.give("serving", f"vllm-{number}", "vllm", f"nvidia.com/mig-{profiles[0][0]}", [uuid])
    exporter = node.start(*(pod(f"vllm-{number}") for number in range(len(uuids))))
    exporter.tick()
    found = exporter.tick()
    assert len(found.series(COUNT)) == len(uuids)
    assert found.total(COUNT) == pytest.approx(cards)
    assert found.total("gpu_seconds_total") == pytest.approx(10 * cards)
    assert not found.series("signal_available", signal="gpu_seconds_total", reason="gpu_claimed_twice")


@pytest.mark.parametrize("separator", ["::", "/vgpu"])
def test_gpus_that_are_shared_by_time_add_up_to_the_cards(node: Node, separator: str) -> None:
    def base(card: int) -> str:
        return node.state.uuid(card) if separator == "::" else f"nvidia{card}"

    node.kubelet.there[GPU] = [f"{base(card)}{separator}{part}" for card in range(CARDS) for part in range(4)]
    # the first card's four parts are one engine's, and two, and one; of the others one part is given out
    given = {"a": (0, [0, 1]), "b": (0, [2]), "c": (0, [3]), **{f"d-{card}": (card, [3]) for card in range(1, CARDS)}}
    for name, (card, parts) in given.items():
        node.kubelet.give("serving", name, "vllm", GPU, [f"{base(card)}{separator}{part}" for part in parts])
    exporter = node.start(*map(pod, given))
    exporter.tick()
    found = exporter.tick()
    assert [found.value(COUNT, target=f"serving/{name}:8000") for name in "abc"] == [0.5, 0.25, 0.25]
    assert found.total(COUNT) == pytest.approx(1 + 7 / 4)
    assert found.total("gpu_seconds_total") == pytest.approx(27.5)
    assert found.value("gpu_target_share_ratio", target="serving/a:8000", gpu=node.state.uuid(0)) == 0.5
    assert len(claims(found)[node.state.uuid(0)]) == 3


def test_instances_may_be_shared_by_time_too(node: Node) -> None:
    (uuid, *_) = cut_cards(node.state, *[("1g.10gb", 9856)] * 7)
    node.kubelet.there["nvidia.com/mig-1g.10gb.shared"] = [f"{uuid}::{part}" for part in range(2)]
    for part in range(2):
        node.kubelet.give("serving", f"p{part}", "vllm", "nvidia.com/mig-1g.10gb.shared", [f"{uuid}::{part}"])
    found = node.start(pod("p0"), pod("p1")).tick()
    assert list(found.series(COUNT).values()) == [pytest.approx(1 / 14)] * 2


def test_three_of_ten_parts_hold_while_the_plugin_is_away(node: Node) -> None:
    """A kubelet leaves out what is not healthy or has not registered again, and names a device once for each of its NUMA nodes."""
    card = node.state.uuid(0)
    parts = [f"{card}::{part}" for part in range(10)]
    node.kubelet.there[GPU] = parts + parts
    node.kubelet.give("serving", "three", "vllm", GPU, parts[:3] + parts[:3])
    node.kubelet.give("serving", "seven", "vllm", GPU, parts[3:])
    exporter = node.start(pod("three"), pod("seven"))
    shares = {"three": 0.3, "seven": 0.7}

    def read(seconds: float = 10.0) -> dict[str, float | None]:
        found = exporter.tick(seconds)
        return {name: found.value(COUNT, target=f"serving/{name}:8000") for name in shares}

    assert read() == pytest.approx(shares)
    node.kubelet.says_nothing_there = True
    assert read(ALLOCATABLE_EVERY_SECONDS) == pytest.approx(shares)
    # the plugin is back with other settings: of eleven parts
    node.kubelet.says_nothing_there = False
    node.kubelet.there[GPU] = [*parts, f"{card}::10"]
    assert read(ALLOCATABLE_EVERY_SECONDS) == pytest.approx({"three": 3 / 11, "seven": 7 / 11})


def test_where_the_number_of_parts_is_not_known_there_is_no_count_and_no_cost(node: Node, tmp_path: Path) -> None:
    with StubKubelet(tmp_path / "older.sock", allocatable=False) as older:
        node.kubelet = older
        for number in range(2):
            older.give("serving", f"p{number}", "vllm", GPU, [f"{node.state.uuid(0)}::{number}"])
        exporter = node.start(pod("p0"), pod("p1"))
        exporter.tick()
        found = exporter.tick()
    assert claims(found) == {node.state.uuid(0): ["serving/p0:8000", "serving/p1:8000"]}
    assert not found.series(COUNT)
    assert not found.series("gpu_target_share_ratio")
    assert (
        found.value("signal_available", signal="cost_usd_total", reason="gpu_claimed_twice", target="serving/p0:8000")
        == 0
    )


# --- who has what -------------------------------------------------------------------------------------------------------


def test_a_pod_that_has_ended_claims_nothing(node: Node) -> None:
    """A kubelet before 1.34 lists it on, beside the pod that has its GPU now."""
    for name in ("job-a", "job-b"):
        node.kubelet.give("serving", name, "vllm", GPU, [node.state.uuid(0)])
    exporter = node.start(pod("job-a"), pod("job-b"))
    exporter.tick()
    twice = exporter.tick()
    assert not twice.series(COUNT)
    exporter.host.gpus.set_pods(finished=[("serving", "job-a")])
    found = exporter.tick()
    assert claims(found) == {node.state.uuid(0): ["serving/job-b:8000"]}
    assert "lists no running pod serving/job-a" in exporter.origin("serving/job-a:8000")
    assert found.value(COUNT, target="serving/job-b:8000") == 1


def test_claimed_devices_are_those_that_the_clusters_slices_say(node: Node) -> None:
    """Whole cards by a number that is neither minor number nor index, instances by their profile and place."""
    instance = node.state.mig(7, 0, "3g.40gb", 40192, gi=1)
    devices = {"whole": "gpu-3", "half": "gpu-7-mig-9-0-4", "gone": "gpu-6"}
    for name, device in devices.items():
        node.kubelet.claim("serving", name, "vllm", "gpu.nvidia.com", "node-a", device)
    exporter = node.start(*map(pod, devices))
    exporter.tick()
    slices = {("node-a", "gpu-3"): node.state.uuid(5), ("node-a", devices["half"]): instance}
    exporter.host.gpus.set_pods(slices=slices | {("node-b", "gpu-6"): node.state.uuid(1)})
    found = exporter.tick()
    assert found.value("gpu_target_info", target="serving/whole:8000", gpu=node.state.uuid(5)) == 1
    assert found.value("gpu_target_info", target="serving/half:8000", gpu=instance) == 1
    assert found.value(COUNT, target="serving/whole:8000") == 1
    assert found.value(COUNT, target="serving/half:8000") == pytest.approx(3 / 7)


def test_targets_of_one_container_are_told_by_their_processes_or_claim_together(node: Node) -> None:
    both = [node.state.uuid(0), node.state.uuid(1)]
    node.kubelet.give("serving", "two", "vllm", GPU, both)
    targets = [pod("two", port=8000), pod("two", port=8001)]
    uid = targets[0].identity.pod_uid
    together = node.start(*targets)
    together.tick()
    found = together.tick()
    assert claims(found) == {uuid: ["serving/two:8000", "serving/two:8001"] for uuid in both}
    assert not found.series(COUNT)
    assert (
        found.value(
            "signal_available", signal="gpu_seconds_total", reason="gpu_claimed_twice", target="serving/two:8000"
        )
        == 0
    )

    proc = write_proc_folder(
        node.folder / "host", Process(70, ports=[8000], pod=uid), Process(80, ports=[8001], pod=uid)
    )
    node.state.processes("gpu0", (70, 1 << 30))
    node.state.processes("gpu1", (80, 1 << 30))
    apart = node.start(*targets, proc=proc)
    found = apart.tick()
    assert claims(found) == {both[0]: ["serving/two:8000"], both[1]: ["serving/two:8001"]}
    assert len(found.series("gpu_target_info", origin="process")) == 2
    assert found.total(COUNT) == 2


def test_the_containers_of_a_pod_have_their_own(node: Node) -> None:
    node.kubelet.give("serving", "p", "prefill", GPU, [node.state.uuid(0)])
    node.kubelet.give("serving", "p", "decode", GPU, [node.state.uuid(1), node.state.uuid(2)])
    node.kubelet.give("serving", "p", "proxy")
    targets = [pod("p", "prefill", port=1), pod("p", "decode", port=2), pod("p", "proxy", port=3)]
    exporter = node.start(*targets)
    found = exporter.tick()
    assert [found.value(COUNT, target=f"serving/p:{port}") for port in (1, 2)] == [1, 2]
    assert exporter.origin("serving/p:3").startswith("the kubelet gave container proxy of serving/p no GPU")


def test_another_vendors_device_is_named(node: Node) -> None:
    node.kubelet.give("serving", "rocm", "vllm", "amd.com/gpu", ["0000:1b:00.0"])
    exporter = node.start(pod("rocm"))
    assert claims(exporter.tick()) == {}
    assert "amd.com/gpu 0000:1b:00.0 is in a form that is not known" in exporter.origin("serving/rocm:8000")


def test_configuration_comes_before_the_kubelet_and_the_kubelet_before_processes(node: Node) -> None:
    node.kubelet.give("serving", "p", "vllm", GPU, [node.state.uuid(1)])
    target = pod("p")
    proc = write_proc_folder(node.folder / "host", Process(70, ports=[8000], pod=target.identity.pod_uid))
    node.state.processes("gpu2", (70, 1 << 30))
    assert list(claims(node.start(target, proc=proc).tick())) == [node.state.uuid(1)]
    assert list(claims(node.start(pod("p", gpus=(0,)), proc=proc).tick())) == [node.state.uuid(0)]
    without = node.start(target, proc=proc, kubelet=False).tick()
    assert list(claims(without)) == [node.state.uuid(2)]
    assert len(without.series("gpu_target_info", origin="process")) == 1


# --- outages ------------------------------------------------------------------------------------------------------------


def test_what_the_kubelet_said_holds_while_it_starts_again_and_not_for_ever(node: Node) -> None:
    exporter = node.start(*give_one_each(node))
    exporter.tick()
    node.kubelet.__exit__(None, None, None)
    found = exporter.tick()
    assert found.value("kubelet_up") == 0
    assert found.total("kubelet_failures_total") == 1
    assert found.total(COUNT) == len(claims(found)) == CARDS
    found = exporter.tick(KUBELET_KEPT_SECONDS)
    assert claims(found) == {}
    assert "the kubelet does not say which GPUs its pod has" in exporter.origin("serving/vllm-0:8000")
    node.kubelet.__enter__()
    found = exporter.tick()
    assert (found.value("kubelet_up"), len(claims(found))) == (1, CARDS)


def test_without_the_driver_the_kubelet_still_says_who_has_what(node: Node) -> None:
    node.state.fail("sys", "nvmlInitWithFlags", 9)
    exporter = node.start(*give_one_each(node))
    exporter.tick()
    found = exporter.tick()
    assert len(claims(found)) == CARDS
    assert found.total(COUNT) == CARDS
    node.state.heal("sys")
    assert exporter.tick().total(COUNT) == CARDS


def test_a_pod_that_is_replaced_has_the_gpus_of_its_own(node: Node) -> None:
    exporter = node.start(*give_one_each(node))
    exporter.tick()
    node.kubelet.take("serving", "vllm-0")
    exporter.host.remove_target("serving/vllm-0:8000")
    exporter.store.remove_target("serving/vllm-0:8000")
    node.kubelet.give("serving", "vllm-9", "vllm", GPU, [node.state.uuid(0)])
    new = pod("vllm-9")
    exporter.host.add_target(new, connect=partial(connect_to, node.server.url))
    exporter.store.add_target(new)
    found = exporter.tick(PIDS_EVERY_SECONDS)
    assert claims(found)[node.state.uuid(0)] == ["serving/vllm-9:8000"]
    assert found.total(COUNT) == CARDS


# --- engines over several pods --------------------------------------------------------------------------------------------


def test_two_groups_of_two_nodes_have_32_gpus(make_node: Callable[..., Node]) -> None:
    """Each leader's exporter counts its replica's GPUs and seconds; the workers' exporters say whose GPUs theirs are."""
    pages: dict[str, Scraped] = {}
    for group in range(2):
        names = (f"lws-{group}", f"lws-{group}-1")
        spans = tuple(f"node-{name}" for name in names)
        leader = pod(names[0], gpu_count=16, nodes=spans, tensor_parallel_size=8, pipeline_parallel_size=2)
        worker = Worker("serving", names[1], leader.name, "llama")
        for name, here in zip(names, spans, strict=True):
            node = make_node(here)
            for card in range(CARDS):
                node.state.set(f"gpu{card}", uuid=f"GPU-{group:08d}-{len(name):04d}-0000-0000-{card:012d}")
            uuids = [f"GPU-{group:08d}-{len(name):04d}-0000-0000-{card:012d}" for card in range(CARDS)]
            node.kubelet.give("serving", name, "vllm", GPU, uuids)
            exporter = node.start(*([leader] if name == names[0] else []), name=here)
            exporter.host.gpus.set_pods(workers=[worker] if name != names[0] else [])
            exporter.tick()
            pages[here] = exporter.tick()
    every = list(pages.values())
    assert total(every) == 32
    found = claims(*every)
    assert len(found) == 32
    assert {name for names in found.values() for name in names} == {"serving/lws-0:8000", "serving/lws-1:8000"}
    assert all(len(names) == 1 for names in found.values())
    # 16 GPUs a group for ten seconds, counted by the leader's exporter alone
    assert total(every, "gpu_seconds_total") == pytest.approx(320.0)
    nodes = {
        dict(labels)["node"] for one in every for labels in one.series("target_node_info", target="serving/lws-0:8000")
    }
    assert nodes == {"node-lws-0", "node-lws-0-1"}
    worker_page = pages["node-lws-0-1"]
    assert (
        worker_page.value("target_node_info", target="serving/lws-0:8000", model_name="llama", node="node-lws-0-1") == 1
    )
    assert not worker_page.series("target_info")


def test_half_of_a_replica_is_not_counted_for_all_of_it(node: Node) -> None:
    """As long as the exporter beside the leader has not heard of the pods on other nodes."""
    node.kubelet.give("serving", "lws-0", "vllm", GPU, [node.state.uuid(card) for card in range(CARDS)])
    leader = pod("lws-0", lacks_pods=True)
    exporter = node.start(leader)
    exporter.tick()
    found = exporter.tick()
    assert len(claims(found)) == CARDS
    assert not found.series(COUNT)
    assert not found.series("gpu_seconds_total")
    assert found.value("signal_available", signal="gpu_seconds_total", reason="gpus_unknown", target=leader.name) == 0
    # unless its settings say how its GPUs share the work
    sized = node.start(pod("lws-0", lacks_pods=True, tensor_parallel_size=8, pipeline_parallel_size=2))
    assert sized.tick().total(COUNT) == 16


def test_a_leader_without_gpus_has_those_of_its_workers(node: Node) -> None:
    """Ray's head; one whose own devices are not known is none."""
    node.kubelet.give("serving", "head", "ray-head")
    node.kubelet.give("serving", "other", "ray-head", "amd.com/gpu", ["0"])
    for number, name in enumerate(("head-1", "head-2", "other-1")):
        node.kubelet.give("serving", name, "ray-worker", GPU, [node.state.uuid(number)])
    head, other = pod("head", "ray-head"), pod("other", "ray-head")
    exporter = node.start(head, other)
    of = {"head-1": head, "head-2": head, "other-1": other}
    exporter.host.gpus.set_pods(workers=[Worker("serving", name, target.name) for name, target in of.items()])
    exporter.tick()
    found = exporter.tick()
    assert claims(found) == {node.state.uuid(number): [head.name] for number in range(2)}
    assert found.total(COUNT) == 2


def test_a_worker_on_the_leaders_node_counts_there(node: Node) -> None:
    uuids: Sequence[str] = [node.state.uuid(card) for card in range(CARDS)]
    node.kubelet.give("serving", "lws-0", "vllm", GPU, uuids[:4])
    node.kubelet.give("serving", "lws-0-1", "vllm", GPU, uuids[4:])
    leader = pod("lws-0", tensor_parallel_size=8)
    exporter = node.start(leader)
    exporter.host.gpus.set_pods(workers=[Worker("serving", "lws-0-1", leader.name)])
    found = exporter.tick()
    assert claims(found) == {uuid: [leader.name] for uuid in uuids}
    assert found.total(COUNT) == CARDS


# --- Pods and their GPUs where the kubelet, its plugins or the driver misbehave: real gRPC, real NVML calls over the stub


FIRST = "serving/vllm-0:8000"


def start_with_one_each(node: Node) -> Exporter:
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
    exporter = start_with_one_each(node)
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
    exporter = start_with_one_each(node)
    node.kubelet.devices = {}
    assert exporter.tick().total(COUNT) == CARDS
    exporter.tick(KUBELET_KEPT_SECONDS - 30)
    found = exporter.tick(30)
    assert owners(found) == {}
    assert "lists no running pod" in exporter.origin(FIRST)


def test_a_device_that_another_pod_has_now_is_not_the_one_befores(node: Node) -> None:
    """The pod that had it is still in the cluster's list, as one that is evicted is for a while."""
    exporter = start_with_one_each(node)
    node.kubelet.take("serving", "vllm-0")
    node.kubelet.give("other", "job", "main", GPU, [node.state.uuid(0)])
    found = exporter.tick()
    assert node.state.uuid(0) not in owners(found)
    assert len(owners(found)) == CARDS - 1


def test_the_next_pod_of_a_name_does_not_inherit(node: Node) -> None:
    """A StatefulSet's: another UID under the same name, whose devices the kubelet has yet to list."""
    exporter = start_with_one_each(node)
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
    exporter = start_with_one_each(node)
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
    exporter = start_with_one_each(node)
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
    exporter = start_with_one_each(node)
    started = time.process_time()
    found = exporter.tick()
    # includes what the stub spends to make it; a bound against work that grows with the square
    assert time.process_time() - started < 5.0
    assert found.total(COUNT) == CARDS


def test_forty_starts_of_a_kubelet_leave_nothing_behind(tmp_path: Path, make_node: Callable[..., Node]) -> None:
    node = make_node()
    exporter = start_with_one_each(node)
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
    exporter = start_with_one_each(node)
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
