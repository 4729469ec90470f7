"""What Kubernetes says of a target's pod, with what has to be remembered for it: whether its container has been Ready in this life."""

from __future__ import annotations

from collections.abc import Collection

from llm_serving_exporter.discovery.kubernetes.groups import Group
from llm_serving_exporter.discovery.kubernetes.records import ContainerRecord, PodRecord
from llm_serving_exporter.model.pod import PodFault, PodState

# a kubelet tells some seconds later what happened: a container that crashed and is back at once is seen as "not Ready since" a moment after
# its start. Nothing that loads a model was Ready within this time
_TOLD_LATE_SECONDS = 30.0


class StateBook:
    """Remembers of each engine's container, over the readings of its pod, whether it has been Ready since its last start."""

    def __init__(self, loading_limit_seconds: float) -> None:
        self._loading_limit_seconds = loading_limit_seconds
        # (pod's uid, container) -> start of the life in which it was Ready
        self._ready: dict[tuple[str, str], float | None] = {}

    def take_over(self, earlier: StateBook) -> None:
        """Remembers what `earlier` does, too."""
        self._ready |= earlier._ready

    def note_state(self, pod: PodRecord, container: ContainerRecord, group: Group | None) -> PodState:
        """The state of a pod whose engine runs in `container`. `group`: all pods of the replica; None: it has one."""
        key, start = (pod.uid, container.name), container.started_unix_seconds
        if container.is_ready or _was_ready(pod, container):
            self._ready[key] = start
        was_ready = key in self._ready and self._ready[key] == start
        return PodState(
            was_ready=was_ready,
            # what has not started waits since its pod was made: for an image, for a volume
            started_unix_seconds=start if start is not None else pod.created_unix_seconds,
            fault=_find_fault(pod, container, group),
            loading_limit_seconds=self._loading_limit_seconds,
            is_ready=container.is_ready,
        )

    def forget_others(self, uids: Collection[str]) -> None:
        """Forgets pods that are gone."""
        self._ready = {key: start for key, start in self._ready.items() if key[0] in uids}


def _was_ready(pod: PodRecord, container: ContainerRecord) -> bool:
    """Whether the pod says that its containers were Ready after this one's start: its condition changed to not Ready since then."""
    since, start = pod.unready_since_unix_seconds, container.started_unix_seconds
    return since is not None and start is not None and since > start + _TOLD_LATE_SECONDS


def _find_fault(pod: PodRecord, container: ContainerRecord, group: Group | None) -> PodFault | None:
    if container.crash_loops:
        return PodFault.CRASH_LOOP
    if pod.lost_node:
        return PodFault.NODE_LOST
    if group is None:
        return None
    crashes = any(one.crash_loops for worker in group.workers for one in worker.containers)
    if crashes or group.before or any(worker.lost_node for worker in group.workers):
        return PodFault.WORKER_LOST
    return None
