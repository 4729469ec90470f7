"""What a large fleet that changes costs, beside a stand-in API server: `.venv/bin/python -m bench.churn`.

The daemon finds 2,000 pods at bench/stand_in.py, which tells what a real API server said of such a pod. First no pod changes; then as in
a calm fleet, where each pod is written every five minutes without a change that matters; then 500 pods become Ready or not each second.
CPU is the daemon's own process time, without a scrape. The lag is measured afterwards under the same changes: from the moment at which
a pod's address changes until the engine there is asked for the first time. The other engines are not there, and all are asked every ten
minutes only.

`KUBE_APISERVER=/path/to/kube-apiserver .venv/bin/python -m bench.churn --record` records anew what the stand-in says.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests
import yaml

from bench.cycle import say
from bench.servers import Program, fetch, free_port
from bench.stand_in import NAMESPACE, RECORDING, address, name_node, name_pod
from tests.support.builders.pods import fixture_pod, running_status
from tests.support.servers.kube_api import KubeApi, Manifest
from tests.support.servers.kube_cluster import KubeCluster

RARE = {"scrape": {"interval": "10m", "timeout": "1s"}, "window": "30m", "gpu": {"enabled": False}}
START_LIMIT_SECONDS = 120.0
LAG_LIMIT_SECONDS = 60.0
# what a start leaves to be done
SETTLE_SECONDS = 12.0
CALM_SECONDS_A_POD = 300.0


# --- recording ----------------------------------------------------------------------------------------------------


def record(program: str) -> None:
    """What a real API server's watch says of one pod, byte for byte, with its managedFields."""
    template = fixture_pod("production-stack", "llama3")
    metadata = {**template["metadata"], "name": name_pod(0), "namespace": NAMESPACE}
    pod: Manifest = {**template, "metadata": metadata, "spec": {**template["spec"], "nodeName": name_node(0)}}
    with tempfile.TemporaryDirectory() as name, KubeCluster(Path(name), program) as cluster:
        admin = cluster.admin
        admin.create_namespace(NAMESPACE)
        stored = admin.create_pod(pod, running_status(pod, address(0), ready=False))
        version = stored["metadata"]["resourceVersion"]
        lines = watch(admin, version, pod)
        found = {
            "server": str(admin.call("GET", "/version")["gitVersion"]),
            "uid": stored["metadata"]["uid"],
            "version": {
                kind: json.loads(line)["object"]["metadata"]["resourceVersion"] for kind, line in lines.items()
            },
            "pods": {kind: cut_object(lines[kind]) for kind in ("ready", "unready", "calm")},
            "bookmark": lines["bookmark"],
        }
    RECORDING.write_text(json.dumps(found, indent=1) + "\n")
    say(f"{RECORDING.name}: {len(found['pods']['ready'])} bytes a pod")


def watch(admin: KubeApi, version: str, pod: Manifest) -> dict[str, str]:
    """One line of the watch a kind of event."""
    query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": "8"}
    headers = {"Authorization": f"Bearer {admin.token}"}
    url = f"{admin.url}/api/v1/namespaces/{NAMESPACE}/pods"
    with admin.http.get(url, params=query, headers=headers, stream=True, timeout=20) as answer:
        admin.set_status(pod, running_status(pod, address(0)))
        admin.set_status(pod, running_status(pod, address(0), ready=False))
        admin.set_status(pod, running_status(pod, address(0)))
        admin.annotate_pod(pod, {"example.com/seen": "2026-11-23T05:00:00Z"})
        lines = [line.decode() for line in answer.iter_lines()]
    return dict(zip(("ready", "unready", "again", "calm", "bookmark"), lines, strict=True))


def cut_object(line: str) -> str:
    """The text of the object in an event."""
    start, end = '{"type":"MODIFIED","object":', "}"
    assert line.startswith(start), line[:80]
    return line[len(start) :].removesuffix(end)


# --- measuring ----------------------------------------------------------------------------------------------------


