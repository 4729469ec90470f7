"""A listening TCP port -> the processes of the engine behind it, and their command lines, from /proc alone.

vLLM's EngineCore and Worker processes and SGLang's schedulers are descendants of the process that listens; TGI's shards
are siblings of its router, below the launcher. A process group or session would catch less precisely: all that a
container's shell script starts shares one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, include/net/tcp_states.h
# `comm` (at most 15 characters) of launchers whose children are both the HTTP server and the GPU workers
LAUNCHERS = frozenset({"text-generation"})
SOCKET_TABLE_BYTES_MAX = 16 << 20
PROCESSES_MAX = 65536
FILES_MAX = 65536  # open files looked at in one process
COMMAND_BYTES_MAX = 1 << 18
# from a worker up to the process that was started with the engine's arguments
GENERATIONS_MAX = 16
# command lines of workers that Python's multiprocessing or Ray started
_WORKER = re.compile(r"multiprocessing[-.]|ray::")


def find_engine_pids(
    port: int, proc_root: Path = Path("/proc"), among: Collection[int] | None = None
) -> frozenset[int]:
    """The pids of every process that holds a TCP socket listening on `port`, and of all their descendants.

    `among`: the processes of one pod, which share a network namespace and are the only ones looked at; None: those of the reading
    process's own network namespace.

    Where the parent of such a process is a known launcher, the launcher's whole tree counts. Pids are those of
    `proc_root`'s PID namespace; NVML reports the host's, so in a container mount the host's /proc or share its PID
    namespace. Empty where nothing listens, or where /proc does not show who does (another user's processes need
    CAP_SYS_PTRACE). Never raises; work is bounded.
    """
    owners, names, parents = _find_owners(port, proc_root, among)
    launchers = {parents[pid] for pid in owners if names.get(parents[pid]) in LAUNCHERS}
    return _add_descendants(owners | launchers, parents)


def read_listener_commands(port: int, proc_root: Path = Path("/proc")) -> frozenset[tuple[str, ...]]:
    """The command lines of what listens on `port` in the reading process's own network namespace, as words; each once.

    Empty where nothing listens, or where /proc does not show who does. Never raises; work is bounded.
    """
    return read_commands(_find_owners(port, proc_root, None)[0], proc_root)


def read_commands(pids: Iterable[int], proc_root: Path = Path("/proc")) -> frozenset[tuple[str, ...]]:
    """The command lines that engines with these processes were started with, as words; each once.

    A worker that has given itself a title ("VLLM::EngineCore"), or that multiprocessing or Ray started, has none of its own: its parent's
    counts. Pids are those of `proc_root`'s PID namespace. What cannot be read is left out.
    """
    found: set[tuple[str, ...]] = set()
    for worker in list(pids)[:PROCESSES_MAX]:
        pid = worker
        for _ in range(GENERATIONS_MAX):
            words, stat = _read_words(proc_root / str(pid) / "cmdline"), _read_stat(proc_root / str(pid) / "stat")
            if not words or stat is None:
                break
            if not _is_worker(words):
                found.add(words)
                break
            pid = stat[1]
    return frozenset(found)


def _is_worker(words: Sequence[str]) -> bool:
    """Whether a command line is that of a worker, which says nothing of the arguments of its engine."""
    return (len(words) == 1 and "::" in words[0]) or any(map(_WORKER.search, words[:3]))


def _read_words(file: Path) -> tuple[str, ...]:
    """The words of a command line; a title is one, whatever was left behind it."""
    try:
        with file.open("rb") as opened:
            text = opened.read(COMMAND_BYTES_MAX)
    except OSError:
        return ()
    return tuple(text.rstrip(b"\0").decode("utf-8", "replace").split("\0")) if text.strip(b"\0") else ()


def _find_owners(
    port: int, proc_root: Path, among: Collection[int] | None
) -> tuple[set[int], dict[int, str], dict[int, int]]:
    """The processes that hold a socket listening on `port`, and of every process that was looked at its `comm` and its parent."""
    tables = (proc_root / "net",) if among is None else tuple(proc_root / str(pid) / "net" for pid in sorted(among)[:1])
    inodes = frozenset(inode for table in tables for inode in _find_listening_inodes(port, table))
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    owners: set[int] = set()
    if not inodes:
        return owners, names, parents
    targets = {f"socket:[{inode}]" for inode in inodes}
    for pid in list_pids(proc_root) if among is None else sorted(among):
        stat = _read_stat(proc_root / str(pid) / "stat")
        if stat is None:
            continue
        names[pid], parents[pid] = stat
        if _holds_socket(proc_root / str(pid) / "fd", targets):
            owners.add(pid)
    return owners, names, parents


def _find_listening_inodes(port: int, folder: Path) -> Iterator[str]:
    """Socket inodes out of lines such as "0: 0100007F:1F40 00000000:0000 0A … 12345 …": address, state and inode are
    columns 1, 3 and 9 counted from 0; the port is hexadecimal."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        for line in _read_text(folder / table, SOCKET_TABLE_BYTES_MAX).splitlines()[1:]:
            columns = line.split()
            if len(columns) > 9 and columns[3] == LISTEN and columns[1].endswith(wanted):
                yield columns[9]


def list_pids(proc_root: Path) -> list[int]:
    """Every process that `proc_root` shows; [] where it cannot be listed."""
    try:
        return [int(name) for name in os.listdir(proc_root) if name.isdecimal()][:PROCESSES_MAX]
    except OSError:
        return []


def _read_stat(file: Path) -> tuple[str, int] | None:
    """(comm, parent pid) out of "42 (a name) S 1 …": the name may hold spaces and parentheses, so it ends at the
    last ")"."""
    text = _read_text(file, 4096)
    before, closed, after = text.rpartition(")")
    columns = after.split()
    if not closed or len(columns) < 2 or not columns[1].isdecimal():
        return None
    return before.partition("(")[2], int(columns[1])


def _holds_socket(folder: Path, targets: set[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= FILES_MAX:
                    return False
                try:
                    if os.readlink(entry.path) in targets:
                        return True
                except OSError:
                    continue
    except OSError:
        return False
    return False


def _add_descendants(roots: Iterable[int], parents: dict[int, int]) -> frozenset[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return frozenset(found)


def _read_text(file: Path, limit: int) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(limit).decode("ascii", "replace")
    except OSError:
        return ""
