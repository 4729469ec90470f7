"""The kubelet's PodResources over a real gRPC server on a Unix socket."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from llm_serving_exporter.gpus import kubelet as module
from llm_serving_exporter.gpus.kubelet import KubeletSource, open_kubelet
from llm_serving_exporter.model.gpu import ContainerGrants, DeviceGrant, KubeletReadings
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.settings.config import GpuConfig
from tests.support.servers.kubelet import GPU, StubKubelet

UUID = "GPU-0a1b2c3d-0000-4000-8000-000000000001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


def read(source: KubeletSource) -> KubeletReadings:
    readings = source.read()
    assert readings is not None
    return readings


def reason(source: KubeletSource) -> FailureReason | None:
    return read(source).attempt.reason


def test_a_container_has_what_the_kubelet_gave_it(path: Path) -> None:
    with StubKubelet(path) as kubelet, closing(KubeletSource(str(path))) as source:
        kubelet.give("serving", "vllm-0", "vllm", GPU, [f"{UUID}::0", f"{UUID}::1"])
        kubelet.give("serving", "vllm-0", "proxy")
        kubelet.claim("serving", "sgl-0", "sgl", "gpu.nvidia.com", "node-a", "gpu-3", ["nvidia.com/gpu=gpu3"])
        kubelet.there[GPU] = [f"{UUID}::{n}" for n in range(4)]
        found = read(source)
    assert found.attempt.ok
    assert found.containers == (
        ContainerGrants("serving", "vllm-0", "vllm", (DeviceGrant(GPU, f"{UUID}::0"), DeviceGrant(GPU, f"{UUID}::1"))),
        ContainerGrants("serving", "vllm-0", "proxy", ()),
        ContainerGrants(
            "serving", "sgl-0", "sgl", (DeviceGrant("gpu.nvidia.com", "gpu-3", "node-a", ("nvidia.com/gpu=gpu3",)),)
        ),
    )
    assert found.allocatable == tuple(DeviceGrant(GPU, f"{UUID}::{n}") for n in range(4))


def test_fields_that_are_not_needed_are_passed_over(path: Path) -> None:
    """As a kubelet writes it: a device with its NUMA node, the container's CPUs and memory, and a field of a release to come."""
    device = b"\x0a\x0envidia.com/gpu" + b"\x12\x05GPU-x" + b"\x1a\x06\x0a\x04\x08\x01\x10\x02"
    more = b"\x1a\x02\x04\x05" + b"\x22\x06\x0a\x04hugi" + b"\x9a\x06\x01z"
    container = b"\x0a\x04vllm" + b"\x12" + bytes([len(device)]) + device + more
    pod = b"\x0a\x01p\x12\x01n" + b"\x1a" + bytes([len(container)]) + container
    with StubKubelet(path) as kubelet, closing(KubeletSource(str(path))) as source:
        kubelet.raw = b"\x0a" + bytes([len(pod)]) + pod
        found = read(source)
    assert found.containers == (ContainerGrants("n", "p", "vllm", (DeviceGrant("nvidia.com/gpu", "GPU-x"),)),)


def test_a_kubelet_that_starts_again_is_asked_on_its_new_socket(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="llm_serving_exporter.kubelet")
    with closing(KubeletSource(str(path))) as source:
        with StubKubelet(path) as kubelet:
            kubelet.give("a", "p", "c", GPU, [UUID])
            assert read(source).containers[0].namespace == "a"
            assert reason(source) is None
        # stopped, its socket is gone or refuses
        assert reason(source) in (FailureReason.NO_SOCKET, FailureReason.REFUSED)
        with StubKubelet(path) as kubelet:
            kubelet.give("b", "p", "c", GPU, [UUID])
            assert read(source).containers[0].namespace == "b"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3, "each change once"


def test_a_socket_that_is_replaced_while_the_old_kubelet_still_answers(path: Path) -> None:
    with StubKubelet(path) as old, closing(KubeletSource(str(path))) as source:
        old.give("old", "p", "c")
        assert read(source).containers[0].namespace == "old"
        path.rename(path.with_suffix(".before"))
        with StubKubelet(path) as new:
            new.give("new", "p", "c")
            assert read(source).containers[0].namespace == "new"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, FailureReason.UNIMPLEMENTED),
        (grpc.StatusCode.PERMISSION_DENIED, FailureReason.NO_PERMISSION),
        (grpc.StatusCode.INTERNAL, FailureReason.KUBELET),
        # its own limit of questions per second
        (grpc.StatusCode.RESOURCE_EXHAUSTED, FailureReason.KUBELET),
    ],
)
def test_a_refusal_is_a_reason_and_passes(path: Path, code: grpc.StatusCode, expected: FailureReason) -> None:
    with StubKubelet(path) as kubelet, closing(KubeletSource(str(path))) as source:
        kubelet.refusal = code
        found = read(source)
        assert (found.attempt.reason, found.containers) == (expected, ())
        assert "the test says so" in found.attempt.detail
        kubelet.refusal = None
        assert reason(source) is None


