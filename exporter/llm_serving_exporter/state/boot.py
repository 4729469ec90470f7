"""Which boot of the host this is, and how long it has lasted: a clock that no step of the wall clock and no restart of a process moves."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """The host's boot, also within containers; "" where the system does not say."""
    try:
        return path.read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


def boot_seconds() -> float:
    """Seconds since the host's boot, time asleep included."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
