"""A stub node: GPUs behind real NVML calls, a kubelet that is a real service, real pages, and the exporters that a test starts on it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.gpus.kubelet import KubeletSource
from llm_serving_exporter.gpus.nvml import NvmlSource
from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.settings.config import Config
from tests.nvml_stub.stub import StubState
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, write_proc_folder
from tests.support.servers.driven_exporter import hand_driven_host
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.kubelet import StubKubelet
from tests.support.servers.replica import Replica

CARDS = 8  # of a node
PRICES = PriceBook((PriceStatement(Scope.GPU_MODEL, "H100 SXM 80GB", 3.6, "owned"),), (Rate("owned", RateKind.OWNED),))


def pod(name: str, container: str = "vllm", *, port: int = 8000, **more: Any) -> Target:
    """A target as discovery makes it of a pod; on a number of its own among addresses that are not of this host."""
    uid = f"0a1b2c3d-0000-4000-8000-{sum(name.encode()):012d}"
    more = {"interval_seconds": 10.0, "metrics_path": "/metrics", "nodes": ("node-a",), **more}
    place = Identity(namespace="serving", pod=name, pod_uid=uid, container=container)
    return Target(f"serving/{name}:{port}", f"http://10.9.0.9:{port}", identity=place, **more)


@dataclass
class Node:
    """A node's GPUs, its kubelet, and the exporters that a test starts on it."""

    folder: Path
    state: StubState
    kubelet: StubKubelet
    server: Replica
    stack: ExitStack
    exporters: int = 0
    clocks: list[Any] = field(default_factory=list)

    def start(self, *targets: Target, name: str = "node-a", kubelet: bool = True, proc: Path | None = None) -> Exporter:
        """An exporter: of a DaemonSet with the kubelet's folder, without it a sidecar's."""
        self.exporters += 1
        root = proc or write_proc_folder(self.folder / f"proc{self.exporters}", namespace=OWN_PID_NAMESPACE)
        host, clock = hand_driven_host(Config(targets=(), prices=PRICES), proc_root=root)
        host.gpus.set_source(NvmlSource(gpm=False, xid_events=False, monotonic=clock.monotonic))
        if kubelet:
            clocks = {"monotonic": clock.monotonic, "wall": clock.wall}
            host.gpus.set_kubelet(KubeletSource(str(self.kubelet.path), **clocks))
        self.stack.enter_context(closing(host))
        for target in targets:
            host.add_target(target, connect=partial(connect_to, self.server.url))
        host.settle_targets()
        return Exporter(host, clock, name)


def connect_to(url: str, _asked: str, *args: Any, **more: Any) -> HttpClient:
    """A client of the one server that stands for all engines."""
    return HttpClient(url, *args, **more)


class Exporter:
    """One exporter; `tick` reads everything once, ten seconds after the last time."""

    def __init__(self, host: Any, clock: Any, node: str) -> None:
        self.host, self.clock, self.node = host, clock, node
        self.store = Store()
        for hosted in host.targets.values():
            self.store.add_target(hosted.target)
        setup = Setup(30.0, 30.0, node, prices=host.config.prices)
        self.registry = CollectorRegistry()
        self.registry.register(ViewCollector(self.store.view, lambda: setup, clock.monotonic))

    def tick(self, seconds: float = 10.0) -> Scraped:
        self.clock.seconds += seconds
        kubelet = self.host.gpus.read_kubelet()
        self.store.put_kubelet(kubelet.attempt if kubelet is not None else None)
        readings = self.host.read_gpus()
        gpus = self.host.gpus
        self.store.put_gpus(readings, gpus.latest.peaks, node_gpus=gpus.node_count, workers=gpus.workers)
        for hosted in self.host.targets.values():
            self.store.put_target(hosted.tick())
        return self.page()

    def page(self) -> Scraped:
        return Scraped(encode(self.registry, "")[0].decode())

    def origin(self, name: str) -> str:
        reading = self.store.target(name)
        return reading.gpus.origin
