"""What Kubernetes says of a pod over time: loading, ready once, crashes, lost nodes, replicas of several pods."""

from __future__ import annotations

import copy
from typing import Any

from llm_serving_exporter.discovery.kubernetes.section import StateBook
from llm_serving_exporter.discovery.kubernetes.targets import Group, GroupBook, find_membership, select_members
from llm_serving_exporter.model.target import PodFault, PodState
from tests.support.builders.discovered_pods import Pod, container, find_all, plain_pod, record, targets_of
from tests.support.builders.pods import (
    crash_loop_status,
    fixture_pods,
    lost_node_status,
    running_status,
    stored,
    timestamp,
)
from tests.support.rows import check_rows

MADE = 1_700_000_000.0  # when stored() says that its pods were made
POD = stored({**plain_pod(), "spec": {"containers": [{"name": "e", "image": "i"}]}}, "uid-1", {})


class Clocks:
    """The monotonic clock here, with the wall clock here and the API server's as they differ from the truth."""

    def __init__(self, *, now: float = 0.0, here: float = 0.0) -> None:
        self.now, self.here = now, here

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return MADE + self.now + self.here

    def book(self, loading_limit_seconds: float = 600.0) -> StateBook:
        return StateBook(loading_limit_seconds, self.monotonic, self.wall)


def see(book: StateBook, status: dict[str, Any], uid: str = "uid-1", group: Group | None = None) -> PodState:
    pod = record(stored(POD, uid, status))
    return book.note_state(pod, pod.containers[0], group)


def runs(ready: bool = True, started: float = MADE, **more: Any) -> dict[str, Any]:
    """The status of a pod whose containers run since `started`."""
    return running_status(POD, "10.0.0.1", ready=ready, started=started, **more)


def changed(pod: Pod, **metadata: Any) -> Pod:
    found = copy.deepcopy(pod)
    found["metadata"] |= metadata
    return found


def test_a_container_loads_until_it_has_been_ready_once() -> None:
    clocks = Clocks()
    book = clocks.book()
    loads = see(book, runs(ready=False))
    assert loads == PodState(False, MADE, None, 600.0, False, 0.0)
    assert loads.may_load(600)
    assert not loads.may_load(601)
    ready = see(book, runs())
    later = see(book, runs(ready=False))
    assert (ready.was_ready, later.was_ready, later.may_load(1)) == (True, True, False)


def test_another_start_loads_again() -> None:
    clocks = Clocks()
    book = clocks.book()
    see(book, runs())
    clocks.now = 100.0
    again = see(book, runs(False, MADE + 100, restarts=1))
    assert not again.was_ready
    assert again.may_load(700)


def test_another_pod_of_the_same_name_is_another_one() -> None:
    book = StateBook(600.0)
    see(book, runs())
    assert not see(book, runs(ready=False), "uid-2").was_ready


