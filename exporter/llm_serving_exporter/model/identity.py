"""Who a target is beside its name: its place in Kubernetes or in a cloud, and labels of its own."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct


class Identity(Struct, frozen=True):
    """What is known of a target's place. "" where it is not known, or does not exist.

    It is part of the target's settings: a target with another pod UID is another target, never a continuation of the one before it.
    """

    namespace: str = ""  # of the pod
    pod: str = ""  # its name
    pod_uid: str = ""  # never exported: it tells a pod from the next one of the same name
    container: str = ""  # of the engine in the pod
    workload: str = ""  # what owns the pod and outlives it: a Deployment, a LeaderWorkerSet, an InferenceService
    workload_kind: str = ""  # its kind, as Kubernetes writes it
    provider_id: str = ""  # of the node, as the cloud calls the machine
    region: str = ""  # of the node
    instance_type: str = ""  # of the node
    labels: tuple[tuple[str, str], ...] = ()  # of its own: name and value, sorted by name


def is_same_pod(before: Identity, now: Identity) -> bool:
    """Whether two identities under one name may be of the same pod and container: nothing that is known of both differs.

    A namespace alone, without a pod, is a label like any other.
    """
    if before is now:
        return True
    fields = ["pod", "pod_uid", "container", *(["namespace"] if before.pod and now.pod else [])]
    known = ((getattr(before, name), getattr(now, name)) for name in fields)
    return all(old == new or not (old and new) for old, new in known)
