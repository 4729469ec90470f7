"""Records of pods -> targets, pods that wait, and who works for whom. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.discovery.kubernetes.annotations import ANNOTATIONS, SCRAPE, read_annotations, read_scrape
from llm_serving_exporter.discovery.kubernetes.engines import (
    DEFAULT_CONTAINER,
    SCRAPERS_SCHEMES,
    EnginePort,
    find_engines,
)
from llm_serving_exporter.discovery.kubernetes.groups import (
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    Group,
    find_membership,
    name_replica,
)
from llm_serving_exporter.discovery.kubernetes.records import ContainerRecord, NodeRecord, PodRecord
from llm_serving_exporter.discovery.kubernetes.stacks import STACK_ANNOTATIONS, STACK_LABELS, Stack, find_stack
from llm_serving_exporter.discovery.kubernetes.workloads import WORKLOAD_LABELS, find_workload
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import Arguments, Identity, NodePlace, Role, Target, WaitingPod
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery, name_label
from llm_serving_exporter.settings.problems import Place
from llm_serving_exporter.settings.target_keys import AUTO, FoundBy, list_places

_FOR_SCRAPERS = frozenset({*SCRAPERS_SCHEMES, *SCRAPERS_SCHEMES.values()})
KNOWN_ANNOTATIONS = ANNOTATIONS | GROUP_ANNOTATIONS | STACK_ANNOTATIONS | _FOR_SCRAPERS | {DEFAULT_CONTAINER}

# of every pod's targets
_PLACES = list_places(FoundBy.KUBERNETES, "")


def list_known_labels(section: KubernetesDiscovery) -> frozenset[str]:
    """The labels of pods that a section needs."""
    return STACK_LABELS | GROUP_LABELS | WORKLOAD_LABELS | frozenset(section.pod_labels)


def is_selected(pod: PodRecord, section: KubernetesDiscovery) -> bool:
    """Whether a pod is a target, or will be once it can be read. The API server has applied namespaces, node and selector already."""
    scrape = read_scrape(pod.annotations)
    if scrape is not None or section.only_annotated:
        return bool(scrape)
    stack = find_stack(pod.labels)
    if section.selector:
        return stack is None or stack.is_read
    if stack is None or not stack.is_read or any(one.name == stack.worker for one in pod.containers):
        return False
    if stack.marks and all(one.name != stack.marks for one in pod.containers):
        return False
    return not stack.needs_gpus or any(container.has_gpus for container in pod.containers)


def is_unclear(pod: PodRecord, section: KubernetesDiscovery) -> bool:
    """Whether a pod says something about being a target that makes no sense, and is none therefore."""
    return bool(pod.annotations.get(SCRAPE)) and read_scrape(pod.annotations) is None and not is_selected(pod, section)


def is_kept(pod: PodRecord, section: KubernetesDiscovery) -> bool:
    """Whether a record of a pod is needed: of one that is selected or cannot be, that works for another, or that had GPUs here."""
    if pod.has_ended:
        # kubelets before 1.34 list the GPUs of such pods on
        return bool(section.node) and any(container.has_gpus for container in pod.containers)
    place = find_membership(pod)
    # workers are never read: that nobody shall read them says nothing about whose they are
    works = place is not None and (not place.leads or read_scrape(pod.annotations) is not False)
    return works or is_selected(pod, section) or is_unclear(pod, section)


class FoundPod(Struct, frozen=True):
    """What comes of one pod that is selected."""

    targets: tuple[tuple[Target, ContainerRecord], ...] = ()  # with the containers that run them
    waiting: WaitingPod | None = None  # None: it is a target, or cannot be one
    problems: tuple[Problem, ...] = ()  # with its annotations


class Surroundings(Struct, frozen=True):
    """What else decides on the targets of a pod."""

    section: KubernetesDiscovery  # that finds it
    source: str  # by which users know where the pod is from
    runtimes: Collection[str]  # names of those that have a table


def find_targets(
    pod: PodRecord,
    group: Group | None,
    node: NodeRecord | None,
    around: Surroundings,
    places: tuple[tuple[str, NodePlace], ...] = (),
) -> FoundPod:
    """What comes of a pod that stands alone (`group` None) or leads a group. `node`: what is known of its node; `places`: where all nodes
    of the group stand.

    It is selected, or says something about it that makes no sense.
    """
    problems: list[Problem] = []
    stack = find_stack(pod.labels)
    wishes = read_annotations(pod, around.source, problems, around.runtimes)
    if wishes is None or is_unclear(pod, around.section):
        return FoundPod(problems=tuple(problems))
    role = wishes.role or _find_role(pod, stack) or around.section.defaults.role
    model = wishes.model or (clean(pod.labels.get(stack.model_label, "")) if stack is not None else "")
    if not pod.address:
        workload = find_workload(pod)
        names = (pod.namespace, pod.name, workload.name, workload.kind)
        waiting = WaitingPod(*names, model_name=model, role=role or Role.UNIFIED)
        return FoundPod(waiting=waiting, problems=tuple(problems))
    engines = find_engines(pod, stack, wishes)
    if not engines:
        where = f"pod {pod.namespace}/{pod.name}"
        what = "none of its containers has the port that llm-serving-exporter/port names"
        if not wishes.ports:
            what = "its labels, ports and probes do not say where its metrics page is"
        fix = 'Annotate it with llm-serving-exporter/port: "8000", or with llm-serving-exporter/scrape: "false" where no engine runs.'
        Place(around.source, where, problems).refuse(what, fix)
        return FoundPod(problems=tuple(problems))
    defaults = around.section.defaults
    usual = defaults.runtime or (stack.runtime if stack is not None else "") or None
    shared = replace(
        defaults,
        metrics_path=wishes.path or defaults.metrics_path,
        runtime=usual if wishes.runtime is None else (None if wishes.runtime == AUTO else wishes.runtime),
        model_name=wishes.model or defaults.model_name,
        role=role,
        places=_PLACES,
    )
    targets = []
    for engine in engines:
        identity = _identify(pod, engine, node, around.section)
        target = replace(
            shared,
            name=f"{pod.namespace}/{pod.name}:{engine.port}",
            url=f"{engine.scheme}://{_bracketed(pod.address)}:{engine.port}",
            may_speak_tls=engine.is_guess,
            identity=identity,
            replica=name_replica(pod),
            nodes=_list_nodes(pod, group) or defaults.nodes,
            node_places=places,
            arguments=_find_arguments(engine, engines),
            gpu_count=_count_gpus(engine, group, node, shared, engines),
            lacks_pods=group is not None and not group.is_known,
        )
        targets.append((target, engine.container))
    return FoundPod(tuple(targets), problems=tuple(problems))


def _find_role(pod: PodRecord, stack: Stack | None) -> Role | None:
    if stack is None:
        return None
    return stack.role or stack.roles.get(pod.labels.get(stack.role_label, ""))


def _identify(pod: PodRecord, engine: EnginePort, node: NodeRecord | None, section: KubernetesDiscovery) -> Identity:
    workload, of_node, given = find_workload(pod), node or NodeRecord(), section.defaults.identity
    labels = dict(given.labels)
    labels |= {name_label(name): clean(pod.labels[name]) for name in section.pod_labels if pod.labels.get(name)}
    return replace(
        given,
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        container=engine.container.name,
        workload=workload.name or given.workload,
        workload_kind=workload.kind if workload.name else given.workload_kind,
        provider_id=of_node.provider_id or given.provider_id,
        region=of_node.region or given.region,
        instance_type=of_node.instance_type or given.instance_type,
        labels=tuple(sorted(labels.items())),
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _list_nodes(pod: PodRecord, group: Group | None) -> tuple[str, ...]:
    pods: Iterable[PodRecord] = group.replica if group is not None else (pod,)
    return tuple(dict.fromkeys(one.node for one in pods if one.node))


def list_node_places(
    pod: PodRecord, group: Group | None, nodes: Mapping[str, NodeRecord]
) -> tuple[tuple[str, NodePlace], ...]:
    """Where the nodes of a pod, or of all pods of its group, stand. `nodes`: those that are known, by name."""
    return tuple((name, _read_place(nodes[name])) for name in _list_nodes(pod, group) if name in nodes)


def _find_place(pod: PodRecord, nodes: Mapping[str, NodeRecord]) -> NodePlace:
    return _read_place(nodes[pod.node]) if pod.node in nodes else NodePlace()


def _read_place(node: NodeRecord) -> NodePlace:
    return NodePlace(node.region, node.zone, node.instance_type, node.provider_id)


def _find_arguments(engine: EnginePort, engines: Sequence[EnginePort]) -> Arguments:
    """Those of the engine's container; () where it runs several engines. `engines`: all of the pod."""
    return engine.container.arguments if [one.container for one in engines].count(engine.container) == 1 else ()


