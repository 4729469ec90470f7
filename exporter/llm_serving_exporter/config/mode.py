"""The mode of an exporter, as it follows from what it is to read and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from llm_serving_exporter.config.discovery_types import KubernetesDiscovery
from llm_serving_exporter.config.types import Config
from llm_serving_exporter.model.mode import Mode
from llm_serving_exporter.model.own_host import is_own_host

# which Kubernetes sets in every container
_OF_A_POD = "KUBERNETES_SERVICE_HOST"


def choose_mode(config: Config, environ: Mapping[str, str]) -> Mode:
    """A sidecar is in a pod, looks for no targets, and reads servers at loopback addresses only."""
    if config.discovery:
        of_one_node = any(isinstance(one, KubernetesDiscovery) and one.node for one in config.discovery)
        return Mode.NODE if of_one_node else Mode.CENTRAL
    if not config.targets or not all(is_own_host(urlsplit(target.url).hostname or "", "") for target in config.targets):
        return Mode.CENTRAL
    return Mode.SIDECAR if environ.get(_OF_A_POD) else Mode.NODE
