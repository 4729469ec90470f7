"""Engines over several pods: one replica is one target, its leader's; the others are its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_serving_exporter.discovery.kubernetes.annotations import read_scrape
from llm_serving_exporter.discovery.kubernetes.records import PodRecord
from llm_serving_exporter.model.record import Struct, replace

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
_GROVE_LEADER = "-ldr"
_GROVE_ROLES = (_GROVE_LEADER, "-wkr")
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
# what the rest of a group's name is the value of, by its first label
_NAMES: Mapping[str, tuple[str, ...]] = {
    LWS_NAME: (LWS_NAME, LWS_GROUP),
    RAY_CLUSTER: (RAY_CLUSTER,),
    GROVE_GROUP: (GROVE_GROUP, GROVE_INDEX),
    KAITO_WORKSPACE: (KAITO_WORKSPACE,),
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
    found = None
    if all(labels.get(name) for name in (LWS_NAME, LWS_GROUP, LWS_WORKER)):
        group = (pod.namespace, LWS_NAME, labels[LWS_NAME], labels[LWS_GROUP])
        found = Membership(group, labels[LWS_WORKER] == "0", _read_whole(pod.annotations.get(LWS_SIZE, "")))
    elif labels.get(RAY_CLUSTER) and RAY_SERVE not in labels:
        found = Membership((pod.namespace, RAY_CLUSTER, labels[RAY_CLUSTER]), labels.get(RAY_NODE_TYPE) == "head", None)
    elif all(labels.get(name) for name in (GROVE_GROUP, GROVE_INDEX)) and labels.get(GROVE_CLIQUE, "").endswith(
        _GROVE_ROLES
    ):
        group = (pod.namespace, GROVE_GROUP, labels[GROVE_GROUP], labels[GROVE_INDEX])
        number = _read_whole(labels.get(GROVE_POD_INDEX, ""))
        # the workers before it, itself and the leader
        leads = labels[GROVE_CLIQUE].endswith(_GROVE_LEADER)
        found = Membership(group, leads, None, 0 if leads or number is None else number + 2)
    elif labels.get(KAITO_WORKSPACE) and labels.get(POD_INDEX):
        found = Membership((pod.namespace, KAITO_WORKSPACE, labels[KAITO_WORKSPACE]), labels[POD_INDEX] == "0", None)
    if found is not None and not found.leads and read_scrape(pod.annotations):
        return None
    return found


def name_replica(pod: PodRecord) -> str:
    """What the pods of one replica have in common, also those that are targets of their own: with wide expert parallelism each of them may
    answer for its own ranks. "" for a pod of no group."""
    for names in _NAMES.values():
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
    return ",".join(f"{name}={value}" for name, value in zip(_NAMES[label], names, strict=True))


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
            known = () if group.is_complete else self._complete.get(uid, ())
            if group.is_complete or (group.has_no_gap and len(group.pods) >= len(known)):
                complete[uid] = group.pods
            elif uid in self._complete:
                complete[uid] = self._complete[uid]
                groups[name] = replace(group, before=complete[uid])
        self._complete = complete
        return groups


def _gather(pods: Iterable[PodRecord]) -> dict[tuple[str, ...], Group]:
    members: dict[tuple[str, ...], list[tuple[PodRecord, Membership]]] = {}
    for pod in pods:
        if not pod.has_ended and (found := find_membership(pod)) is not None:
            members.setdefault(found.group, []).append((pod, found))
    groups = {}
    for group, own in members.items():
        # of two that say they lead, as when one is made again while the old one ends, the later one goes on
        leaders = sorted((pod for pod, place in own if place.leads), key=lambda pod: pod.created_unix_seconds or 0.0)
        sizes = [place.size for _, place in own if place.size is not None]
        leader = leaders[-1] if leaders else None
        workers = sorted((pod for pod, place in own if not place.leads), key=lambda pod: pod.name)
        if leader is not None and not leader.is_leaving:
            # what ends while its leader stays is gone for it, or worked for the leader before
            workers = [pod for pod in workers if not pod.is_leaving]
        least = max((place.least for pod, place in own if pod in workers), default=0)
        groups[group] = Group(leader, tuple(workers), max(sizes) if sizes else None, least=least)
    return groups
