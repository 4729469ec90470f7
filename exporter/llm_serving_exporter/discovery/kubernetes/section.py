"""One section of `kubernetes` over time: mirrors of pods (and nodes, and leaders elsewhere), and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.kubernetes.api import Account, Api, Listing
from llm_serving_exporter.discovery.kubernetes.engines import list_working
from llm_serving_exporter.discovery.kubernetes.mirror import Copy, Mirror, SliceRecord, map_devices, watch_slices
from llm_serving_exporter.discovery.kubernetes.objects import (
    ContainerRecord,
    NodeRecord,
    PodRecord,
    decode_node,
    decode_pod,
)
from llm_serving_exporter.discovery.kubernetes.targets import (
    KNOWN_ANNOTATIONS,
    LEADER_SELECTORS,
    FoundPod,
    Group,
    GroupBook,
    Surroundings,
    find_membership,
    find_targets,
    is_kept,
    is_selected,
    is_unclear,
    list_known_labels,
    list_node_places,
    list_workers,
    select_members,
)
from llm_serving_exporter.discovery.section import SectionReading, Source
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import NodePlace, PodFault, PodState, Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery

# --- What Kubernetes says of a target's pod, with what has to be remembered for it: whether its container has been Ready in this life.


# a kubelet tells some seconds later what happened: a container that crashed and is back at once is seen as "not Ready since" a moment after
# its start. Nothing that loads a model was Ready within this time
_TOLD_LATE_SECONDS = 30.0


class StateBook:
    """Remembers of each engine's container, over the readings of its pod, since when it runs, and whether it has been Ready since then.

    Times of Kubernetes are of three clocks that need not agree with each other or with those here: the API server's, the kubelet's, the
    control plane's. Times of one are compared with times of the same one; how long something loads is counted by the monotonic clock here.
    """

    def __init__(
        self,
        loading_limit_seconds: float,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._loading_limit_seconds = loading_limit_seconds
        self._monotonic, self._wall = monotonic, wall
        # (pod's uid, container) -> start of the life in which it was Ready
        self._ready: dict[tuple[str, str], float | None] = {}
        # (pod's uid, container) -> start of its life, by the kubelet's clock, and by the monotonic one here
        self._begun: dict[tuple[str, str], tuple[float | None, float]] = {}

    def take_over(self, earlier: StateBook) -> None:
        """Remembers what `earlier` does, too."""
        self._ready |= earlier._ready
        self._begun |= earlier._begun

    def note_state(
        self,
        pod: PodRecord,
        container: ContainerRecord,
        group: Group | None,
        clock_offset_seconds: float | None = None,
    ) -> PodState:
        """The state of a pod whose engine runs in `container`. `group`: all pods of the replica; None: it has one.

        `clock_offset_seconds`: of the API server's clock to the monotonic one here; None: not known, it is taken for the wall clock here.
        """
        key, start = (pod.uid, container.name), container.started_unix_seconds
        if container.is_ready or _was_ready(pod, container):
            self._ready[key] = start
        was_ready = key in self._ready and self._ready[key] == start
        return PodState(
            was_ready=was_ready,
            created_unix_seconds=pod.created_unix_seconds,
            fault=_find_fault(pod, container, group),
            loading_limit_seconds=self._loading_limit_seconds,
            is_ready=container.is_ready,
            loading_since_seconds=self._note_begin(pod, container, clock_offset_seconds),
        )

    def _note_begin(self, pod: PodRecord, container: ContainerRecord, clock_offset_seconds: float | None) -> float:
        """When the present life of a container began, by the monotonic clock here."""
        key, start, now = (pod.uid, container.name), container.started_unix_seconds, self._monotonic()
        begun = self._begun.get(key)
        if begun is None or begun[0] != start:
            # another life than the one that was seen before begins now, whatever the kubelet's clock says
            age = 0.0
            if begun is None:
                wall = self._wall() if clock_offset_seconds is None else now + clock_offset_seconds
                age = _find_age(pod, start, wall)
            begun = self._begun[key] = start, now - age
        return begun[1]

    def forget_others(self, uids: Collection[str]) -> None:
        """Forgets pods that are gone."""
        self._ready = {key: start for key, start in self._ready.items() if key[0] in uids}
        self._begun = {key: begun for key, begun in self._begun.items() if key[0] in uids}


def _was_ready(pod: PodRecord, container: ContainerRecord) -> bool:
    """Whether the pod says that its containers were Ready after this one's start: its condition changed to not Ready since then."""
    since, start = pod.unready_since_unix_seconds, container.started_unix_seconds
    if since is None or start is None:
        return False
    # a pod is not Ready from its first moment on, which is later than the start where its node's clock was put back meanwhile
    return since > max(start, pod.begun_unix_seconds or start) + _TOLD_LATE_SECONDS


