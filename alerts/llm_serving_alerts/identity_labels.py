"""Which labels may tell fleets apart, and where each of them stands: on every series of a scrape, or on the targets themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llm_serving_alerts.setting_kinds import LABEL_VALUE
from llm_serving_exporter.catalogue.spec import LABELS, PLACE_LABELS
from llm_serving_exporter.settings.keys import list_reader, mapping, value
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, shown

# where nobody says otherwise: what a Prometheus or an agent that serves one cluster puts on all that it sends
EXTERNAL = ("cluster",)
# labels of targets that the exporter knows by itself and that all replicas of a workload share
_SHARED = ("cluster", "namespace", "workload", "region")
# what the settings of a workload in Kubernetes say of it
STATED_BY_WORKLOAD = {"namespace": "namespace", "workload": "name"}
# what differs from one replica of a workload to the next, or changes with every rollout
_OF_ONE_REPLICA = frozenset(
    {
        *PLACE_LABELS, "instance", "pod_name", "pod_uid", "pod_ip", "uid", "ip", "address", "host", "hostname", "node_name", "provider_id",
        "instance_type", "zone", "availability_zone", "endpoint", "job", "service", "replica", "prometheus", "prometheus_replica",
        "pod_template_hash", "controller_revision_hash",
    }
) - {*_SHARED}  # fmt: skip
# what the rules put on series and alerts
OF_RULES = frozenset(
    {
        "severity", "check", "alertname", "instance", "job", "integration", "le", "day", "of", "basis", "resource", "reserve", "label",
        "how", "shard", "reader",
    }
)  # fmt: skip
_INSTEAD = "List what all replicas of a workload share, such as cluster, namespace or team."


def refuse_identity(names: Iterable[str], place: Place) -> None:
    """Reports each label by which one model's replicas would come apart, or that the rules need for themselves."""
    for name in names:
        if name in _OF_ONE_REPLICA:
            what = f"{shown(name)} differs between the replicas of a workload: each would be a fleet of one, and none could stand in for it"
            place.refuse(what, f"{_INSTEAD} What is about one replica names its target.")
        elif name in OF_RULES or (name in LABELS and name not in _SHARED):
            place.refuse(f"{shown(name)} is a label of the rules themselves", _INSTEAD)
        elif name.startswith("exported_"):
            ours = name.removeprefix("exported_")
            place.refuse(f"{shown(name)} is what Prometheus calls a label that a scrape has renamed", f"Write {ours}.")


def choose_external(identity: Sequence[str], stated: Sequence[str] | None, place: Place) -> tuple[str, ...]:
    """Those of the identity labels that the scrape adds to every series. `stated`: by the user; None: the usual ones."""
    for name in stated or ():
        if name not in identity:
            place.refuse(f"{shown(name)} is not one of identity_labels", "Name it there too, or leave it out here.")
        elif name in PLACE_LABELS:
            what = f"{shown(name)} is written by the exporter itself, of each target its own"
            place.refuse(what, "Leave it out here; it may stay in identity_labels.")
    chosen = EXTERNAL if stated is None else stated
    return tuple(name for name in identity if name in chosen)


def parse_readable(text: str) -> str:
    """A label that the rules read under either name. Raises InvalidValueError."""
    if text in LABELS and text not in (*PLACE_LABELS, *_SHARED):
        raise InvalidValueError(
            f"the rules cannot do without {shown(text)} under its own name",
            "Set honor_labels, or give the label of the scrape another name.",
        )
    return text


RENAMED = list_reader(Kind("a label's name", parse_readable, is_text=True), "label names")


def read_label_values(node: Node, place: Place, context: object) -> dict[str, str]:
    """A mapping of labels to their values; what is not usable is reported and left out."""
    labels = mapping(node, place, node if isinstance(node, dict) else ())
    texts = {name: value(content, place.key(name), LABEL_VALUE) for name, content in labels.items()}
    return {name: text for name, text in texts.items() if text is not None}
