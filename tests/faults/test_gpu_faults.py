"""The daemon with the real pynvml over the stub library: GPUs come, fall off the bus and return; the driver may be missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.nvml_stub.stub import StubState, stub_environment
from tests.support.builders.recordings import recording
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.kubelet import StubKubelet
from tests.support.servers.stepped import SteppedServer

pytestmark = pytest.mark.process

FAST = ("--scrape.interval", "200ms")


def test_without_nvml_the_engine_is_still_read_and_the_reason_is_said() -> None:
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        with Exporter("--target", engine.url, *FAST, env={"LD_LIBRARY_PATH": "/nowhere"}, gpus=True) as exporter:
            page = exporter.until(
                lambda page: bool(page.series("nvml_up")) and bool(page.series("decode_tokens_total")), "both read"
            )
            assert page.value("nvml_up") == 0
            assert page.value("nvml_failures_total", reason="nvml_library_missing") >= 1
            assert not page.series("gpu_up")
            exporter.after_ticks(5)
            assert sum("nvml" in line.lower() for line in exporter.log) == 1
            assert "NVML" in exporter.get("/").text


@pytest.mark.seam("NVML")
def test_a_gpu_lost_in_the_middle_shows_and_returns(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=2)
    for scope in ("gpu0", "gpu1"):
        state.processes(scope, (os.getpid(), 1 << 30))
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        with Exporter(
            "--target", engine.url, *FAST, env=stub_environment(nvml_library, state.path), gpus=True
        ) as exporter:
            page = exporter.until(lambda page: len(page.series("gpu_up")) == 2, "two GPUs")
            assert set(page.series("gpu_up").values()) == {1.0}
            lost, kept = state.uuid(1), state.uuid(0)
            assert page.value("gpu_power_watts", gpu=lost) > 0
            # the engine is in this test's process
            page = exporter.until(lambda page: len(page.series("gpu_target_info")) == 2, "the assignment")
            page = exporter.until(lambda page: bool(page.series("phase_tokens_per_second_per_gpu")), "a rate per GPU")

            state.fail("gpu1", "*", 15)  # NVML_ERROR_GPU_IS_LOST
            page = exporter.until(
                lambda page: page.value("gpu_up", gpu=lost) == 0 and page.value("target_up") == 1, "the lost GPU"
            )
            assert page.value("gpu_up", gpu=kept) == 1
            assert not page.series("gpu_power_watts", gpu=lost)
            assert page.value("gpu_power_watts", gpu=kept) > 0

            state.heal("gpu1")
            exporter.until(lambda page: page.value("gpu_up", gpu=lost) == 1, "the GPU again")


@pytest.mark.e2e
def test_a_configured_gpu_that_is_not_there_is_said(nvml_library: Path, tmp_path: Path) -> None:
    """A GPU that fell off the bus before the exporter started, or a wrong index: no ceiling of the one that is left."""
    state = StubState(tmp_path / "state", gpus=1)
    config = tmp_path / "exporter.yml"
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        config.write_text(f"targets: [{{url: '{engine.url}', gpus: [0, 1]}}]")
        arguments, environment = ("--config.file", str(config), *FAST), stub_environment(nvml_library, state.path)
        with Exporter(*arguments, env=environment, gpus=True) as exporter:
            exporter.until(lambda page: bool(page.series("gpu_target_info")), "the assignment")
            page = exporter.after_ticks(3)
            assert (
                page.value("signal_available", signal="bandwidth_ceiling_bytes_per_second", reason="gpus_unknown") == 0
            )
            assert not page.series("bandwidth_ceiling_bytes_per_second")
            assert not page.series("achieved_bandwidth_bytes_per_second")
            assert "1 of 2 configured GPUs are visible here" in exporter.get("/").text
            assert sum("1 of the 2 configured GPUs are not visible here" in line for line in exporter.log) == 1

            state.count(2)
            exporter.until(lambda page: bool(page.series("bandwidth_ceiling_bytes_per_second")), "the ceiling")
            assert "2 GPUs, as configured" in exporter.get("/").text


def test_processes_say_which_gpu_serves_which_target(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=2)
    with SteppedServer(recording("vllm-0.32")) as first, SteppedServer(recording("vllm-0.32-spec")) as second:
        # both servers live in this test's process: the stub says that it holds the second GPU
        state.processes("gpu1", (os.getpid(), 1 << 30))
        arguments = ("--target", first.url, "--target", second.url, *FAST)
        with Exporter(*arguments, env=stub_environment(nvml_library, state.path), gpus=True) as exporter:
            page = exporter.until(lambda page: len(page.series("gpu_target_info")) == 2, "the assignment")
            assert {dict(labels)["gpu"] for labels in page.series("gpu_target_info", origin="process")} == {
                state.uuid(1)
            }


@pytest.mark.e2e
def test_xid_events_are_counted_from_zero(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=1)
    environment = stub_environment(nvml_library, state.path)
    with (
        SteppedServer(recording("vllm-0.32")) as engine,
        Exporter("--target", engine.url, *FAST, env=environment, gpus=True) as exporter,
    ):
        page = exporter.until(lambda page: bool(page.series("gpu_xid_events_total")), "XID series")
        assert page.value("gpu_xid_events_total", xid="79") == 0
        state.xid(0, 79)
        exporter.until(lambda page: page.value("gpu_xid_events_total", xid="79") == 1, "the XID")
        exporter.process.send_signal(signal.SIGHUP)  # reads the same configuration again; GPUs are kept
        exporter.after_ticks(3)
        page = exporter.until(lambda page: bool(page.series("gpu_xid_events_total", xid="79")), "the count again")
        assert page.value("gpu_xid_events_total", xid="79") == 1


@pytest.mark.e2e
def test_a_kubelet_that_goes_and_comes_back_is_said_and_breaks_nothing(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=1)
    path = tmp_path / "pod-resources/kubelet.sock"
    with SteppedServer(recording("vllm-0.32")) as engine:
        engine.show(60)
        arguments = ("--target", engine.url, "--gpu.pod-resources-socket", str(path), *FAST)
        with Exporter(*arguments, env=stub_environment(nvml_library, state.path), gpus=True) as exporter:
            page = exporter.until(lambda page: bool(page.series("kubelet_up")), "the question")
            assert page.value("kubelet_up") == 0
            assert page.value("kubelet_failures_total", reason="socket_missing") >= 1
            assert "pod-resources folder" in exporter.get("/").text
            for _ in range(2):
                with StubKubelet(path):
                    exporter.until(lambda page: page.value("kubelet_up") == 1, "the kubelet")
                exporter.until(lambda page: page.value("kubelet_up") == 0, "its end")
            assert exporter.after_ticks(2).value("target_up") == 1
            assert sum("kubelet" in line for line in exporter.log) <= 8, "changes, not questions"


def test_the_daemon_asks_the_kubelet_for_a_pods_gpus(nvml_library: Path, tmp_path: Path) -> None:
    state = StubState(tmp_path / "state", gpus=8)
    config, path = tmp_path / "exporter.yml", tmp_path / "kubelet.sock"
    with SteppedServer(recording("vllm-0.32")) as engine, StubKubelet(path) as kubelet:
        engine.show(60)
        kubelet.give("serving", "vllm-0", "vllm", ids=[state.uuid(3)])
        config.write_text(
            f"targets: [{{url: '{engine.url}', namespace: serving, pod: vllm-0, container: vllm}}]\n"
            f"gpu: {{pod_resources_socket: {path}}}"
        )
        arguments, environment = ("--config.file", str(config), *FAST), stub_environment(nvml_library, state.path)
        with Exporter(*arguments, env=environment, gpus=True) as exporter:
            page = exporter.until(lambda page: bool(page.series("gpu_target_info", origin="kubelet")), "the claim")
            page = exporter.until(lambda page: bool(page.series("bandwidth_ceiling_bytes_per_second")), "its ceiling")
            assert page.value("gpu_target_info", gpu=state.uuid(3)) == page.total("gpu_target_info") == 1
            assert page.total("target_gpus") == 1
            assert page.total("bandwidth_ceiling_bytes_per_second") == pytest.approx(3.35232e12)
            assert "1 GPU, by the kubelet" in exporter.get("/").text
