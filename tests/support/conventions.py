"""How the ways to scrape that people really use store an exporter's series: which labels they add, and whose labels win."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest


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