def _find_age(pod: PodRecord, start: float | None, now_unix_seconds: float) -> float:
    """How long ago a container started that is seen for the first time. `now_unix_seconds`: by the API server's clock.

    What has not started waits since its pod was made: for an image, for a volume. What is said to have started before that has a kubelet
    whose clock is behind.
    """
    moments = [moment for moment in (start, pod.created_unix_seconds) if moment is not None]
    return max(0.0, now_unix_seconds - max(moments)) if moments else 0.0


def _find_fault(pod: PodRecord, container: ContainerRecord, group: Group | None) -> PodFault | None:
    if container.crash_loops:
        return PodFault.CRASH_LOOP
    if pod.lost_node:
        return PodFault.NODE_LOST
    if group is None:
        return None
    # proxies and shippers of logs beside a worker take no part in its work
    crashes = any(each.crash_loops for worker in group.workers for each in list_working(worker.containers))
    if crashes or group.before or any(worker.lost_node for worker in group.workers):
        return PodFault.WORKER_LOST
    return None


# --- The section


Pods = Mirror[tuple[str, str], PodRecord]
# pods that have ended are no target, and clusters keep thousands of them
_GOING_ON = "status.phase!=Succeeded,status.phase!=Failed"
# replicas over several nodes that one node leads: each is a request of its own that stays open
MOST_GROUPS = 32
_NODE_RIGHTS = "Give its service account list and watch on nodes by a ClusterRole, or leave out node_data."


# what the targets of a pod follow from: the pod, its group, its node, the places of all nodes of the group, what else decides
_Inputs = tuple[PodRecord, Group | None, NodeRecord | None, tuple[tuple[str, NodePlace], ...], Surroundings]


