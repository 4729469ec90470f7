"""One section over time, against an API server that says what the test scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.discovery.kubernetes import section as section_module
from llm_serving_exporter.discovery.kubernetes.objects import decode_node
from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.discovery.sections import Discovered, Discovery
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import NodePlace, PodFault, Target
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from tests.support.builders.discovered_pods import Pod, plain_pod, section
from tests.support.builders.pods import fixture_pods, running_status, stored
from tests.support.servers.kube_script import Answer, Call, KubeScript, events, page, refusal, write_kubeconfig
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ENGINE = {"app": "vllm"}
WORKERS = (Worker("lws", "vllm-0-1", "lws/vllm-0:8080", pod_uid="uid-worker"),)


class Served:
    """A running section, and the server that it asks."""

    def __init__(self, server: KubeScript, of: KubernetesDiscovery, **settings: Any) -> None:
        self.server, self.of, self.pods = server, of, SectionPods(of, **settings)

    def awaited(self, holds: Callable[[SectionReading], object]) -> SectionReading:
        """The first reading of which this holds."""
        read = self.pods.read
        read()
        (found,) = wait_until(lambda: [one for one in [read()] if holds(one)], "the reading", lambda: str(read()))
        return found

    def listed(self) -> SectionReading:
        """The first reading in which every list has come."""
        return self.awaited(lambda found: all(source.targets is not None for source in found.sources))

    @contextmanager
    def succeeded(self, **changes: Any) -> Iterator[Served]:
        """A section with other settings in the place of this one, which runs on."""
        with running(Served(self.server, replace(self.of, **changes), earlier=[self.pods])) as later:
            yield later


@contextmanager
def running(one: Served) -> Iterator[Served]:
    try:
        yield one
    finally:
        one.pods.close()
        mirrors = one.pods._list_mirrors()
        wait_until(lambda: not any(mirror._thread.is_alive() for mirror in mirrors), "the end of its threads")


@contextmanager
def served(folder: Path, *answers: Answer, **settings: Any) -> Iterator[Served]:
    """A section with these settings, of a server that answers so."""
    with KubeScript(*answers) as server:
        of = section(**settings, kubeconfig=str(write_kubeconfig(folder, server.url)))
        with running(Served(server, of)) as one:
            yield one


@contextmanager
def discovered(folder: Path, *answers: Answer, sections: Sequence[dict[str, Any]] = ({},)) -> Iterator[Any]:
    """A server that answers so, the sections, and their discovery."""
    with KubeScript(*answers) as server:
        kubeconfig = str(write_kubeconfig(folder, server.url))
        of = tuple(section(**settings, kubeconfig=kubeconfig) for settings in sections)
        with closing(Discovery(of)) as discovery:
            yield server, of, discovery


def loses(pod: Pod, may_go: threading.Event) -> Answer:
    """A watch that tells that a pod is gone, as soon as it may."""

    def answer(call: Call) -> None:
        call.start()
        may_go.wait(PATIENCE_SECONDS)
        call.tell("DELETED", pod)
        call.stay()

    return answer


def watched(of_list: Answer, of_watch: Answer | None = None) -> Answer:
    """A list, and its watch: one that is silent unless it is given."""
    return lambda call: (of_watch or events())(call) if call.is_watch else of_list(call)


def targets_of(found: SectionReading) -> list[Target]:
    return [target for source in found.sources for target in source.targets or ()]


def names(found: SectionReading) -> list[str]:
    return [target.name for target in targets_of(found)]


def by_path(**answers: Answer) -> Answer:
    """Lists by the last words of their path; watches stay silent."""
    return watched(
        lambda call: answers[
            next(name for name in answers if name in call.path or name in call.query.get("labelSelector", ""))
        ](call)
    )


def test_it_waits_for_nothing_and_says_when_there_is_something_new(tmp_path: Path) -> None:
    told = events(("ADDED", plain_pod("b", labels=ENGINE, address="10.0.0.8")))
    with served(tmp_path, page([plain_pod("a", labels=ENGINE)]), told) as one:
        pods = one.pods
        assert pods.have_changed()
        assert [source.targets for source in pods.read().sources] == [None]
        wait_until(lambda: names(pods.read()) == ["llm/a:8000", "llm/b:8000"], "both pods")
        wait_until(lambda: not pods.have_changed(), "quiet")
    calls = one.server.calls
    assert [call.path for call in calls] == ["/api/v1/pods", "/api/v1/pods"]
    assert {call.query["fieldSelector"] for call in calls} == {"status.phase!=Succeeded,status.phase!=Failed"}


def test_what_a_section_asks_for(tmp_path: Path) -> None:
    settings = {"namespaces": ("a", "b"), "node": "gpu-node-1", "selector": "app=vllm", "node_data": True}
    with served(tmp_path, page([]), **settings) as one:
        one.listed()
        wait_until(lambda: len({call.path for call in one.server.calls}) == 3, "all lists")
    asked = {call.path: call.query for call in one.server.calls if not call.is_watch}
    assert sorted(asked) == ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods", "/api/v1/nodes"]
    # with those that have ended, whose GPUs a kubelet may still list
    assert asked["/api/v1/namespaces/a/pods"]["fieldSelector"] == "spec.nodeName=gpu-node-1"
    assert asked["/api/v1/namespaces/a/pods"]["labelSelector"] == "app=vllm"
    assert asked["/api/v1/nodes"]["fieldSelector"] == "metadata.name=gpu-node-1"


PLACE = {
    "topology.kubernetes.io/region": "r",
    "topology.kubernetes.io/zone": "z",
    "node.kubernetes.io/instance-type": "t",
}
NODE = {"metadata": {"name": "gpu-node-1", "labels": PLACE}, "spec": {"providerID": "aws:///i-1"}}


def test_data_of_nodes_where_it_is_wanted(tmp_path: Path) -> None:
    answer = by_path(nodes=page([NODE]), pods=page([plain_pod(labels=ENGINE)]))
    with served(tmp_path, answer, node_data=True) as one:
        found = one.awaited(lambda found: any(target.identity.region for target in targets_of(found)))
    (target,) = targets_of(found)
    identity = target.identity
    assert (identity.provider_id, identity.region, identity.instance_type) == ("aws:///i-1", "r", "t")
    assert target.node_places == (("gpu-node-1", NodePlace("r", "z", "t", "aws:///i-1")),)


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        # names of before Kubernetes 1.17, https://kubernetes.io/docs/reference/labels-annotations-taints/
        (
            {
                "failure-domain.beta.kubernetes.io/region": "r",
                "failure-domain.beta.kubernetes.io/zone": "z",
                "beta.kubernetes.io/instance-type": "t",
            },
            ("r", "z", "t"),
        ),
        # both are there: the new ones are believed
        ({"topology.kubernetes.io/zone": "new", "failure-domain.beta.kubernetes.io/zone": "old"}, ("", "new", "")),
        ({}, ("", "", "")),
    ],
)  # fmt: skip
def test_places_of_nodes_under_old_and_new_names(labels: dict[str, str], place: tuple[str, str, str]) -> None:
    _, node = decode_node(json.dumps({"metadata": {"name": "n", "labels": labels}, "spec": {}}).encode())
    assert (node.region, node.zone, node.instance_type) == place


def test_a_right_that_is_missing_for_nodes_costs_no_target(tmp_path: Path) -> None:
    answer = by_path(nodes=refusal(403, "nodes is forbidden"), pods=page([plain_pod(labels=ENGINE)]))
    with served(tmp_path, answer, node_data=True) as one:
        found = one.awaited(lambda found: found.problems and names(found))
    assert [str(problem) for problem in found.problems] == [
        "kubernetes (nodes): it may not list and watch nodes of the cluster: nodes is forbidden. "
        "Give its service account list and watch on nodes by a ClusterRole, or leave out node_data."
    ]


SLICE = {
    "metadata": {"name": "slice-a"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "gpu-node-1", "generation": 1},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}],
    },
}


def test_slices_of_the_node_where_they_are_wanted(tmp_path: Path) -> None:
    answer = by_path(resourceslices=page([SLICE]), pods=page([plain_pod(labels=ENGINE)]))
    settings = {"claimed_devices": True, "node": "gpu-node-1"}
    with served(tmp_path, answer, **settings) as one:
        found = one.awaited(lambda found: found.slices)
    asked = {call.query["fieldSelector"] for call in one.server.calls if call.path.endswith("/resourceslices")}
    assert found.slices == {("gpu-node-1", "gpu-0"): "GPU-1"}
    assert asked == {"spec.nodeName=gpu-node-1,spec.driver=gpu.nvidia.com"}
    with discovered(tmp_path, answer, sections=[settings]) as (_, _, discovery):
        wait_until(lambda: discovery.targets((), RUNTIMES).slices == found.slices, "the slices")
        discovery.replace((), None)
        assert discovery.targets((), RUNTIMES).slices == {}


def test_a_cluster_without_slices_costs_no_target(tmp_path: Path) -> None:
    answer = by_path(resourceslices=refusal(404, "404 page not found"), pods=page([plain_pod(labels=ENGINE)]))
    with served(tmp_path, answer, claimed_devices=True, node="gpu-node-1") as one:
        found = one.awaited(lambda found: found.problems and names(found))
    assert [str(problem) for problem in found.problems] == [
        "kubernetes (resource slices of node gpu-node-1): the API server knows no resourceslices. Kubernetes 1.34 and newer have them; "
        "leave out gpu.dra where the cluster is older or no driver is installed."
    ]


def test_states_and_pods_that_wait(tmp_path: Path) -> None:
    ready = plain_pod("a", labels=ENGINE)
    ready["status"]["containerStatuses"] = [
        {"name": "engine", "ready": True, "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}
    ]
    waiting = {**plain_pod("b", labels=ENGINE), "status": {"phase": "Pending"}}
    with served(tmp_path, page([ready, waiting]), events()) as one:
        found = one.listed()
    assert {name: state.was_ready for name, state in found.pods.items()} == {"llm/a:8000": True}
    assert [pod.pod for pod in found.waiting] == ["b"]


def test_one_namespace_that_may_not_be_read_costs_the_other_nothing(tmp_path: Path) -> None:
    listing = watched(page([plain_pod(labels=ENGINE)]))

    def answer(call: Call) -> None:
        (refusal(403, "no") if "/b/" in call.path else listing)(call)

    with served(tmp_path, answer, namespaces=("a", "b")) as one:
        first, second = one.awaited(lambda found: names(found) and found.sources[1].problems).sources
    assert (first.name, first.problems) == ("kubernetes (namespace a)", ())
    assert second.targets is None
    assert (
        "it may not list and watch pods in the namespace b: no. Give its service account list and watch on pods by a Role"
        in str(second.problems[0])
    )


def replica() -> tuple[Pod, Pod]:
    leader, worker = fixture_pods("leaderworkerset")
    return (
        stored(leader, "uid-leader", running_status(leader, "10.0.0.1")),
        stored(worker, "uid-worker", running_status(worker, "10.0.0.2")),
    )


def test_workers_are_told_with_the_target_that_they_work_for(tmp_path: Path) -> None:
    leader, worker = replica()
    with served(tmp_path, page([leader, worker])) as one:
        found = one.listed()
    assert (names(found), found.workers) == (["lws/vllm-0:8080"], WORKERS)


def test_the_nodes_of_a_replica_stand_where_each_of_them_stands(tmp_path: Path) -> None:
    leader, worker = replica()
    where = [pod["spec"]["nodeName"] for pod in (leader, worker)]
    assert len(set(where)) == 2
    nodes = [
        {
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": f"zone-{at}"}},
            "spec": {"providerID": f"i-{at}"},
        }
        for at, name in enumerate(where)
    ]
    with served(tmp_path, by_path(nodes=page(nodes), pods=page([leader, worker])), node_data=True) as one:
        found = one.awaited(lambda found: found.workers and found.workers[0].place.zone)
    (target,) = targets_of(found)
    first, second = (NodePlace("", f"zone-{at}", "", f"i-{at}") for at in range(2))
    assert dict(target.node_places) == dict(zip(where, (first, second), strict=True))
    assert [one.place for one in found.workers] == [second]


def test_a_worker_that_goes_is_missed(tmp_path: Path) -> None:
    leader, worker = replica()
    may_go = threading.Event()
    with served(tmp_path, page([leader, worker]), loses(worker, may_go)) as one:
        assert one.listed().pods["lws/vllm-0:8080"].fault is None
        may_go.set()
        later = one.awaited(lambda found: found.pods["lws/vllm-0:8080"].fault)
    assert later.pods["lws/vllm-0:8080"].fault is PodFault.WORKER_LOST
    assert [target.gpu_count for target in targets_of(later)] == [16]


def test_the_leader_of_a_worker_may_be_on_another_node(tmp_path: Path) -> None:
    leader, worker = replica()

    def lists(call: Call) -> None:
        if "spec.nodeName=gpu-node-2" in call.query["fieldSelector"]:
            page([worker])(call)
        else:
            leaders = "leaderworkerset.sigs.k8s.io/name,leaderworkerset.sigs.k8s.io/worker-index=0"
            assert call.query["labelSelector"] == leaders
            page([leader])(call)

    with served(tmp_path, watched(lists), node="gpu-node-2") as one:
        found = one.awaited(lambda found: found.workers)
    assert (names(found), found.workers) == ([], WORKERS)


LED_HERE = "leaderworkerset.sigs.k8s.io/name=vllm,leaderworkerset.sigs.k8s.io/group-index=0"


def led_here(leader: Pod, of_group: Answer, of_watch: Answer | None = None) -> Answer:
    """What a server answers an exporter beside the leader, whose worker is on another node. `of_watch`: of the leader's node."""

    def answer(call: Call) -> None:
        if call.query.get("labelSelector") == LED_HERE:
            assert call.path == "/api/v1/namespaces/lws/pods"
            of_group(call)
        else:
            assert call.is_watch or call.query["fieldSelector"] == "spec.nodeName=gpu-node-1"
            watched(page([leader]), of_watch)(call)

    return answer


