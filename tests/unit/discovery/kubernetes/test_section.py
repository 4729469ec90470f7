"""One section over time, against an API server that says what the test scripts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_serving_exporter.config.types import KubernetesDiscovery
from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.model.kubelet import Worker
from llm_serving_exporter.model.pod import PodFault
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.registry import RUNTIMES
from tests.support.builders.discovered_pods import Pod, plain_pod, section
from tests.support.builders.pods import fixture_pods, running_status, stored
from tests.support.servers.kube_script import Answer, Call, KubeScript, events, page, refusal, write_kubeconfig
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ENGINE = {"app": "vllm"}
WORKERS = (Worker("lws", "vllm-0-1", "lws/vllm-0:8080"),)


@contextmanager
def served(folder: Path, *answers: Answer, **settings: Any) -> Iterator[SectionPods]:
    """A section with these settings, of a server that answers so."""
    with KubeScript(*answers) as server:
        of = section(**settings, kubeconfig=str(write_kubeconfig(folder, server.url)))
        with running(of) as pods:
            yield pods


@contextmanager
def running(of: KubernetesDiscovery, **settings: Any) -> Iterator[SectionPods]:
    pods = SectionPods(of, **settings)
    try:
        yield pods
    finally:
        pods.close()
        mirrors = pods._list_mirrors()
        wait_until(lambda: not any(one._thread.is_alive() for one in mirrors), "the end of its threads")


def listed(pods: SectionPods) -> SectionReading:
    """The first reading in which every list has come."""
    return awaited(pods, lambda found: all(source.targets is not None for source in found.sources))


def awaited(pods: SectionPods, holds: Callable[[SectionReading], object]) -> SectionReading:
    """The first reading of which this holds."""
    pods.read()
    (found,) = wait_until(lambda: [one for one in [pods.read()] if holds(one)], "the reading", lambda: str(pods.read()))
    return found


def names(found: SectionReading) -> list[str]:
    return [target.name for source in found.sources for target in source.targets or ()]


def by_path(**answers: Answer) -> Answer:
    """Lists by the last words of their path; watches stay silent."""

    def answer(call: Call) -> None:
        if call.is_watch:
            events()(call)
        else:
            answers[next(name for name in answers if name in call.path or name in call.query.get("labelSelector", ""))](
                call
            )

    return answer


def test_it_waits_for_nothing_and_says_when_there_is_something_new(tmp_path: Path) -> None:
    told = events(("ADDED", plain_pod("b", labels=ENGINE, address="10.0.0.8")))
    with KubeScript(page([plain_pod("a", labels=ENGINE)]), told) as server:
        of = section(kubeconfig=str(write_kubeconfig(tmp_path, server.url)))
        with running(of) as pods:
            assert pods.have_changed()
            first = pods.read()
            assert [source.targets for source in first.sources] == [None]
            wait_until(lambda: names(pods.read()) == ["llm/a:8000", "llm/b:8000"], "both pods")
            wait_until(lambda: not pods.have_changed(), "quiet")
        assert [call.path for call in server.calls] == ["/api/v1/pods", "/api/v1/pods"]
        assert {call.query["fieldSelector"] for call in server.calls} == {
            "status.phase!=Succeeded,status.phase!=Failed"
        }


def test_what_a_section_asks_for(tmp_path: Path) -> None:
    with KubeScript(page([])) as server:
        kubeconfig = str(write_kubeconfig(tmp_path, server.url))
        of = section(
            namespaces=("a", "b"), node="gpu-node-1", selector="app=vllm", node_data=True, kubeconfig=kubeconfig
        )
        with running(of) as pods:
            listed(pods)
            wait_until(lambda: len({call.path for call in server.calls}) == 3, "all lists")
        asked = {call.path: call.query for call in server.calls if not call.is_watch}
    assert sorted(asked) == ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods", "/api/v1/nodes"]
    # with those that have ended, whose GPUs a kubelet may still list
    assert asked["/api/v1/namespaces/a/pods"]["fieldSelector"] == "spec.nodeName=gpu-node-1"
    assert asked["/api/v1/namespaces/a/pods"]["labelSelector"] == "app=vllm"
    assert asked["/api/v1/nodes"]["fieldSelector"] == "metadata.name=gpu-node-1"


NODE = {
    "metadata": {
        "name": "gpu-node-1",
        "labels": {"topology.kubernetes.io/region": "r", "node.kubernetes.io/instance-type": "t"},
    },
    "spec": {"providerID": "aws:///i-1"},
}


def test_data_of_nodes_where_it_is_wanted(tmp_path: Path) -> None:
    answer = by_path(nodes=page([NODE]), pods=page([plain_pod(labels=ENGINE)]))
    with served(tmp_path, answer, node_data=True) as pods:
        found = awaited(pods, lambda one: any(target.identity.region for target in one.sources[0].targets or ()))
    (target,) = found.sources[0].targets or ()
    identity = target.identity
    assert (identity.provider_id, identity.region, identity.instance_type) == ("aws:///i-1", "r", "t")


def test_a_right_that_is_missing_for_nodes_costs_no_target(tmp_path: Path) -> None:
    answer = by_path(nodes=refusal(403, "nodes is forbidden"), pods=page([plain_pod(labels=ENGINE)]))
    with served(tmp_path, answer, node_data=True) as pods:
        found = awaited(pods, lambda one: one.problems and names(one))
    assert [str(problem) for problem in found.problems] == [
        "kubernetes (nodes): it may not list and watch nodes of the cluster: nodes is forbidden. "
        "Give its service account list and watch on nodes by a ClusterRole, or leave out node_data."
    ]


def test_states_and_pods_that_wait(tmp_path: Path) -> None:
    ready = plain_pod("a", labels=ENGINE)
    ready["status"]["containerStatuses"] = [
        {"name": "engine", "ready": True, "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}
    ]
    waiting = {**plain_pod("b", labels=ENGINE), "status": {"phase": "Pending"}}
    with served(tmp_path, page([ready, waiting]), events()) as pods:
        found = listed(pods)
    assert {name: state.was_ready for name, state in found.pods.items()} == {"llm/a:8000": True}
    assert [pod.pod for pod in found.waiting] == ["b"]


def test_one_namespace_that_may_not_be_read_costs_the_other_nothing(tmp_path: Path) -> None:
    def answer(call: Call) -> None:
        (refusal(403, "no") if "/b/" in call.path else events() if call.is_watch else page([plain_pod(labels=ENGINE)]))(
            call
        )

    with KubeScript(answer) as server:
        of = section(namespaces=("a", "b"), kubeconfig=str(write_kubeconfig(tmp_path, server.url)))
        with running(of) as pods:
            first, second = awaited(pods, lambda one: names(one) and one.sources[1].problems).sources
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
    with served(tmp_path, page([leader, worker])) as pods:
        found = listed(pods)
    assert (names(found), found.workers) == (["lws/vllm-0:8080"], WORKERS)


def test_a_worker_that_goes_is_missed(tmp_path: Path) -> None:
    leader, worker = replica()
    may_go = threading.Event()

    def loses(call: Call) -> None:
        call.start()
        may_go.wait(PATIENCE_SECONDS)
        call.tell("DELETED", worker)
        call.stay()

    with served(tmp_path, page([leader, worker]), loses) as pods:
        assert listed(pods).pods["lws/vllm-0:8080"].fault is None
        may_go.set()
        later = awaited(pods, lambda one: one.pods["lws/vllm-0:8080"].fault)
    assert later.pods["lws/vllm-0:8080"].fault is PodFault.WORKER_LOST
    assert [target.gpu_count for source in later.sources for target in source.targets or ()] == [16]


def test_the_leader_of_a_worker_may_be_on_another_node(tmp_path: Path) -> None:
    leader, worker = replica()

    def answer(call: Call) -> None:
        if call.is_watch:
            events()(call)
        elif "spec.nodeName=gpu-node-2" in call.query["fieldSelector"]:
            page([worker])(call)
        else:
            assert (
                call.query["labelSelector"]
                == "leaderworkerset.sigs.k8s.io/name,leaderworkerset.sigs.k8s.io/worker-index=0"
            )
            page([leader])(call)

    with KubeScript(answer) as server:
        of = section(node="gpu-node-2", kubeconfig=str(write_kubeconfig(tmp_path, server.url)))
        with running(of) as pods:
            found = awaited(pods, lambda one: one.workers)
    assert names(found) == []
    assert found.workers == WORKERS


def test_a_section_that_takes_the_place_of_another_knows_its_pods_at_once(tmp_path: Path) -> None:
    with KubeScript(page([plain_pod(labels=ENGINE)]), events(), refusal(500, "away")) as server:
        of = section(kubeconfig=str(write_kubeconfig(tmp_path, server.url)))
        with running(of) as earlier:
            listed(earlier)
            wait_until(lambda: server.watches, "the watch")
            other = replace(of, defaults=replace(Target("", ""), group="blue"))
            with running(other, earlier=earlier) as later:
                found = later.read()
    assert [(target.name, target.group) for target in found.sources[0].targets or ()] == [
        ("llm/chat-7d9-x2:8000", "blue")
    ]


def test_discovery_passes_on_what_pods_say(tmp_path: Path) -> None:
    leader, worker = replica()
    waiting = {**plain_pod("b", labels=ENGINE), "status": {"phase": "Pending"}}
    with KubeScript(page([leader, worker, waiting]), events()) as server:
        discovery = Discovery((section(kubeconfig=str(write_kubeconfig(tmp_path, server.url))),))
        try:
            found = wait_until(lambda: [one for one in [discovery.targets((), RUNTIMES)] if one.targets], "targets")[0]
        finally:
            discovery.close()
    assert set(found.pods) == {"lws/vllm-0:8080"}
    assert [pod.pod for pod in found.waiting] == ["b"]
    assert found.workers == WORKERS


def test_pods_of_the_node_that_have_ended_are_told_for_their_gpus_and_are_no_targets(tmp_path: Path) -> None:
    ended = {**plain_pod("job", labels={"app": "training"}), "status": {"phase": "Succeeded", "podIP": "10.0.0.9"}}
    engine = {**plain_pod("old", labels=ENGINE), "status": {"phase": "Failed"}}
    without = plain_pod("cpu", containers=[{"name": "c"}])
    pods_of_node = [ended, engine, {**without, "status": {"phase": "Failed"}}, plain_pod("a", labels=ENGINE)]
    with served(tmp_path, page(pods_of_node), events(), node="gpu-node-1") as pods:
        found = listed(pods)
    assert (names(found), found.finished) == (["llm/a:8000"], {("llm", "job"), ("llm", "old")})
