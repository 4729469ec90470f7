"""`kubernetes:`: pods of a cluster, and which of them are targets."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llm_serving_exporter.catalogue.own_labels import refuse_label_name
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.checks import Placed
from llm_serving_exporter.settings.http import has_credentials
from llm_serving_exporter.settings.identity import NODE
from llm_serving_exporter.settings.keys import Section, is_empty, key, keys_of, list_reader, read_values, value
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.options import Context, read_path
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, shown
from llm_serving_exporter.settings.target_keys import TargetSettings
from llm_serving_exporter.settings.targets import read_section_defaults

CLIENT = "lightkube"
OWN = "own"
MOST_NAMESPACES = 50  # each is a request of its own that stays open
MOST_POD_LABELS = 16
# where a pod finds the name of its own namespace, unless its service account is not mounted
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_HINTS = {
    "namespace": "Write namespaces: [NAME].",
    "own_namespace": "Write namespaces: own.",
    "label_selector": "Write selector.",
    "labels": "Write selector for which pods are targets, pod_labels for labels that targets keep.",
    "role": "Pods are what is looked at; the role of a target is a key of defaults.",
    "api_server": "Write kubeconfig: the path of a file that names the server.",
    "server": "Write kubeconfig: the path of a file that names the server.",
    "kubeconfig_file": "Write kubeconfig.",
    "refresh_interval": "Changes are told by the API server as they happen.",
}
# a label: an optional domain, and a name of at most 63 characters
_LABEL = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*{_LABEL}|{_LABEL}(?:\s*(?:==|=|!=)\s*{_VALUE}|\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))?)\s*"
)


def name_label(name: str) -> str:
    """The name of a pod's label as Prometheus takes it, as Prometheus' own discovery makes it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name if not name[0].isdigit() else f"_{name}")


def _refuse_pod_labels(names: tuple[str, ...], place: Place) -> None:
    """Reports labels that a target cannot have beside what it has anyway, and two that would be one."""
    if len(names) > MOST_POD_LABELS:
        place.refuse(f"more than {MOST_POD_LABELS} labels are named", "Name those that you group by.")
    taken: dict[str, str] = {}
    for name in names:
        label = name_label(name)
        refusal = refuse_label_name(label)
        if refusal is not None:
            place.refuse(f"a target cannot keep {shown(name)}: {refusal[0]}", "Leave it out, or keep another label.")
        elif taken.setdefault(label, name) != name:
            what = f"{shown(taken[label])} and {shown(name)} would both be the label {label}"
            place.refuse(what, "Keep one of them.")


def _selector(text: str) -> str:
    """A label selector as kubectl takes it: `app=vllm,tier in (a, b),!canary`."""
    position = 0
    while match := _REQUIREMENT.match(text, position):
        position = match.end()
        if position == len(text):
            return text.strip()
        if text[position] != ",":
            break
        position += 1
    raise InvalidValueError(f"{shown(text)} is not a label selector", "Write one as in app=vllm,tier in (chat, code).")


NAMESPACE = kinds.matching(
    "the name of a namespace", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "Write names as kubectl lists them."
)
POD_LABEL = kinds.matching("the name of a label", _LABEL, "Write one as in team or example.com/team.")
SELECTOR = Kind("a label selector such as app=vllm", _selector, is_text=True)


def _read_namespaces(node: Node, place: Place, context: Context) -> tuple[str, ...] | None:
    """Names of namespaces; that of the exporter for `own`; () for `all`."""
    if isinstance(node, Scalar) and node.text == "all":
        return ()
    if isinstance(node, Scalar) and node.text == OWN:
        if namespace := context.environ.get("POD_NAMESPACE") or _read_own_namespace():
            return (namespace,)
        fix = "Set the environment variable POD_NAMESPACE from metadata.namespace, or name the namespace."
        place.refuse("the exporter's own namespace is not known", fix)
        return None
    names = tuple(dict.fromkeys(read_values(node, place, NAMESPACE, "namespaces; or all, or own")))
    if node == []:
        place.refuse("no namespace is named", "Write names, all, or own.")
    if len(names) > MOST_NAMESPACES:
        what = f"{len(names)} namespaces are more than {MOST_NAMESPACES}"
        place.refuse(what, "Write namespaces: all, and a selector.")
    return names or None


