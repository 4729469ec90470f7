"""Values that are worked out when somebody asks, and results that stay until what they rest on has changed."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """A value that follows from what is known now, and is worked out at the first question.

    `work` is a pure function. Threads may share the value: two that ask at once may both work it out, to the same result.
    """

    __slots__ = ("_value", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work

    @property
    def value(self) -> T:
        """The value."""
        work = self._work
        if work is not None:
            self._value = work()
            self._work = None  # after the value is there; what it was worked out from is let go
        return self._value


class Unchanged(Generic[T]):
    """The last result of a pure function, worked out again once an argument is another object. Used by one thread at a time."""

    __slots__ = ("_arguments", "_compute", "_result")

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        # kept, so that no other object can have their identity; None before the first call
        self._arguments: tuple[object, ...] | None = None

    def __call__(self, *arguments: object) -> T:
        """As the function itself, for positional arguments, whose number stays."""
        known = self._arguments
        if known is None or not all(map(is_, arguments, known)):
            self._result = self._compute(*arguments)
            self._arguments = arguments
        return self._result
