"""One section of `kubernetes` over time: mirrors of pods (and nodes, and leaders elsewhere), and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from llm_serving_exporter.config.types import KubernetesDiscovery
from llm_serving_exporter.discovery.kubernetes.api import Account, Api
from llm_serving_exporter.discovery.kubernetes.groups import (
    LEADER_SELECTORS,
    Group,
    GroupBook,
    find_membership,
)
from llm_serving_exporter.discovery.kubernetes.mirror import Copy, Listing, Mirror
from llm_serving_exporter.discovery.kubernetes.objects import decode_node, decode_pod
from llm_serving_exporter.discovery.kubernetes.records import NodeRecord, PodRecord
from llm_serving_exporter.discovery.kubernetes.states import StateBook
from llm_serving_exporter.discovery.kubernetes.targets import (
    KNOWN_ANNOTATIONS,
    FoundPod,
    Surroundings,
    find_targets,
    is_kept,
    is_selected,
    list_known_labels,
    list_workers,
)
from llm_serving_exporter.discovery.section import SectionReading, Source
from llm_serving_exporter.model.kubelet import Worker
from llm_serving_exporter.model.pod import PodState
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.registry import RUNTIMES

Pods = Mirror[tuple[str, str], PodRecord]
# pods that have ended are no target, and clusters keep thousands of them
_GOING_ON = "status.phase!=Succeeded,status.phase!=Failed"
_NODE_RIGHTS = "Give its service account list and watch on nodes by a ClusterRole, or leave out node_data."


@dataclass(frozen=True, slots=True)
class _Known:
    """What came of a pod, and of what."""

    pod: PodRecord  # as it was
    group: Group | None  # likewise
    node: NodeRecord | None  # likewise
    around: Surroundings  # likewise
    found: FoundPod  # what came of these


class SectionPods:
    """The pods of one section. Used by one thread at a time, but for `close`.

    `connect`: makes a connection to the API server, by default as the section says. `earlier`: the section whose place this one takes; what
    it knows is used until the API server has answered.
    """

    def __init__(
        self,
        section: KubernetesDiscovery,
        *,
        connect: Callable[[], Api] | None = None,
        earlier: SectionPods | None = None,
    ) -> None:
        self._section = section
        account = Account(section.kubeconfig, section.context)
        self._connect = connect or (lambda: Api(account))
        self._labels = list_known_labels(section)
        self._pods = [self._watch_pods(namespace, section.node) for namespace in section.namespaces or ("",)]
        self._nodes: Mirror[str, NodeRecord] | None = self._watch_nodes() if section.node_data else None
        # what an earlier section knew, by the name of the list; {} once the API server has answered for all lists
        self._before = earlier.copy_pods() if earlier is not None else {}
        # (namespace, label of a group) -> the leaders of such groups on all nodes; begun when a worker shows up whose leader is elsewhere
        self._leaders: dict[tuple[str, str], Pods] = {}
        # the revisions at the last reading; None before it
        self._seen: tuple[int, ...] | None = None
        # by uid of the pod, so that what has not changed is not worked out again
        self._known: dict[str, _Known] = {}
        self._states, self._groups = StateBook(section.loading_limit_seconds), GroupBook()
        self._is_closed = False

    def have_changed(self) -> bool:
        """Whether a pod, a node or a problem has changed since the last reading."""
        return self._seen is None or self._seen != self._list_revisions()

    def read(self, runtimes: Collection[str] = RUNTIMES) -> SectionReading:
        """What is known now; the first reading begins to ask, and knows nothing yet. Never raises, never waits for the server."""
        if self._seen is None:
            self._start(*self._pods, *((self._nodes,) if self._nodes is not None else ()))
        self._seen = self._list_revisions()
        copies = [(mirror.listing.name, self._copy_pods(mirror)) for mirror in self._pods]
        nodes = self._nodes.copy() if self._nodes is not None else None
        of_nodes = (nodes.records or {}) if nodes is not None else {}
        leaders = {key: mirror.copy() for key, mirror in self._leaders.items()}
        own = [pod for _, copy in copies for pod in (copy.records or {}).values()]
        elsewhere = [pod for copy in leaders.values() for pod in (copy.records or {}).values()]
        here = {pod.uid for pod in own}
        groups = self._groups.gather_groups([*own, *(pod for pod in elsewhere if pod.uid not in here)])

        found: dict[str, FoundPod] = {}
        sources, states, waiting = [], {}, []
        for name, copy in copies:
            around = Surroundings(self._section, name, tuple(sorted(runtimes)))
            targets: list[Target] = []
            problems = [*copy.problems]
            for pod in (copy.records or {}).values():
                if not self._is_read(pod):
                    continue
                one = found[pod.uid] = self._find_targets(pod, groups, of_nodes, around)
                problems += one.problems
                targets += [target for target, _ in one.targets]
                states.update(self._note_states(pod, one, groups))
                waiting += [one.waiting] if one.waiting is not None else []
            targets.sort(key=lambda target: target.name)
            sources.append(Source(name, tuple(targets) if copy.records is not None else None, tuple(problems)))
        self._known = {uid: known for uid, known in self._known.items() if uid in here}
        self._states.forget_others(here)
        others = [copy.problems for copy in (*leaders.values(), *((nodes,) if nodes is not None else ()))]
        return SectionReading(
            tuple(sources),
            tuple(problem for problems in others for problem in problems),
            states,
            tuple(sorted(waiting, key=lambda pod: (pod.namespace, pod.pod))),
            self._find_workers(groups, found, here, tuple(sorted(runtimes))),
            frozenset(pod.key for pod in own if pod.has_ended),
        )

    def close(self) -> None:
        """Ends the threads that ask the API server."""
        self._is_closed = True
        for mirror in self._list_mirrors():
            mirror.stop()

    def copy_pods(self) -> dict[str, Mapping[tuple[str, str], PodRecord]]:
        """The pods that are known, by the name of the list that they are from."""
        found = {mirror.listing.name: self._copy_pods(mirror).records for mirror in self._pods}
        return {name: records for name, records in found.items() if records is not None}

    # --- mirrors --------------------------------------------------------------------------------------------------

    def _list_mirrors(self) -> list[Mirror[Any, Any]]:
        return [*self._pods, *((self._nodes,) if self._nodes is not None else ()), *list(self._leaders.values())]

    def _copy_pods(self, mirror: Pods) -> Copy[tuple[str, str], PodRecord]:
        copy, before = mirror.copy(), self._before.get(mirror.listing.name)
        if copy.records is not None:
            self._before.pop(mirror.listing.name, None)
            return copy
        return Copy(before, copy.problems)

    def _list_revisions(self) -> tuple[int, ...]:
        return tuple(mirror.revision for mirror in self._list_mirrors())

    def _start(self, *mirrors: Mirror[Any, Any]) -> None:
        for mirror in mirrors:
            if not self._is_closed:
                mirror.start()

    def _watch_pods(self, namespace: str, node: str, leaders: str = "") -> Pods:
        """Pods of a namespace ("" for all) on a node ("" for all). `leaders`: a selector instead of the section's; all are kept."""
        section = self._section
        fields = f"spec.nodeName={node}" if node else _GOING_ON
        parameters = {"fieldSelector": fields}
        if selector := leaders or section.selector:
            parameters["labelSelector"] = selector
        where = f"in the namespace {namespace}" if namespace else "of all namespaces"
        kind = "Role and a RoleBinding in the namespace" if namespace else "ClusterRole and a ClusterRoleBinding"
        remedy = f"Give its service account list and watch on pods by a {kind}."

        def reduce(body: msgspec.Raw) -> tuple[tuple[str, str], PodRecord | None]:
            pod = decode_pod(body, self._labels, KNOWN_ANNOTATIONS)
            return pod.key, pod if leaders or is_kept(pod, section) else None

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
        return not pod.has_ended and is_selected(pod, self._section) and (place is None or place.leads)

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
        if known is None or (known.pod, known.group, known.node, known.around) != (pod, group, node, around):
            known = _Known(pod, group, node, around, find_targets(pod, group, node, around))
            self._known[pod.uid] = known
        return known.found

    def _note_states(
        self, pod: PodRecord, found: FoundPod, groups: Mapping[tuple[str, ...], Group]
    ) -> dict[str, PodState]:
        group = self._find_group(pod, groups)
        return {target.name: self._states.note_state(pod, container, group) for target, container in found.targets}

    def _find_workers(
        self,
        groups: Mapping[tuple[str, ...], Group],
        found: Mapping[str, FoundPod],
        here: Collection[str],
        runtimes: tuple[str, ...],
    ) -> tuple[Worker, ...]:
        """The workers of all groups, also of those whose leader is on a node that this section does not look at."""
        workers: list[Worker] = []
        for name, group in groups.items():
            if not group.workers:
                continue
            if group.leader is None:
                self._look_for_leaders(group.workers, name)
            elif group.leader.uid in here:
                workers += list_workers(group, found)
            else:
                around = Surroundings(self._section, "", runtimes)
                elsewhere = {group.leader.uid: find_targets(group.leader, group, None, around)}
                workers += list_workers(group, elsewhere)
        return tuple(workers)

    def _look_for_leaders(self, workers: Iterable[PodRecord], group: tuple[str, ...]) -> None:
        """Begins to watch the leaders of such groups, where only the pods of one node are looked at."""
        namespace = group[0] if self._section.namespaces else ""
        key = (namespace, group[1])
        if self._section.node and key not in self._leaders:
            mirror = self._watch_pods(namespace, "", LEADER_SELECTORS[group[1]])
            self._leaders = {**self._leaders, key: mirror}
            self._start(mirror)