class StandInApi:
    """Steers a running stand-in."""

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder, self._http = folder, requests.Session()
        self._http.trust_env, self._http.verify = False, str(folder / "ca.pem")
        deadline = time.monotonic() + 20.0
        while not (folder / "url").exists():
            if time.monotonic() > deadline or program.process.poll() is not None:
                raise SystemExit("the stand-in did not start")
            time.sleep(0.05)
        self._url = (folder / "url").read_text()

    @property
    def kubeconfig(self) -> str:
        return str(self._folder / "kubeconfig")

    def call(self, what: str, **query: str) -> Any:
        answer = self._http.get(f"{self._url}/stand-in/{what}", params=query, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def set_rate(self, each_second: float, kind: str) -> None:
        self.call("rate", each_second=str(each_second), kind=kind)


@contextmanager
def run_stand_in(folder: Path, pods: int, *arguments: str) -> Iterator[StandInApi]:
    folder.mkdir()
    with Program(sys.executable, "-m", "bench.stand_in", str(folder), "--pods", str(pods), *arguments) as program:
        yield StandInApi(folder, program)


def measure_share(daemon: Program, seconds: float) -> float:
    """CPU seconds of the daemon a second."""
    before, begun = daemon.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (daemon.cpu_seconds() - before) / (time.monotonic() - begun)


def measure_lags(api: StandInApi, port: int, pods: int, times: int) -> list[float]:
    """Seconds from the change of a pod's address until the engine there is asked for the first time, each of another pod."""
    lags = []
    for number in range(times):
        address = f"127.2.0.{number + 1}"
        with socket.create_server((address, port)) as engine:
            engine.settimeout(LAG_LIMIT_SECONDS)
            begun = time.monotonic()
            api.call("move", pod=str((number * 197) % pods), address=address)
            engine.accept()[0].close()
            lags.append(time.monotonic() - begun)
    return lags


def wait_for_targets(url: str, targets: int) -> None:
    deadline = time.monotonic() + START_LIMIT_SECONDS
    page = ""
    while page.count("llm_serving_target_up{") < targets:
        if time.monotonic() > deadline:
            raise SystemExit(f"{page.count('llm_serving_target_up{')} of {targets} targets: {page[:2000]}")
        time.sleep(0.2)
        with suppress(TimeoutError):  # while it starts on a machine that others use too
            page = fetch(url, 30.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.churn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--changes", type=float, default=500.0, help="pods that change every second (default 500)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is measured (default 60)")
    parser.add_argument("--calm-seconds", type=float, default=180.0, help="how long a calm fleet is (default 180)")
    parser.add_argument("--lags", type=int, default=15, help="how many changes are timed (default 15)")
    parser.add_argument("--record", action="store_true", help="only record what the stand-in says")
    arguments = parser.parse_args()
    if arguments.record:
        record(os.environ.get("KUBE_APISERVER") or sys.exit("KUBE_APISERVER names no kube-apiserver program"))
        return
    pods, seconds = arguments.pods, arguments.seconds
    engines, port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name, run_stand_in(Path(name) / "api", pods, "--port", str(engines)) as api:
        path = Path(name) / "exporter.yml"
        section = {"namespaces": [NAMESPACE], "kubeconfig": api.kubeconfig}
        path.write_text(yaml.safe_dump({**RARE, "kubernetes": [section]}))
        url = f"http://127.0.0.1:{port}"
        command = (sys.executable, "-m", "llm_serving_exporter", "--config.file", str(path))
        with Program(*command, f"--web.listen-address=127.0.0.1:{port}", ready_url=f"{url}/-/healthy") as daemon:
            wait_for_targets(f"{url}/metrics", pods)
            time.sleep(SETTLE_SECONDS)
            say(
                f"| {'':<25} | {'changes a second':>16} | {'of a core':>9} | {'CPU of an hour':>14} | {'RSS':>9} | {'taken within':>12} |"
            )
            for label, rate, kind, span in (
                ("no pod changes", 0.0, "calm", seconds),
                ("calm fleet", pods / CALM_SECONDS_A_POD, "calm", arguments.calm_seconds),
                ("pods become Ready or not", arguments.changes, "ready", seconds),
            ):
                api.set_rate(rate, kind)
                share, told = measure_share(daemon, span), api.call("told")
                resident, taken = daemon.resident_bytes() / 1e6, 1000 * told["slowest_seconds"]
                reached = f"{told['told'] / told['seconds']:>16.1f} | {100 * share:>7.2f} % | {3600 * share:>12.1f} s"
                say(f"| {label:<25} | {reached} | {resident:>6.1f} MB | {taken:>9.0f} ms |")
            lags = sorted(measure_lags(api, engines, pods, arguments.lags))
            told, resident = api.call("told"), daemon.resident_bytes() / 1e6
    say("")
    say(
        f"A pod's new address is asked after {statistics.median(lags):.1f} s (median of {len(lags)}; {lags[0]:.1f} to {lags[-1]:.1f} s), of"
        f" which up to 5 s are the spread of first readings, while {told['told'] / told['seconds']:.0f} pods change a second"
        f" ({resident:.1f} MB by then)."
    )


if __name__ == "__main__":
    main()
