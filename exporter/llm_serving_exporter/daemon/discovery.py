"""File-based target discovery over time: files are read again when they change, and a bad one keeps its last good targets."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llm_serving_exporter.config.file_sd import FileTargets, keep_last_good, merge_targets, read_targets, stamp_of
from llm_serving_exporter.config.types import FileDiscovery
from llm_serving_exporter.model.target import Target


@dataclass(frozen=True, slots=True)
class Discovered:
    """All targets to read, configured ones first; what is to be said about the files; how many of the sentences are failures."""

    targets: tuple[Target, ...]
    problems: tuple[str, ...]
    failures: int


class Discovery:
    """Holds what each file said last. Used by one thread at a time."""

    def __init__(self, sections: tuple[FileDiscovery, ...], environ: Mapping[str, str] = os.environ) -> None:
        self._sections = sections
        self._node_name = environ.get("NODE_NAME")
        self._found: list[FileTargets | None] = [None] * len(sections)

    def changed(self) -> bool:
        """Whether any file differs from when it was last read."""
        return any(
            found is None or stamp_of(section) != found.stamp
            for section, found in zip(self._sections, self._found, strict=True)
        )

    def targets(self, configured: tuple[Target, ...], runtimes: Collection[str]) -> Discovered:
        """Reads every file. Never raises. `runtimes`: names of those that have a table."""
        self._found = [
            keep_last_good(last, read_targets(section, node_name=self._node_name, runtimes=runtimes))
            for section, last in zip(self._sections, self._found, strict=True)
        ]
        found = [reading for reading in self._found if reading is not None]
        targets, clashes = merge_targets(configured, found)
        problems = [str(problem) for reading in found for problem in reading.problems]
        problems += [str(problem) for reading in found for file in reading.files for problem in file.problems]
        problems += [str(problem) for problem in clashes]
        warnings = [warning for reading in found for file in reading.files for warning in file.warnings]
        return Discovered(targets, tuple((problems + warnings)[:100]), len(problems))
