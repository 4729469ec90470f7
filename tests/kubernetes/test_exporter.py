"""The real exporter beside a real API server: a pod's engine from its first sight to its end, over the engine's own port and a proxy's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.discovered_pods import plain_pod
from tests.support.builders.pods import lost_node_status, running_status
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.servers.replica import Replica

pytestmark = pytest.mark.kubernetes

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