def is_whole(found: SectionReading) -> bool:
    return bool(targets_of(found)) and not targets_of(found)[0].lacks_pods


def test_a_replica_that_is_led_here_is_known_with_its_pods_on_other_nodes(tmp_path: Path) -> None:
    leader, worker = replica()
    may_go = threading.Event()
    of_group = watched(page([leader, worker]), loses(worker, may_go))
    with served(tmp_path, led_here(leader, of_group), node="gpu-node-1") as one:
        # half of a replica is not taken for all of it
        first = [(target.gpu_count, target.lacks_pods) for target in targets_of(one.listed())]
        assert first in ([(None, True)], [(16, False)])
        found = one.awaited(is_whole)
        (target,) = targets_of(found)
        assert (target.gpu_count, target.nodes) == (16, ("gpu-node-1", "gpu-node-2"))
        # its kubelet is asked by another exporter
        assert (found.workers, found.pods[target.name].fault) == ((), None)
        may_go.set()
        later = one.awaited(lambda found: found.pods["lws/vllm-0:8080"].fault)
        (target,) = targets_of(later)
    assert later.pods[target.name].fault is PodFault.WORKER_LOST
    assert (target.gpu_count, target.nodes, target.lacks_pods) == (16, ("gpu-node-1", "gpu-node-2"), False)


