"""What the daemon makes of discovery: servers with lists, shards, reloads, its end."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.daemon.jobs import DISCOVERY_EVERY_SECONDS
from llm_serving_exporter.discovery.sections import HANDOVER_SECONDS
from llm_serving_exporter.gpus.node_gpus import NodeGpus
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.target import find_shard
from llm_serving_exporter.settings.config import Config
from tests.support.builders.configuration import load_text
from tests.support.builders.discovered_pods import gpus, plain_pod
from tests.support.builders.handschedule import Driven
from tests.support.servers import faultbehaviours as answers
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.servers.kube_script import Call, KubeScript, page, write_kubeconfig
from tests.support.waiting import PATIENCE_SECONDS, wait_until


class Discovering(Driven):
    """A daemon out of a configuration file. Nothing listens where its targets are."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.text = folder, text
        super().__init__(self.load(), self.load)

    def load(self) -> Config:
        return load_text(self.folder, self.text, "--no-gpu.enabled")

    def reload(self, text: str) -> None:
        self.text = text
        assert self.daemon.reload() is None

    def look(self) -> set[str]:
        """The names of all targets after the next look at discovery."""
        self.schedule.advance(DISCOVERY_EVERY_SECONDS)
        return self.names

    @property
    def names(self) -> set[str]:
        return {reading.target.name for reading in self.daemon.store.view().targets}


def listing(*addresses: str, **labels: str) -> Behaviour:
    return answers.page(json.dumps([{"targets": addresses, "labels": labels}]).encode(), "application/json")


def http_sd(server: FaultServer, more: str = "") -> str:
    return f"http_sd: [{{url: '{server.url}/t', hosts: [127.0.0.1], refresh_interval: 100ms{more}}}]\n"


def test_targets_follow_a_list_and_stay_while_its_server_is_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultServer({"/t": answers.silent()}) as server, Discovering(tmp_path, http_sd(server)) as driven:
        assert driven.names == set()  # it serves before the list is there
        server.behave("/t", listing("127.0.0.1:9"))
        (name,) = wait_until(driven.look, "the first target")
        server.behave("/t", listing("127.0.0.1:9", "127.0.0.1:11"))
        wait_until(lambda: len(driven.look()) == 2, "the second target")

        counted = driven.daemon.store.view().discovery_failures_total
        server.behave("/t", answers.status(500))
        with caplog.at_level(logging.WARNING):
            wait_until(
                lambda: driven.look() and driven.daemon.store.view().discovery_failures_total > counted, "a failure"
            )
            asked = len(server.requests)
            server.wait_for_requests(asked + 1)
            driven.look()
        assert len(driven.names) == 2
        (problem,) = driven.daemon.store.view().discovery_problems
        assert problem.endswith("with 500. Until it answers, its last good targets stay.")
        assert [record.message for record in caplog.records if "500" in record.message] == [f"discovery: {problem}"]

        server.behave("/t", listing())
        wait_until(lambda: not driven.look(), "the end of the targets")
        assert driven.daemon.store.view().discovery_problems == ()
        assert name


def test_a_target_of_a_list_that_is_only_relabelled_goes_on(tmp_path: Path) -> None:
    first = listing("127.0.0.1:9", name="chat", team="search")
    with FaultServer({"/t": first}) as server, Discovering(tmp_path, http_sd(server)) as driven:

        def is_labelled(team: str) -> TargetReading | None:
            driven.look()
            found = (one for one in driven.daemon.store.view().targets if ("team", team) in one.target.identity.labels)
            return next(found, None)

        wait_until(lambda: is_labelled("search"), "the first label")
        driven.schedule.advance(DISCOVERY_EVERY_SECONDS)
        before = is_labelled("search")
        assert before.page.attempts_total > 0
        server.behave("/t", listing("127.0.0.1:9", name="chat", team="ads", namespace="prod"))
        after = wait_until(lambda: is_labelled("ads"), "the other label")
        assert after.page.attempts_total > before.page.attempts_total
        assert after.target.identity.namespace == "prod"


