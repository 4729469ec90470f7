"""Which targets run on this host, and which processes are theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from llm_serving_exporter.gpu.processes import find_engine_pids
from llm_serving_exporter.model.own_host import is_own_host
from llm_serving_exporter.model.target import Target


def is_local(target: Target, own_name: str | None = None) -> bool:
    """Whether the target's URL names this host. `own_name`: the host's name (default: the system's)."""
    host = urlsplit(target.url).hostname or ""
    return is_own_host(host, socket.gethostname() if own_name is None else own_name)


def engine_pids_by_target(targets: Iterable[Target], own_name: str | None = None) -> dict[str, frozenset[int]]:
    """The processes behind each local target's port, by its name; empty where they cannot be seen. Other targets are left out."""
    return {target.name: find_engine_pids(_find_port(target)) for target in targets if is_local(target, own_name)}


def _find_port(target: Target) -> int:
    parts = urlsplit(target.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def find_node_name(environ: Mapping[str, str]) -> str:
    """The node's name: NODE_NAME (Kubernetes' downward API), else the host name."""
    return environ.get("NODE_NAME") or socket.gethostname()
