"""When something that failed is tried again."""

from __future__ import annotations


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
