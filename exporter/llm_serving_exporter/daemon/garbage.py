"""Python's collector of cycles, fitted to a process whose objects live for minutes and are hardly ever part of a cycle."""

from __future__ import annotations

import gc

# objects that are made and not yet freed by their counts, before those among them are looked for that nobody can reach
YOUNG = gc.get_threshold()[0]
# the objects of a tick, some 250, stay for as long as the target's window, so that as many come as go. With the usual threshold the
# collector goes through all of them again and again: 20 % of the CPU of 2,000 targets
YOUNG_A_TARGET = 20


def fit_collector(targets: int) -> None:
    """For a process that reads so many targets."""
    gc.set_threshold(YOUNG + YOUNG_A_TARGET * targets, *gc.get_threshold()[1:])
