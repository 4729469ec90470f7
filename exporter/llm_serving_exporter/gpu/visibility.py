"""What the exporter can see of the node from where it runs: whose processes, whose GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from llm_serving_exporter.gpu.processes import list_pids
from llm_serving_exporter.model.gpu import GpuReading, count_cards
from llm_serving_exporter.model.text import count_nouns

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
    return (
        f"the driver does not list the processes of {unread} of the {count_nouns(len(gpus), 'GPU')} here: set gpus"
        if unread
        else ""
    )


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
        try:
            with (proc_root / str(pid) / "cgroup").open("rb") as opened:
                text = opened.read(CGROUP_BYTES_MAX).decode("ascii", "replace")
        except OSError:
            continue
        pod = _POD.search(text)
        if pod:
            found.setdefault(pod[1].lower().replace("_", "-"), set()).add(pid)
    return {uid: frozenset(pids) for uid, pids in found.items()}


def count_driver_gpus(folder: Path = DRIVER_FOLDER) -> int | None:
    """GPUs that NVIDIA's driver holds on this node, also those that a container is not given; None where sysfs does not say."""
    try:
        return sum(_PCI_ADDRESS.fullmatch(name) is not None for name in os.listdir(folder)) or None
    except OSError:
        return None
