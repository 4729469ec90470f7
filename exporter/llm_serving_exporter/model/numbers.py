"""What numbers printed with a few digits can tell."""

from __future__ import annotations

import math


def resolution(value: float, digits: int) -> float:
    """The step between two neighbouring numbers of so many significant digits at `value`, in its unit."""
    if value <= 0:
        return 0.0
    return 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
