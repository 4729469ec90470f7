"""Which targets run on this host, and which processes are theirs."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from llm_serving_exporter.gpu.processes import find_engine_pids, read_listener_commands
from llm_serving_exporter.gpu.visibility import group_pids_by_pod
from llm_serving_exporter.model.target import Target, is_own_host


def is_local(target: Target, own_name: str | None = None) -> bool:
    """Whether the target's URL names this host. `own_name`: the host's name (default: the system's)."""
    host = urlsplit(target.url).hostname or ""
    return is_own_host(host, socket.gethostname() if own_name is None else own_name)


def engine_pids_by_target(
    targets: Iterable[Target], own_name: str | None = None, proc_root: Path = Path("/proc")
) -> dict[str, frozenset[int]]:
    """The processes of each target that can be looked for here, by its name; empty where they cannot be seen. Other targets are left out.

    Of a target whose URL names this host: those behind its port. Of another pod whose processes are here: those of the pod; of one of
    several targets of a pod, those behind its port, where that can be seen.
    """
    every = tuple(targets)
    found = {
        target.name: find_engine_pids(_find_port(target), proc_root) for target in every if is_local(target, own_name)
    }
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


def read_listener(
    target: Target, own_name: str | None = None, proc_root: Path = Path("/proc")
) -> frozenset[tuple[str, ...]]:
    """The command lines of what listens where the target's URL points, as words; empty where that is not this host, or cannot be seen."""
    return read_listener_commands(_find_port(target), proc_root) if is_local(target, own_name) else frozenset()


def _find_port(target: Target) -> int:
    parts = urlsplit(target.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def find_node_name(environ: Mapping[str, str]) -> str:
    """The node's name: NODE_NAME (Kubernetes' downward API), else the host name."""
    return environ.get("NODE_NAME") or socket.gethostname()