def test_without_the_right_to_look_elsewhere_half_a_replica_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    leader, _ = replica()
    with served(tmp_path, led_here(leader, refusal(403, "pods is forbidden")), node="gpu-node-1") as one:
        found = one.awaited(lambda found: found.problems)
    (target,) = targets_of(found)
    assert (target.gpu_count, target.lacks_pods) == (None, True)
    assert "may not list and watch pods in the namespace lws" in str(found.problems[0])


def test_more_replicas_than_are_watched_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_module, "MOST_GROUPS", 0)
    leader, worker = replica()
    with served(tmp_path, led_here(leader, page([leader, worker])), node="gpu-node-1") as one:
        (problem,) = one.listed().problems
    assert "1 replica of several pods beyond 0 is led on this node" in str(problem)


def test_replicas_that_are_led_here_no_longer_are_watched_no_longer(tmp_path: Path) -> None:
    leader, worker = replica()
    may_go = threading.Event()
    answer = led_here(leader, watched(page([leader, worker])), loses(leader, may_go))
    with served(tmp_path, answer, node="gpu-node-1") as one:
        one.awaited(is_whole)
        (mirror,) = one.pods._members.values()
        may_go.set()
        one.awaited(lambda found: not targets_of(found))
        assert one.pods._members == {}
        wait_until(lambda: not mirror._thread.is_alive(), "the end of its thread")


