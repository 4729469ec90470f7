"""Replicas whose ranks are targets of their own: wide expert parallelism, where ranks with pages of their own share one set of experts."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct


class ReplicaPart(Struct, frozen=True):
    """A target whose engines are some of the ranks of a replica."""

    # what its targets have in common: their group, else their namespace and workload; "": nothing that is known
    replica: str
    # of the replica
    ranks: int
    # on the target's own page
    shown: int
    # those on the pages that this exporter reads now, the target's own included
    read: int


class Siblings(Struct, frozen=True):
    """The ranks of a target's replica that are on other targets' pages, as this exporter last read them."""

    ranks: int = 0
    # that run on all of them together
    requests: float = 0.0
