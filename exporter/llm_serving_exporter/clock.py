"""Elapsed time: the one clock that intervals, ages, windows and cost go by. No step of the wall clock moves it.

On Linux it is CLOCK_BOOTTIME, which counts the time that the machine was suspended; CLOCK_MONOTONIC, what `time.monotonic` reads, stands
still meanwhile, and a rate over a suspend would be too high. Elsewhere it is `time.monotonic`. The two must not be compared.

What waits for an instant of this clock (a condition, a socket) is woken by the kernel's CLOCK_MONOTONIC: it has to look again now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# after a suspend, whoever waits for an instant of this clock has looked again within this
LONGEST_WAIT_SECONDS = 1.0


def _choose_clock() -> Callable[[], float]:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    try:
        time.clock_gettime(boottime)
    except OSError:  # a kernel or a sandbox without it
        return time.monotonic
    return partial(time.clock_gettime, boottime)


# seconds since some moment before the process began; never falls
elapsed_seconds: Callable[[], float] = _choose_clock()