def test_a_worker_that_nobody_shall_read_still_works_for_its_leader(tmp_path: Path) -> None:
    leader, worker = replica()
    worker["metadata"].setdefault("annotations", {})["llm-serving-exporter/scrape"] = "false"
    with served(tmp_path, page([leader, worker])) as one:
        found = one.listed()
    assert (names(found), found.workers) == (["lws/vllm-0:8080"], WORKERS)
    assert [target.gpu_count for target in targets_of(found)] == [16]


def test_a_section_that_takes_the_place_of_another_knows_its_pods_at_once(tmp_path: Path) -> None:
    with served(tmp_path, page([plain_pod(labels=ENGINE)]), events(), refusal(500, "away")) as one:
        one.listed()
        wait_until(lambda: one.server.watches, "the watch")
        with one.succeeded(defaults=replace(Target("", ""), group="blue")) as later:
            found = targets_of(later.pods.read())
            assert [(target.name, target.group) for target in found] == [("llm/chat-7d9-x2:8000", "blue")]
        # of another cluster or selector nothing is taken over
        for changes in ({"context": "other"}, {"selector": "team=chat"}):
            with one.succeeded(**changes) as later:
                assert later.pods.read().sources[0].targets is None


def test_sections_that_all_change_know_what_each_knew_while_the_server_is_away(tmp_path: Path) -> None:
    """A reload that touches every section, which a new default does."""
    leader, worker = replica()
    pods_of = {"lws": [leader, worker], "llm": [plain_pod(labels=ENGINE)]}
    tell = watched(lambda call: page(pods_of[call.path.split("/")[-2]])(call))
    settings = [{"namespaces": (name,)} for name in pods_of]
    with discovered(tmp_path, tell, sections=settings) as (server, sections, discovery):

        def found() -> Discovered:
            return discovery.targets((), RUNTIMES)

        wait_until(lambda: len(found().targets) == 2, "both namespaces")
        assert not found().pods["lws/vllm-0:8080"].fault
        server._answers[:] = [refusal(500, "away")]
        pods_of["lws"].remove(worker)
        blue = replace(Target("", ""), group="blue")
        discovery.replace(tuple(replace(one, defaults=blue) for one in sections), None)
        assert {target.name: target.group for target in found().targets} == {
            "lws/vllm-0:8080": "blue", "llm/chat-7d9-x2:8000": "blue",
        }  # fmt: skip
        # one section for both, which also knows who belonged to the replica
        server._answers[:] = [tell]
        discovery.replace((replace(sections[0], namespaces=("llm", "lws")),), None)
        assert len(found().targets) == 2
        wait_until(lambda: found().pods["lws/vllm-0:8080"].fault is PodFault.WORKER_LOST, "the loss")


