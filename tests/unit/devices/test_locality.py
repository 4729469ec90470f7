"""Which targets are on this host, and which processes are theirs."""

from __future__ import annotations

import os
import socket

import pytest

from llm_serving_exporter.devices.locality import is_local, pids_of
from llm_serving_exporter.model.target import Target


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:8000", True), ("http://vllm.localhost:8000", True), ("http://127.0.0.1:8000", True), ("http://127.8.8.8", True),
        ("http://[::1]:8000", True), ("http://0.0.0.0:8000", True), ("https://[::]:8000", True), ("http://10.0.0.7:8000", False),
        ("http://gpu-7:8000", False), ("http://localhost.example.com:8000", False), ("http://[fe80::1]:8000", False),
        ("http://128.0.0.1", False),
    ],
)  # fmt: skip
def test_loopback_is_local(url: str, local: bool) -> None:
    assert is_local(Target("a", url)) is local


def test_the_processes_behind_a_local_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = pids_of(
            (
                Target("here", f"http://127.0.0.1:{port}"),
                Target("there", f"http://10.255.255.1:{port}"),
                Target("closed", "http://127.0.0.1:9"),
            )
        )
    assert os.getpid() in found["here"]
    assert found["closed"] == frozenset()
    assert set(found) == {"here", "closed"}
