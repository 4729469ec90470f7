"""What discovery through a real Kubernetes API server costs: `KUBE_APISERVER=/path/to/kube-apiserver .venv/bin/python -m bench.kubernetes`.

Two thousand pods are made; then the daemon starts: with one server, with all pods' addresses in a file, and with the pods discovered. The
third less the second is what discovery costs. Then it starts as in a DaemonSet, with the pods of one node of eight GPUs, the tests' NVML
and a kubelet that says which pod has which GPU; and once more with all of the pods beside NVML and the kubelet. The engines are not
there, and are asked every ten minutes only (a node's every ten seconds): this is about finding them, not about reading them. CPU is
measured for a minute at rest and extrapolated to an hour; then for a minute in which 500 pods change every second, or as many as API
server and etcd take on the machine that they share with the exporter.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.cycle import say
from bench.servers import Program, build_nvml, fetch, free_port
from tests.nvml_stub.stub import StubState
from tests.support.builders.pods import Pod, fixture_pod, running_status
from tests.support.servers.kube_api import KubeApi, Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.servers.kubelet import StubKubelet

NAMESPACE = "fleet"
WRITERS = 6
START_LIMIT_SECONDS = 120.0
NODE_GPUS = 8
SHOWN, LINKED = "llm_serving_target_up{", "llm_serving_gpu_target_info{"


@dataclass(frozen=True)
class Cost:
    """Of one run of the daemon. Bytes, and seconds."""

    start_seconds: float  # until all targets are on its page
    resident_bytes: int  # after the time at rest
    rest_cpu_seconds_per_hour: float  # extrapolated
    busy_cpu_share: float | None = None  # of one core, while pods change; None: not measured
    changes_per_second: float = 0.0  # that were reached meanwhile
    busy_resident_bytes: int = 0


# reading it takes longer than writing a pod
TEMPLATE = fixture_pod("production-stack", "llama3")


def make_pod(number: int) -> Pod:
    """A pod of production-stack, eight of them a node; no two have one address."""
    metadata = {**TEMPLATE["metadata"], "name": f"vllm-{number}", "namespace": NAMESPACE}
    return {**TEMPLATE, "metadata": metadata, "spec": {**TEMPLATE["spec"], "nodeName": name_node(number)}}


def name_node(number: int) -> str:
    return f"node-{number // NODE_GPUS}"


def address(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


def list_pod(number: int) -> Manifest:
    """The same pod as a group of a file, with the name that discovery gives it."""
    return {"targets": [f"{address(number)}:8000"], "labels": {"name": f"{NAMESPACE}/vllm-{number}:8000"}}


class Writers:
    """Several connections that write at a time."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster, self._own = cluster, threading.local()
        self._pool = ThreadPoolExecutor(WRITERS)

    def write_all(self, write: Callable[[KubeApi, int], None], numbers: range | list[int]) -> None:
        for done in [self._pool.submit(self._write, write, number) for number in numbers]:
            done.result()

    def _write(self, write: Callable[[KubeApi, int], None], number: int) -> None:
        if not hasattr(self._own, "api"):
            self._own.api = self._cluster.user(self._cluster.admin_token)
        write(self._own.api, number)

    def close(self) -> None:
        self._pool.shutdown()


def create_pod(api: KubeApi, number: int) -> None:
    pod = make_pod(number)
    api.create_pod(pod, running_status(pod, address(number)))


def change_pod(api: KubeApi, number: int) -> None:
    """As a kubelet writes it: it is Ready, or it is not."""
    pod: Manifest = make_pod(number)
    api.set_status(pod, running_status(pod, address(number), ready=random.random() < 0.5))


