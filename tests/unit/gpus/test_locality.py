"""Which targets are on this host, and which processes are theirs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.ownership import Evidence, assign_gpus
from llm_serving_exporter.gpus.processes import engine_pids_by_target, is_local
from llm_serving_exporter.model.gpu import GpuIdentity, GpuReading
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.settings.kinds import parse_url
from tests.support.builders.configuration import load_flags
from tests.support.builders.procfolders import Process, write_proc_folder
from tests.support.rows import check_rows


@check_rows(
    ("url", "local"),
    [
        ("http://localhost:8000", True), ("http://vllm.localhost:8000", True), ("http://127.0.0.1:8000", True), ("http://127.8.8.8", True),
        ("http://[::1]:8000", True), ("http://0.0.0.0:8000", True), ("https://[::]:8000", True), ("http://10.0.0.7:8000", False),
        ("http://gpu-7:8000", False), ("http://localhost.example.com:8000", False), ("http://[fe80::1]:8000", False),
        ("http://128.0.0.1", False), ("http://[::ffff:127.0.0.1]:8000", True), ("http://[::ffff:10.0.0.7]:8000", False),
        ("http://[::ffff:0.0.0.0]:8000", True), ("http://LOCALHOST:8000", True), ("http://localhost.:8000", True),
        ("http://localhost.localdomain:8000", True), ("http://ip6-localhost:8000", True), ("http://ip6-loopback:8000", True),
        ("http://localhost6:8000", True), ("http://notlocalhost:8000", False), ("http://localdomain:8000", False),
    ],
)  # fmt: skip
def test_loopback_is_local(url: str, local: bool) -> None:
    """For GPU attribution and for the configuration alike."""
    assert is_local(Target("a", url), "web-3") is local
    assert parse_url(url).is_local("web-3") is local


@check_rows(
    ("own_name", "host", "local"),
    [
        ("gpu-7", "gpu-7", True), ("gpu-7", "GPU-7", True), ("Gpu-7", "gpu-7", True), ("gpu-7", "gpu-7.", True), ("gpu-7", "gpu-70", False),
        ("gpu-7.example.com", "gpu-7.example.com", True), ("gpu-7.example.com", "gpu-7.example.com.", True),
        # a short name resolves within the own domain
        ("gpu-7.example.com", "gpu-7", True), ("gpu-7.example.com", "gpu-8", False), ("gpu-7.example.com", "gpu-7.example", False),
        # a host, or a pod, of another domain may have the same short name
        ("gpu-7", "gpu-7.example.com", False), ("vllm-0", "vllm-0.b.svc", False), ("gpu-7.example.com", "gpu-7.example.org", False),
        ("", "gpu-7", False), ("10.0.0.7", "10.0.0.7", True),
    ],
)  # fmt: skip
def test_the_own_host_name_is_local_with_its_domain_and_without(own_name: str, host: str, local: bool) -> None:
    url = f"http://{host}:8000"
    assert is_local(Target("a", url), own_name) is local
    assert parse_url(url).is_local(own_name) is local


def test_the_systems_host_name_is_taken_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-7")
    assert is_local(Target("a", "http://gpu-7:8000"))
    assert not is_local(Target("a", "http://gpu-8:8000"))


def test_the_gpus_of_a_target_under_the_own_host_name_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is local to the configuration, so it is to the attribution: not "set gpus or gpu_count" for a target that is here."""
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-7")
    gpus = (GpuReading(GpuIdentity("GPU-1", 0, "NVIDIA H100 80GB HBM3")),)
    for url in ("http://gpu-7:9", "http://[::ffff:127.0.0.1]:9"):
        (target,) = load_flags("--target", url, host_name="gpu-7").targets
        assert target.nodes == ("gpu-7",)
        found = assign_gpus((target,), gpus, Evidence(engine_pids_by_target((target,))), {})[target.name]
        assert (found.uuids, found.origin, found.why) == (("GPU-1",), "only_target", "")


def test_the_processes_behind_a_local_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = engine_pids_by_target(
            (
                Target("here", f"http://127.0.0.1:{port}"),
                Target("there", f"http://10.255.255.1:{port}"),
                Target("closed", "http://127.0.0.1:9"),
            )
        )
    assert os.getpid() in found["here"]
    assert found["closed"] == frozenset()
    assert set(found) == {"here", "closed"}


def test_the_processes_of_a_pod_are_its_targets(tmp_path: Path) -> None:
    one, two = (f"0a1b2c3d-0000-4000-8000-00000000000{n}" for n in (1, 2))
    root = write_proc_folder(
        tmp_path, Process(7, ports=[8000], pod=one), Process(8, parent=7, pod=one), Process(20, ports=[8000], pod=two),
        Process(21, ports=[8001], pod=two), Process(22, parent=21, pod=two),
    )  # fmt: skip

    def target(name: str, port: int, uid: str) -> Target:
        return Target(name, f"http://10.1.1.1:{port}", identity=Identity(namespace="n", pod=name, pod_uid=uid))

    targets = (target("a", 8000, one), target("b", 8000, two), target("c", 8001, two), target("d", 8002, two))
    found = engine_pids_by_target(targets, proc_root=root)
    # alone in its pod all of it is its own, also what cannot be seen to listen; "d" listens nowhere
    assert found == {"a": {7, 8}, "b": {20}, "c": {21, 22}}
    assert engine_pids_by_target((target("a", 9999, one),), proc_root=root) == {"a": {7, 8}}
    elsewhere = target("e", 8000, "0a1b2c3d-0000-4000-8000-00000000000e")
    assert engine_pids_by_target((elsewhere, Target("far", "http://10.1.1.1:8000")), proc_root=root) == {}
