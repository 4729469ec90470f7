"""A /proc written by hand: for namespaces, pods and environments that the machine of the tests does not have."""

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from llm_serving_exporter.gpus.processes import INITIAL_PID_NAMESPACE

OWN_PID_NAMESPACE = "pid:[4026533001]"


@dataclass(frozen=True)
class Process:
    """One process; `ports` are those that it listens on."""

    pid: int
    parent: int = 1
    name: str = "vllm"
    # words of its command line; (): it has none, as a kernel's
    command: Sequence[str] = ()
    ports: Sequence[int] = ()
    # UID of its pod; "": none
    pod: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    # whether other users' processes may look at its open files and its environment
    readable: bool = True


def write_proc_folder(root: Path, *processes: Process, namespace: str = INITIAL_PID_NAMESPACE) -> Path:
    """A folder like /proc of these processes; those of a pod share a network namespace, all others that of the reader."""
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(namespace)
    for one in processes:
        folder = root / str(one.pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_text(f"{one.pid} ({one.name}) S {one.parent} {one.pid} {one.pid} 0 -1\n")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in one.command))
        slices = (
            f"kubepods-burstable.slice/kubepods-burstable-pod{one.pod.replace('-', '_')}.slice"
            if one.pod
            else "user.slice"
        )
        (folder / "cgroup").write_text(f"0::/{slices}/cri-containerd-0a1b2c.scope\n")
        if one.readable:
            for port in one.ports:
                (folder / f"fd/{port}").symlink_to(f"socket:[{_inode(port, one)}]")
            text = "\0".join(f"{name}={value}" for name, value in one.environment.items())
            (folder / "environ").write_bytes(text.encode() + b"\0")
        same = [other for other in processes if other.pod == one.pod]
        _write_sockets(folder / "net", same)
    _write_sockets(root / "net", [one for one in processes if not one.pod])
    return root


def _inode(port: int, process: Process) -> int:
    return port * 1000 + sum(process.pod.encode()) % 997


def _write_sockets(folder: Path, processes: Sequence[Process]) -> None:
    folder.mkdir(parents=True)
    rows = [
        f"0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {_inode(port, one)} 1"
        for one in processes
        for port in one.ports
    ]
    (folder / "tcp").write_text("\n".join(["  sl  local_address rem_address", *rows]) + "\n")


@cache
def quiet_machine() -> Path:
    """A /proc of the first PID namespace without processes, as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="quiet-proc-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_proc_folder(folder)
