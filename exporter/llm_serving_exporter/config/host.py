"""The host of the exporter: what it is called, and, in a pod, which pod it shares with the engines that it reaches by loopback."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from llm_serving_exporter.config.identity import CONTAINER, NAMESPACE, POD, POD_UID
from llm_serving_exporter.config.target_kinds import NODE
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.schema.context import Host
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import parsed

# field of Host -> the variable that the downward API of Kubernetes fills, and its kind: all of them end up in labels
_VARIABLES = {
    "node": ("NODE_NAME", NODE),
    "namespace": ("POD_NAMESPACE", NAMESPACE),
    "pod": ("POD_NAME", POD),
    "pod_uid": ("POD_UID", POD_UID),
    "container": ("CONTAINER_NAME", CONTAINER),
}


def read_host(environ: Mapping[str, str], problems: list[Problem] | None = None, host_name: str | None = None) -> Host:
    """The host as the environment describes it; variables that are not usable are reported, and left out.

    `host_name`: the exporter's own (default: the system's). The pod is known only where both its namespace and its name are.
    """
    name = host_name or socket.gethostname()
    found = {}
    for field, (variable, kind) in _VARIABLES.items():
        if text := environ.get(variable):
            place = Place(f"environment variable {variable}", "", [] if problems is None else problems)
            found[field] = parsed(text, place, kind) or ""
    node = found.pop("node", "") or name
    return Host(name, node, **found) if found.get("namespace") and found.get("pod") else Host(name, node)
