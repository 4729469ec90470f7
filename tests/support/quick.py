"""Which values of a parameter `make test` tries: `make test-e2e` tries the others."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def keep_quick(values: Iterable[Any], quick: Callable[[Any], bool]) -> list[Any]:
    """The values for `check_rows`, those that are not `quick` marked as end to end. A tuple stands for several parameters."""
    return [
        value
        if quick(value)
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.e2e)
        for value in values
    ]
