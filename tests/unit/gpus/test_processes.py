"""Engine processes behind a port: real processes and sockets, and a written /proc for what cannot be had here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_serving_exporter.gpus.processes import find_engine_pids, read_commands, read_listener_commands
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


def write_proc(root: Path, processes: dict[int, tuple[str, int, list[str]]], listening: dict[int, str]) -> Path:
    """A /proc of processes {pid: (comm, parent, targets of open files)} and listening sockets {port: inode}."""
    (root / "net").mkdir(parents=True)
    rows = [f"0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1" for port, inode in listening.items()]
    (root / "net/tcp").write_text("\n".join(["  sl  local_address rem_address", *rows]) + "\n")
    for pid, (comm, parent, files) in processes.items():
        (root / f"{pid}/fd").mkdir(parents=True)
        (root / f"{pid}/stat").write_text(f"{pid} ({comm}) S {parent} {pid} {pid} 0 -1\n")
        for number, target in enumerate(files):
            (root / f"{pid}/fd/{number}").symlink_to(target)
    return root


def test_tgi_shards_are_found_below_the_launcher(tmp_path):
    proc = write_proc(
        tmp_path,
        {
            1: ("bash", 0, []),
            10: ("text-generation", 1, []),
            11: ("text-generation", 10, ["socket:[77]"]),
            12: ("python3", 10, ["/dev/nvidia0"]),
            13: ("python3", 12, []),
            20: ("python3", 1, ["/dev/nvidia1"]),
        },
        {3000: "77"},
    )
    assert find_engine_pids(3000, proc) == {10, 11, 12, 13}


def test_a_name_with_parentheses_and_spaces_does_not_hide_the_parent(tmp_path):
    proc = write_proc(
        tmp_path,
        {5: ("vllm serve", 1, ["socket:[9]"]), 6: ("VLLM::Worker (TP) 0", 5, []), 7: (") S 99 (", 6, [])},
        {8000: "9"},
    )
    assert find_engine_pids(8000, proc) == {5, 6, 7}


def test_front_ends_that_share_the_socket_count_with_their_children(tmp_path):
    # vLLM with several API servers: each inherits the parent's listening socket
    proc = write_proc(
        tmp_path,
        {5: ("vllm", 1, ["socket:[9]"]), 6: ("ApiServer_0", 5, ["socket:[9]"]), 7: ("EngineCore_DP0", 5, [])},
        {8000: "9"},
    )
    assert find_engine_pids(8000, proc) == {5, 6, 7}


def test_unreadable_and_broken_entries_are_passed_over(tmp_path):
    proc = write_proc(tmp_path, {5: ("vllm", 1, ["socket:[9]"]), 6: ("worker", 5, [])}, {8000: "9"})
    (proc / "7").mkdir()  # ended between listing and reading: no stat, no fd
    (proc / "8").mkdir()
    (proc / "8/stat").write_text("8 nonsense")
    (proc / "9").write_text("a file where a folder should be")
    (proc / "6/stat").write_bytes(b"6 (w\xff) S 5 6 6")
    assert find_engine_pids(8000, proc) == {5, 6}
    assert find_engine_pids(8000, tmp_path / "missing") == frozenset()


def test_a_loop_of_parents_ends(tmp_path):
    proc = write_proc(tmp_path, {5: ("a", 6, ["socket:[9]"]), 6: ("b", 5, [])}, {8000: "9"})
    assert find_engine_pids(8000, proc) == {5, 6}


ARGUMENTS = ("serve", "m", "--max-num-seqs", "96")


@pytest.mark.process
def test_the_command_line_of_what_listens():
    with server(*ARGUMENTS) as (port, pid, worker):
        (words,) = read_listener_commands(port)
        assert words[-4:] == ARGUMENTS
        assert read_commands([pid]) == {words}
        (own,) = read_commands([worker])
        assert own[-1] == "input()", "it has a command line of its own"


def write_commands(root: Path, processes: dict[int, tuple[int, tuple[str, ...]]]) -> Path:
    """A /proc of processes {pid: (parent, command line)}."""
    proc = write_proc(root, {pid: ("x", parent, []) for pid, (parent, _) in processes.items()}, {})
    for pid, (_, words) in processes.items():
        (proc / f"{pid}/cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    return proc


SERVE = ("vllm", "serve", "m", "--max-num-seqs", "96")
SPAWNED = (
    "python3",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
    "--multiprocessing-fork",
)


@pytest.mark.parametrize(
    "tree",
    [
        {7: (5, ("VLLM::EngineCore",)), 5: (1, SERVE)},
        # setproctitle leaves the room of the old words behind the title
        {7: (6, ("VLLM::Worker_TP0", "", "", "")), 6: (5, ("VLLM::EngineCore", "", "")), 5: (1, SERVE)},
        {7: (6, SPAWNED), 6: (5, SPAWNED), 5: (1, SERVE)},
        {7: (5, ("sglang::scheduler_TP0",)), 5: (1, SERVE)},
    ],
    ids=["title", "titles", "spawned", "sglang"],
)
def test_a_worker_was_started_with_what_its_parent_was(tmp_path, tree):
    assert read_commands([7], write_commands(tmp_path, tree)) == {SERVE}


def test_command_lines_that_are_not_to_be_had(tmp_path):
    tree = {7: (6, ("VLLM::EngineCore",)), 8: (8, ("VLLM::EngineCore",)), 9: (1, ()), 10: (0, ("VLLM::EngineCore",))}
    proc = write_commands(tmp_path, tree)
    assert read_commands([7, 8, 9, 10, 11], proc) == frozenset(), (
        "no parent, its own parent, a kernel's, nobody's, gone"
    )
