"""Sums, and what numbers printed with a few digits can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import overload


@overload
def add_up(numbers: Iterable[int]) -> int: ...
@overload
def add_up(numbers: Iterable[float]) -> float: ...
def add_up(numbers: Iterable[float]) -> float:
    """Their sum, one after the other, 0 without any: the same digits on every Python. `sum` compensates for rounding since 3.12."""
    return reduce(add, numbers, 0)


def resolution(value: float, digits: int) -> float:
    """The step between two neighbouring numbers of so many significant digits at `value`, in its unit."""
    if value <= 0:
        return 0.0
    return 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
