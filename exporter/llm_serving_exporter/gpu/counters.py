"""Raw hardware counters that wrap or restart -> totals that only grow."""

from __future__ import annotations

WRAP_32_BITS = 1 << 32


class Total:
    """A total over a raw byte counter. It starts at the raw value, so a restart of the exporter loses nothing.

    A fall of a counter that has never been beyond 32 bits is read as a wrap at 2^32 (nvml.h on fields 197 and 198:
    "Value can be wrapped"), any other fall as a restart from zero. A wrap that happens twice between two reads cannot
    be seen: then the total is too low.
    """

    def __init__(self) -> None:
        self._raw: int | None = None
        self._highest = 0
        self._total = 0

    def update(self, raw: int) -> int:
        """Take a raw reading; returns the total in the raw reading's unit."""
        if self._raw is None:
            self._total = raw
        elif raw >= self._raw:
            self._total += raw - self._raw
        elif self._highest < WRAP_32_BITS:
            self._total += raw + WRAP_32_BITS - self._raw
        else:
            self._total += raw
        self._raw = raw
        self._highest = max(self._highest, raw)
        return self._total


class Totals:
    """The totals of one GPU by name, kept across re-initialisations of NVML. Names come from code, so their number
    is bounded."""

    def __init__(self) -> None:
        self._totals: dict[str, Total] = {}

    def update(self, name: str, raw: int) -> int:
        """As `Total.update`, for the total called `name`."""
        return self._totals.setdefault(name, Total()).update(raw)
