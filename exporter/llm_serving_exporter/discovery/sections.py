"""All sections of discovery together, over time, and what they and the configuration come to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.prometheus_sd import SectionFiles, SectionHttp
from llm_serving_exporter.discovery.section import MOST_KNOWN_TARGETS, OfPods, Section, SectionReading
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import PodState, Shard, Target, WaitingPod
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.checks import MOST_TARGETS, SHARE_THEM, holds_target, identity_of
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.discovery import DiscoverySection, FileDiscovery, HttpDiscovery
from llm_serving_exporter.settings.identity import read_host
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.problems import Place, shown

if TYPE_CHECKING:
    from llm_serving_exporter.discovery.kubernetes.section import SectionPods

# --- Which of all known targets this exporter reads: those of its shard, and no more than it can.


# how long the targets of the shard of before are read on after the shard changed: two scrapes at the 15 s that our examples of Prometheus
# set, so that the exporter that takes a target over has a rate of it before it ends here
HANDOVER_SECONDS = 30.0


class Holder:
    """Chooses targets by shard, over time. Used by one thread at a time. `shard`: None for all targets."""

    def __init__(self, shard: Shard | None, monotonic: Callable[[], float]) -> None:
        self._shard, self._monotonic = shard, monotonic
        # the shard of before, and when its targets are let go; None where none is being let go
        self._leaving: tuple[Shard | None, float] | None = None

    def change_shard(self, shard: Shard | None) -> None:
        """Takes another shard. The targets of the one before are held for `HANDOVER_SECONDS` more."""
        if shard != self._shard:
            self._leaving = self._shard, self._monotonic() + HANDOVER_SECONDS
            self._shard = shard

    def is_due(self) -> bool:
        """Whether targets of the shard of before are to be let go now."""
        return self._leaving is not None and self._monotonic() >= self._leaving[1]

    def holds(self, name: str) -> bool:
        """Whether something of this name, which has no address yet, belongs here."""
        return self._shard is None or self._shard.holds(name)

    def choose(self, targets: Iterable[Target]) -> list[Target]:
        """The targets that belong here now, out of all that are known."""
        if self.is_due():
            self._leaving = None
        shards = (self._shard,) if self._leaving is None else (self._shard, self._leaving[0])
        return [target for target in targets if any(holds_target(shard, target) for shard in shards)]


# --- What the configuration and all sections of discovery name, put together: each server, each name and each pod once.


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
        fix = "This ends by itself once a pod is gone; pods in the network of a node need ports of their own."
        place.refuse(what, fix)


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


# --- The sections together


# (section of the configuration, host of the exporter, the running sections of its kind whose place it takes) -> what runs it
Maker = Callable[[Any, Host, Sequence[Any]], Section]


def _make_pods(section: KubernetesDiscovery, _host: Host, earlier: Sequence[SectionPods]) -> Section:
    # of an extra, and 8 MB large
    from llm_serving_exporter.discovery.kubernetes.section import SectionPods

    return SectionPods(section, earlier=earlier)


# type of a section of the configuration -> what runs it; a further kind of discovery is a line here and one in
# settings/discovery.py. A maker whose section needs an extra imports it when it is called.
MAKERS: Mapping[type, Maker] = {
    FileDiscovery: lambda section, host, _earlier: SectionFiles(section, host),
    HttpDiscovery: lambda section, host, earlier: SectionHttp(section, host, earlier=earlier),
    KubernetesDiscovery: _make_pods,
}


class Discovered(OfPods, frozen=True):
    """What the configuration and discovery come to together; what is said of pods is said of `targets`."""

    targets: tuple[Target, ...]  # all targets to read, configured ones first
    problems: tuple[str, ...]  # sentences about sources of targets, failures before warnings, at most 100
    failures: int  # how many sources of those that were read again could not be used, and targets left out
    elsewhere: int = 0  # targets that belong to other shards
    left_out: int = 0  # targets of this shard beyond what one exporter reads
    unanswered: tuple[str, ...] = ()  # sources that have neither answered nor failed so far
    # paths of files of targets that are there and cannot be used as they are; each has its line in `problems`
    broken_files: tuple[str, ...] = ()


class Discovery:
    """Runs sections of discovery. Used by one thread at a time. Sections start with the first `targets`, and end with `close`.

    `shard`: which part of the targets is read here, None for all. `monotonic`: the clock of handovers between shards.
    """

    def __init__(
        self,
        sections: tuple[DiscoverySection, ...],
        environ: Mapping[str, str] = os.environ,
        *,
        shard: Shard | None = None,
        monotonic: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._host = read_host(environ)
        self._holder = Holder(shard, monotonic)
        self._running: list[tuple[DiscoverySection, Section]] = []
        # what was wrong at the last reading, by the identity of the section
        self._said: dict[int, list[Problem]] = {}
        self.replace(sections, shard)

    def replace(self, sections: tuple[DiscoverySection, ...], shard: Shard | None) -> None:
        """Runs these sections from now on. One that stays as it is runs on, since it knows the last good targets; others are closed."""
        self._holder.change_shard(shard)
        left = self._running
        self._running = []
        for section in sections:
            same = next((pair for pair in left if pair[0] == section), None)
            if same is not None:
                left = [pair for pair in left if pair is not same]
                self._running.append(same)
            else:
                earlier = [running for config, running in left if type(config) is type(section)]
                self._running.append((section, MAKERS[type(section)](section, self._host, earlier)))
        for _, gone in left:
            gone.close()

    def close(self) -> None:
        """Ends what runs in the background. May be called twice."""
        for _, section in self._running:
            section.close()

    def changed(self) -> bool:
        """Whether any section says something new, or targets are to be let go."""
        return self._holder.is_due() or any(section.have_changed() for _, section in self._running)

    def targets(self, configured: tuple[Target, ...], runtimes: Collection[str]) -> Discovered:
        """Reads every section. Never raises. `runtimes`: names of those that have a table."""
        readings, said, failures = [], {}, 0
        for _, section in self._running:
            new = section.have_changed()
            reading = section.read(runtimes)
            readings.append(reading)
            problems = said[id(section)] = reading.list_problems()
            # what comes in between the two calls is read, though it was not new yet
            if new or problems != self._said.get(id(section)):
                failures += len(problems)
        self._said = said
        known, clashes = merge_targets(configured, readings)
        mine = self._holder.choose(known)
        held, left_out = tuple(mine[:MOST_TARGETS]), max(0, len(mine) - MOST_TARGETS)
        if left_out:
            what = f"{left_out} of {len(mine)} targets are left out, one exporter reads {MOST_TARGETS}"
            clashes.append(Problem("discovery", "", what, SHARE_THEM))
        sentences = [str(problem) for reading in readings for problem in reading.list_problems()]
        sentences += [str(problem) for problem in clashes]
        warnings = [warning for reading in readings for source in reading.sources for warning in source.warnings]
        return Discovered(
            targets=held,
            problems=tuple((sentences + warnings)[:100]),
            failures=failures + len(clashes),
            pods=_list_states(held, readings),
            waiting=tuple(pod for pod in _list_waiting(readings) if self._holder.holds(f"{pod.namespace}/{pod.pod}")),
            workers=tuple(dict.fromkeys(worker for reading in readings for worker in reading.workers)),
            finished=frozenset(pod for reading in readings for pod in reading.finished),
            slices={device: uuid for reading in readings for device, uuid in reading.slices.items()},
            elsewhere=len(known) - len(mine),
            left_out=left_out,
            unanswered=tuple(
                source.name
                for reading in readings
                for source in reading.sources
                if source.targets is None and not source.problems
            ),
            broken_files=tuple(
                source.name
                for (section, _), reading in zip(self._running, readings, strict=True)
                if isinstance(section, FileDiscovery)
                for source in reading.sources
                if source.problems
            ),
        )


def _list_states(targets: Iterable[Target], readings: Iterable[SectionReading]) -> dict[str, PodState]:
    """What Kubernetes says of the pods of these targets, by their names, as told by the section that each is from."""
    chosen = {id(target) for target in targets}
    return {
        target.name: reading.pods[target.name]
        for reading in readings
        for source in reading.sources
        for target in source.targets or ()
        if id(target) in chosen and target.name in reading.pods
    }


def _list_waiting(readings: Iterable[SectionReading]) -> list[WaitingPod]:
    """Pods that wait, each once: several sections may look at it."""
    pods: dict[tuple[str, str], WaitingPod] = {}
    for pod in (pod for reading in readings for pod in reading.waiting):
        pods.setdefault((pod.namespace, pod.pod), pod)
    return list(pods.values())


# --- Waiting for what discovery answers first: a command that ends, unlike the daemon, has no second chance.


# a request for a list has 10 s by default
LONGEST_WAIT_SECONDS = 12.0
# before a person is told what the command waits for
SILENT_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.05


def discover_once(config: Config, runtimes: Collection[str], say: Callable[[str], object]) -> Discovered:
    """What the configuration and discovery come to once every source has answered or failed, at most `LONGEST_WAIT_SECONDS` from now.

    A source without an answer by then is a problem. `say` gets a line when it takes longer than a moment. `runtimes`: names of those that
    have a table.
    """
    with closing(Discovery(config.discovery, shard=config.shard)) as discovery:
        discovered = discovery.targets(config.targets, runtimes)
        started, is_told = elapsed_seconds(), False
        while discovered.unanswered and (waited := elapsed_seconds() - started) < LONGEST_WAIT_SECONDS:
            if waited > SILENT_SECONDS and not is_told:
                is_told = True
                say(f"waiting up to {LONGEST_WAIT_SECONDS:g} s for {', '.join(discovered.unanswered)}")
            time.sleep(_LOOK_EVERY_SECONDS)
            if discovery.changed():
                discovered = discovery.targets(config.targets, runtimes)
    fix = "Check that it is up and can be reached from here."
    late = [Problem(name, "", "it has not answered in time", fix) for name in discovered.unanswered]
    problems = (*map(str, late), *discovered.problems)[:100]
    return replace(discovered, problems=problems, failures=discovered.failures + len(late))
