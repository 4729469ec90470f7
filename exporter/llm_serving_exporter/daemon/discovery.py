"""File-based target discovery over time: a file is read again when it changes; while it is bad, its last good targets stay."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llm_serving_exporter.config.file_sd import SectionFiles, merge_targets
from llm_serving_exporter.config.types import FileDiscovery
from llm_serving_exporter.model.target import Target


@dataclass(frozen=True, slots=True)
class Discovered:
    """What the configuration and the files of targets come to together."""

    targets: tuple[Target, ...]  # all targets to read, configured ones first
    problems: tuple[str, ...]  # sentences about the files, failures before warnings, at most 100
    failures: int  # how many of the sentences are failures, those beyond the 100 included


class Discovery:
    """Holds what each file said last. Used by one thread at a time."""

    def __init__(self, sections: tuple[FileDiscovery, ...], environ: Mapping[str, str] = os.environ) -> None:
        self._sections = [SectionFiles(section, node_name=environ.get("NODE_NAME")) for section in sections]

    def changed(self) -> bool:
        """Whether any file differs from when it was last read."""
        return any(section.have_changed() for section in self._sections)

    def targets(self, configured: tuple[Target, ...], runtimes: Collection[str]) -> Discovered:
        """Reads every file. Never raises. `runtimes`: names of those that have a table."""
        found = [section.read(runtimes) for section in self._sections]
        targets, clashes = merge_targets(configured, found)
        problems = [str(problem) for reading in found for problem in reading.problems]
        problems += [str(problem) for reading in found for file in reading.files for problem in file.problems]
        problems += [str(problem) for problem in clashes]
        warnings = [warning for reading in found for file in reading.files for warning in file.warnings]
        return Discovered(targets, tuple((problems + warnings)[:100]), len(problems))