def test_what_has_not_started_waits_since_its_pod_was_made() -> None:
    status = runs(ready=False)
    status["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    found = see(Clocks(now=400.0).book(), status)
    assert (found.was_ready, found.loading_since_seconds) == (False, 0.0)
    assert not found.may_load(601)


def test_a_late_exporter_sees_that_the_pod_was_ready() -> None:
    status = runs(ready=False)
    status["conditions"][-1]["lastTransitionTime"] = timestamp(MADE + 3600)
    assert see(StateBook(600.0), status).was_ready
    # it crashed and was back at once: the kubelet noticed a moment after the new start
    status["conditions"][-1]["lastTransitionTime"] = timestamp(MADE + 2)
    assert not see(StateBook(600.0), status).was_ready


def test_crashes_and_lost_nodes_are_faults() -> None:
    book = StateBook(600.0)
    crashing = see(book, crash_loop_status(POD, "10.0.0.1", started=MADE))
    assert crashing.fault is PodFault.CRASH_LOOP
    assert not crashing.may_load(MADE)
    for evicted in (False, True):
        assert see(book, lost_node_status(POD, "10.0.0.1", evicted=evicted)).fault is PodFault.NODE_LOST
    unknown = runs(ready=False)
    unknown["conditions"][-1]["status"] = "Unknown"
    assert see(book, unknown).fault is PodFault.NODE_LOST
    gated = lost_node_status(POD, "10.0.0.1")
    gated["conditions"][-1]["reason"] = "ReadinessGatesNotReady"
    assert see(book, gated).fault is None
    assert see(book, runs()).fault is None


def test_pods_that_are_gone_are_forgotten() -> None:
    book = StateBook(600.0)
    see(book, runs())
    book.forget_others(["uid-2"])
    assert not see(book, runs(ready=False)).was_ready


# --- replicas of several pods -------------------------------------------------------------------------------------


def replica() -> tuple[Pod, Pod]:
    leader, worker = fixture_pods("leaderworkerset")
    return (
        stored(leader, "uid-leader", running_status(leader, "10.0.0.1")),
        stored(worker, "uid-worker", running_status(worker, "10.0.0.2")),
    )


def group_of(book: GroupBook, *pods: Pod) -> Group:
    (group,) = book.gather_groups([record(pod) for pod in pods]).values()
    return group


def fault_of(group: Group) -> PodFault | None:
    return StateBook(600.0).note_state(group.leader, group.leader.containers[0], group).fault


def test_a_worker_that_is_gone_crashes_or_lost_its_node_is_a_lost_replica() -> None:
    leader, worker = replica()
    book = GroupBook()
    assert fault_of(group_of(book, leader, worker)) is None
    assert fault_of(group_of(book, leader)) is PodFault.WORKER_LOST
    assert fault_of(group_of(book, leader, worker)) is None
    ended = {**worker, "status": {"phase": "Failed"}}
    assert fault_of(group_of(book, leader, ended)) is PodFault.WORKER_LOST
    for status in (crash_loop_status(worker, "10.0.0.2"), lost_node_status(worker, "10.0.0.2")):
        assert fault_of(group_of(book, leader, {**worker, "status": status})) is PodFault.WORKER_LOST


def test_a_replica_whose_workers_are_still_to_come_has_no_fault() -> None:
    leader, worker = replica()
    book = GroupBook()
    assert fault_of(group_of(book, leader)) is None
    group_of(book, leader, worker)
    assert fault_of(group_of(book, changed(leader, uid="uid-of-the-next-leader"))) is None


def test_what_a_replica_consists_of_stays_while_a_worker_is_missing() -> None:
    leader, worker = replica()
    book = GroupBook()
    group_of(book, leader, worker)
    missing = group_of(book, leader)
    assert [pod.node for pod in missing.replica] == ["gpu-node-1", "gpu-node-2"]
    moved = changed(worker, uid="uid-of-another")
    moved["spec"]["nodeName"] = "gpu-node-9"
    assert [pod.node for pod in group_of(book, leader, moved).replica] == ["gpu-node-1", "gpu-node-9"]


def test_gpus_of_a_replica_are_known_once_all_of_its_pods_are() -> None:
    leader, worker = replica()
    (alone,), (both,) = targets_of([leader]), targets_of([leader, worker])
    assert (alone.gpu_count, alone.nodes) == (None, ("gpu-node-1",))
    assert (both.gpu_count, both.nodes) == (16, ("gpu-node-1", "gpu-node-2"))


def test_two_groups_of_one_set_are_two_replicas() -> None:
    leader, worker = replica()
    second = []
    for pod in (leader, worker):
        labels = {**pod["metadata"]["labels"], "leaderworkerset.sigs.k8s.io/group-index": "1"}
        name = pod["metadata"]["name"].replace("vllm-0", "vllm-1")
        second.append(changed(pod, labels=labels, name=name, uid=f"{name}-1"))
    found = targets_of([leader, worker, *second])
    assert [target.name for target in found] == ["lws/vllm-0:8080", "lws/vllm-1:8080"]
    assert sum(target.gpu_count or 0 for target in found) == 32
    assert [target.replica for target in found] == ["lws/vllm-0", "lws/vllm-1"]


def test_a_worker_can_ask_to_be_a_target_of_its_own() -> None:
    leader, worker = replica()
    worker["metadata"]["annotations"] |= {"llm-serving-exporter/scrape": "true", "llm-serving-exporter/port": "8080"}
    found = targets_of([leader, worker])
    assert [target.name for target in found] == ["lws/vllm-0-1:8080", "lws/vllm-0:8080"]
    assert {target.replica for target in found} == {"lws/vllm-0"}, "of ranks that share experts both are one replica"


def test_a_ray_cluster_is_one_replica_and_nodes_of_ray_serve_are_one_each() -> None:
    def ray(name: str, node_type: str, **labels: str) -> Pod:
        known = {"model": "m", "helm-release-name": "r", "ray.io/cluster": "c", "ray.io/node-type": node_type, **labels}
        pod = plain_pod(name, labels=known, address=f"10.0.0.{len(name)}")
        return {**pod, "spec": {**pod["spec"], "nodeName": f"node-of-{name}"}}

    (target,) = targets_of([ray("head", "head"), ray("worker", "worker")])
    assert (target.name, target.gpu_count) == ("llm/head:8000", 2)
    assert target.nodes == ("node-of-head", "node-of-worker")
    serve = {"ray.io/serve": "true"}
    assert len(find_all([ray("head", "head", **serve), ray("worker", "worker", **serve)])) == 2


def leaving(pod: Pod) -> Pod:
    return changed(pod, deletionTimestamp="2023-11-14T23:13:20Z")


def test_workers_of_the_leader_before_do_not_complete_the_next_replica() -> None:
    leader, worker = replica()
    book = GroupBook()
    group_of(book, leader, worker)
    after = changed(leader, uid="uid-of-the-next-leader")
    # its workers are given time to end, while their leader's successor is there
    assert not group_of(book, after, leaving(worker)).is_complete
    assert fault_of(group_of(book, after)) is None


def test_a_worker_that_leaves_is_missed_unless_all_do() -> None:
    leader, worker = replica()
    book = GroupBook()
    group_of(book, leader, worker)
    assert fault_of(group_of(book, leader, leaving(worker))) is PodFault.WORKER_LOST
    assert fault_of(group_of(book, leaving(leader), leaving(worker))) is None


def test_an_engine_behind_an_init_container_that_crashes_is_down() -> None:
    waits = [{"name": "e", "state": {"waiting": {"reason": "PodInitializing"}}}]
    init = [{"name": "download", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    blocked: dict[str, Any] = {
        "phase": "Pending",
        "podIP": "10.0.0.1",
        "initContainerStatuses": init,
        "containerStatuses": waits,
    }
    assert see(StateBook(600.0), blocked).fault is PodFault.CRASH_LOOP
    blocked["initContainerStatuses"][0]["state"] = {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
    assert see(StateBook(600.0), blocked).fault is None
    # a native sidecar that crashes later on costs the engine nothing
    later = {
        **runs(),
        "initContainerStatuses": [{"name": "proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
    }
    assert see(StateBook(600.0), later).fault is None


def grove(name: str, index: str, role: str, number: str = "") -> Pod:
    """A pod of Dynamo's engine over several nodes."""
    labels = {
        "nvidia.com/dynamo-component-type": "worker",
        "grove.io/podcliquescalinggroup": "d-0-decode",
        "grove.io/podcliquescalinggroup-replica-index": index,
        "grove.io/podclique": f"d-0-decode-{index}-decode-{role}",
        **({"grove.io/podclique-pod-index": number} if number else {}),
    }
    engine = container("main", (9090, "system"), gpu=8)
    pod = plain_pod(name, labels=labels, address=f"10.0.0.{len(name)}", containers=[engine])
    return {**pod, "spec": {**pod["spec"], "nodeName": f"node-of-{name}"}}


def test_a_replica_of_dynamo_over_several_nodes_is_one() -> None:
    pods = [grove("a", "0", "ldr"), grove("aa", "0", "wkr"), grove("b-1", "1", "ldr"), grove("bb-1", "1", "wkr")]
    found = targets_of(pods)
    assert [(target.name, target.gpu_count, target.nodes) for target in found] == [
        ("llm/a:9090", 16, ("node-of-a", "node-of-aa")),
        ("llm/b-1:9090", 16, ("node-of-b-1", "node-of-bb-1")),
    ]
    # on one node each pod is a replica, whatever scales them together
    assert len(targets_of([grove("a", "0", "x"), grove("aa", "0", "x")])) == 2


def test_a_worker_of_dynamo_that_is_gone_is_missed_though_nothing_says_the_size() -> None:
    """The numbers of its pods say it: a replica has as many as its leader has had."""
    leader, *workers = grove("a", "0", "ldr", "0"), *(grove(f"a{n}", "0", "wkr", str(n)) for n in range(3))
    for gone in range(3):
        book = GroupBook()
        # they are made in any order
        assert fault_of(group_of(book, leader, workers[2])) is None
        assert fault_of(group_of(book, leader, *workers)) is None
        without = group_of(book, leader, *(one for number, one in enumerate(workers) if number != gone))
        assert fault_of(without) is PodFault.WORKER_LOST
        assert len(without.replica) == 4
        assert fault_of(group_of(book, leader)) is PodFault.WORKER_LOST
        assert fault_of(group_of(book, leader, *workers)) is None
    # numbers that make no sense say nothing
    odd = grove("ax", "0", "wkr", "99999999999999999999")
    book = GroupBook()
    group_of(book, leader, odd)
    assert fault_of(group_of(book, leader)) is None


def test_every_group_can_be_asked_for() -> None:
    """By an exporter of one node, for the pods on others."""
    pods = [grove("a", "0", "ldr"), *replica()]
    head = plain_pod("h", labels={"ray.io/cluster": "c", "ray.io/node-type": "head"})
    places = [find_membership(record(pod)) for pod in [*pods, head]]
    selectors = [select_members(place.group) for place in places if place is not None]
    assert len(selectors) == 4
    assert selectors[0] == "grove.io/podcliquescalinggroup=d-0-decode,grove.io/podcliquescalinggroup-replica-index=0"


# --- clocks that do not agree -------------------------------------------------------------------------------------


SKEWS = (-36_000.0, -600.0, 0.0, 600.0, 36_000.0)


def look(book: StateBook, pod: Pod, *, offset: float | None = MADE) -> PodState:
    found = record(pod)
    return book.note_state(found, found.containers[0], None, offset)


def loading(kubelet: float, started: float) -> Pod:
    """A pod that was made at MADE and is not Ready, as a kubelet tells whose clock is off by `kubelet`."""
    pod = stored(POD, "uid-1", runs(False, MADE + started + kubelet))
    pod["status"]["startTime"] = timestamp(MADE + kubelet)
    return pod


@check_rows("here", SKEWS)
@check_rows("kubelet", SKEWS)
def test_no_clock_that_is_wrong_ends_or_prolongs_loading(here: float, kubelet: float) -> None:
    # the API server's clock is right; the pod is seen when it is a minute old
    clocks = Clocks(now=60.0, here=here)
    book = clocks.book(3600.0)
    first = look(book, loading(kubelet, 30.0))
    assert first.may_load(clocks.now + 3000)
    assert not first.may_load(clocks.now + 3700)
    # it restarts after an hour, before it was Ready
    clocks.now = 3700.0
    again = look(book, loading(kubelet, 3690.0))
    assert not again.was_ready
    assert again.may_load(clocks.now + 3500)
    assert not again.may_load(clocks.now + 3700)


@check_rows("here", SKEWS)
def test_an_exporter_that_comes_late_counts_by_the_clock_of_the_api_server(here: float) -> None:
    # without it, by the own one
    for clocks, offset in ((Clocks(now=3000.0, here=here), MADE), (Clocks(now=3000.0), None)):
        found = look(clocks.book(3600.0), loading(0.0, 30.0), offset=offset)
        assert found.may_load(clocks.now + 500)
        assert not found.may_load(clocks.now + 700)


def test_a_node_whose_clock_is_put_back_has_no_container_that_was_ready() -> None:
    pod = loading(0.0, 30.0)
    # the pod was begun at 10 o'clock; then the clock was put back to 8, and the container started
    pod["status"]["startTime"] = pod["status"]["conditions"][-1]["lastTransitionTime"] = timestamp(MADE + 7200)
    assert not look(StateBook(3600.0), pod).was_ready


def test_readiness_that_comes_and_goes_changes_nothing_once_it_has_been_there() -> None:
    book = StateBook(3600.0)
    for ready in (False, True, False, True, False):
        found = see(book, runs(ready))
    assert found.was_ready
    assert found.fault is None


def test_a_sidecar_of_a_worker_that_crashes_costs_the_replica_nothing() -> None:
    leader, worker = replica()
    beside = {"name": "fluent-bit", "image": "i"}
    worker["spec"]["containers"] = [*worker["spec"]["containers"], beside]
    worker["status"]["containerStatuses"].append(
        {"name": "fluent-bit", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    )
    assert fault_of(group_of(GroupBook(), leader, worker)) is None


def test_a_pod_that_ends_for_an_hour_on_a_lost_node_is_down_and_one_of_an_unknown_phase_is_what_its_page_says() -> None:
    lost = lost_node_status(POD, "10.0.0.1", evicted=True)
    pod = leaving(stored(POD, "uid-1", lost))
    assert look(StateBook(600.0), pod).fault is PodFault.NODE_LOST
    unknown = {**runs(), "phase": "Unknown"}
    assert see(StateBook(600.0), unknown).fault is None