class SectionPods:
    """The pods of one section. Used by one thread at a time, but for `close`.

    `connect`: makes a connection to the API server, by default as the section says. `earlier`: sections whose place this one takes; what
    they know is used until the API server has answered. One of another cluster or selector knows none.
    """

    def __init__(
        self,
        section: KubernetesDiscovery,
        *,
        connect: Callable[[], Api] | None = None,
        earlier: Sequence[SectionPods] = (),
    ) -> None:
        self._section = section
        account = Account(section.kubeconfig, section.context)
        self._connect = connect or (lambda: Api(account))
        self._labels = list_known_labels(section)
        self._pods = [self._watch_pods(namespace, section.node) for namespace in section.namespaces or ("",)]
        self._nodes: Mirror[str, NodeRecord] | None = self._watch_nodes() if section.node_data else None
        self._slices: Mirror[str, SliceRecord] | None = None
        if section.claimed_devices and section.node:
            self._slices = watch_slices(section.node, self._connect)
        # what earlier sections knew, by the name of the list; {} once the API server has answered for all lists
        self._before: dict[str, Mapping[tuple[str, str], PodRecord]] = {}
        # (namespace, label of a group) -> the leaders of such groups on all nodes; begun when a worker shows up whose leader is elsewhere
        self._leaders: dict[tuple[str, str], Pods] = {}
        # by group, all pods of replicas that are led here and have pods elsewhere
        self._members: dict[tuple[str, ...], Pods] = {}
        # the revisions at the last reading; None before it
        self._seen: tuple[int, ...] | None = None
        # by uid of the pod, so that what has not changed is not worked out again
        self._known: dict[str, tuple[_Inputs, FoundPod]] = {}
        self._states, self._groups = StateBook(section.loading_limit_seconds), GroupBook()
        # the most alike first
        for other in sorted(earlier, key=lambda other: not self._looks_at_the_same(other)):
            if self._asks_the_same(other):
                self._before = {**other.copy_pods(), **self._before}
                self._states.take_over(other._states)
                self._groups.take_over(other._groups)
        self._is_closed = False

    def have_changed(self) -> bool:
        """Whether a pod, a node or a problem has changed since the last reading."""
        return self._seen is None or self._seen != self._list_revisions()

    def read(self, runtimes: Collection[str] = RUNTIMES) -> SectionReading:
        """What is known now; the first reading begins to ask, and knows nothing yet. Never raises, never waits for the server."""
        if self._seen is None:
            self._start(*self._list_mirrors())
        self._seen = self._list_revisions()
        copies = [(mirror.listing.name, self._copy_pods(mirror)) for mirror in self._pods]
        nodes = self._nodes.copy() if self._nodes is not None else None
        of_nodes = (nodes.records or {}) if nodes is not None else {}
        leaders = {key: mirror.copy() for key, mirror in self._leaders.items()}
        members = {group: mirror.copy() for group, mirror in self._members.items()}
        own = [pod for _, copy in copies for pod in (copy.records or {}).values()]
        elsewhere = (*leaders.values(), *members.values())
        here = {pod.uid for pod in own}
        others = (pod for copy in elsewhere for pod in (copy.records or {}).values())
        by_uid = {pod.uid: pod for pod in (*others, *own)}
        groups = self._groups.gather_groups(by_uid.values())
        excess = self._look_for_members(groups, here)
        listed = {group for group, copy in members.items() if copy.records is not None}
        if self._section.node:
            groups = {group: replace(one, seen_elsewhere=group in listed) for group, one in groups.items()}

        found: dict[str, FoundPod] = {}
        sources, states, waiting = [], {}, []
        for name, copy in copies:
            around = Surroundings(self._section, name, tuple(sorted(runtimes)))
            targets: list[Target] = []
            problems = [*copy.problems]
            for pod in (copy.records or {}).values():
                known = self._known.get(pod.uid)
                # what was read is read again as long as it is the same
                if (known is None or known[0][0] is not pod) and not self._is_read(pod):
                    continue
                one = found[pod.uid] = self._find_targets(pod, groups, of_nodes, around)
                problems += one.problems
                targets += [target for target, _ in one.targets]
                states.update(self._note_states(pod, one, groups, copy.clock_offset_seconds))
                waiting += [one.waiting] if one.waiting is not None else []
            targets.sort(key=lambda target: target.name)
            sources.append(Source(name, tuple(targets) if copy.records is not None else None, tuple(problems)))
        self._known = {uid: known for uid, known in self._known.items() if uid in here}
        self._states.forget_others(here)
        slices = self._slices.copy() if self._slices is not None else None
        beside = [copy.problems for copy in (*elsewhere, nodes, slices) if copy is not None]
        return SectionReading(
            tuple(sources),
            tuple(dict.fromkeys(problem for problems in (*beside, excess) for problem in problems)),
            pods=states,
            waiting=tuple(sorted(waiting, key=lambda pod: (pod.namespace, pod.pod))),
            workers=self._find_workers(groups, found, here, of_nodes, tuple(sorted(runtimes))),
            finished=frozenset(pod.key for pod in own if pod.has_ended),
            slices=map_devices((slices.records or {}).values()) if slices is not None else {},
        )

    def close(self) -> None:
        """Ends the threads that ask the API server."""
        self._is_closed = True
        for mirror in self._list_mirrors():
            mirror.stop()

    def _asks_the_same(self, other: SectionPods) -> bool:
        """Whether what `other` was told is true of this section's pods."""
        mine, others = self._section, other._section
        return (mine.kubeconfig, mine.context, mine.selector) == (others.kubeconfig, others.context, others.selector)

    def _looks_at_the_same(self, other: SectionPods) -> bool:
        mine, others = self._section, other._section
        return (mine.namespaces, mine.node) == (others.namespaces, others.node)

    def copy_pods(self) -> dict[str, Mapping[tuple[str, str], PodRecord]]:
        """The pods that are known, by the name of the list that they are from."""
        by_listing = {mirror.listing.name: self._copy_pods(mirror).records for mirror in self._pods}
        return {name: records for name, records in by_listing.items() if records is not None}

    # --- mirrors --------------------------------------------------------------------------------------------------

    def _list_mirrors(self) -> list[Mirror[Any, Any]]:
        others = [mirror for mirror in (self._nodes, self._slices) if mirror is not None]
        return [*self._pods, *others, *self._leaders.values(), *self._members.values()]

    def _copy_pods(self, mirror: Pods) -> Copy[tuple[str, str], PodRecord]:
        copy, before = mirror.copy(), self._before.get(mirror.listing.name)
        if copy.records is not None:
            self._before.pop(mirror.listing.name, None)
            return copy
        return Copy(before, copy.problems, copy.clock_offset_seconds)

    def _list_revisions(self) -> tuple[int, ...]:
        return tuple(mirror.revision for mirror in self._list_mirrors())

    def _start(self, *mirrors: Mirror[Any, Any]) -> None:
        for mirror in mirrors:
            if not self._is_closed:
                mirror.start()

    def _watch_pods(self, namespace: str, node: str, others: str = "") -> Pods:
        """Pods of a namespace ("" for all) on a node ("" for all). `others`: a selector instead of the section's; all are kept."""
        section = self._section
        fields = f"spec.nodeName={node}" if node else _GOING_ON
        parameters = {"fieldSelector": fields}
        if selector := others or section.selector:
            parameters["labelSelector"] = selector
        where = f"in the namespace {namespace}" if namespace else "of all namespaces"
        kind = "Role and a RoleBinding in the namespace" if namespace else "ClusterRole and a ClusterRoleBinding"
        remedy = f"Give its service account list and watch on pods by a {kind}."

        def reduce(body: msgspec.Raw) -> tuple[tuple[str, str], PodRecord | None]:
            pod = decode_pod(body, self._labels, KNOWN_ANNOTATIONS)
            return pod.key, pod if others or is_kept(pod, section) else None

        name = f"kubernetes ({f'namespace {namespace}' if namespace else 'all namespaces'}{f', node {node}' if node else ''})"
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        return Mirror(Listing(name, "pods", path, where, remedy, parameters), self._connect, reduce)

    def _watch_nodes(self) -> Mirror[str, NodeRecord]:
        node = self._section.node
        parameters = {"fieldSelector": f"metadata.name={node}"} if node else {}
        listing = Listing("kubernetes (nodes)", "nodes", "/api/v1/nodes", "of the cluster", _NODE_RIGHTS, parameters)
        return Mirror(listing, self._connect, decode_node)

    # --- what they come to ----------------------------------------------------------------------------------------

    def _is_read(self, pod: PodRecord) -> bool:
        place = find_membership(pod)
        wanted = is_selected(pod, self._section) or is_unclear(pod, self._section)
        return not pod.has_ended and wanted and (place is None or place.leads)

    def _find_group(self, pod: PodRecord, groups: Mapping[tuple[str, ...], Group]) -> Group | None:
        place = find_membership(pod)
        return groups.get(place.group) if place is not None else None

    def _find_targets(
        self,
        pod: PodRecord,
        groups: Mapping[tuple[str, ...], Group],
        nodes: Mapping[str, NodeRecord],
        around: Surroundings,
    ) -> FoundPod:
        group, node, known = self._find_group(pod, groups), nodes.get(pod.node), self._known.get(pod.uid)
        places = list_node_places(pod, group, nodes)
        inputs = (pod, group, node, places, around)
        if known is None or known[0] != inputs:
            known = self._known[pod.uid] = inputs, find_targets(pod, group, node, around, places)
        return known[1]

    def _note_states(
        self,
        pod: PodRecord,
        pod_targets: FoundPod,
        groups: Mapping[tuple[str, ...], Group],
        clock_offset_seconds: float | None,
    ) -> dict[str, PodState]:
        group, offset = self._find_group(pod, groups), clock_offset_seconds
        return {
            target.name: self._states.note_state(pod, container, group, offset)
            for target, container in pod_targets.targets
        }

    def _find_workers(
        self,
        groups: Mapping[tuple[str, ...], Group],
        pods: Mapping[str, FoundPod],
        here: Collection[str],
        nodes: Mapping[str, NodeRecord],
        runtimes: tuple[str, ...],
    ) -> tuple[Worker, ...]:
        """The workers here of all groups, also of those whose leader is on a node that this section does not look at."""
        workers: list[Worker] = []
        for name, whole in groups.items():
            group = replace(whole, workers=tuple(pod for pod in whole.workers if pod.uid in here))
            if not group.workers:
                continue
            if group.leader is None:
                self._look_for_leaders(group.workers, name)
            elif group.leader.uid in here:
                workers += list_workers(group, pods, nodes)
            else:
                around = Surroundings(self._section, "", runtimes)
                elsewhere = {group.leader.uid: find_targets(group.leader, group, None, around)}
                workers += list_workers(group, elsewhere, nodes)
        return tuple(workers)

    def _look_for_members(self, groups: Mapping[tuple[str, ...], Group], here: Collection[str]) -> tuple[Problem, ...]:
        """Watches the other pods of replicas that are led here, where only the pods of one node are looked at; no longer than that.

        The problem is that there are too many of them.
        """
        wanted = [
            name
            for name, group in groups.items()
            if self._section.node
            and group.leader is not None
            and group.leader.uid in here
            and (group.size is None or sum(pod.uid in here for pod in group.pods) < group.size)
        ]
        left_out, wanted = len(wanted) - MOST_GROUPS, wanted[:MOST_GROUPS]
        before = self._members
        new = {name: self._watch_pods(name[0], "", select_members(name)) for name in wanted if name not in before}
        # those that are begun are known to `close` first
        self._members = {name: new.get(name) or before[name] for name in wanted}
        self._start(*new.values())
        for name, mirror in before.items():
            if name not in self._members:
                mirror.stop()
        if left_out <= 0:
            return ()
        led = f"{count_nouns(left_out, 'replica')} of several pods beyond {MOST_GROUPS:,} {'is' if left_out == 1 else 'are'} led"
        what = f"{led} on this node: their pods on other nodes are not known"
        return (Problem("kubernetes", "", what, "Find them with an exporter of the whole cluster (mode statefulset)."),)

    def _look_for_leaders(self, workers: Iterable[PodRecord], group: tuple[str, ...]) -> None:
        """Begins to watch the leaders of such groups, where only the pods of one node are looked at."""
        namespace = group[0] if self._section.namespaces else ""
        key = (namespace, group[1])
        if self._section.node and key not in self._leaders:
            mirror = self._watch_pods(namespace, "", LEADER_SELECTORS[group[1]])
            self._leaders = {**self._leaders, key: mirror}
            self._start(mirror)
