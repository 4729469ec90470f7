"""Records of pods -> targets, pods that wait, and who works for whom. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.discovery.kubernetes.engines import (
    DEFAULT_CONTAINER,
    SCRAPERS_SCHEMES,
    STACK_ANNOTATIONS,
    STACK_LABELS,
    EnginePort,
    Stack,
    find_engines,
    find_stack,
)
from llm_serving_exporter.discovery.kubernetes.objects import (
    ANNOTATIONS,
    SCRAPE,
    ContainerRecord,
    NodeRecord,
    PodRecord,
    read_annotations,
    read_scrape,
)
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import Arguments, Identity, NodePlace, Role, Target, WaitingPod
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery, name_label
from llm_serving_exporter.settings.problems import Place
from llm_serving_exporter.settings.target_keys import AUTO, FoundBy, list_places

# --- What owns a pod and outlives it: a Deployment, a LeaderWorkerSet, an InferenceService.


class Workload(Struct, frozen=True):
    """What owns a pod. Both "" for a pod that nobody owns, or whose owner does not say what owns it."""

    name: str  # in the pod's namespace
    kind: str  # as Kubernetes writes it


# label -> the kind of what it names; the first that a pod has counts. In this order: a LeaderWorkerSet is the replica set of whatever made
# it, of which a service may have several, one for prefill and one for decode
_OWNING_LABELS = (
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("ray.io/originated-from-cr-name", ""),  # its kind stands in another label
    ("serving.kserve.io/inferenceservice", "InferenceService"),
    ("ome.io/inferenceservice", "InferenceService"),
    ("nvidia.com/dynamo-graph-deployment-name", "DynamoGraphDeployment"),
    ("storm-service-name", "StormService"),
    ("inferenceset.kaito.sh/created-by", "InferenceSet"),
    ("kaito.sh/workspace", "Workspace"),
)
_RAY_KIND = "ray.io/originated-from-crd"
_PART_OF, _APP_NAME = "app.kubernetes.io/part-of", "app.kubernetes.io/name"
_LLM_SERVICE = "llminferenceservice"
# hash that a controller adds to the names of the sets that it makes -> what the owner of such a set is
_TEMPLATE_HASHES = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))

WORKLOAD_LABELS = frozenset(
    {*(label for label, _ in _OWNING_LABELS), *(label for label, _ in _TEMPLATE_HASHES), _RAY_KIND, _PART_OF, _APP_NAME}
)


def find_workload(pod: PodRecord) -> Workload:
    """The workload of a pod, by its labels, else by its controller."""
    labels = pod.labels
    for label, kind in _OWNING_LABELS:
        if name := labels.get(label, ""):
            return Workload(name, kind or labels.get(_RAY_KIND, ""))
    if labels.get(_PART_OF) == _LLM_SERVICE and (name := labels.get(_APP_NAME, "")):
        return Workload(name, "LLMInferenceService")
    if pod.owner_kind == "ReplicaSet":
        for label, kind in _TEMPLATE_HASHES:
            suffix = f"-{labels.get(label, '')}"
            if label in labels and pod.owner.endswith(suffix) and len(pod.owner) > len(suffix):
                return Workload(pod.owner.removesuffix(suffix), kind)
    return Workload(pod.owner, pod.owner_kind)


# --- Engines over several pods: one replica is one target, its leader's; the others are its workers.


# https://github.com/kubernetes-sigs/lws/blob/060ab4d/api/leaderworkerset/v1/leaderworkerset_types.go
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"  # an annotation
# https://github.com/ray-project/kuberay/blob/feeaf72fa/ray-operator/controllers/ray/utils/constant.go
RAY_CLUSTER, RAY_NODE_TYPE = "ray.io/cluster", "ray.io/node-type"
# of the pods of a RayService, whose nodes have pages of their own, each with the replicas that run there
RAY_SERVE = "ray.io/serve"
# of Dynamo's engines over several nodes: each replica of a scaling group has a clique for its leader and one for its workers
# (https://github.com/ai-dynamo/dynamo/blob/main/deploy/operator/internal/consts/consts.go, GroveRoleSuffixLeader)
GROVE_GROUP, GROVE_INDEX = "grove.io/podcliquescalinggroup", "grove.io/podcliquescalinggroup-replica-index"
GROVE_CLIQUE = "grove.io/podclique"
# of a pod in its clique, from 0 on; one that is made again has the same
# (https://github.com/ai-dynamo/dynamo/blob/main/deploy/operator/internal/controller, groveLabelPodIndex)
GROVE_POD_INDEX = "grove.io/podclique-pod-index"
# of KAITO's workspaces: each is one engine, in the pods of a StatefulSet, of which the first one answers
# (https://github.com/kaito-project/kaito/blob/056b8280b/pkg/workspace/manifests/manifests.go, GenerateStatefulSetManifest)
KAITO_WORKSPACE, POD_INDEX = "kaito.sh/workspace", "apps.kubernetes.io/pod-index"

GROUP_LABELS = frozenset(
    {
        LWS_NAME, LWS_GROUP, LWS_WORKER, RAY_CLUSTER, RAY_NODE_TYPE, RAY_SERVE, GROVE_GROUP, GROVE_INDEX, GROVE_CLIQUE, GROVE_POD_INDEX,
        KAITO_WORKSPACE, POD_INDEX,
    }
)  # fmt: skip
GROUP_ANNOTATIONS = frozenset({LWS_SIZE})
# label selectors for the leaders of groups, by the label that their workers have
LEADER_SELECTORS: Mapping[str, str] = {
    LWS_NAME: f"{LWS_NAME},{LWS_WORKER}=0",
    RAY_CLUSTER: f"{RAY_CLUSTER},{RAY_NODE_TYPE}=head",
    # a selector cannot ask how a name ends
    GROVE_GROUP: f"{GROVE_GROUP},{GROVE_INDEX}",
    KAITO_WORKSPACE: f"{KAITO_WORKSPACE},{POD_INDEX}=0",
}
# by its first label: what the rest of a group's name is the value of, the label that says which of its pods one is, what that has to be,
# and what it is for the leader
_KINDS: Mapping[str, tuple[tuple[str, ...], str, re.Pattern[str], re.Pattern[str]]] = {
    LWS_NAME: ((LWS_NAME, LWS_GROUP), LWS_WORKER, re.compile(r".+"), re.compile(r"0")),
    RAY_CLUSTER: ((RAY_CLUSTER,), RAY_NODE_TYPE, re.compile(r".*"), re.compile(r"head")),
    GROVE_GROUP: ((GROVE_GROUP, GROVE_INDEX), GROVE_CLIQUE, re.compile(r".*-(ldr|wkr)"), re.compile(r".*-ldr")),
    KAITO_WORKSPACE: ((KAITO_WORKSPACE,), POD_INDEX, re.compile(r".+"), re.compile(r"0")),
}


class Membership(Struct, frozen=True):
    """The place of a pod in a group."""

    group: tuple[str, ...]  # equal for all of its pods: namespace, label, names
    leads: bool  # whether the group's engine answers in this pod
    size: int | None  # of the group, when it is complete; None: not said
    least: int = 0  # how many pods it has at least, by the number of this one; 0: it has none


def find_membership(pod: PodRecord) -> Membership | None:
    """The group of a pod; None for one that stands alone, or wants to be a target of its own although it is no leader."""
    labels = pod.labels
    for kind, (names, place_label, of_member, of_leader) in _KINDS.items():
        place = labels.get(place_label, "")
        if not all(labels.get(name) for name in names) or not of_member.fullmatch(place):
            continue
        if kind == RAY_CLUSTER and RAY_SERVE in labels:
            continue
        leads = of_leader.fullmatch(place) is not None
        if not leads and read_scrape(pod.annotations):
            return None
        number = _read_whole(labels.get(GROVE_POD_INDEX, ""))
        return Membership(
            (pod.namespace, kind, *(labels[name] for name in names)),
            leads,
            _read_whole(pod.annotations.get(LWS_SIZE, "")),
            # the workers before it, itself and the leader
            0 if leads or number is None else number + 2,
        )
    return None


def name_replica(pod: PodRecord) -> str:
    """What the pods of one replica have in common, also those that are targets of their own: with wide expert parallelism each of them may
    answer for its own ranks. "" for a pod of no group."""
    for names, *_ in _KINDS.values():
        if all(pod.labels.get(name) for name in names):
            return f"{pod.namespace}/{'-'.join(pod.labels[name] for name in names)}"
    return ""


def _read_whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


class Group(Struct, frozen=True):
    """The pods of one replica."""

    leader: PodRecord | None  # None: there is none that is known
    workers: tuple[PodRecord, ...]  # the others that are there, by name
    size: int | None  # when it is complete; None: not said
    # all pods of the replica when it was last complete with this leader, where one is missing now; (): none is missing
    before: tuple[PodRecord, ...] = ()
    least: int = 0  # how many pods it has at least, by the numbers of those that are there; 0: they have none
    # whether its pods on other nodes would be seen; False: where one node is looked at, and nothing else was heard of
    seen_elsewhere: bool = True

    @property
    def pods(self) -> tuple[PodRecord, ...]:
        """Those that are there, the leader first."""
        return (*((self.leader,) if self.leader is not None else ()), *self.workers)

    @property
    def replica(self) -> tuple[PodRecord, ...]:
        """Those that the replica consists of, whether or not all are there now."""
        return self.before or self.pods

    @property
    def is_complete(self) -> bool:
        """Whether all of its pods are there, which is known only of a group whose size is said."""
        return self.leader is not None and self.size is not None and len(self.pods) >= self.size

    @property
    def has_no_gap(self) -> bool:
        """Whether its pods are numbered and none of them is missing below the highest number that is there."""
        return self.leader is not None and 0 < self.least <= len(self.pods)

    @property
    def is_known(self) -> bool:
        """Whether it is known of which pods the replica consists. Where no size is said those that are there are all of it."""
        return self.is_complete or bool(self.before) or (self.size is None and self.seen_elsewhere)


def select_members(group: tuple[str, ...]) -> str:
    """The label selector for all pods of a group, by its name in `Membership`."""
    _, label, *names = group
    return ",".join(f"{name}={value}" for name, value in zip(_KINDS[label][0], names, strict=True))


class GroupBook:
    """Remembers who belonged to a replica, so that a worker that is gone is missed and not forgotten. Used by one thread at a time."""

    def __init__(self) -> None:
        # uid of the leader -> all pods of the complete replica
        self._complete: dict[str, tuple[PodRecord, ...]] = {}

    def take_over(self, earlier: GroupBook) -> None:
        """Remembers what `earlier` does, too."""
        self._complete |= earlier._complete

    def gather_groups(self, pods: Iterable[PodRecord]) -> dict[tuple[str, ...], Group]:
        """The groups that these pods form; pods that have ended count no more."""
        groups, complete = _gather(pods), {}
        for name, group in groups.items():
            if group.leader is None:
                continue
            uid = group.leader.uid
            # one whose size is not said has as many pods as its leader has had: it is made as a whole, and never shrinks
            last_complete = () if group.is_complete else self._complete.get(uid, ())
            if group.is_complete or (group.has_no_gap and len(group.pods) >= len(last_complete)):
                complete[uid] = group.pods
            elif uid in self._complete:
                complete[uid] = self._complete[uid]
                groups[name] = replace(group, before=complete[uid])
        self._complete = complete
        return groups


def _gather(pods: Iterable[PodRecord]) -> dict[tuple[str, ...], Group]:
    members: dict[tuple[str, ...], list[tuple[PodRecord, Membership]]] = {}
    for pod in pods:
        if not pod.has_ended and (membership := find_membership(pod)) is not None:
            members.setdefault(membership.group, []).append((pod, membership))
    groups = {}
    for group, placed in members.items():
        # of two that say they lead, as when one is made again while the old one ends, the later one goes on
        leaders = sorted((pod for pod, place in placed if place.leads), key=lambda pod: pod.created_unix_seconds or 0.0)
        sizes = [place.size for _, place in placed if place.size is not None]
        leader = leaders[-1] if leaders else None
        workers = sorted((pod for pod, place in placed if not place.leads), key=lambda pod: pod.name)
        if leader is not None and not leader.is_leaving:
            # what ends while its leader stays is gone for it, or worked for the leader before
            workers = [pod for pod in workers if not pod.is_leaving]
        least = max((place.least for pod, place in placed if pod in workers), default=0)
        groups[group] = Group(leader, tuple(workers), max(sizes) if sizes else None, least=least)
    return groups


# --- Pods -> targets


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
    if stack is None or not stack.is_read or any(each.name == stack.worker for each in pod.containers):
        return False
    if stack.marks and all(each.name != stack.marks for each in pod.containers):
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
    return tuple(dict.fromkeys(each.node for each in pods if each.node))


def list_node_places(
    pod: PodRecord, group: Group | None, nodes: Mapping[str, NodeRecord]
) -> tuple[tuple[str, NodePlace], ...]:
    """Where the nodes of a pod, or of all pods of its group, stand. `nodes`: those that are known, by name."""
    return tuple((name, _read_place(nodes[name])) for name in _list_nodes(pod, group) if name in nodes)


def _read_place(node: NodeRecord) -> NodePlace:
    return NodePlace(node.region, node.zone, node.instance_type, node.provider_id)


def _find_arguments(engine: EnginePort, engines: Sequence[EnginePort]) -> Arguments:
    """Those of the engine's container; () where it runs several engines. `engines`: all of the pod."""
    return engine.container.arguments if [each.container for each in engines].count(engine.container) == 1 else ()


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
    leads = target.name, target.model_name or "", role
    places = [_read_place(nodes.get(worker.node, NodeRecord())) for worker in group.workers]
    return [
        Worker(worker.namespace, worker.name, *leads, worker.uid, place)
        for worker, place in zip(group.workers, places, strict=True)
    ]
