"""All sections of discovery together, over time, and what they and the configuration come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.file_sd import SectionFiles
from llm_serving_exporter.discovery.held import Holder
from llm_serving_exporter.discovery.http_sd import SectionHttp
from llm_serving_exporter.discovery.merging import merge_targets
from llm_serving_exporter.discovery.section import Section, SectionReading
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import PodState, Shard, Target, WaitingPod
from llm_serving_exporter.settings.discovery import DiscoverySection, FileDiscovery, HttpDiscovery
from llm_serving_exporter.settings.identity import read_host
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_exporter.settings.options import Host

# (section of the configuration, host of the exporter, the running sections whose place it takes) -> what runs it
Maker = Callable[[Any, Host, Sequence[Section]], Section]


def _make_files(section: FileDiscovery, host: Host, earlier: Sequence[Section]) -> Section:
    return SectionFiles(section, host)


def _make_http(section: HttpDiscovery, host: Host, earlier: Sequence[Section]) -> Section:
    return SectionHttp(section, host, earlier=next((one for one in earlier if isinstance(one, SectionHttp)), None))


def _make_pods(section: KubernetesDiscovery, host: Host, earlier: Sequence[Section]) -> Section:
    # of an extra, and 8 MB large
    from llm_serving_exporter.discovery.kubernetes.section import SectionPods

    return SectionPods(section, earlier=[one for one in earlier if isinstance(one, SectionPods)])


# type of a section of the configuration -> what runs it; a further kind of discovery is a line here and one in
# settings/discovery.py. A maker whose section needs an extra imports it when it is called.
MAKERS: Mapping[type, Maker] = {FileDiscovery: _make_files, HttpDiscovery: _make_http, KubernetesDiscovery: _make_pods}


class Discovered(Struct, frozen=True):
    """What the configuration and discovery come to together."""

    targets: tuple[Target, ...]  # all targets to read, configured ones first
    problems: tuple[str, ...]  # sentences about sources of targets, failures before warnings, at most 100
    failures: int  # how many sources of those that were read again could not be used, and targets left out
    pods: Mapping[str, PodState] = field(default_factory=dict)  # of `targets`, by their names
    waiting: tuple[WaitingPod, ...] = ()  # pods that are wanted, and no target yet
    workers: tuple[Worker, ...] = ()  # pods that work for another pod's target, which may be read elsewhere
    # namespaces and names of pods of this node that have ended and had GPUs
    finished: frozenset[tuple[str, str]] = frozenset()
    # UUIDs of devices that claims are made of, by pool and device
    slices: Mapping[tuple[str, str], str] = field(default_factory=dict)
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
                earlier = _find_earlier(section, left)
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
        found, said, failures = [], {}, 0
        for _, section in self._running:
            new = section.have_changed()
            reading = section.read(runtimes)
            found.append(reading)
            problems = said[id(section)] = _problems_of(reading)
            # what comes in between the two calls is read, though it was not new yet
            if new or problems != self._said.get(id(section)):
                failures += len(problems)
        self._said = said
        known, clashes = merge_targets(configured, found)
        held = self._holder.choose(known)
        clashes += held.list_problems()
        sentences = [str(problem) for reading in found for problem in _problems_of(reading)]
        sentences += [str(problem) for problem in clashes]
        warnings = [warning for reading in found for source in reading.sources for warning in source.warnings]
        return Discovered(
            targets=held.targets,
            problems=tuple((sentences + warnings)[:100]),
            failures=failures + len(clashes),
            pods=_list_states(held.targets, found),
            waiting=tuple(pod for pod in _list_waiting(found) if self._holder.holds(f"{pod.namespace}/{pod.pod}")),
            workers=tuple(dict.fromkeys(worker for reading in found for worker in reading.workers)),
            finished=frozenset(pod for reading in found for pod in reading.finished),
            slices={device: uuid for reading in found for device, uuid in reading.slices.items()},
            elsewhere=held.elsewhere,
            left_out=held.left_out,
            unanswered=tuple(
                source.name
                for reading in found
                for source in reading.sources
                if source.targets is None and not source.problems
            ),
            broken_files=tuple(
                source.name
                for (section, _), reading in zip(self._running, found, strict=True)
                if isinstance(section, FileDiscovery)
                for source in reading.sources
                if source.problems
            ),
        )


def _find_earlier(section: DiscoverySection, running: list[tuple[DiscoverySection, Section]]) -> list[Section]:
    """Sections of the same kind and source whose place a new one takes, the most alike first: what they know is not asked for again."""
    found = []
    for config, earlier in running:
        if isinstance(section, HttpDiscovery) and isinstance(config, HttpDiscovery):
            if (config.url, config.path) == (section.url, section.path):
                found.append((0, earlier))
        elif isinstance(section, KubernetesDiscovery) and isinstance(config, KubernetesDiscovery):
            found.append((0 if (config.namespaces, config.node) == (section.namespaces, section.node) else 1, earlier))
        elif type(config) is type(section):
            found.append((0, earlier))
    return [earlier for _, earlier in sorted(found, key=lambda pair: pair[0])]


def _problems_of(reading: SectionReading) -> list[Problem]:
    return [*reading.problems, *(problem for source in reading.sources for problem in source.problems)]


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
    found: dict[tuple[str, str], WaitingPod] = {}
    for pod in (pod for reading in readings for pod in reading.waiting):
        found.setdefault((pod.namespace, pod.pod), pod)
    return list(found.values())
