"""File-based target discovery over time: a file is read again when it changes; while it is bad, its last good targets stay."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from llm_serving_exporter.config.checks import MOST_TARGETS, identity_of
from llm_serving_exporter.config.host import read_host
from llm_serving_exporter.config.types import FileDiscovery
from llm_serving_exporter.discovery.file_sd import SectionFiles
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema.problems import Place, shown


@dataclass(frozen=True, slots=True)
class Discovered:
    """What the configuration and the files of targets come to together."""

    targets: tuple[Target, ...]  # all targets to read, configured ones first
    problems: tuple[str, ...]  # sentences about the files, failures before warnings, at most 100
    failures: int  # how many of the sentences are failures, those beyond the 100 included


class Discovery:
    """Holds what each file said last. Used by one thread at a time."""

    def __init__(self, sections: tuple[FileDiscovery, ...], environ: Mapping[str, str] = os.environ) -> None:
        host = read_host(environ)
        self._sections = [SectionFiles(section, host) for section in sections]

    def changed(self) -> bool:
        """Whether any file differs from when it was last read."""
        return any(section.have_changed() for section in self._sections)

    def targets(self, configured: tuple[Target, ...], runtimes: Collection[str]) -> Discovered:
        """Reads every file. Never raises. `runtimes`: names of those that have a table."""
        found = [section.read(runtimes) for section in self._sections]
        targets, clashes = merge_targets(configured, found)
        problems = [str(problem) for reading in found for problem in reading.problems]
        problems += [str(problem) for reading in found for source in reading.sources for problem in source.problems]
        problems += [str(problem) for problem in clashes]
        warnings = [warning for reading in found for source in reading.sources for warning in source.warnings]
        return Discovered(targets, tuple((problems + warnings)[:100]), len(problems))


def merge_targets(
    configured: Iterable[Target], discovered: Iterable[SectionReading]
) -> tuple[tuple[Target, ...], tuple[Problem, ...]]:
    """All targets to read, at most 2,000: the configured ones, then discovered ones, the first of each server and name.

    The problems tell which discovered ones were left out.
    """
    targets = list(configured)
    servers = {identity_of(target) for target in targets}
    names = {target.name: target for target in targets}
    problems: list[Problem] = []
    left_out = 0
    for source in (source for reading in discovered for source in reading.sources):
        place = Place(source.name, "", problems)
        for target in source.targets or ():
            if identity_of(target) in servers:
                place.refuse(f"{target.url} is already a target, the later one is left out", "Remove one of them.")
            elif target.name in names:
                first, second = map(_describe_place, (names[target.name], target))
                what = f"the name {shown(target.name)} is already taken by {first}, {second} is left out"
                place.refuse(what, "Give each target a name of its own.")
            elif len(targets) >= MOST_TARGETS:
                left_out += 1
            else:
                servers.add(identity_of(target))
                names[target.name] = target
                targets.append(target)
    if left_out:
        what = f"{left_out} targets beyond {MOST_TARGETS} are left out"
        Place("file_sd", "", problems).refuse(what, "Run several exporters, each for a part of the fleet.")
    return tuple(targets), tuple(problems)


def _describe_place(target: Target) -> str:
    """Its URL and, where it is known, its node: one name on two nodes is mostly a pod of one cluster beside that of another."""
    return f"{target.url} on {', '.join(target.nodes)}" if target.nodes else target.url
