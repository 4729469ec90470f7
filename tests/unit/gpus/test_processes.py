"""Whose processes: engines behind a port, what their environment names, what the exporter sees of the node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.ownership import Evidence, assign_gpus
from llm_serving_exporter.gpus.processes import (
    are_pids_of_here,
    count_driver_gpus,
    engine_pids_by_target,
    explain_blindness,
    find_engine_pids,
    find_environment_gpus,
    group_pids_by_pod,
    is_in_first_pid_namespace,
    is_local,
    read_commands,
    read_listener,
)
from llm_serving_exporter.model.gpu import GpuIdentity, GpuProcess, GpuReading, MigInstance
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.settings.kinds import parse_url
from tests.support.builders.configuration import load_flags
from tests.support.builders.procfolders import OWN_PID_NAMESPACE, Process, write_proc_folder
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS

# a server that starts a worker, tells its port and both pids, and ends with its standard input
SERVER = """
import socket, subprocess, sys
with socket.socket(socket.AF_INET6 if {v6} else socket.AF_INET) as listener:
    listener.bind(("::1" if {v6} else "127.0.0.1", 0))
    listener.listen()
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    print(listener.getsockname()[1], worker.pid, flush=True)
    sys.stdin.read()
    worker.communicate()
"""


@contextmanager
def server(*arguments: str, v6: bool = False) -> Iterator[tuple[int, int, int]]:
    """Port, the server's pid, its worker's pid."""
    script = SERVER.format(v6=v6)
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            port, worker = map(int, process.stdout.readline().split())
            yield port, process.pid, worker
        finally:
            process.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.process
@pytest.mark.parametrize("v6", [False, True])
def test_the_listener_and_its_workers_are_found(v6):
    if v6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with server(v6=v6) as (port, pid, worker):
        assert find_engine_pids(port) == {pid, worker}


@pytest.mark.process
def test_two_servers_of_one_shell_are_not_mixed_up():
    with server() as (first_port, first, first_worker), server() as (second_port, second, second_worker):
        assert find_engine_pids(first_port) == {first, first_worker}
        assert find_engine_pids(second_port) == {second, second_worker}


def test_a_port_that_nobody_listens_on_has_no_processes():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, not listening
        assert find_engine_pids(bound.getsockname()[1]) == frozenset()


def test_a_connection_to_the_port_is_not_a_listener():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert os.getpid() in find_engine_pids(port)
            assert find_engine_pids(client.getsockname()[1]) == frozenset()


@check_rows(
    ("processes", "pids"),
    [
        # TGI's shards are found below the launcher
        (
            [Process(1, 0, "bash"), Process(10, 1, "text-generation"), Process(11, 10, "text-generation", ports=[8000]),
             Process(12, 10, "python3"), Process(13, 12, "python3"), Process(20, 1, "python3")],
            {10, 11, 12, 13},
        ),
        # a name with parentheses and spaces does not hide the parent
        ([Process(5, 1, "vllm serve", ports=[8000]), Process(6, 5, "VLLM::Worker (TP) 0"), Process(7, 6, ") S 99 (")], {5, 6, 7}),
        # vLLM with several API servers: each inherits the parent's listening socket
        ([Process(5, ports=[8000]), Process(6, 5, "ApiServer_0", ports=[8000]), Process(7, 5, "EngineCore_DP0")], {5, 6, 7}),
        # a loop of parents ends
        ([Process(5, 6, ports=[8000]), Process(6, 5)], {5, 6}),
    ],
)  # fmt: skip
def test_an_engine_is_what_listens_and_its_descendants(
    tmp_path: Path, processes: list[Process], pids: set[int]
) -> None:
    assert find_engine_pids(8000, write_proc_folder(tmp_path, *processes)) == pids


def test_unreadable_and_broken_entries_are_passed_over(tmp_path):
    proc = write_proc_folder(tmp_path, Process(5, ports=[8000]), Process(6, 5))
    (proc / "7").mkdir()  # ended between listing and reading: no stat, no fd
    (proc / "8").mkdir()
    (proc / "8/stat").write_text("8 nonsense")
    (proc / "9").write_text("a file where a folder should be")
    (proc / "6/stat").write_bytes(b"6 (w\xff) S 5 6 6")
    assert find_engine_pids(8000, proc) == {5, 6}
    assert find_engine_pids(8000, tmp_path / "missing") == frozenset()


ARGUMENTS = ("serve", "m", "--max-num-seqs", "96")


@pytest.mark.process
def test_the_command_line_of_what_listens():
    with server(*ARGUMENTS) as (port, pid, worker):
        (words,) = read_listener(Target("a", f"http://127.0.0.1:{port}"))
        assert words[-4:] == ARGUMENTS
        assert read_commands([pid]) == {words}
        (own,) = read_commands([worker])
        assert own[-1] == "input()", "it has a command line of its own"


SERVE = ("vllm", "serve", "m", "--max-num-seqs", "96")
SERVER_OF_ALL = Process(5, command=SERVE)
SPAWNED = (
    "python3",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
    "--multiprocessing-fork",
)


@check_rows(
    "workers",
    [
        [Process(7, 5, command=["VLLM::EngineCore"])],
        # setproctitle leaves the room of the old words behind the title
        [Process(7, 6, command=["VLLM::Worker_TP0", "", "", ""]), Process(6, 5, command=["VLLM::EngineCore", "", ""])],
        [Process(7, 6, command=SPAWNED), Process(6, 5, command=SPAWNED)],
        [Process(7, 5, command=["sglang::scheduler_TP0"])],
    ],
    ids=["title", "titles", "spawned", "sglang"],
)
def test_a_worker_was_started_with_what_its_parent_was(tmp_path: Path, workers: list[Process]) -> None:
    assert read_commands([7], write_proc_folder(tmp_path, SERVER_OF_ALL, *workers)) == {SERVE}


def test_command_lines_that_are_not_to_be_had(tmp_path):
    titled = [Process(pid, parent, command=["VLLM::EngineCore"]) for pid, parent in ((7, 6), (8, 8), (10, 0))]
    proc = write_proc_folder(tmp_path, *titled, Process(9))
    # no parent, its own parent, a kernel's, nobody's, gone
    assert read_commands([7, 8, 9, 10, 11], proc) == frozenset()


# --- GPUs that an engine's environment names ---


ONE, TWO = (f"GPU-0a1b2c3d-0000-4000-8000-00000000000{n}" for n in (1, 2))
SLICE = "MIG-0a1b2c3d-0000-4000-8000-000000000003"


@check_rows(
    ("given", "taken", "found"),
    [
        (ONE, None, (ONE,)),
        (f"{TWO},{ONE}", None, (ONE, TWO)),
        (f" {ONE} , {TWO} ", None, (ONE, TWO)),
        (SLICE, None, (SLICE,)),
        ("all", None, ()),
        ("void", None, ()),
        ("none", None, ()),
        ("", None, ()),
        (None, None, ()),
        ("0,1", None, ()),
        # a part of a UUID may be another card's
        ("GPU-0a1b2c3d", None, ()),
        (f"{ONE},1", None, ()),
        # which of them the process takes
        (f"{ONE},{TWO}", TWO, (TWO,)),
        ("all", TWO, (TWO,)),
        (f"{ONE},{TWO}", "0,1", (ONE, TWO)),
        (f"{ONE},{TWO}", "1", ()),
        (f"{ONE},{TWO}", "0,0", ()),
        (ONE, "0", (ONE,)),
        ("all", "0", ()),
        # a process that is to see none: an engine on the CPU beside a GPU
        (f"{ONE},{TWO}", "", ()),
        (ONE, "", ()),
        (ONE, "-1", ()),
        (ONE, "NoDevFiles", ()),
        (ONE, "1", ()),
        (f"{ONE},{TWO}", "1,0", (ONE, TWO)),
        (f"{ONE},{TWO}", "0,-1", ()),
        # every card of the node by name, as a container that was given no card of its own may say it
        (f"{ONE},all", None, ()),
        (f"{ONE},", None, ()),
    ],
)
def test_only_full_uuids_say_something(
    tmp_path: Path, given: str | None, taken: str | None, found: tuple[str, ...]
) -> None:
    words = {"NVIDIA_VISIBLE_DEVICES": given, "CUDA_VISIBLE_DEVICES": taken, "NVIDIA_VISIBLE_DEVICES_BEFORE": SLICE}
    environment = {name: value for name, value in words.items() if value is not None}
    root = write_proc_folder(tmp_path, Process(7, environment=environment))
    assert find_environment_gpus([7], root) == found


def test_the_workers_of_an_engine_add_up(tmp_path: Path) -> None:
    root = write_proc_folder(
        tmp_path,
        Process(7, environment={"NVIDIA_VISIBLE_DEVICES": "all"}),
        Process(8, environment={"CUDA_VISIBLE_DEVICES": ONE}),
        Process(9, environment={"CUDA_VISIBLE_DEVICES": TWO}),
        Process(10, environment={"CUDA_VISIBLE_DEVICES": SLICE}, readable=False),
    )
    assert find_environment_gpus([7, 8, 9, 10, 11], root) == (ONE, TWO)


def test_nothing_else_of_the_environment_gets_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter2"  # the canary
    root = write_proc_folder(
        tmp_path, Process(7, environment={"HF_TOKEN": secret, "NVIDIA_VISIBLE_DEVICES": f"{ONE},{secret}"})
    )
    assert secret not in repr(find_environment_gpus([7], root)) + caplog.text
    (root / "7/environ").write_bytes(b"\xff\xfe=\0" * 10 + b"NVIDIA_VISIBLE_DEVICES=" + ONE.encode())
    assert find_environment_gpus([7], root) == (ONE,)


@pytest.mark.process
def test_a_real_process() -> None:
    environment = {**os.environ, "NVIDIA_VISIBLE_DEVICES": ONE}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            assert find_environment_gpus([process.pid]) == (ONE,)
        finally:
            process.communicate(b"\n", timeout=PATIENCE_SECONDS)


# --- what the exporter sees of the node ---


POD = "0a1b2c3d-0000-4000-8000-00000000000a"
OTHER = "0a1b2c3d-0000-4000-8000-00000000000b"


def gpu(name: str, *pids: int, **more: object) -> GpuReading:
    return GpuReading(GpuIdentity(name, 0, ""), processes=tuple(GpuProcess(pid, None) for pid in pids), **more)


def cut(number: int, card: str = "GPU-1") -> GpuReading:
    return GpuReading(GpuIdentity(f"MIG-{number}", 0, "", mig=MigInstance(number, 0, "", card, 1, 8)), processes=())


BOTH, SILENT = (gpu("GPU-1"), gpu("GPU-2")), GpuReading(GpuIdentity("GPU-2", 1, ""))


@check_rows(
    ("gpus", "node_gpus", "why"),
    [
        (BOTH, None, ""),
        (BOTH, 2, ""),
        # a container that is given some of the node's GPUs does not see who uses the others
        (BOTH, 8, "this container sees 2 of the node's 8 GPUs: set gpus, or give it all (NVIDIA_VISIBLE_DEVICES=all)"),
        # a GPU without a process list hides its users; one that is lost runs nothing; one in MIG mode is seen by its instances
        ((gpu("GPU-1"), SILENT), None, "the driver does not list the processes of 1 of the 2 GPUs here: set gpus"),
        ((gpu("GPU-1"), replace(SILENT, lost=True)), None, ""),
        ((SILENT, cut(1, "GPU-2")), None, ""),
        # two instances of one card are one
        ((cut(1), cut(2)), 1, ""),
        ((cut(1), cut(2)), 2, "this container sees 1 of the node's 2 GPUs: set gpus, or give it all (NVIDIA_VISIBLE_DEVICES=all)"),
    ],
)  # fmt: skip
def test_why_not_every_process_is_seen(
    tmp_path: Path, gpus: tuple[GpuReading, ...], node_gpus: int | None, why: str
) -> None:
    assert explain_blindness(gpus, write_proc_folder(tmp_path), node_gpus) == why


def test_every_process_is_seen_only_in_the_first_pid_namespace(tmp_path: Path) -> None:
    host, own = write_proc_folder(tmp_path / "host"), write_proc_folder(tmp_path / "own", namespace=OWN_PID_NAMESPACE)
    found = [is_in_first_pid_namespace(folder) for folder in (host, own, tmp_path / "missing")]
    assert found == [True, False, False]
    assert explain_blindness(BOTH, own) == (
        "the exporter is in a PID namespace of its own and does not see who uses the GPUs: set gpus, or give it the host's (hostPID)"
    )


def test_pids_of_the_host_are_not_taken_for_those_of_a_namespace_of_its_own(tmp_path: Path) -> None:
    host = write_proc_folder(tmp_path / "host", Process(7))
    own = write_proc_folder(tmp_path / "own", Process(7), namespace=OWN_PID_NAMESPACE)
    assert are_pids_of_here((gpu("GPU-1", 7, 4000),), host)
    # pid 4000 is not here: the list is the host's, and 7 is somebody else
    assert not are_pids_of_here((gpu("GPU-1", 7), gpu("GPU-2", 4000)), own)
    assert are_pids_of_here((gpu("GPU-1", 7), GpuReading(GpuIdentity("GPU-2", 1, ""))), own)


def test_the_processes_of_a_pod_are_known_by_their_cgroup(tmp_path: Path) -> None:
    root = write_proc_folder(tmp_path, Process(7, pod=POD), Process(8, pod=POD), Process(9, pod=OTHER), Process(10))
    # cgroupfs instead of systemd, and a static pod, which has no UID there
    (root / "9/cgroup").write_text(f"4:cpu:/\n0::/kubepods/burstable/pod{OTHER}/3f4e5d\n")
    (root / "10/cgroup").write_text("0::/kubepods.slice/kubepods-pod3ac44ef3a1c3b5d8.slice/x.scope\n")
    (root / "11").mkdir()
    assert group_pids_by_pod(root) == {POD: {7, 8}, OTHER: {9}}
    assert group_pids_by_pod(tmp_path / "missing") == {}


def test_the_port_of_an_engine_is_looked_up_in_its_pods_network(tmp_path: Path) -> None:
    root = write_proc_folder(
        tmp_path, Process(7, ports=[8000], pod=POD), Process(8, parent=7, pod=POD), Process(9, ports=[8001], pod=POD),
        Process(10, ports=[8000], pod=OTHER), Process(11, ports=[8000]),
    )  # fmt: skip
    among = group_pids_by_pod(root)[POD]
    assert find_engine_pids(8000, root, among=among) == {7, 8}
    assert find_engine_pids(8001, root, among=among) == {9}
    assert find_engine_pids(9999, root, among=among) == frozenset()
    assert find_engine_pids(8000, root) == {11}
    assert find_engine_pids(8000, root, among=frozenset()) == frozenset()


def test_the_gpus_of_a_node_are_those_that_the_driver_holds(tmp_path: Path) -> None:
    for name in ("0000:1b:00.0", "00000000:3B:00.0", "bind", "unbind", "module", "new_id"):
        (tmp_path / name).mkdir()
    assert count_driver_gpus(tmp_path) == 2
    assert count_driver_gpus(tmp_path / "missing") is None
    assert count_driver_gpus(tmp_path / "bind") is None


# --- which targets are on this host, and which processes are theirs ---


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
