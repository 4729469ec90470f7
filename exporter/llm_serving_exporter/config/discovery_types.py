"""The sections of discovery in the configuration, as what runs them gets them: frozen, checked, nothing left to interpret."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import HttpSettings, Target


class FileDiscovery(Struct, frozen=True):
    """Prometheus file_sd, read again when a file changes."""

    key: ClassVar[str] = "file_sd"  # of the configuration file

    # paths, or globs with wildcards in the last element only
    files: tuple[str, ...]
    # every setting but name and URL, for the targets found there
    defaults: Target


class HttpDiscovery(Struct, frozen=True):
    """Prometheus http_sd: a server that lists targets, asked again and again; config/http_sd.py declares its keys."""

    key: ClassVar[str] = "http_sd"  # of the configuration file

    # scheme://host:port
    url: str
    # of the list, with a query where it needs one
    path: str
    # patterns of the servers that the list may name; config/hosts.py compares them
    hosts: tuple[str, ...]
    # from one answer to the next request
    refresh_seconds: float
    # how the server itself is asked
    http: HttpSettings
    # every setting but name and URL, for the targets found there
    defaults: Target

    @property
    def name(self) -> str:
        """By which users know it: the URL without its query."""
        return self.url + self.path.partition("?")[0]


class KubernetesDiscovery(Struct, frozen=True):
    """The pods of a Kubernetes cluster, as its API server lists them; config/kubernetes.py declares its keys."""

    key: ClassVar[str] = "kubernetes"  # of the configuration file

    # whose pods are looked at; () = those of every namespace
    namespaces: tuple[str, ...]
    # the pods' node, "" = any
    node: str
    # label selector: all pods that it selects are targets, and no others; "" = those known by annotations and labels
    selector: str
    # whether only pods are targets that say so in an annotation
    only_annotated: bool
    # labels of a pod that its target keeps
    pod_labels: tuple[str, ...]
    # whether nodes are listed too, for what the cloud calls them
    node_data: bool
    # whether the node's ResourceSlices are listed too, for the GPUs of claims; never without a node
    claimed_devices: bool
    # how long after its start a container that has not been Ready yet counts as loading
    loading_limit_seconds: float
    # path of the kubeconfig; None = the service account of the exporter's own pod
    kubeconfig: str | None
    # of the kubeconfig; None = its current one
    context: str | None
    # every setting but name and URL, for the targets found there
    defaults: Target


# what `Config.discovery` may hold; discovery/sections.py knows what runs each
DiscoverySection: TypeAlias = FileDiscovery | HttpDiscovery | KubernetesDiscovery
