"""Engines of all kinds beside the real exporter and a real API server: at rest, moved, hostile, in the network of their node."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders.discovered_pods import plain_pod
from tests.support.builders.pods import crash_loop_status, ended_status, running_status
from tests.support.builders.recordings import page
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.servers.pod_engine import PodEngine
from tests.support.servers.replica import Replica, Routes
from tests.support.servers.server_process import free_port

pytestmark = pytest.mark.kubernetes

EMPTY = (200, "text/plain; version=0.0.4", b"")
SGLANG = {"/v1/models": '{"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "sglang"}]}'}
TGI = {
    "/info": '{"model_id": "m", "max_total_tokens": 4096, "max_best_of": 2, "max_stop_sequences": 4, "version": "3.3.7"}'
}
OLLAMA = {"/api/ps": '{"models": []}', "/api/version": '{"version": "0.12.0"}'}
# what a server without any request answers, the labels and annotations of its pod, the runtime that it is
AT_REST: dict[str, tuple[Routes, dict[str, str], dict[str, str], str]] = {
    "sglang": ({"/metrics": EMPTY, **SGLANG}, {}, {}, "sglang"),
    "tgi": ({"/metrics": EMPTY, **TGI}, {}, {}, "tgi"),
    "dynamo": ({"/metrics": EMPTY}, {}, {"runtime": "dynamo-worker"}, "dynamo-worker"),
    "ollama": (OLLAMA, {"app": "ollama"}, {}, "ollama"),
}


def create(cluster: KubeCluster, namespace: str, name: str, port: int, **more: Any) -> Manifest:
    """A pod that asks to be read at this port, with no status yet."""
    asks = {"scrape": "true", "port": str(port), **more.get("annotations", {})}
    pod = plain_pod(
        name,
        namespace=namespace,
        labels=more.get("labels"),
        annotations={f"llm-serving-exporter/{key}": text for key, text in asks.items()},
        containers=more.get("containers", [{"name": "engine", "image": "engine"}]),
        **more.get("spec", {}),
    )
    del pod["status"], pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
    return cluster.admin.create_pod({"apiVersion": "v1", "kind": "Pod", **pod})


def write_config(cluster: KubeCluster, folder: Path, *sections: dict[str, Any]) -> str:
    kubeconfig = str(cluster.kubeconfig(cluster.admin_token))
    path = folder / "exporter.yml"
    found = {"scrape": {"interval": "1s"}, "kubernetes": [{"kubeconfig": kubeconfig, **one} for one in sections]}
    path.write_text(yaml.safe_dump(found))
    return str(path)


def test_engines_without_a_request_since_their_start_are_idle(
    cluster: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    """All in the network of one node: one address, a port each."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(Replica(routes)) for name, (routes, *_) in AT_REST.items()}
        targets = {}
        for name, (_, labels, annotations, _) in AT_REST.items():
            port = int(servers[name].url.rpartition(":")[2])
            pod = create(
                cluster, namespace, name, port, labels=labels, annotations=annotations, spec={"hostNetwork": True}
            )
            cluster.admin.set_status(pod, running_status(pod, "127.0.0.1", started=time.time()))
            targets[name] = f"{namespace}/{name}:{port}"
        config = write_config(cluster, tmp_path, {"namespaces": [namespace]})
        exporter = stack.enter_context(Exporter("--config.file", config))
        for name, target in targets.items():
            found = exporter.until(
                lambda one, target=target: one.value("scrape_attempts_total", target=target) >= 4, f"readings of {name}"
            )
            assert found.value("target_state", target=target, state="ready") == 1, name
            assert found.value("target_state", target=target, state="down") == 0, name
            assert found.value("target_info", target=target, runtime=AT_REST[name][3]) == 1, name
            assert found.total("scrape_failures_total", target=target) == 0, name
        assert exporter.get("/debug/targets").json()["discovery"]["problems"] == []
        # its first requests are counted as those of the same server
        servers["sglang"].show({"/metrics": page("sglang-0.5.23", 46), **SGLANG})
        busy = exporter.until(
            lambda one: one.total("decode_tokens_total", target=targets["sglang"]) > 0, "the first requests"
        )
        assert busy.total("target_restarts_total", target=targets["sglang"]) == 0


