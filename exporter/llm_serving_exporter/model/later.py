"""What is done later: values that are worked out when somebody asks, and what failed and is tried again."""

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
        last = self._arguments
        if last is None or not all(map(is_, arguments, last)):
            self._result = self._compute(*arguments)
            self._arguments = arguments
        return self._result


class Retry:
    """Tries are due at once until the first failure, then `first_seconds` after it, and after each further failure twice as
    long, at most `longest_seconds`. Times are those of one monotonic clock, in seconds."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds, self._longest_seconds = first_seconds, longest_seconds
        self._delay_seconds = first_seconds  # the pause after the next failure
        self._due_at: float | None = None  # None = at once

    def note_failure(self, now: float) -> None:
        """A try failed at `now`."""
        self._due_at = now + self._delay_seconds
        self._delay_seconds = min(2 * self._delay_seconds, self._longest_seconds)

    def is_due(self, now: float) -> bool:
        """Whether a try may be made at `now`."""
        return self._due_at is None or now >= self._due_at

    def reset(self) -> None:
        """A try succeeded, or what failed is another thing now: the next try is due at once."""
        self._delay_seconds = self._first_seconds
        self._due_at = None
