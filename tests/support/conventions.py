"""Ways in which a Prometheus may scrape our exporters, and a fleet in two namespaces that is scraped by each of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from llm_serving_exporter.catalogue.health import AS_WRITTEN, WRITTEN_LABELS
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, PLACE_LABELS
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Slo
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, PoissonWorkload, Profile

# --- How the ways to scrape that people really use store an exporter's series: which labels they add, and whose labels win


@dataclass(frozen=True)
class Place:
    """Where an exporter runs, as discovery of pods knows it."""

    namespace: str
    pod: str
    container: str
    node: str
    address: str

    def fill(self, text: str) -> str:
        """A label's value with its `{namespace}`, `{pod}` and the like."""
        return text.format(**vars(self))


@dataclass(frozen=True)
class Convention:
    """A scrape. `labels`: what it adds to every series, with `{namespace}` and the like of the exporter's pod. `enforced`: a namespace
    that is written over what is there after the scrape, as prometheus-operator's enforcedNamespaceLabel does. `drops_renamed`: a
    relabelling after the scrape drops exported_… labels, as some do to save series."""

    name: str
    honor: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    enforced: str = ""
    drops_renamed: bool = False

    def of_target(self, place: Place) -> dict[str, str]:
        """What the scrape adds there."""
        return {name: place.fill(text) for name, text in {"job": "llm-serving-exporter", **self.labels}.items()} | {
            "instance": place.address
        }

    def store(self, exported: Mapping[str, str], place: Place) -> dict[str, str]:
        """The labels that Prometheus 2.42 and newer store for a series that is exported with these; "" is no label."""
        added, found = self.of_target(place), dict(exported)
        if self.honor:
            # an exported label that is empty keeps the scrape's out, too
            found = {**added, **found}
        else:
            conflicting = {name: text for name, text in exported.items() if name in added and text}
            found |= added
            for name, text in sorted(conflicting.items()):
                renamed = f"exported_{name}"
                while found.get(renamed):
                    renamed = f"exported_{renamed}"
                found[renamed] = text
        if self.enforced:
            found["namespace"] = place.fill(self.enforced)
        dropped = {name for name in found if self.drops_renamed and name.startswith("exported_")}
        return {name: text for name, text in found.items() if text and name not in dropped}


_POD = {"namespace": "{namespace}", "pod": "{pod}", "container": "{container}"}
# a PodMonitor's by prometheus-operator (0.93) and by Alloy's prometheus.operator.podmonitors, a VMPodScrape's by VictoriaMetrics' operator
_OPERATOR = {**_POD, "endpoint": "metrics", "job": "{namespace}/llm-serving-exporter"}
# the chart's job for annotated pods (charts/prometheus 29.27) maps every label of the pod onto its series, and honors labels
_COMMUNITY = {
    "job": "kubernetes-pods",
    "namespace": "{namespace}",
    "pod": "{pod}",
    "node": "{node}",
    "app": "llm-serving-exporter",
    "app_kubernetes_io_name": "llm-serving-exporter",
    "controller_revision_hash": "5d8f7c",
}
# by Alloy's annotations component, as its charts write it
_ALLOY = {**_POD, "job": "integrations/llm-serving-exporter"}

PLAIN = Convention("plain", True)
CONVENTIONS = (
    PLAIN,
    Convention("kube-prometheus-stack", True, _OPERATOR | {"node": "{node}"}),
    Convention("kube-prometheus-stack, honor_labels off", False, _OPERATOR | {"node": "{node}"}),
    Convention("prometheus-community", True, _COMMUNITY | {"role": "agent", "version": "v2", "group": "a"}),
    Convention("prometheus-community, honor_labels off", False, _COMMUNITY),
    Convention("Alloy", True, _ALLOY),
    Convention("Alloy, honor_labels off", False, _ALLOY),
    # without its node: a PodMonitor adds none
    Convention("Alloy or VictoriaMetrics, by an operator's object", False, _OPERATOR),
    Convention(
        "OpenShift",
        False,
        _OPERATOR | {"prometheus": "openshift-user-workload-monitoring/user-workload"},
        "{namespace}",
    ),
)
# one that keeps what the exporter says, one that renames it, one that lays labels of its own over it, one that overwrites a namespace
FEW = tuple(
    one
    for one in CONVENTIONS
    if one.name in ("plain", "kube-prometheus-stack, honor_labels off", "prometheus-community", "OpenShift")
)
# for a fixture or a test that asks them beside one another: `make test-e2e` takes those few, `make test-soak` every one
BESIDE_ONE_ANOTHER = [
    pytest.param(FEW, marks=pytest.mark.e2e, id="few"),
    pytest.param(CONVENTIONS, marks=pytest.mark.soak, id="all"),
]


# --- Two fleets that serve a model of one name in two namespaces, as exporters on their nodes write it, minute by minute


MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MINUTE = 60.0
# a sample as a page has it: name, labels with those that are empty, value
Written = tuple[str, Mapping[str, str], float]


@dataclass(frozen=True)
class Namespace:
    """`nodes`: of its replicas, one each; `wanted`: replicas."""

    name: str
    team: str
    nodes: tuple[str, ...]
    requests_per_second: float
    wanted: int


