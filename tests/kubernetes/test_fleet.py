"""A fleet that rolls and scales, through a real API server and the real exporter; the watcher of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.observer import STEADY, Observer
from tests.kubernetes.workload import RunningPod, Workload
from tests.support.builders.discovered_pods import plain_pod
from tests.support.builders.pods import lost_node_status, running_status
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.servers.pod_engine import PodEngine
from tests.support.servers.replica import Replica
from tests.support.servers.server_process import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes

# as often as the daemon looks at what discovery has found
INTERVAL = "5s"


class Fleet:
    """A Deployment, the exporter that discovers its pods, and who watches it."""

    def __init__(self, cluster: KubeCluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._folder = folder
        self._running = ExitStack()

    def __enter__(self) -> Fleet:
        steady = PodEngine("127.0.63.1", free_port())
        steady.start()
        self._running.callback(steady.stop)
        admin = self.cluster.admin
        token = admin.create_account(self.namespace, "exporter")
        self.granted = admin.grant((self.namespace, "exporter"), within=self.namespace)
        section = {
            "namespaces": [self.namespace],
            "selector": "app=chat",
            "kubeconfig": str(self.cluster.kubeconfig(token)),
            "defaults": {"interval": INTERVAL},
        }
        config = {"targets": [{"name": STEADY, "url": steady.url, "interval": INTERVAL}], "kubernetes": [section]}
        path = self._folder / "exporter.yml"
        path.write_text(yaml.safe_dump(config))
        self.exporter = self._running.enter_context(Exporter("--config.file", str(path)))
        self.observer = self._running.enter_context(Observer(self.exporter))
        self.workload = Workload(admin, self.namespace, "chat", free_port(), self.step)
        self._running.callback(self.workload.close)
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()

    def step(self) -> None:
        """Says what there is, and lets one reading pass."""
        self.observer.note(pod for pod in self.workload.pods if pod.has_address)
        self.observer.pass_readings()

    def settle(self) -> None:
        """Lets as many readings pass as anything may take to be seen."""
        self.step()
        self.observer.pass_readings(4)

    def problems(self) -> str:
        """What the exporter says is wrong with discovery now; "" for nothing."""
        return "\n".join(self.exporter.get("/debug/targets").json()["discovery"]["problems"])

    def check(self) -> None:
        """Nothing was lost or double for more than two intervals, and all that was shown was so."""
        assert self.observer.faults == []
        known = {pod.target: pod for pod in (*self.workload.pods, *self.workload.gone)}
        shown: set[str] = set()
        for page in self.observer.pages:
            for target, labels in page.labels.items():
                if target != STEADY:
                    expected = known[target].expected_labels
                    assert expected.items() <= labels.items(), f"{target}: {labels}"
            shown |= page.tokens.keys() - {STEADY}
        assert shown == known.keys(), "each pod has been read"
        for pod in known.values():
            check_counters(pod, [page.tokens[pod.target] for page in self.observer.pages if pod.target in page.tokens])


def check_counters(pod: RunningPod, shown: list[float]) -> None:
    """What the exporter shows is what the engine served, in its order, up to its last but one page: a scrape may fall before the last."""
    served = pod.engine.served
    assert set(shown) <= set(served), pod.name
    assert shown == sorted(shown), f"{pod.name} fell"
    assert shown[-1] in served[-2:], f"{pod.name} showed {shown[-1]} at last, and served {served[-3:]}"


@pytest.fixture
def fleet(cluster: KubeCluster, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(cluster, namespace, tmp_path) as running:
        yield running


def test_a_rolling_update_of_six_pods(fleet: Fleet) -> None:
    fleet.workload.scale(6)
    fleet.settle()
    fleet.workload.roll()
    fleet.settle()
    assert len(fleet.workload.gone) == 6
    fleet.check()


def test_two_pods_become_eight_and_two_again(fleet: Fleet) -> None:
    for replicas in (2, 8, 2):
        fleet.workload.scale(replicas)
        fleet.settle()
        assert len(fleet.observer.pages[-1].targets) == replicas
    fleet.check()


@contextmanager
def without_api_server(cluster: KubeCluster) -> Iterator[None]:
    cluster.kill_api_server()
    try:
        yield
    finally:
        cluster.start_api_server()


def test_an_api_server_that_dies_takes_no_target_with_it(fleet: Fleet) -> None:
    fleet.workload.scale(2)
    fleet.settle()
    with without_api_server(fleet.cluster):
        said = wait_until(fleet.problems, "the exporter to say so")
        assert "pods in the namespace" in said
        assert "cannot be followed" in said
        before = {pod.name: len(pod.engine.served) for pod in fleet.workload.pods}
        fleet.observer.pass_readings(3)
        assert all(len(pod.engine.served) > before[pod.name] for pod in fleet.workload.pods), "they are still read"
    wait_until(lambda: not fleet.problems(), "the exporter to be well again")
    fleet.workload.scale(3)
    fleet.settle()
    assert len(fleet.observer.pages[-1].targets) == 3
    fleet.check()


def test_a_right_that_is_taken_back_takes_no_target_with_it(fleet: Fleet) -> None:
    fleet.workload.scale(2)
    fleet.settle()
    fleet.cluster.admin.revoke(fleet.granted)
    # an open watch lasts for minutes: a server that starts again ends it
    with without_api_server(fleet.cluster):
        pass
    refused = f"it may not list and watch pods in the namespace {fleet.namespace}"
    wait_until(lambda: refused in fleet.problems(), "the exporter to say so", fleet.problems)
    assert "Give its service account list and watch on pods by a Role" in fleet.problems()
    fleet.settle()
    assert len(fleet.observer.pages[-1].targets) == 2
    fleet.cluster.admin.grant((fleet.namespace, "exporter"), within=fleet.namespace)
    wait_until(lambda: not fleet.problems(), "the exporter to be well again")
    fleet.check()


def test_a_version_that_the_server_forgot_is_a_list_and_no_loss(fleet: Fleet) -> None:
    fleet.workload.scale(2)
    fleet.settle()
    fleet.cluster.forget_versions()
    log = fleet.exporter.log
    wait_until(lambda: any("the list is read again" in line for line in log), "the list to be read again")
    fleet.workload.scale(3)
    fleet.settle()
    assert len(fleet.observer.pages[-1].targets) == 3
    fleet.check()


# --- the real exporter beside a real API server ---


PAGE = """# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.70000000042e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 1
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
"""


def test_a_pod_from_its_first_sight_to_its_end(cluster: KubeCluster, namespace: str, tmp_path: Path) -> None:
    config, kubeconfig = tmp_path / "exporter.yml", cluster.kubeconfig(cluster.admin_token)
    section = f"{{namespaces: [{namespace}], kubeconfig: {kubeconfig}}}"
    config.write_text(f"scrape: {{interval: 1s}}\nkubernetes: [{section}]\n")
    routes = {"/metrics": PAGE.format(tokens=7).encode()}
    with Replica() as engine, Replica() as proxy, Exporter("--config.file", str(config)) as exporter:
        ports = [server.url.rpartition(":")[2] for server in (engine, proxy)]
        first, second = sorted(f"{namespace}/a:{port}" for port in ports)
        asks = {"llm-serving-exporter/scrape": "true", "llm-serving-exporter/port": ",".join(ports)}
        pod = plain_pod("a", namespace=namespace, annotations=asks, containers=[{"name": "engine", "image": "engine"}])
        del pod["status"], pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
        stored = cluster.admin.create_pod({"apiVersion": "v1", "kind": "Pod", **pod}, {"phase": "Pending"})
        exporter.until(lambda page: page.value("pods_waiting", namespace=namespace) == 1, "the pod that waits")

        engine.refuse()
        proxy.refuse()
        started = time.time()
        cluster.admin.set_status(stored, running_status(stored, "127.0.0.1", ready=False, started=started))
        loading = exporter.until(
            lambda page: page.value("target_state", target=first, state="loading") == 1, "that it loads"
        )
        assert loading.series("pods_waiting") == {}
        assert loading.value("target_info", target=first, namespace=namespace, pod="a", container="engine") == 1

        # both ports show the page of one engine: one target of the two is left
        engine.show(routes)
        proxy.show(routes)
        cluster.admin.set_status(stored, running_status(stored, "127.0.0.1", started=started))
        one = exporter.until(
            lambda page: (
                page.value("target_state", target=first, state="ready") == 1
                and not page.series("target_up", target=second)
            ),
            "that one target is left, and ready",
        )
        assert one.value("decode_tokens_total", target=first, model_name="m") == 7

        engine.refuse()
        proxy.refuse()
        exporter.until(lambda page: page.value("target_state", target=first, state="down") == 1, "that it is down")

        cluster.kill_api_server()
        away = exporter.until(lambda page: page.value("exporter_discovery_failures_total") > 0, "that this is said")
        assert away.value("target_state", target=first, state="down") == 1
        cluster.start_api_server()
        cluster.admin.delete_pod(stored)
        exporter.until(lambda page: not page.series("target_up"), "its end")


def test_an_address_and_a_name_that_are_handed_on(cluster: KubeCluster, namespace: str, tmp_path: Path) -> None:
    """A pod on a lost node, whose address another pod gets; and a StatefulSet's pod that is made again under its name, at its address."""
    config, kubeconfig = tmp_path / "exporter.yml", cluster.kubeconfig(cluster.admin_token)
    config.write_text(
        f"scrape: {{interval: 1s}}\nkubernetes: [{{namespaces: [{namespace}], kubeconfig: {kubeconfig}}}]\n"
    )
    with Replica() as engine, Exporter("--config.file", str(config)) as exporter:
        port = engine.url.rpartition(":")[2]
        asks = {"llm-serving-exporter/scrape": "true", "llm-serving-exporter/port": port}

        def make(name: str) -> dict[str, Any]:
            pod = plain_pod(name, namespace=namespace, annotations=asks, containers=[{"name": "e", "image": "e"}])
            del pod["status"], pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
            made = {"apiVersion": "v1", "kind": "Pod", **pod}
            return cluster.admin.create_pod(made, running_status(made, "127.0.0.1", started=time.time()))

        def shows(name: str, tokens: int) -> Callable[[Scraped], bool]:
            target = f"{namespace}/{name}:{port}"
            return lambda page: (
                page.value("decode_tokens_total", target=target, model_name="m") == tokens
                and len(page.series("target_up")) == 1
            )

        engine.show({"/metrics": PAGE.format(tokens=100).encode()})
        first = make("a-0")
        exporter.until(shows("a-0", 100), "the first pod")
        cluster.admin.set_status(first, lost_node_status(first, "127.0.0.1"))
        engine.show({"/metrics": PAGE.format(tokens=7).encode()})
        second = make("b-0")
        exporter.until(shows("b-0", 7), "the pod that has its address, alone")
        said = "\n".join(exporter.get("/debug/targets").json()["discovery"]["problems"])
        assert f"is the address of {namespace}/b-0:{port} now, {namespace}/a-0:{port} is left out" in said

        cluster.admin.delete_pod(second)
        exporter.until(shows("a-0", 7), "the pod on the lost node, of whose address nobody else says that it is his")
        cluster.admin.delete_pod(first)
        exporter.until(lambda page: not page.series("target_up"), "the end of both")
        engine.show({"/metrics": PAGE.format(tokens=3).encode()})
        make("b-0")
        exporter.until(shows("b-0", 3), "the next pod of its name, which goes on from nothing")
        assert exporter.get("/debug/targets").json()["discovery"]["problems"] == []