def test_a_pod_that_gets_another_address_and_one_that_ends(
    cluster: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    """As after a restart of its node; with both kinds of addresses the first one counts."""
    port = free_port()
    old, new = PodEngine("127.0.65.1", port), PodEngine("127.0.65.2", port)
    target = f"{namespace}/a:{port}"
    config = write_config(cluster, tmp_path, {"namespaces": [namespace]})
    beside = [{"name": "engine", "image": "e"}, {"name": "fluent-bit", "image": "f"}]
    with ExitStack() as stack:
        for engine in (old, new):
            engine.start()
            stack.callback(engine.stop)
        exporter = stack.enter_context(Exporter("--config.file", config))
        pod = create(cluster, namespace, "a", port, containers=beside)
        cluster.admin.set_status(pod, running_status(pod, [old.address, "fd00::7"]))
        exporter.until(lambda one: one.value("target_up", target=target) == 1, "the pod")
        old.stop()
        status = running_status(pod, [new.address, "fd00::8"])
        # whoever ships its logs crashes, which is nothing to the engine
        status["containerStatuses"][1] = crash_loop_status(pod, new.address)["containerStatuses"][1]
        cluster.admin.set_status(pod, status)
        exporter.until(lambda one: bool(new.served) and one.value("target_up", target=target) == 1, "its new address")
        assert exporter.scrape().value("target_state", target=target, state="ready") == 1
        cluster.admin.set_status(pod, ended_status(pod, "Failed", "Evicted"))
        gone = exporter.until(lambda one: not one.series("target_up", target=target), "its end")
        assert not gone.series("pods_waiting")


def test_annotations_lead_nowhere_else_and_get_no_credentials(
    cluster: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    other = cluster.admin.create_namespace(f"{namespace[:50]}-other")
    (tmp_path / "secret").write_text("never-to-be-shown")
    mine = {"namespaces": [namespace], "defaults": {"auth": {"bearer_token_file": str(tmp_path / "secret")}}}
    try:
        with ExitStack() as stack:
            engines = {name: PodEngine(f"127.0.66.{number}", free_port()) for number, name in enumerate("abc", 1)}
            for engine in engines.values():
                engine.start()
                stack.callback(engine.stop)
            for name, where in (("a", namespace), ("b", other)):
                pod = create(cluster, where, name, engines[name].port)
                cluster.admin.set_status(pod, running_status(pod, engines[name].address))
            hostile = {
                "port": "99999", "path": "http://127.0.66.3/metrics", "scheme": "gopher", "runtime": "x", "role": "root",
            }  # fmt: skip
            for number, (key, text) in enumerate(hostile.items()):
                pod = create(cluster, namespace, f"h-{number}", engines["c"].port, annotations={key: text})
                # those whose runtime or role makes no sense are read all the same
                cluster.admin.set_status(pod, running_status(pod, f"127.0.67.{number + 1}"))
            # the other namespace belongs to a section without credentials, or to none
            config = write_config(cluster, tmp_path, mine, {"namespaces": [other]})
            exporter = stack.enter_context(Exporter("--config.file", config))
            exporter.until(lambda one: one.total("target_up") == 2, "both engines")
            assert engines["a"].credentials == {"Bearer never-to-be-shown"}
            assert engines["b"].credentials == {""}
            assert engines["c"].credentials == set(), "nobody is asked at an address that an annotation names"
            said = "\n".join(exporter.get("/debug/targets").json()["discovery"]["problems"])
            for number, key in enumerate(hostile):
                assert f"pod {namespace}/h-{number}, annotation llm-serving-exporter/{key}: " in said
            shown = [*exporter.log, exporter.get("/debug/targets").text, exporter.get("/").text, exporter.scrape().text]
            assert not any("never-to-be-shown" in text for text in shown)
        too_long = {"llm-serving-exporter/path": "/" + "a" * 1_000_000}
        answer = cluster.admin.request(
            "PATCH", f"/api/v1/namespaces/{other}/pods/b", {"metadata": {"annotations": too_long}},
            kind="application/merge-patch+json",
        )  # fmt: skip
        assert answer.status_code == 422, "Kubernetes itself takes no annotation of that size"
    finally:
        cluster.admin.request("DELETE", f"/api/v1/namespaces/{other}/pods", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("hours", [-10, 10])
def test_a_node_whose_clock_is_wrong_makes_nothing_down_and_nothing_load_for_ever(
    cluster: KubeCluster, namespace: str, tmp_path: Path, hours: int
) -> None:
    port = free_port()
    target = f"{namespace}/a:{port}"
    config = write_config(cluster, tmp_path, {"namespaces": [namespace], "loading_limit": "20s"})
    with Exporter("--config.file", config) as exporter:
        pod = create(cluster, namespace, "a", port)
        started = time.time() + hours * 3600
        cluster.admin.set_status(pod, running_status(pod, "127.0.68.1", ready=False, started=started))
        found = exporter.until(lambda one: one.total("scrape_failures_total", target=target) >= 2, "its readings")
        assert found.value("target_state", target=target, state="loading") == 1
        exporter.until(lambda one: one.value("target_state", target=target, state="down") == 1, "the end of the limit")
        # another start is another life
        again = running_status(pod, "127.0.68.1", ready=False, started=started + 60, restarts=1)
        cluster.admin.set_status(pod, again)
        exporter.until(lambda one: one.value("target_state", target=target, state="loading") == 1, "its next start")
        # Ready for a moment, and not since then: its page decides
        cluster.admin.set_status(pod, running_status(pod, "127.0.68.1", started=started + 60, restarts=1))
        exporter.until(lambda one: one.value("target_state", target=target, state="down") == 1, "that it served once")
