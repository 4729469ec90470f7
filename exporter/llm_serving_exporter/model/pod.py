"""What Kubernetes says of a target's pod now, and of pods that are wanted and are no target yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PodFault(StrEnum):
    """Why Kubernetes itself knows that a pod's engine does not serve, whatever its page says."""

    CRASH_LOOP = "crash_loop"  # CrashLoopBackOff of the engine's container
    NODE_LOST = "node_lost"  # the pod is not ready, and its node answers no more


@dataclass(frozen=True, slots=True)
class PodState:
    """The pod of one target as last seen."""

    # whether the engine's container has been Ready since its last start: from then on, only the page decides what loads
    was_ready: bool = False
    started_unix_seconds: float | None = None  # last start of the engine's container; None: it has not started
    fault: PodFault | None = None  # None: nothing is wrong as far as Kubernetes knows


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that is wanted, and is not ready to be a target: it has no address yet."""

    namespace: str  # of the pod
    pod: str  # its name
    workload: str  # as in `Identity`
    workload_kind: str  # as in `Identity`
    model_name: str  # as far as labels and annotations say it; "": not known
    role: str  # a value of Role
