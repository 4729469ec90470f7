"""What Kubernetes says of a target's pod, with what has to be remembered for it: whether its container has been Ready in this life."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.kubernetes.engines import list_working
from llm_serving_exporter.discovery.kubernetes.groups import Group
from llm_serving_exporter.discovery.kubernetes.records import ContainerRecord, PodRecord
from llm_serving_exporter.model.target import PodFault, PodState

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
        known = self._begun.get(key)
        if known is None or known[0] != start:
            # another life than the one that was seen before begins now, whatever the kubelet's clock says
            age = 0.0
            if known is None:
                age = _find_age(
                    pod, start, self._wall() if clock_offset_seconds is None else now + clock_offset_seconds
                )
            known = self._begun[key] = start, now - age
        return known[1]

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
    known = [moment for moment in (start, pod.created_unix_seconds) if moment is not None]
    return max(0.0, now_unix_seconds - max(known)) if known else 0.0


def _find_fault(pod: PodRecord, container: ContainerRecord, group: Group | None) -> PodFault | None:
    if container.crash_loops:
        return PodFault.CRASH_LOOP
    if pod.lost_node:
        return PodFault.NODE_LOST
    if group is None:
        return None
    # proxies and shippers of logs beside a worker take no part in its work
    crashes = any(one.crash_loops for worker in group.workers for one in list_working(worker.containers))
    if crashes or group.before or any(worker.lost_node for worker in group.workers):
        return PodFault.WORKER_LOST
    return None
