"""What every kind of discovery looks like to those who ask it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.target import PodState, Target, WaitingPod
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.problems import Node, Place, Scalar
from llm_serving_exporter.settings.target_keys import FoundBy, list_places
from llm_serving_exporter.settings.targets import read_group

# --- A list of target groups, from a file or a server -> targets and what is wrong with them.


# of one list, and of all of them together, before they are shared among exporters: what one of 256 shards has to know
MOST_KNOWN_TARGETS = 100_000
# that one list may have: more is one fault of whatever writes it, many times over
MOST_NOTES = 20


class Source(Struct, frozen=True):
    """What one file, URL or cluster says, and what of it is in use."""

    name: str  # path, URL, or another name by which users know it; its problems begin with it
    # the last good ones, () where it says that there are none; None where it has not been good yet
    targets: tuple[Target, ...] | None
    problems: tuple[Problem, ...] = ()  # why it cannot be used as it is now, or why some of its targets are left out
    warnings: tuple[str, ...] = ()  # what has no effect in what `targets` are from


def read_list(
    source: str,
    read: Callable[[Place], Node | None],
    defaults: Target,
    host: Host,
    runtimes: Collection[str],
    *,
    by: FoundBy,
    what: str,
) -> Source:
    """The targets of a list. Raises ConfigError where it cannot be used.

    `source`: the path or URL, for messages. `read` yields its tree, or None where there is none, which it has reported. `by`: the kind of
    section that names it; `what`: "the file".
    """
    defaults = replace(defaults, places=list_places(by, source))
    problems: list[Problem] = []
    place = Place(source, "", problems)
    node = read(place)
    targets: list[Target] = []
    notes: dict[str, None] = {}
    if isinstance(node, list):
        for index, group in enumerate(node):
            targets += read_group(group, place.item(index), defaults, host, runtimes, notes)
    elif isinstance(node, Scalar) and node.kind == "nothing":
        # a file that is just being written looks like this
        place.refuse(f"{what} is empty", "Write [] if there are no targets.")
    elif node is not None:
        place.refuse(f"{what} must be a list of {{targets: […], labels: {{…}}}}", "Start each group with a dash.")
    if problems:
        raise ConfigError(*problems)
    beyond = len(targets) - MOST_KNOWN_TARGETS
    if beyond > 0:
        are = "is" if beyond == 1 else "are"
        many = count_nouns(beyond, "target")
        place.refuse(f"{many} beyond {MOST_KNOWN_TARGETS:,} {are} left out", "Split the fleet.")
    warnings = tuple(f"{source}: {note}" for note in list(notes)[:MOST_NOTES])
    return Source(source, tuple(targets[:MOST_KNOWN_TARGETS]), tuple(problems), warnings)


# --- A section, and what it says


class OfPods(Struct, frozen=True, kw_only=True):
    """What Kubernetes says beside targets."""

    pods: Mapping[str, PodState] = field(default_factory=dict)  # of the pods of targets, by the targets' names
    waiting: tuple[WaitingPod, ...] = ()  # pods that are wanted, and no target yet
    workers: tuple[Worker, ...] = ()  # pods that work for another pod's target, which may be read elsewhere
    # namespaces and names of pods that have ended and had GPUs, where the pods of one node are looked at
    finished: frozenset[tuple[str, str]] = frozenset()
    # UUIDs of devices that claims are made of, by pool and device, where they are asked for
    slices: Mapping[tuple[str, str], str] = field(default_factory=dict)


class SectionReading(OfPods, frozen=True):
    """One reading of a section."""

    sources: tuple[Source, ...]  # in an order that stays
    problems: tuple[Problem, ...] = ()  # those that belong to no single source

    def list_problems(self) -> list[Problem]:
        """Its own, then those of its sources."""
        return [*self.problems, *(problem for source in self.sources for problem in source.problems)]


class Section(Protocol):
    """One section of discovery over time. Used by one thread at a time; `close` may come from another."""

    def have_changed(self) -> bool:
        """Whether `read` would say something new; cheap to ask."""
        ...

    def read(self, runtimes: Collection[str]) -> SectionReading:
        """What it says now. Never raises, never waits for a server. `runtimes`: names of those that have a table."""
        ...

    def close(self) -> None:
        """Ends what it runs in the background. May be called twice."""
        ...