def _read_own_namespace() -> str | None:
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _read_node(node: Node, place: Place, context: Context) -> str | None:
    """The name of a node; that of the exporter's own for `own`."""
    name = value(node, place, NODE)
    if name != OWN:
        return name
    if own := context.environ.get("NODE_NAME"):
        return own
    fix = "Set the environment variable NODE_NAME from spec.nodeName, or write the node's name."
    place.refuse("the exporter's own node is not known", fix)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesDiscovery:
    """The pods of a Kubernetes cluster, as its API server lists them."""

    kind: ClassVar[str] = "kubernetes"  # of the configuration file

    namespaces: tuple[str, ...] = key(
        _read_namespaces,
        "Whose pods are looked at: a list of names, `own` (the exporter's own, by `POD_NAMESPACE` or its service account), or `all` "
        "(default). Where they are named, rights on pods in these namespaces are enough.",
        unset=(),
    )
    node: str = key(
        _read_node,
        "Only pods on this node: its name, or `own` (the exporter's own, by `NODE_NAME`), as in a DaemonSet. Default: any node.",
        unset="",
    )
    selector: str = key(
        SELECTOR,
        "Label selector as kubectl takes it, such as `app=vllm,tier in (chat, code)`: every pod that it selects is a target, and no "
        "other. Default: pods that are annotated, and those of the known stacks.",
        unset="",
    )
    only_annotated: bool = key(
        kinds.BOOLEAN,
        'Only pods with the annotation `llm-serving-exporter/scrape: "true"` are targets, of those that `selector` selects where it is '
        "given.",
        default="false",
    )
    pod_labels: tuple[str, ...] = key(
        list_reader(POD_LABEL, "labels of pods"),
        "Labels of a pod that its target keeps as its own, such as `[team]`; characters that Prometheus does not take become `_`.",
        unset=(),
    )
    node_data: bool = key(
        kinds.BOOLEAN,
        "List the nodes too, for provider_id, region, zone and instance_type of targets and of each of their nodes. The "
        "exporter needs the right to list and watch nodes.",
        default="false",
    )
    # whether the node's ResourceSlices are listed too, for the GPUs of claims; never without a node
    claimed_devices: bool = False
    loading_limit_seconds: float = key(
        kinds.DURATION,
        "How long after its start a container that has not been Ready yet counts as loading, and not as down.",
        name="loading_limit",
        default="60m",
    )
    kubeconfig: str | None = key(
        read_path,
        "Path of a kubeconfig, for an exporter outside the cluster. Default: the service account of the exporter's pod.",
    )
    context: str | None = key(kinds.text("context"), "Which context of the kubeconfig. Default: its current one.")
    # every setting but name and URL, for the targets found there
    defaults: Target = key(
        lambda node, place, context: node,
        "Settings of the targets that are found, as `defaults` of `file_sd`. With credentials in them `namespaces` has to be given. "
        "Credentials of `target_defaults` do not go to them.",
    )


def read_kubernetes(
    node: Node, place: Place, under: TargetSettings, context: Context
) -> tuple[KubernetesDiscovery, Placed] | None:
    """One section, and its defaults with their place. `under`: what holds for all targets. What is wrong is reported."""
    if importlib.util.find_spec(CLIENT) is None:
        place.refuse("the client of Kubernetes is not installed", "Run pip install 'llm-serving-exporter[kubernetes]'.")
        return None
    section = Section(keys_of(KubernetesDiscovery), node, place, context, _HINTS)
    values = section.values
    _refuse_pod_labels(values.get("pod_labels", ()), place.key("pod_labels"))
    if "context" in values and "kubeconfig" not in section.nodes:
        place.key("context").refuse("there is no kubeconfig that it belongs to", "Write kubeconfig, or remove context.")
    defaults, odd = read_section_defaults(values.get("defaults"), place, under, context)
    namespaces = section.nodes.get("namespaces")
    means_all = is_empty(namespaces) or (isinstance(namespaces, Scalar) and namespaces.text == "all")
    if has_credentials(defaults.target.http) and means_all:
        what = "credentials would go to pods of every namespace, to which anyone in the cluster can give a label or an annotation"
        defaults.place.refuse(what, "Write namespaces with those whose pods may have them.")
    context.warnings.extend(odd)
    return KubernetesDiscovery(**{**values, "defaults": defaults.target}), defaults