def keep_changing(writers: Writers, pods: int, each_second: int, seconds: float) -> float:
    """Changes pods for that long; the rate that was reached."""
    begun, changed = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < seconds:
        if changed > elapsed * each_second:
            time.sleep(changed / each_second - elapsed)
        batch = random.sample(range(pods), min(pods, each_second // 5))
        writers.write_all(change_pod, batch)
        changed += len(batch)
    return changed / (time.monotonic() - begun)


def measure(
    folder: Path,
    name: str,
    config: Manifest,
    targets: int,
    seconds: float,
    busy: Callable[[float], float] | None = None,
    *,
    gpus: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Runs the daemon with this configuration until all its targets, and which of them has which of `gpus` GPUs, are shown; then for some
    time at rest, then `busy`."""
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump({"gpu": {"enabled": False}, **config}))
    port = free_port()
    listen = ("--web.listen-address", f"127.0.0.1:{port}")
    command = (sys.executable, "-m", "llm_serving_exporter", *listen, "--config.file", str(path))
    begun = time.monotonic()
    with Program(*command, ready_url=f"http://127.0.0.1:{port}/-/healthy", environment=environment) as daemon:
        while True:
            page = ""
            with suppress(TimeoutError):  # while it starts on a machine that others use too
                page = fetch(f"http://127.0.0.1:{port}/metrics")
            shown, known = page.count(SHOWN), page.count(LINKED)
            if shown >= targets and known >= gpus:
                break
            if time.monotonic() - begun > START_LIMIT_SECONDS:
                said = fetch(f"http://127.0.0.1:{port}/debug/targets")[-2000:]
                what = f"{shown} of {targets} targets, {known} of {gpus} GPUs"
                raise SystemExit(f"{name}: {what} after {START_LIMIT_SECONDS:.0f} s: {said}")
            time.sleep(0.2)
        started = time.monotonic() - begun
        # what a start leaves to be done
        time.sleep(10.0)
        before = daemon.cpu_seconds()
        time.sleep(seconds)
        rest = daemon.cpu_seconds() - before
        resident, share, rate = daemon.resident_bytes(), None, 0.0
        if busy is not None:
            before, begun = daemon.cpu_seconds(), time.monotonic()
            rate = busy(seconds)
            share = (daemon.cpu_seconds() - before) / (time.monotonic() - begun)
        return Cost(started, resident, rest / seconds * 3600.0, share, rate, daemon.resident_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kubernetes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--changes", type=int, default=500, help="pods that change every second (default 500)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is measured (default 60)")
    arguments = parser.parse_args()
    program = os.environ.get("KUBE_APISERVER") or sys.exit("KUBE_APISERVER names no kube-apiserver program")
    pods, seconds = arguments.pods, arguments.seconds
    with tempfile.TemporaryDirectory() as name, KubeCluster(Path(name) / "cluster", program) as cluster:
        folder = Path(name)
        cluster.admin.create_namespace(NAMESPACE)
        token = cluster.admin.create_account(NAMESPACE, "exporter")
        cluster.admin.grant((NAMESPACE, "exporter"), within=NAMESPACE)
        writers = Writers(cluster)
        say(f"making {pods} pods …")
        writers.write_all(create_pod, range(pods))
        rare = {"scrape": {"interval": "10m", "timeout": "1s"}, "window": "30m"}
        one = {**rare, "targets": [{"url": "http://127.0.0.1:9"}]}
        listed = folder / "targets.yml"
        listed.write_text(yaml.safe_dump([list_pod(number) for number in range(pods)]))
        section = {"namespaces": [NAMESPACE], "kubeconfig": str(cluster.kubeconfig(token))}
        say("one server …")
        alone = measure(folder, "one", one, 1, seconds)
        say("all of them out of a file …")
        filed = measure(folder, "file", {**rare, "file_sd": [{"files": [str(listed)]}]}, pods, seconds)
        say("all of them discovered …")

        def busy(span: float) -> float:
            return keep_changing(writers, pods, arguments.changes, span)

        found = measure(folder, "kubernetes", {**rare, "kubernetes": [section]}, pods, seconds, busy)
        environment = {**build_nvml(folder, NODE_GPUS), "NODE_NAME": name_node(0)}
        with StubKubelet(folder / "kubelet" / "kubelet.sock") as kubelet:
            container = TEMPLATE["spec"]["containers"][0]["name"]
            for number in range(NODE_GPUS):
                kubelet.give(NAMESPACE, f"vllm-{number}", container, ids=[StubState.uuid(number)])
            gpu = {"enabled": True, "interval": "5s", "pod_resources_socket": str(kubelet.path)}
            say("a node's of them discovered, beside NVML and a kubelet …")
            # which GPU is whose is told at a target's tick
            often = {"scrape": {"interval": "10s", "timeout": "1s"}}
            own = {**often, "gpu": gpu, "kubernetes": [{**section, "node": "own"}]}
            node = measure(folder, "node", own, NODE_GPUS, seconds, gpus=NODE_GPUS, environment=environment)
            say("all of them discovered, beside NVML and a kubelet …")
            every = {**rare, "gpu": gpu, "kubernetes": [section]}
            most = measure(folder, "most", every, pods, seconds, environment=environment)
        writers.close()
    say("")
    say(f"| {'':<28} | {'start':>7} | {'resident':>9} | {'CPU of an hour at rest':>22} |")
    say(f"|{'-' * 30}|{'-' * 9}|{'-' * 11}|{'-' * 24}|")
    rows = (
        ("one server", alone), (f"{pods} out of a file", filed), (f"{pods} pods discovered", found),
        (f"{NODE_GPUS} of {pods}, NVML, kubelet", node), (f"{pods}, NVML, kubelet", most),
    )  # fmt: skip
    for label, cost in rows:
        resident, rest = f"{cost.resident_bytes / 1e6:.1f} MB", f"{cost.rest_cpu_seconds_per_hour:.1f} s"
        say(f"| {label:<28} | {cost.start_seconds:>5.1f} s | {resident:>9} | {rest:>22} |")
    say("")
    more_bytes = found.resident_bytes - filed.resident_bytes
    more_cpu = found.rest_cpu_seconds_per_hour - filed.rest_cpu_seconds_per_hour
    say(f"Discovery: {more_bytes / 1e6:+.1f} MB, {more_cpu:+.1f} CPU seconds an hour at rest, out of {seconds:.0f} s.")
    share, rate, busy_resident = found.busy_cpu_share or 0.0, found.changes_per_second, found.busy_resident_bytes
    say(
        f"While {rate:.0f} pods changed a second: {100 * share:.1f} % of one core, {busy_resident / 1e6:.1f} MB resident."
    )
    if 0 < rate < 0.95 * arguments.changes:
        more = share / rate * arguments.changes
        say(
            f"{arguments.changes} a second would take {100 * more:.0f} % (extrapolated: the machine did not reach them)."
        )


if __name__ == "__main__":
    main()