def _count_gpus(
    engine: EnginePort,
    group: Group | None,
    node: NodeRecord | None,
    target: Target,
    engines: Sequence[EnginePort],
) -> int | None:
    """How many whole GPUs the engine asked Kubernetes for; None where that is not known, or is configured otherwise.

    `engines`: all of its pod.
    """
    if target.gpu_count is not None or target.gpus is not None or target.role is Role.FRONTEND:
        return target.gpu_count
    if node is not None and node.shares_gpus:
        return None
    if sum(other.container is engine.container for other in engines) > 1:
        # the container asks for the GPUs of all its engines together
        return None
    if group is None or len(engines) > 1:
        return engine.container.gpus or None
    if not group.is_known:
        return None
    counts = [pod.gpus for pod in group.replica]
    return None if None in counts else add_up(count for count in counts if count is not None) or None


def list_workers(
    group: Group, found: Mapping[str, FoundPod], nodes: Mapping[str, NodeRecord] = MappingProxyType({})
) -> list[Worker]:
    """The workers of a group, with the target that they work for. `found`: what came of pods, by their uids; `nodes`: those that are known,
    by name."""
    leader = group.leader
    own = found.get(leader.uid) if leader is not None else None
    if own is None or len(own.targets) != 1:
        return []
    target, role = own.targets[0][0], own.targets[0][0].role or Role.UNIFIED
    return [
        Worker(
            worker.namespace,
            worker.name,
            target.name,
            target.model_name or "",
            role,
            worker.uid,
            _find_place(worker, nodes),
        )
        for worker in group.workers
    ]
