"""What the configuration and all sections of discovery name, put together: each server, each name and each pod once."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_exporter.discovery.listed import MOST_KNOWN_TARGETS
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.target import PodState, Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.checks import identity_of
from llm_serving_exporter.settings.problems import Place, shown


def merge_targets(
    configured: Iterable[Target], discovered: Iterable[SectionReading]
) -> tuple[list[Target], list[Problem]]:
    """All targets that are known: the configured ones, then discovered ones, the first of each server and name.

    A target is taken whole, with the way to ask it that its own section sets, so that no section's credentials go to another's targets.
    Of two pods with one address the one that has it now is taken. The problems tell which discovered ones were left out.
    """
    merger = _Merger(configured)
    for reading in discovered:
        for source in reading.sources:
            for target in source.targets or ():
                merger.add(target, reading.pods.get(target.name), Place(source.name, "", merger.problems))
    merger.report_excess()
    return merger.targets, merger.problems


class _Merger:
    """Targets so far."""

    def __init__(self, configured: Iterable[Target]) -> None:
        self.targets = list(configured)
        self.problems: list[Problem] = []
        # where each server stands in `targets`
        self._servers = {identity_of(target): at for at, target in enumerate(self.targets)}
        self._names = {target.name: target for target in self.targets}
        # what Kubernetes says of the pods of discovered ones, by their names
        self._states: dict[str, PodState | None] = {}
        self._left_out = 0

    def add(self, target: Target, state: PodState | None, place: Place) -> None:
        """Takes a target, or reports at `place` why not. `state`: of its pod, None where it has none that is known."""
        at = self._servers.get(identity_of(target))
        if at is not None:
            self._settle(at, target, state, place)
        elif target.name in self._names:
            first, second = map(_describe_place, (self._names[target.name], target))
            what = f"the name {shown(target.name)} is already taken by {first}, {second} is left out"
            place.refuse(what, "Give each target a name of its own.")
        elif len(self.targets) >= MOST_KNOWN_TARGETS:
            self._left_out += 1
        else:
            self._servers[identity_of(target)] = len(self.targets)
            self._names[target.name], self._states[target.name] = target, state
            self.targets.append(target)

    def report_excess(self) -> None:
        """Says how many targets are beyond what can be known."""
        if self._left_out:
            are = "is" if self._left_out == 1 else "are"
            what = f"{count_nouns(self._left_out, 'target')} beyond {MOST_KNOWN_TARGETS:,} {are} left out"
            fix = "Run several fleets of exporters, each with its own discovery."
            Place("discovery", "", self.problems).refuse(what, fix)

    def _settle(self, at: int, target: Target, state: PodState | None, place: Place) -> None:
        """Decides who is read where a second target names a server."""
        first = self.targets[at]
        uids = first.identity.pod_uid, target.identity.pod_uid
        if all(uids) and uids[0] == uids[1] and first.name == target.name:
            # two sections look at the pod: the first one says how it is read
            return
        if not all(uids) or target.name in self._names:
            place.refuse(f"{target.url} is already a target, the later one is left out", "Remove one of them.")
            return
        left = target
        if _rank_claim(state) > _rank_claim(self._states.get(first.name)):
            del self._names[first.name]
            self.targets[at] = self._names[target.name] = target
            self._states[target.name], left = state, first
        what = f"{target.url} is the address of {self.targets[at].name} now, {left.name} is left out"
        place.refuse(
            what, "This ends by itself once a pod is gone; pods in the network of a node need ports of their own."
        )


def _rank_claim(pod: PodState | None) -> tuple[bool, bool, float]:
    """How likely a pod has the address that two have: one is handed on before it is said that a pod is gone."""
    if pod is None:
        return False, False, 0.0
    # the containers of a lost node are called ready for ever
    is_well = pod.fault is None
    return is_well, is_well and pod.is_ready, pod.created_unix_seconds or 0.0


def _describe_place(target: Target) -> str:
    """Its URL and, where it is known, its node: one name on two nodes is mostly a pod of one cluster beside that of another."""
    return f"{target.url} on {', '.join(target.nodes)}" if target.nodes else target.url
