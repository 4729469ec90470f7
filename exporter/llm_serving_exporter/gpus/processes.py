"""Processes of this host: whose port, which command line, which GPUs by their environment, and what of all that can be seen from here."""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from llm_serving_exporter.model.gpu import GPU_UUID, GpuReading, count_cards
from llm_serving_exporter.model.target import Target, is_own_host
from llm_serving_exporter.model.text import count_nouns

# --- A listening TCP port -> the processes of the engine behind it, and their command lines, from /proc alone.
#
# vLLM's EngineCore and Worker processes and SGLang's schedulers are descendants of the process that listens; TGI's shards are siblings of
# its router, below the launcher. A process group or session would catch less precisely: all that a container's shell script starts shares
# one.


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
    text = _read_bytes(file, COMMAND_BYTES_MAX)
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
    return _read_bytes(file, limit).decode("ascii", "replace")


def _read_bytes(file: Path, limit: int) -> bytes:
    """b"" where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(limit)
    except OSError:
        return b""


# --- What the exporter can see of the node from where it runs: whose processes, whose GPUs.


# the number of the first PID namespace, which the kernel fixes: PROC_PID_INIT_INO in include/linux/proc_ns.h
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
# cgroup paths of the kubelet: "kubepods-burstable-pod0a1b_….slice" (systemd) and "kubepods/burstable/pod0a1b-…" (cgroupfs)
_POD = re.compile(r"\bpod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12})\b")
_PCI_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
CGROUP_BYTES_MAX = 16384
DRIVER_FOLDER = Path("/sys/bus/pci/drivers/nvidia")


def is_in_first_pid_namespace(proc_root: Path = Path("/proc")) -> bool:
    """Whether the exporter is in the host's PID namespace, so that it sees every process; False where that cannot be read."""
    try:
        return os.readlink(proc_root / "self/ns/pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def explain_blindness(gpus: Sequence[GpuReading], proc_root: Path = Path("/proc"), node_gpus: int | None = None) -> str:
    """Why not every process of every GPU is seen here, with the remedy; "" where each one is. A lost GPU runs none.

    `node_gpus`: how many GPUs the driver holds on this node; None: not known.
    """
    if not is_in_first_pid_namespace(proc_root):
        return "the exporter is in a PID namespace of its own and does not see who uses the GPUs: set gpus, or give it the host's (hostPID)"
    cards = count_cards(gpus)
    if node_gpus is not None and cards < node_gpus:
        of_node = count_nouns(node_gpus, "GPU")
        return f"this container sees {cards} of the node's {of_node}: set gpus, or give it all (NVIDIA_VISIBLE_DEVICES=all)"
    # a card in MIG mode is seen by its instances
    parents = {gpu.identity.mig.parent_uuid for gpu in gpus if gpu.identity.mig}
    unread = sum(gpu.processes is None and not gpu.lost and gpu.identity.uuid not in parents for gpu in gpus)
    of_all = count_nouns(len(gpus), "GPU")
    return f"the driver does not list the processes of {unread} of the {of_all} here: set gpus" if unread else ""


def are_pids_of_here(gpus: Iterable[GpuReading], proc_root: Path = Path("/proc")) -> bool:
    """Whether the pids that NVML lists may be compared with those of `proc_root`.

    Always in the host's PID namespace. In another one older drivers list the host's pids, which may be those of other processes here by
    chance: only where each of them exists here are they taken for this namespace's.
    """
    if is_in_first_pid_namespace(proc_root):
        return True
    listed = {process.pid for gpu in gpus for process in gpu.processes or ()}
    return listed <= set(list_pids(proc_root))


def group_pids_by_pod(proc_root: Path = Path("/proc")) -> dict[str, frozenset[int]]:
    """The processes of each pod by its UID, in lower case, from their cgroups. {} where these do not show pods."""
    found: dict[str, set[int]] = {}
    for pid in list_pids(proc_root):
        if pod := _POD.search(_read_text(proc_root / str(pid) / "cgroup", CGROUP_BYTES_MAX)):
            found.setdefault(pod[1].lower().replace("_", "-"), set()).add(pid)
    return {uid: frozenset(pids) for uid, pids in found.items()}


def count_driver_gpus(folder: Path = DRIVER_FOLDER) -> int | None:
    """GPUs that NVIDIA's driver holds on this node, also those that a container is not given; None where sysfs does not say."""
    try:
        return sum(_PCI_ADDRESS.fullmatch(name) is not None for name in os.listdir(folder)) or None
    except OSError:
        return None


# --- The processes of an engine -> the GPUs that their environment names by full UUIDs.
#
# Of the environment nothing but these UUIDs leaves this module: it may hold secrets.


ENVIRONMENT_BYTES_MAX = 1 << 20
MOST_PROCESSES_OF_AN_ENGINE = 512  # of one engine
# what the container was given, and which of these the process takes
GIVEN, TAKEN = b"NVIDIA_VISIBLE_DEVICES", b"CUDA_VISIBLE_DEVICES"


def find_environment_gpus(pids: Iterable[int], proc_root: Path = Path("/proc")) -> tuple[str, ...]:
    """UUIDs of the GPUs and MIG instances that the processes were given, sorted; () where no environment says it or can be read.

    `all`, `void`, `none`, nothing at all and indices say nothing: they mean other cards in another container. Never raises.
    """
    found: set[str] = set()
    for pid in sorted(pids)[:MOST_PROCESSES_OF_AN_ENGINE]:
        found.update(_read_uuids(_read_bytes(proc_root / str(pid) / "environ", ENVIRONMENT_BYTES_MAX)))
    return tuple(sorted(found))


def _read_uuids(text: bytes) -> Collection[str]:
    given: list[str] = []
    taken: list[str] | None = None
    for line in text.split(b"\0"):
        name, equals, value = line.partition(b"=")
        if equals and name in (GIVEN, TAKEN):
            words = [word.strip() for word in value.decode("ascii", "replace").split(",")]
            if name == GIVEN:
                given = words
            else:
                taken = words
    if taken is not None and all(map(GPU_UUID.fullmatch, taken)):
        return taken
    if not all(map(GPU_UUID.fullmatch, given)):
        return ()
    # indices among those that are given: all of them, or some that cannot be told; -1 and nothing mean none
    return given if taken is None or set(taken) == {str(index) for index in range(len(given))} else ()


# --- Which targets run on this host, and which processes are theirs.


def is_local(target: Target, own_name: str | None = None) -> bool:
    """Whether the target's URL names this host. `own_name`: the host's name (default: the system's)."""
    host = urlsplit(target.url).hostname or ""
    return is_own_host(host, socket.gethostname() if own_name is None else own_name)


def engine_pids_by_target(targets: Iterable[Target], proc_root: Path = Path("/proc")) -> dict[str, frozenset[int]]:
    """The processes of each target that can be looked for here, by its name; empty where they cannot be seen. Other targets are left out.

    Of a target whose URL names this host: those behind its port. Of another pod whose processes are here: those of the pod; of one of
    several targets of a pod, those behind its port, where that can be seen.
    """
    every = tuple(targets)
    found = {target.name: find_engine_pids(_find_port(target), proc_root) for target in every if is_local(target)}
    # the exporter's own pod is looked at by its ports alone: its own process is in it
    of_pods = [target for target in every if target.identity.pod_uid and target.name not in found]
    by_pod = group_pids_by_pod(proc_root) if of_pods else {}
    targets_of = Counter(target.identity.pod_uid for target in every)
    for target in of_pods:
        pids = by_pod.get(target.identity.pod_uid.lower())
        if pids and targets_of[target.identity.pod_uid] > 1:
            pids = find_engine_pids(_find_port(target), proc_root, among=pids)
        if pids:
            found[target.name] = pids
    return found


def read_listener(target: Target, proc_root: Path = Path("/proc")) -> frozenset[tuple[str, ...]]:
    """The command lines of what listens where the target's URL points, as words, each once.

    Empty where that is not this host, nothing listens, or /proc does not show who does. Never raises; work is bounded.
    """
    owners = _find_owners(_find_port(target), proc_root, None)[0] if is_local(target) else ()
    return read_commands(owners, proc_root)


def _find_port(target: Target) -> int:
    parts = urlsplit(target.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def find_node_name(environ: Mapping[str, str]) -> str:
    """The node's name: NODE_NAME (Kubernetes' downward API), else the host name."""
    return environ.get("NODE_NAME") or socket.gethostname()
