"""Which identity labels stand on a series, by what it is about: the one place that puts them there.

Where a place is not known its label is "", which Prometheus stores as no label: a scrape with honor_labels, which fills in what is missing,
then adds nothing of the exporter's own pod to a series of something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from llm_serving_exporter.catalogue.health import AS_WRITTEN
from llm_serving_exporter.catalogue.own_labels import MOST_LABELS
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS, PLACE_LABELS
from llm_serving_exporter.expose.labels import SharedLabels
from llm_serving_exporter.model.target import NOWHERE, Identity, NodePlace, Target

NO_PLACES: Mapping[str, NodePlace] = {}
_NO_PLACE = dict.fromkeys(PLACE_LABELS, "")
_FIELDS = tuple(name for name in IDENTITY_LABELS if name != "node")


def list_identity(identity: Identity, nodes: Sequence[str] = ()) -> dict[str, str]:
    """Every identity label, "" where it is not known, and the labels of its own. `node` is that of what stands on a single one."""
    found = {name: getattr(identity, name) for name in _FIELDS}
    return {**found, "node": nodes[0] if len(nodes) == 1 else "", **dict(identity.labels)}


def label_target(target: Target, chosen: Sequence[str]) -> SharedLabels:
    """The labels of every series of a target. `chosen`: as `target_labels` of the configuration."""
    whole = list_identity(target.identity, target.nodes) if chosen else {}
    return SharedLabels({"target": target.name, **_NO_PLACE, **{name: whole.get(name, "") for name in chosen}})


def label_target_info(target: Target, known: Sequence[str]) -> SharedLabels:
    """The labels of a target's info series: its whole identity. `known`: labels that are "" where it has none of its own."""
    return SharedLabels(
        {"target": target.name, **dict.fromkeys(known, ""), **list_identity(target.identity, target.nodes)}
    )


def label_fleet(identity: Identity, known: Sequence[str], own: Mapping[str, str]) -> SharedLabels:
    """The labels of a series about the replicas of a model: whatever is stated of their identity, and `own`."""
    return SharedLabels({**own, **dict.fromkeys(known, ""), **list_identity(identity)})


def list_own_labels(identities: Iterable[Identity]) -> tuple[str, ...]:
    """The labels that these have of their own: the most usual ones, at most as many as one target may have."""
    stated = [identity.labels for identity in identities if identity.labels]
    if not stated:  # as usual
        return ()
    counts = Counter(name for labels in stated for name, _ in labels)
    return tuple(name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_LABELS])


def find_place(target: Target, node: str, stated: Mapping[str, NodePlace]) -> NodePlace:
    """Where one of the target's nodes stands: as the price file says, else as discovery knows, else as the target is configured, whose own
    place is that of its first node."""
    found = stated.get(node, NOWHERE).fill_up(dict(target.node_places).get(node, NOWHERE))
    if target.nodes[:1] != (node,):
        return found
    of = target.identity
    return found.fill_up(NodePlace(of.region, "", of.instance_type, of.provider_id))


def label_place(place: NodePlace) -> dict[str, str]:
    """The labels of where a node stands."""
    return {name: getattr(place, name) for name in NODE_LABELS}


def label_written(names: Iterable[str]) -> SharedLabels:
    """The labels of the series that shows what a scrape does to labels: every identity label, and these of targets' own."""
    return SharedLabels(dict.fromkeys((*IDENTITY_LABELS, *names), AS_WRITTEN))


def label_gpu(uuid: str, name: str, node: str) -> SharedLabels:
    """The labels of a GPU's series."""
    return SharedLabels({**_NO_PLACE, "gpu": uuid, "gpu_name": name, "node": node})


class LabelBook:
    """The labels of targets, kept from one page to the next, so that their text is made once. Threads may share it."""

    def __init__(self) -> None:
        # by the target's name: for whom they were made, and they
        self._of_series: dict[str, tuple[Target, tuple[str, ...], SharedLabels]] = {}
        self._of_info: dict[str, tuple[Target, tuple[str, ...], SharedLabels]] = {}

    def of_target(self, target: Target, chosen: tuple[str, ...]) -> SharedLabels:
        """As `label_target`."""
        found = self._of_series.get(target.name)
        if found is None or found[0] is not target or found[1] != chosen:
            found = self._of_series[target.name] = target, chosen, label_target(target, chosen)
        return found[2]

    def of_target_info(self, target: Target, known: tuple[str, ...]) -> SharedLabels:
        """As `label_target_info`."""
        found = self._of_info.get(target.name)
        if found is None or found[0] is not target or found[1] != known:
            found = self._of_info[target.name] = target, known, label_target_info(target, known)
        return found[2]

    def forget_others(self, names: Collection[str]) -> None:
        """Forgets every target but `names`."""
        for kept in (self._of_series, self._of_info):
            for name in kept.keys() - names:
                kept.pop(name, None)
