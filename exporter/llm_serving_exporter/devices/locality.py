"""Which targets run on this host, and which processes are theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from llm_serving_exporter.gpu.processes import engine_pids
from llm_serving_exporter.model.target import Target


def is_local(target: Target) -> bool:
    """Whether the target's address is this host's loopback."""
    host = urlsplit(target.url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def pids_of(targets: Iterable[Target]) -> dict[str, frozenset[int]]:
    """The processes behind each local target's port, by its name; empty where they cannot be seen."""
    return {target.name: engine_pids(_port(target)) for target in targets if is_local(target)}


def _port(target: Target) -> int:
    parts = urlsplit(target.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def host_node(environ: Mapping[str, str]) -> str:
    """The node's name: NODE_NAME (Kubernetes' downward API), else the host name."""
    return environ.get("NODE_NAME") or socket.gethostname()
