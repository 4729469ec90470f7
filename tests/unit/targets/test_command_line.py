"""The batch limit by an engine's own process: real processes that listen, and the driver's word on a machine made by hand."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, GpuReadings
from llm_serving_exporter.model.sample import Attempt, Stage
from llm_serving_exporter.model.snapshot import LimitSource
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.targets.host import TargetHost
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder
from tests.support.builders.recordings import page
from tests.support.servers.driven_exporter import HandClock, hand_driven_host
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS

# serves one page to everybody, says its port, and ends with its standard input
ENGINE = """
import http.server, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[1], "rb").read()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
"""
PAGE = page("h100-vllm-0.25.1", 3)
UUID = "GPU-00000000-0000-0000-0000-000000000001"


@contextmanager
def engine(folder: Path, *arguments: str) -> Iterator[str]:
    """The URL of a process with these arguments that serves vLLM's page."""
    (folder / "page").write_bytes(PAGE)
    command = [sys.executable, "-c", ENGINE, str(folder / "page"), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.communicate(timeout=PATIENCE_SECONDS)


def ticks(
    host: TargetHost, clock: HandClock, target: Target, times: int = 3
) -> tuple[float | None, LimitSource | None]:
    """What the last of some ticks shows of the batch limit."""
    hosted = host.targets.get(target.name) or host.add_target(target)
    for _ in range(times):
        clock.seconds += 31.0
        reading = hosted.tick()
        hosted.refresh_facts()
    assert reading.page.snapshot is not None, reading.page.last
    (found,) = reading.page.snapshot.engines
    return found.batch_limit_requests, found.batch_limit_source


@pytest.mark.process
def test_a_process_that_listens_says_its_limit(tmp_path: Path) -> None:
    with engine(tmp_path, "serve", "m", "--max-num-seqs", "96") as url:
        host, clock = hand_driven_host(proc_root=Path("/proc"))
        with closing(host):
            assert ticks(host, clock, Target("t", url)) == (96.0, LimitSource.COMMAND_LINE)


@pytest.mark.process
def test_one_that_does_not_say_it_and_one_elsewhere_leave_it_unknown(tmp_path: Path) -> None:
    with engine(tmp_path, "serve", "m") as url:
        host, clock = hand_driven_host(proc_root=Path("/proc"))
        with closing(host):
            assert ticks(host, clock, Target("t", url))[0] is None


def listed(*pids: int) -> GpuReadings:
    """What the driver lists on one GPU."""
    identity = GpuIdentity(UUID, 0, "NVIDIA H100 80GB HBM3")
    gpu = GpuReading(identity, processes=tuple(GpuProcess(pid, None) for pid in pids))
    return GpuReadings(Attempt(Stage.GPU, None, "", 0.0, 0.0), "nvml", 0.0, (gpu,))


class Driver:
    """A source of GPU readings that lists these processes."""

    def __init__(self, *pids: int) -> None:
        self._readings = listed(*pids)

    def read(self) -> GpuReadings:
        return self._readings

    def close(self) -> None:
        pass


SERVE = ("vllm", "serve", "m", "--max-num-seqs", "96")
ENGINE_CORE = ("VLLM::EngineCore",)


def machine(root: Path, commands: Mapping[int, tuple[int, tuple[str, ...]]], namespace: str | None = None) -> Path:
    """A /proc of processes {pid: (parent, command line)}, of which none listens where the reader sees it."""
    processes = [Process(pid, parent) for pid, (parent, _) in commands.items()]
    proc = write_proc_folder(root, *processes, **({"namespace": namespace} if namespace else {}))
    for pid, (_, words) in commands.items():
        (proc / f"{pid}/cmdline").write_bytes("\0".join(words).encode() + b"\0")
    return proc


def by_driver(proc: Path, *pids: int) -> tuple[float | None, LimitSource | None]:
    """The limit of a server in a container of its own, whose GPU is configured."""
    host, clock = hand_driven_host(proc_root=proc, gpu_source=Driver(*pids))
    with Replica({"/metrics": PAGE}) as server, closing(host):
        target = Target("t", server.url, gpus=(UUID,))
        host.add_target(target)
        host.read_gpus()
        return ticks(host, clock, target)


def test_the_driver_names_a_process_whose_socket_is_not_seen(tmp_path: Path) -> None:
    proc = machine(tmp_path, {50: (1, SERVE), 51: (50, ENGINE_CORE), 52: (50, ENGINE_CORE)})
    assert by_driver(proc, 51, 52) == (96.0, LimitSource.COMMAND_LINE)


def test_of_two_programs_on_a_card_nobody_knows_which_it_is(tmp_path: Path) -> None:
    proc = machine(
        tmp_path, {50: (1, SERVE), 51: (50, ENGINE_CORE), 60: (1, ("vllm", "serve", "n")), 61: (60, ENGINE_CORE)}
    )
    assert by_driver(proc, 51, 61)[0] is None


def test_pids_of_another_namespace_are_none_of_here(tmp_path: Path) -> None:
    commands = {50: (1, SERVE), 51: (50, ENGINE_CORE)}
    assert by_driver(machine(tmp_path / "host", commands, OWN_PID_NAMESPACE), 51, 4711)[0] is None


def test_a_listener_in_another_network_namespace_is_not_asked(tmp_path: Path) -> None:
    """A pod's process listens on the very port: its own sockets are not those of the reader."""
    with Replica({"/metrics": PAGE}) as server:
        port = int(server.url.rpartition(":")[2])
        proc = write_proc_folder(tmp_path, Process(50, ports=(port,), pod="0a1b2c3d-0000-4000-8000-000000000001"))
        (proc / "50/cmdline").write_bytes("\0".join(SERVE).encode())
        host, clock = hand_driven_host(proc_root=proc)
        with closing(host):
            assert ticks(host, clock, Target("t", server.url))[0] is None


def test_an_engine_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    """Another process with other arguments listens after the restart."""
    with Replica({"/metrics": page("h100-vllm-0.25.1", 60)}) as server:
        port = int(server.url.rpartition(":")[2])
        proc = write_proc_folder(tmp_path, Process(50, ports=(port,)))
        (proc / "50/cmdline").write_bytes("\0".join(SERVE).encode())
        host, clock = hand_driven_host(proc_root=proc)
        with closing(host):
            target = Target("t", server.url)
            assert ticks(host, clock, target) == (96.0, LimitSource.COMMAND_LINE)
            (proc / "50/cmdline").write_bytes("\0".join((*SERVE[:-1], "48")).encode())
            assert ticks(host, clock, target)[0] == 96.0, "the same life"
            server.show({"/metrics": PAGE})
            assert ticks(host, clock, target) == (48.0, LimitSource.COMMAND_LINE)