def test_a_replica_that_a_worker_joins_goes_on(tmp_path: Path) -> None:
    """As when Ray scales a cluster: the leader is the engine that it was, on more GPUs and nodes."""

    def node(name: str, node_type: str) -> dict[str, Any]:
        labels = {"app": "vllm", "ray.io/cluster": "c", "ray.io/node-type": node_type}
        pod = plain_pod(
            name,
            labels=labels,
            address="127.0.0.1",
            containers=[{"name": "e", "ports": [{"containerPort": 9}], "resources": gpus(8)}],
        )
        return {**pod, "spec": {**pod["spec"], "nodeName": f"node-of-{name}"}}

    joins = threading.Event()

    def watch(call: Call) -> None:
        call.start()
        joins.wait(PATIENCE_SECONDS)
        call.tell("ADDED", node("worker", "worker"))
        call.stay()

    with KubeScript(page([node("head", "head")]), watch) as server:
        text = f"kubernetes: [{{kubeconfig: {write_kubeconfig(tmp_path, server.url)}}}]\n"
        with Discovering(tmp_path, text) as driven:

            def read(gpu_count: int, attempts: int) -> TargetReading | None:
                driven.look()
                (found,) = driven.daemon.store.view().targets or (None,)
                return (
                    found
                    if found and found.target.gpu_count == gpu_count and found.page.attempts_total >= attempts
                    else None
                )

            assert wait_until(lambda: read(8, 3), "the head alone")
            joins.set()
            after = wait_until(lambda: read(16, 1), "both")
            assert after.page.attempts_total >= 3
            assert after.target.nodes == ("node-of-head", "node-of-worker")


def test_a_reload_keeps_what_is_known_and_the_end_ends_the_asking(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("- targets: ['127.0.0.1:13']\n")
    with FaultServer({"/t": listing("127.0.0.1:9")}) as server:
        with Discovering(tmp_path, http_sd(server)) as driven:
            known = wait_until(driven.look, "the first target")
            server.behave("/t", answers.silent())
            driven.reload(http_sd(server) + "file_sd: [{files: [a.yml]}]\n")
            assert driven.names > known
            driven.reload(http_sd(server, ", defaults: {interval: 10s}"))
            assert driven.names == known
            readings = driven.daemon.store.view().targets
            assert [reading.target.interval_seconds for reading in readings] == [10.0]
            driven.reload("targets: [127.0.0.1:15]\n")
            assert not driven.names & known
            wait_until(lambda: not asking(server), "the end of the asking")
            driven.reload(http_sd(server))
            assert asking(server)
        wait_until(lambda: not asking(server), "the end of the asking")


def asking(server: FaultServer) -> bool:
    """Whether a thread asks the server for its list."""
    return any(thread.name == f"http_sd {server.url}/t" for thread in threading.enumerate())


def test_a_shard_reads_its_part_and_a_reload_hands_it_over(tmp_path: Path) -> None:
    names = [f"a{number}:1" for number in range(30)]
    text = f"targets: {json.dumps(names)}\nscrape: {{interval: 10m, timeout: 1s}}\nwindow: 30m\n"

    def part(number: int, count: int) -> set[str]:
        return {name for name in names if find_shard(name, count) == number}

    with Discovering(tmp_path, f"{text}shard: 2/3\n") as driven:
        assert driven.names == part(2, 3)
        view = driven.daemon.store.view()
        assert (len(view.targets) + view.targets_elsewhere, view.targets_left_out) == (30, 0)
        driven.reload(f"{text}shard: 2/2\n")
        assert driven.names == part(2, 2) | part(2, 3)
        driven.schedule.jobs = {name: job for name, job in driven.schedule.jobs.items() if name == "discovery"}
        driven.schedule.advance(HANDOVER_SECONDS)
        assert driven.names == part(2, 2)
        driven.reload(text)
        assert driven.names == set(names)
        assert "discovery" not in driven.schedule.jobs


def test_devices_that_can_be_claimed_reach_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(NodeGpus, "set_pods", lambda _self, **pods: told.append(pods["slices"]))
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    device = {"name": "gpu-0", "attributes": {"uuid": {"string": uuid}}}
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "node-a"}, "devices": [device]}
    slices = page([{"metadata": {"name": "s"}, "spec": spec}])
    nothing = page([])
    with KubeScript(lambda call: (slices if "resourceslices" in call.path else nothing)(call)) as server:
        kubeconfig = write_kubeconfig(tmp_path, server.url)
        text = f"gpu: {{dra: true}}\nkubernetes: [{{kubeconfig: '{kubeconfig}', node: node-a}}]\n"
        with Discovering(tmp_path, text) as driven:
            wait_until(lambda: driven.look() == set() and {("node-a", "gpu-0"): uuid} in told, "the slice")
