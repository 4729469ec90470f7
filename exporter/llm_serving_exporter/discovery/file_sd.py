"""Prometheus file_sd: files of target groups -> targets. The caller says when to read.

A file that cannot be used keeps its last good targets.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from llm_serving_exporter.discovery.listed import Listed, read_list
from llm_serving_exporter.discovery.section import SectionReading, Source
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.files.watched import Watched
from llm_serving_exporter.settings.discovery import MOST_FILES, FileDiscovery, is_glob, list_files
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.problems import Place
from llm_serving_exporter.settings.target_keys import FoundBy


class SectionFiles:
    """The files of one section of `file_sd` over time. Used by one thread at a time. `host`: the exporter's own."""

    def __init__(self, section: FileDiscovery, host: Host) -> None:
        self._section, self._host = section, host
        self._runtimes: Collection[str] = RUNTIMES
        # path -> the file; None before the first reading
        self._files: dict[str, Watched[Listed | None]] | None = None

    def have_changed(self) -> bool:
        """Whether a file differs from when it was last read, or another set of files matches."""
        if self._files is None or _matching_paths(self._section)[:MOST_FILES] != list(self._files):
            return True
        return any(file.has_changed() for file in self._files.values())

    def read(self, runtimes: Collection[str] = RUNTIMES) -> SectionReading:
        """Reads every file. Never raises; what is wrong with a file stands in its result.

        A file that cannot be used keeps the targets that it had, as in Prometheus; the targets of a file that is gone are gone.
        `runtimes`: names of those that have a table.
        """
        self._runtimes = runtimes
        problems: list[Problem] = []
        for pattern in self._section.files:
            if not is_glob(pattern) and not os.path.exists(pattern):
                Place(pattern, "", problems).refuse(
                    "the file does not exist (yet)", "Check file_sd, or write the file."
                )
        paths = _matching_paths(self._section)
        if len(paths) > MOST_FILES:
            what = f"file_sd matches more than {MOST_FILES} files, the rest is not read"
            Place(paths[-1], "", problems).refuse(what, "Put more targets into one file.")
        known = self._files or {}
        self._files = {path: known.get(path) or self._watch(path) for path in paths[:MOST_FILES]}
        for file in self._files.values():
            file.reread()
        return SectionReading(tuple(_result(file) for file in self._files.values()), tuple(problems))

    def close(self) -> None:
        """Nothing runs in the background."""

    def _watch(self, path: str) -> Watched[Listed | None]:
        def read() -> Listed:
            return read_list(
                path,
                lambda place: read_document(path, place),
                self._section.defaults,
                self._host,
                self._runtimes,
                by=FoundBy.FILE_SD,
                what="the file",
            )

        return Watched(path, read, None)


def _matching_paths(section: FileDiscovery) -> list[str]:
    """At most `MOST_FILES` + 1."""
    distinct = dict.fromkeys(path for pattern in section.files for path in list_files(pattern))
    return list(distinct)[: MOST_FILES + 1]


def _result(file: Watched[Listed | None]) -> Source:
    problems = file.problem.problems if isinstance(file.problem, ConfigError) else ()
    if file.value is None:
        return Source(file.path, None, problems)
    return Source(file.path, file.value.targets, problems or file.value.problems, file.value.warnings)
