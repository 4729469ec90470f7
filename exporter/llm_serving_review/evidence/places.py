"""Where nodes stand, hour by hour: by the price file, by the exporter's series, by kube-state-metrics, in this order of belief. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS
from llm_serving_exporter.model.target import NOWHERE, NodePlace
from llm_serving_review.evidence.usage import Extra, Gauge

_Key = tuple[tuple[str, ...], str, str]


class NodePlaces:
    """Places by fleet, target, node and hour.

    `gauges`: labels target, node and those of a place, with what tells fleets apart. A node whose labels change within an hour has two
    of them, and counts as one: what is known of it wins over what is not.
    """

    def __init__(
        self,
        gauges: Iterable[Gauge],
        identity: Sequence[str],
        stated: Mapping[str, NodePlace] | None = None,
        of_cluster: Mapping[tuple[Extra, str], NodePlace] | None = None,
    ) -> None:
        self._identity, self._stated, self._of_cluster = tuple(identity), stated or {}, of_cluster or {}
        self._said: dict[_Key, list[tuple[NodePlace, Gauge]]] = {}
        for gauge in gauges:
            labels = gauge.labels
            place = NodePlace(*(labels.get(name, "") for name in NODE_LABELS))
            if place != NOWHERE:
                fleet = tuple(labels.get(name, "") for name in identity)
                key = fleet, labels.get("target", ""), labels.get("node", "")
                self._said.setdefault(key, []).append((place, gauge))
        self._merged: dict[tuple[_Key, tuple[NodePlace, ...]], NodePlace] = {}

    def find(self, fleet: tuple[str, ...], target: str, node: str, hour: int) -> NodePlace:
        """The place of a target's node in an hour of the week; what was said of it in other hours where that hour has nothing."""
        key = fleet, target, node
        said = self._said.get(key, ())
        now = tuple(place for place, gauge in said if gauge.hours[hour] is not None) or tuple(
            place for place, _ in said
        )
        found = self._merged.get((key, now))
        if found is None:
            found = self._stated.get(node, NOWHERE)
            # the fullest first: where the machine behind a name changed, fields of both are not mixed more than need be
            for place in sorted(now, key=lambda one: (-_count_known(one), one.provider_id)):
                found = found.fill_up(place)
            found = found.fill_up(self._find_in_cluster(fleet, node))
            self._merged[key, now] = found
        return found

    def _find_in_cluster(self, fleet: tuple[str, ...], node: str) -> NodePlace:
        # what a target has of its own, such as its namespace, is another one on series about nodes
        of = zip(self._identity, fleet, strict=True)
        scraped = tuple((name, text) for name, text in of if name not in IDENTITY_LABELS)
        return self._of_cluster.get((scraped, node), NOWHERE)


def _count_known(place: NodePlace) -> int:
    return sum(bool(getattr(place, name)) for name in NODE_LABELS)
