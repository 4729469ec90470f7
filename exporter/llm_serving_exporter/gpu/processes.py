"""A listening TCP port -> the processes of the engine behind it, from /proc alone.

vLLM's EngineCore and Worker processes and SGLang's schedulers are descendants of the process that listens; TGI's shards
are siblings of its router, below the launcher. A process group or session would catch less precisely: all that a
container's shell script starts shares one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, include/net/tcp_states.h
# `comm` (at most 15 characters) of launchers whose children are both the HTTP server and the GPU workers
LAUNCHERS = frozenset({"text-generation"})
SOCKET_TABLE_BYTES_MAX = 16 << 20
PROCESSES_MAX = 65536
FILES_MAX = 65536  # open files looked at in one process


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
    tables = (proc_root / "net",) if among is None else tuple(proc_root / str(pid) / "net" for pid in sorted(among)[:1])
    inodes = frozenset(inode for table in tables for inode in _find_listening_inodes(port, table))
    if not inodes:
        return frozenset()
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    owners: set[int] = set()
    targets = {f"socket:[{inode}]" for inode in inodes}
    for pid in list_pids(proc_root) if among is None else sorted(among):
        stat = _read_stat(proc_root / str(pid) / "stat")
        if stat is None:
            continue
        names[pid], parents[pid] = stat
        if _holds_socket(proc_root / str(pid) / "fd", targets):
            owners.add(pid)
    launchers = {parents[pid] for pid in owners if names.get(parents[pid]) in LAUNCHERS}
    return _add_descendants(owners | launchers, parents)


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
