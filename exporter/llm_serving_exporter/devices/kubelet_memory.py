"""What the kubelet said so far -> which container has which devices now, through its restarts.

A kubelet that has just started lists no pod at all, then those of its own files, and only then those of the API server
(k8s.io/kubernetes v1.34.4, podmanager and config.PodConfig); a device plugin that has not registered again leaves its devices out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from llm_serving_exporter.derive.grants import NodeGrants, keep_parts
from llm_serving_exporter.model.gpu import ContainerGrants, GpuIdentity, KubeletReadings, Worker
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import Target

# a kubelet starts again within a minute: what it said before holds that long, and a while
KUBELET_KEPT_SECONDS = 600.0
NO_KUBELET = (
    "no kubelet says which GPUs its pod has: set gpus, run the exporter as a DaemonSet with the kubelet's pod-resources folder, "
    "or let it read the engine's environment (docs/kubernetes-gpus.md)"
)


class _Kept(Struct, frozen=True):
    """Devices that a container had when the kubelet last said so. It has them as long as its pod is."""

    pod_uid: str  # of the pod that had them; another pod may get its name
    container: ContainerGrants  # with its devices then
    said_seconds: float  # monotonic


class KubeletMemory:
    """The answers of one kubelet. Not to be used by several threads at once."""

    def __init__(self) -> None:
        # what it last said, and its last answer that was good
        self._last: KubeletReadings | None = None
        self._good: KubeletReadings | None = None
        # the good answer that `_kept` and `_parts` are of
        self._known: KubeletReadings | None = None
        # by namespace, pod and container
        self._kept: Mapping[tuple[str, str, str], _Kept] = {}
        # how many parts each GPU has that is shared by time
        self._parts: Mapping[str, int] = {}

    def note_answer(self, readings: KubeletReadings | None) -> None:
        """One more answer; None: there is no kubelet to ask."""
        self._last = readings
        if readings is None or readings.attempt.ok:
            self._good = readings

    def find_grants(
        self,
        targets: Iterable[Target],
        workers: Iterable[Worker],
        gpus: Collection[GpuIdentity],
        finished: Collection[tuple[str, str]],
        slices: Mapping[tuple[str, str], str],
        now: float,
    ) -> NodeGrants | None:
        """Which devices the pods of `targets` and `workers` have; None where the kubelet has said nothing for too long.

        `gpus`: those that NVML shows; `finished`: pods that have ended; `slices`: as in `NodeGrants`; `now`: monotonic seconds.
        """
        good = self._good
        if good is None or now - good.monotonic_seconds > KUBELET_KEPT_SECONDS:
            return None
        uids = {(one.identity.namespace, one.identity.pod): one.identity.pod_uid for one in targets}
        uids |= {(one.namespace, one.pod): one.pod_uid for one in workers}
        filled = replace(good, containers=_fill_gaps(good, self._kept, uids))
        if good is not self._known:
            self._kept = _keep_devices(good, self._kept, uids)
            self._parts = keep_parts(self._parts, filled)
            self._known = good
        return NodeGrants(filled, gpus, finished, slices, self._parts)

    def explain_silence(self) -> str:
        """Why the kubelet does not say who has which devices."""
        if self._last is None or self._last.attempt.ok:
            return NO_KUBELET
        return f"the kubelet does not say which GPUs its pod has: {self._last.attempt.detail}"


def _keep_devices(
    answer: KubeletReadings, before: Mapping[tuple[str, str, str], _Kept], uids: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str, str], _Kept]:
    """What is remembered after an answer: of the pods in `uids` (namespace and name -> uid), and no longer than KUBELET_KEPT_SECONDS."""
    now = answer.monotonic_seconds
    kept = {
        key: one
        for key, one in before.items()
        if uids.get(key[:2]) == one.pod_uid and now - one.said_seconds <= KUBELET_KEPT_SECONDS
    }
    for one in answer.containers:
        uid = uids.get((one.namespace, one.pod), "")
        if uid and one.grants:
            kept[one.namespace, one.pod, one.container] = _Kept(uid, one, now)
    return kept


def _fill_gaps(
    answer: KubeletReadings, kept: Mapping[tuple[str, str, str], _Kept], uids: Mapping[tuple[str, str], str]
) -> tuple[ContainerGrants, ...]:
    """The containers of an answer. Those that it lists without the devices that they had, or not at all, have them still.

    Not where a device is another pod's by now, nor where the pod is another one, or said so too long ago.
    """
    if not kept:
        return answer.containers
    has_devices = {(one.namespace, one.pod, one.container) for one in answer.containers if one.grants}
    owners = {grant: (one.namespace, one.pod) for one in answer.containers for grant in one.grants}
    missed = {
        key: one.container
        for key, one in kept.items()
        if key not in has_devices
        and uids.get(key[:2]) == one.pod_uid
        and answer.monotonic_seconds - one.said_seconds <= KUBELET_KEPT_SECONDS
        and all(owners.get(grant, key[:2]) == key[:2] for grant in one.container.grants)
    }
    if not missed:
        return answer.containers
    others = (one for one in answer.containers if (one.namespace, one.pod, one.container) not in missed)
    return (*others, *missed.values())
