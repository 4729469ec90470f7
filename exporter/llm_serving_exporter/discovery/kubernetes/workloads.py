"""What owns a pod and outlives it: a Deployment, a LeaderWorkerSet, an InferenceService."""

from __future__ import annotations

from llm_serving_exporter.discovery.kubernetes.records import PodRecord
from llm_serving_exporter.model.record import Struct


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
