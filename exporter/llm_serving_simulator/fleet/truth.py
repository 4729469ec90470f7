"""What really happened in a fleet: its own counts over an interval."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.books import Counts
from llm_serving_simulator.fleet.request import Record

# a mark each so many seconds, kept for so long: intervals are told to that precision
MARK_SECONDS = 10.0
_KEPT_MARKS = 100_000
_KEPT_RECORDS = 200_000


class Truth(Struct, frozen=True):
    """A fleet's counts between two marks of simulated time."""

    begin_seconds: float  # the first mark
    end_seconds: float  # the second mark
    counts: Counts  # of all replicas, those that are gone included
    arrived: int  # requests
    lost: int  # requests that went down with a replica and were not tried again
    retried: int  # requests that went down with a replica and were tried again
    unrouted: int  # requests that found no replica ready
    peak_waiting: int  # most requests that waited at a time
    ttft_seconds: tuple[float, ...]  # of each first token in the interval, ascending

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were computed once: booked with the first token, as engines do, without those from the prefix cache."""
        return self.counts.prompt_tokens - self.counts.prompt_hit_tokens

    @property
    def decode_tokens(self) -> int:
        """Generated tokens, the first of each answer included."""
        return self.counts.generated_tokens

    def ttft_quantile_seconds(self, quantile: float) -> float | None:
        """The quantile of the samples themselves (nearest rank); None without one."""
        if not self.ttft_seconds:
            return None
        return self.ttft_seconds[min(len(self.ttft_seconds) - 1, int(quantile * len(self.ttft_seconds)))]


class Totals(Struct):
    """Counts since the beginning."""

    counts: Counts  # of all replicas
    arrived: int = 0  # requests
    lost: int = 0  # requests
    retried: int = 0  # requests
    unrouted: int = 0  # requests


class Ledger:
    """Marks of the totals, and what became of requests. Bounded: the oldest are forgotten."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Totals, int]] = deque(maxlen=_KEPT_MARKS)
        self._ttft: deque[tuple[float, float]] = deque(maxlen=_KEPT_RECORDS)
        self.records: deque[Record] = deque(maxlen=_KEPT_RECORDS)
        self._peak = 0

    def waiting(self, requests: int) -> None:
        """So many wait now."""
        self._peak = max(self._peak, requests)

    def first_token(self, record: Record) -> None:
        """A request has its first token."""
        assert record.first_token_seconds is not None
        assert record.ttft_seconds is not None
        self._ttft.append((record.first_token_seconds, record.ttft_seconds))

    def mark(self, at_seconds: float, totals: Totals) -> None:
        """Keeps the totals of a time."""
        self._marks.append((at_seconds, totals, self._peak))
        self._peak = 0

    def truth_between(self, begin_seconds: float, end_seconds: float) -> Truth:
        """The truth between the last marks at or before both times. Raises ValueError where nothing was marked by then."""
        marks = list(self._marks)
        times = [at for at, _, _ in marks]
        first, last = bisect_right(times, begin_seconds) - 1, bisect_right(times, end_seconds) - 1
        if first < 0 or last < 0:
            raise ValueError(f"nothing is known of {begin_seconds:g} s to {end_seconds:g} s")
        begin, earlier, _ = marks[first]
        end, later, _ = marks[last]
        return Truth(
            begin,
            end,
            later.counts - earlier.counts,
            later.arrived - earlier.arrived,
            later.lost - earlier.lost,
            later.retried - earlier.retried,
            later.unrouted - earlier.unrouted,
            max((peak for _, _, peak in marks[first + 1 : last + 1]), default=0),
            tuple(sorted(value for at, value in self._ttft if begin < at <= end)),
        )