def test_discovery_passes_on_what_pods_say(tmp_path: Path) -> None:
    leader, worker = replica()
    waiting = {**plain_pod("b", labels=ENGINE), "status": {"phase": "Pending"}}
    with discovered(tmp_path, page([leader, worker, waiting]), events()) as (_, _, discovery):
        (found,) = wait_until(lambda: [one for one in [discovery.targets((), RUNTIMES)] if one.targets], "targets")
    assert set(found.pods) == {"lws/vllm-0:8080"}
    assert [pod.pod for pod in found.waiting] == ["b"]
    assert found.workers == WORKERS


def test_pods_of_the_node_that_have_ended_are_told_for_their_gpus_and_are_no_targets(tmp_path: Path) -> None:
    ended = {**plain_pod("job", labels={"app": "training"}), "status": {"phase": "Succeeded", "podIP": "10.0.0.9"}}
    engine = {**plain_pod("old", labels=ENGINE), "status": {"phase": "Failed"}}
    without = plain_pod("cpu", containers=[{"name": "c"}])
    pods_of_node = [ended, engine, {**without, "status": {"phase": "Failed"}}, plain_pod("a", labels=ENGINE)]
    with served(tmp_path, page(pods_of_node), events(), node="gpu-node-1") as one:
        found = one.listed()
    assert (names(found), found.finished) == (["llm/a:8000"], {("llm", "job"), ("llm", "old")})


def test_a_replica_of_dynamo_that_is_led_here_is_known_with_its_pods_on_other_nodes(tmp_path: Path) -> None:
    def member(name: str, role: str, node: str) -> Pod:
        labels = {
            "nvidia.com/dynamo-component-type": "worker", "grove.io/podcliquescalinggroup": "d-decode",
            "grove.io/podcliquescalinggroup-replica-index": "0", "grove.io/podclique": f"d-0-decode-{role}",
        }  # fmt: skip
        pod = plain_pod(name, labels=labels, address=f"10.0.0.{len(name)}")
        return {**pod, "spec": {**pod["spec"], "nodeName": node}}

    leader, worker = member("a", "ldr", "gpu-node-1"), member("bb", "wkr", "gpu-node-2")

    def lists(call: Call) -> None:
        asked = call.query.get("labelSelector", "")
        group = "grove.io/podcliquescalinggroup=d-decode,grove.io/podcliquescalinggroup-replica-index=0"
        assert asked in ("", group)
        page([leader, worker] if asked else [leader])(call)

    with served(tmp_path, watched(lists), node="gpu-node-1") as one:
        (target,) = targets_of(one.awaited(is_whole))
    assert (target.gpu_count, target.nodes) == (2, ("gpu-node-1", "gpu-node-2"))