# the second has lost a replica and works at its limit
NAMESPACES = (
    Namespace("search", "retrieval", ("node-1", "node-2", "node-3"), 2.0, 3),
    Namespace("chat", "assistants", ("node-4", "node-5"), 14.0, 3),
)
NODES = tuple(node for namespace in NAMESPACES for node in namespace.nodes)
EXPORTERS = {
    node: Place("monitoring", f"exporter-{number}", "exporter", node, f"10.0.0.{number}:10077")
    for number, node in enumerate(NODES, 1)
}


def target_name(namespace: Namespace, number: int) -> str:
    """As the exporter calls the target of a pod."""
    return f"{namespace.name}/llama-{number}:8000"


class NamespacedFleet:
    """`target_labels`: those that the exporters put on every series of a target. `wanted`: series, None for all. The history begins at
    `begin_unix_seconds`, and the replicas started an hour before: rules measure none that is younger than half an hour."""

    def __init__(
        self,
        target_labels: Collection[str] = (),
        wanted: Collection[str] | None = None,
        begin_unix_seconds: float = 0.0,
    ) -> None:
        self._on_every_series = frozenset(target_labels)
        epoch = begin_unix_seconds - 60 * MINUTE
        self._fleets = [self._start(namespace, wanted, epoch) for namespace in NAMESPACES]

    @staticmethod
    def _start(namespace: Namespace, wanted: Collection[str] | None, epoch: float) -> tuple[Namespace, Fleet, Watch]:
        engine = EngineSpec(max_num_seqs=8, context_limit_tokens=8192)
        replicas = [
            ReplicaSpec(f"{namespace.name}-llama-{number}", (node,), engine)
            for number, node in enumerate(namespace.nodes)
        ]
        mix = Mix(Lengths(700, 0.8, most=4000), Lengths(160, 0.5, most=1000))
        load = PoissonWorkload(Profile(namespace.requests_per_second), [mix], len(namespace.name))
        fleet = Fleet(replicas, load, epoch_unix_seconds=epoch)
        watch = Watch(
            fleet,
            interval_seconds=MINUTE,
            wanted=wanted,
            slo=Slo(ttft=2.5),
            expected_replicas=namespace.wanted,
            gpus=True,
        )
        return namespace, fleet, watch

    def write(self, minute: int) -> Iterator[tuple[Place, Written]]:
        """What each exporter's page says then."""
        return self.place(self.read(minute))

    def read(self, minute: int) -> Iterator[tuple[Namespace, Written]]:
        """What is read of the replicas then, before an exporter puts its labels on it."""
        for namespace, fleet, watch in self._fleets:
            fleet.advance(minute * MINUTE)
            yield from ((namespace, sample) for sample in watch.samples())

    def place(self, readings: Iterable[tuple[Namespace, Written]]) -> Iterator[tuple[Place, Written]]:
        """What each exporter's page says of such readings."""
        for namespace, (name, labels, value) in readings:
            yield from self._place(namespace, name, labels, value)
        for place in EXPORTERS.values():
            yield place, ("llm_serving_exporter_build_info", {"version": "1.0.0"}, 1.0)
            yield place, (WRITTEN_LABELS.full_name, dict.fromkeys((*IDENTITY_LABELS, "team"), AS_WRITTEN), 1.0)

    def _place(
        self, namespace: Namespace, name: str, labels: Mapping[str, str], value: float
    ) -> Iterator[tuple[Place, Written]]:
        if "target" in labels:
            replica = labels["target"]
            number = int(replica.rpartition("-")[2])
            identity = self._identity(namespace, f"llama-{number}", namespace.nodes[number])
            shown = identity if name == "llm_serving_target_info" else self._shown(identity)
            own = {"target": target_name(namespace, number), **({"node": labels["node"]} if labels.get("node") else {})}
            yield EXPORTERS[namespace.nodes[number]], (name, {**labels, **shown, **own}, value)
        elif "gpu" in labels:
            yield EXPORTERS[labels["node"]], (name, {**dict.fromkeys(PLACE_LABELS, ""), **labels}, value)
        else:
            model = {"namespace": namespace.name, "team": namespace.team, "pod": "", "container": "", "node": ""}
            about_model = "model_name" in labels
            for node in NODES if about_model else namespace.nodes:
                yield EXPORTERS[node], (name, {**labels, **(model if about_model else {})}, value)

    @staticmethod
    def _identity(namespace: Namespace, replica: str, node: str) -> dict[str, str]:
        return {
            "namespace": namespace.name,
            "pod": replica,
            "container": "vllm",
            "node": node,
            "workload": "llama",
            "workload_kind": "Deployment",
            "provider_id": f"aws:///{node}",
            "region": "eu-west-1",
            "instance_type": "p5.48xlarge",
            "team": namespace.team,
        }

    def _shown(self, identity: Mapping[str, str]) -> dict[str, str]:
        kept = {name: text for name, text in identity.items() if name in self._on_every_series}
        return {**dict.fromkeys(PLACE_LABELS, ""), **kept}
