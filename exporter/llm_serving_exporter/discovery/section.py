"""What every kind of discovery looks like to those who ask it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.gpu import Worker
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import PodState, Target, WaitingPod


class Source(Struct, frozen=True):
    """What one file, URL or cluster says, and what of it is in use."""

    name: str  # path, URL, or another name by which users know it; its problems begin with it
    # the last good ones, () where it says that there are none; None where it has not been good yet
    targets: tuple[Target, ...] | None
    problems: tuple[Problem, ...] = ()  # why it cannot be used as it is now
    warnings: tuple[str, ...] = ()  # what has no effect in what `targets` are from


class SectionReading(Struct, frozen=True):
    """One reading of a section."""

    sources: tuple[Source, ...]  # in an order that stays
    problems: tuple[Problem, ...] = ()  # those that belong to no single source
    # what Kubernetes says of the pods of targets, by the targets' names
    pods: Mapping[str, PodState] = field(default_factory=dict)
    waiting: tuple[WaitingPod, ...] = ()  # pods that are wanted, and no target yet
    workers: tuple[Worker, ...] = ()  # pods that work for another pod's target, which may be read elsewhere
    # namespaces and names of pods that have ended and had GPUs, where the pods of one node are looked at
    finished: frozenset[tuple[str, str]] = frozenset()
    # UUIDs of devices that claims are made of, by pool and device, where they are asked for
    slices: Mapping[tuple[str, str], str] = field(default_factory=dict)


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
