"""Prometheus file_sd: files of target groups -> targets. The caller says when, and holds what was found last."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from llm_serving_exporter.config.checks import MOST_TARGETS, identity_of
from llm_serving_exporter.config.groups import read_group
from llm_serving_exporter.config.pattern import MOST_FILES, is_glob, matching
from llm_serving_exporter.config.types import FileDiscovery
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.registry import RUNTIMES
from llm_serving_exporter.schema.context import Host
from llm_serving_exporter.schema.document import read_document
from llm_serving_exporter.schema.problems import Place, listed, shown
from llm_serving_exporter.schema.tree import Scalar

# path, modification time in nanoseconds, size, inode of each file
Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class FileResult:
    """What one file said. `targets` is None where it could not be used, and `problems` say why; () means no targets.

    `warnings`: what in the file has no effect. After `keep_last_good`, `targets` may be older than `problems`.
    """

    path: str
    targets: tuple[Target, ...] | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileTargets:
    """One reading of a discovery's files. `stamp` is of just before it; `problems` are those of no single file."""

    files: tuple[FileResult, ...]
    stamp: Stamp
    problems: tuple[Problem, ...] = ()


def stamp_of(discovery: FileDiscovery) -> Stamp:
    """The state of the discovery's files, cheap to take: while it is equal to the last one there is nothing to read."""
    found = []
    for path in _paths(discovery):
        try:
            status = os.stat(path)
        except OSError:
            found.append((path, 0, 0, 0))
        else:
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _paths(discovery: FileDiscovery) -> list[str]:
    """At most `MOST_FILES` + 1."""
    distinct = dict.fromkeys(path for pattern in discovery.files for path in matching(pattern))
    return list(distinct)[: MOST_FILES + 1]


def read_targets(
    discovery: FileDiscovery,
    *,
    host_name: str | None = None,
    node_name: str | None = None,
    runtimes: Collection[str] = RUNTIMES,
) -> FileTargets:
    """Reads every file of the discovery. Never raises; what is wrong with a file stands in its result.

    `host_name`: the exporter's own (default: the system's); `node_name`: NODE_NAME, default the host name. `runtimes`:
    names of those that have a table.
    """
    own_name = host_name or socket.gethostname()
    host = Host(own_name, node_name or own_name)
    stamp = stamp_of(discovery)
    problems: list[Problem] = []
    for pattern in discovery.files:
        if not is_glob(pattern) and not os.path.exists(pattern):
            Place(pattern, "", problems).refuse("the file does not exist (yet)", "Check file_sd, or write the file.")
    paths = [path for path, *_ in stamp]
    if len(paths) > MOST_FILES:
        what = f"file_sd matches more than {MOST_FILES} files, the rest is not read"
        Place(paths[-1], "", problems).refuse(what, "Put more targets into one file.")
    files = tuple(_read_file(path, discovery.defaults, host, runtimes) for path in paths[:MOST_FILES])
    return FileTargets(files, stamp, tuple(problems))


def _read_file(path: str, defaults: Target, host: Host, runtimes: Collection[str]) -> FileResult:
    problems: list[Problem] = []
    place = Place(path, "", problems)
    node = read_document(path, place)
    targets: list[Target] = []
    ignored: dict[str, None] = {}
    if isinstance(node, list):
        for index, group in enumerate(node):
            targets += read_group(group, place.item(index), defaults, host, runtimes, ignored)
    elif isinstance(node, Scalar) and node.kind == "nothing":
        # a file that is just being written looks like this
        place.refuse("the file is empty", "Write [] where no targets are meant.")
    elif node is not None:
        place.refuse("the file must be a list of {targets: […], labels: {…}}", "Start each group with a dash.")
    if len(targets) > MOST_TARGETS:
        place.refuse(f"{len(targets)} targets are more than {MOST_TARGETS}", "Run several exporters.")
    warnings = []
    if ignored:
        names = listed((clean(name) for name in sorted(ignored)[:20]), "and")
        warnings.append(f"{path}: labels without effect here: {names}")
    return FileResult(path, None if problems else tuple(targets), tuple(problems), tuple(warnings))


def keep_last_good(previous: FileTargets | None, current: FileTargets) -> FileTargets:
    """`current`, where each file that could not be used has the targets it had in `previous`, as Prometheus does.

    The targets of a file that is gone are gone.
    """
    if previous is None:
        return current
    last = {file.path: file.targets for file in previous.files}
    files = tuple(
        replace(file, targets=last.get(file.path)) if file.targets is None else file for file in current.files
    )
    return replace(current, files=files)


def merge_targets(
    configured: Iterable[Target], discovered: Iterable[FileTargets]
) -> tuple[tuple[Target, ...], tuple[Problem, ...]]:
    """All targets to read, at most 2,000: the configured ones, then those of files, the first of each server and name.

    The problems tell which ones of files were left out.
    """
    targets = list(configured)
    servers = {identity_of(target) for target in targets}
    names = {target.name for target in targets}
    problems: list[Problem] = []
    left_out = 0
    for file in (file for reading in discovered for file in reading.files):
        place = Place(file.path, "", problems)
        for target in file.targets or ():
            if identity_of(target) in servers:
                place.refuse(f"{target.url} is already a target, the later one is left out", "Remove one of them.")
            elif target.name in names:
                what = f"the name {shown(target.name)} is already taken, {target.url} is left out"
                place.refuse(what, "Give each target a name of its own.")
            elif len(targets) >= MOST_TARGETS:
                left_out += 1
            else:
                servers.add(identity_of(target))
                names.add(target.name)
                targets.append(target)
    if left_out:
        what = f"{left_out} targets beyond {MOST_TARGETS} are left out"
        Place("file_sd", "", problems).refuse(what, "Run several exporters, each for a part of the fleet.")
    return tuple(targets), tuple(problems)
