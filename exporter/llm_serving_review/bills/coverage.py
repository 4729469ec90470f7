"""What a bill covers of a week, by the times of its lines of usage. Each cloud writes its bill at its own time, and has one of these."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor

from llm_serving_review.evidence.week import HOUR_SECONDS

Span = tuple[float, float]
# an account's bill without a line of anything for longer than that lacks a file
_LONGEST_SILENCE = 72 * HOUR_SECONDS
# within a bill so much without a line of anything is worth a look
_LEAST_HOLE_HOURS = 24


class Coverage:
    """Takes the times of lines in any order."""

    def __init__(self, begin: float, end: float) -> None:
        """The week, Unix seconds."""
        self._begin, self._end = begin, end
        self._first_hour = floor(begin / HOUR_SECONDS)
        # 1 for each UTC hour of the week that any line touches
        self._hours = bytearray(ceil(end / HOUR_SECONDS) - self._first_hour)
        # the first and the last moment of lines that lie in the week, and of those beside it the nearest
        self._inside: Span | None = None
        self._before: float | None = None
        self._after: float | None = None

    def note(self, begin: float, end: float) -> None:
        """One more line."""
        if end <= self._begin:
            if self._before is None or end > self._before:
                self._before = end
            return
        if begin >= self._end:
            if self._after is None or begin < self._after:
                self._after = begin
            return
        if self._inside is None:
            self._inside = begin, end
        elif begin < self._inside[0] or end > self._inside[1]:
            self._inside = min(begin, self._inside[0]), max(end, self._inside[1])
        first = max(0, floor(begin / HOUR_SECONDS) - self._first_hour)
        last = min(len(self._hours), ceil(end / HOUR_SECONDS) - self._first_hour)
        self._hours[first:last] = b"\1" * (last - first)

    def find(self) -> Span | None:
        """What is covered, Unix seconds; None for nothing. Lines on both sides of a long time without any do not cover it: a file is
        missing there."""
        before, after = self._before, self._after
        if self._inside is None:
            is_near = before is not None and after is not None and after - before <= _LONGEST_SILENCE
            return (self._begin, self._end) if is_near else None
        first, last = self._inside
        if before is not None and first - before <= _LONGEST_SILENCE:
            first = self._begin
        if after is not None and after - last <= _LONGEST_SILENCE:
            last = self._end
        return max(first, self._begin), min(last, self._end)

    def find_holes(self) -> list[Span]:
        """A day and more between two lines of the week, Unix seconds."""
        touched = [hour for hour, is_touched in enumerate(self._hours, self._first_hour) if is_touched]
        return [
            ((before + 1) * HOUR_SECONDS, after * HOUR_SECONDS)
            for before, after in pairwise(touched)
            if after - before > _LEAST_HOLE_HOURS
        ]