def test_an_answer_is_bounded_and_must_be_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1000)
    with StubKubelet(path) as kubelet, closing(KubeletSource(str(path))) as source:
        kubelet.raw = b"\0" * 2000
        assert reason(source) is FailureReason.TOO_LARGE
        kubelet.raw = b"\xff" * 50
        assert reason(source) is FailureReason.PROTOCOL


def test_a_kubelet_that_does_not_say_what_there_is_still_says_who_has_what(path: Path) -> None:
    with StubKubelet(path, allocatable=False) as kubelet, closing(KubeletSource(str(path))) as source:
        kubelet.give("a", "p", "c", GPU, [UUID])
        found = read(source)
    assert (found.attempt.ok, found.allocatable) == (True, None)
    assert len(found.containers) == 1


def test_one_that_hangs_is_given_up_at_the_deadline(path: Path) -> None:
    # accepts connections and says nothing
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with closing(KubeletSource(str(path), deadline_seconds=0.3)) as source:
            assert reason(source) in (FailureReason.TIMEOUT, FailureReason.REFUSED)


def test_no_socket_is_a_failure_only_where_one_is_expected(path: Path) -> None:
    with closing(KubeletSource(str(path), expected=False)) as source:
        assert source.read() is None
    found = read(KubeletSource(str(path)))
    assert (found.attempt.reason, found.attempt.detail) == (FailureReason.NO_SOCKET, f"{path} is not there")
    path.write_text("a file")
    assert "no socket" in read(KubeletSource(str(path))).attempt.detail
    assert reason(KubeletSource(str(path / "below"))) is FailureReason.NO_SOCKET


def test_a_path_that_no_socket_can_have_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("kubelet.sock")
        found = read(KubeletSource(str(folder / "kubelet.sock")))
    assert found.attempt.reason is FailureReason.KUBELET
    assert "at most 107 bytes" in found.attempt.detail


class Refused(grpc.RpcError):
    """What grpcio raises where the kernel refuses the connection."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "failed to connect to all addresses; last error: connect failed: addr: unix:/x error: Permission denied"


def test_a_connection_that_selinux_refuses_is_no_kubelet_that_starts() -> None:
    """Its words as grpcio 1.60 and newer have them; no SELinux runs here."""
    assert module._explain(grpc, Refused())[0] is FailureReason.NO_PERMISSION


ASK_AS_NOBODY = """
import os, sys
from llm_serving_exporter.gpus.kubelet import KubeletSource
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(KubeletSource(sys.argv[1]).read().attempt.reason.value)
"""


@pytest.mark.process
@pytest.mark.parametrize("closed", ["socket", "folder"])
def test_a_socket_that_may_not_be_used_says_so(closed: str) -> None:
    """As on a node: root's folder, which others may not enter, or root's socket."""
    with TemporaryDirectory() as folder, StubKubelet(Path(folder) / "pod-resources/kubelet.sock") as kubelet:
        os.chmod(folder, 0o755)
        os.chmod(kubelet.path.parent, 0o700 if closed == "folder" else 0o755)
        os.chmod(kubelet.path, 0 if os.geteuid() else 0o600)
        command = [sys.executable, "-c", ASK_AS_NOBODY, str(kubelet.path)]
        if os.geteuid() and closed == "folder":
            os.chmod(kubelet.path.parent, 0)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        os.chmod(kubelet.path.parent, 0o700)
    assert done.stdout.strip() == "no_permission", done.stderr


def test_without_the_extra_the_reason_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StubKubelet(path), closing(KubeletSource(str(path))) as source:
        monkeypatch.setitem(sys.modules, "grpc", None)
        found = read(source)
    assert found.attempt.reason is FailureReason.NO_CLIENT
    assert "llm-serving-exporter[kubernetes]" in found.attempt.detail


def test_the_configuration_says_which_socket() -> None:
    assert open_kubelet(GpuConfig(pod_resources_socket="off")) is None
    assert open_kubelet(GpuConfig(enabled=False)) is None
    auto = open_kubelet(GpuConfig())
    assert isinstance(auto, KubeletSource)
    assert not Path(module.DEFAULT_SOCKET).exists(), "this machine has a kubelet"
    assert auto.read() is None
    assert reason(open_kubelet(GpuConfig(pod_resources_socket="/nowhere.sock"))) is FailureReason.NO_SOCKET


@pytest.mark.process
def test_a_machine_without_a_kubelet_does_not_pay_for_grpc() -> None:
    code = (
        "import sys; from llm_serving_exporter.daemon import service; from llm_serving_exporter.gpus import kubelet;"
        "from llm_serving_exporter.settings.config import GpuConfig;"
        "assert kubelet.open_kubelet(GpuConfig()).read() is None; assert not {'grpc', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
