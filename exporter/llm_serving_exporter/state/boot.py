"""Which boot of the host this is: elapsed time (`clock`) of one boot says nothing about another."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """The host's boot, also within containers; "" where the system does not say."""
    try:
        return path.read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""
