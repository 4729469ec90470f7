"""What Kubernetes says of a target's pod now, and of pods that are wanted and are no target yet."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.record import Struct


class PodFault(StrEnum):
    """Why Kubernetes itself knows that a pod's engine does not serve, whatever its page says."""

    CRASH_LOOP = "crash_loop"  # CrashLoopBackOff of the engine's container
    NODE_LOST = "node_lost"  # the pod is not ready, and its node answers no more
    WORKER_LOST = "worker_lost"  # another pod of its replica is gone, crashes, or is on such a node


class PodState(Struct, frozen=True):
    """The pod of one target as last seen."""

    # whether the engine's container has been Ready since its last start: from then on, only the page decides what loads
    was_ready: bool = False
    # when the pod was made, by the API server's clock, which is one for all pods; None: not known
    created_unix_seconds: float | None = None
    fault: PodFault | None = None  # None: nothing is wrong as far as Kubernetes knows
    loading_limit_seconds: float = 3600.0  # how long after its start what has not been Ready counts as loading
    is_ready: bool = (
        False  # whether its readiness probe says so now, which tells who has an address, and not what the engine does
    )
    # start of the engine's container, of one that has not started when its pod was made, by the monotonic clock here; None: not known
    loading_since_seconds: float | None = None

    def may_load(self, now_seconds: float) -> bool:
        """Whether its engine, if it does not answer, is still loading: not Ready since its last start, which is not long ago.

        `now_seconds`: of the monotonic clock.
        """
        if self.was_ready or self.fault is not None:
            return False
        since = self.loading_since_seconds
        return since is None or now_seconds - since <= self.loading_limit_seconds


class WaitingPod(Struct, frozen=True):
    """A pod that is wanted, and is not ready to be a target: it has no address yet."""

    namespace: str
    pod: str  # its name
    workload: str  # as in `Identity`
    workload_kind: str  # as in `Identity`
    model_name: str  # as far as labels and annotations say it; "": not known
    role: str  # a value of Role
