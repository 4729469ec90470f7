"""What an engine counts over its life. Pages of both runtimes are written from it; each counts some things at another moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from operator import add, attrgetter, sub

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, name_fields
from llm_serving_simulator.fleet.spec import Edges
from llm_serving_simulator.fleet.workload import Outcome, Record

# --- A histogram as engines keep it: counts by bucket, sum, count.


class Tally:
    """`edges`: upper bounds, ascending, without +Inf. `counts` has one more, not cumulative. `total` is the sum of what was observed."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Observations."""
        return add_up(self.counts)

    def bucket(self, value: float) -> int:
        """Where a value falls: the first bucket whose bound is not below it."""
        return bisect_left(self.edges, value)

    def observe(self, value: float, times: int = 1) -> None:
        """Books `value`, `times` times."""
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times


# --- What an engine counts over its life


class Counts(Struct):
    """Counters, all from 0 at the engine's start. The simulated truth that exporters are compared with."""

    submitted: int = 0  # requests that reached the engine
    admitted: int = 0  # requests admitted for the first time
    first_tokens: int = 0  # requests whose first token came
    prompt_tokens: int = 0  # as sent; booked once a request, with its first token
    prompt_hit_tokens: int = 0  # those of them that came from the prefix cache
    prefill_pass_tokens: int = 0  # computed in prefill, recomputation after a preemption included
    generated_tokens: int = 0  # every token, the first included; booked as generated
    decode_pass_tokens: int = 0  # those of them that came from decode steps, not from the end of a prefill
    queried_tokens: int = 0  # looked up in the prefix cache; booked at the first admission
    hit_tokens: int = 0  # found there; likewise
    finished_stop: int = 0  # requests
    finished_length: int = 0  # requests
    finished_error: int = 0  # requests
    finished_prompt_tokens: int = 0  # of finished requests, as sent
    finished_hit_tokens: int = 0  # of finished requests, from the prefix cache
    finished_generated_tokens: int = 0  # of finished requests
    rejected_queue: int = 0  # requests rejected because the queue was full
    rejected_size: int = 0  # requests rejected because they could never fit
    preemptions: int = 0  # requests whose KV blocks were taken away
    prefill_passes: int = 0  # steps with prompts in them
    decode_passes: int = 0  # steps that only decode
    busy_seconds: float = 0.0  # of steps
    moved_bytes: float = 0.0  # from and to HBM, all GPUs of the engine together
    compute_seconds: float = 0.0  # at the dense peak of one pipeline stage's GPUs, all GPUs of the engine together

    @property
    def finished(self) -> int:
        """Requests that ended, with an error or without."""
        return self.finished_stop + self.finished_length + self.finished_error

    @property
    def rejected(self) -> int:
        """Requests that were refused."""
        return self.rejected_queue + self.rejected_size

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, _values(self), _values(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, _values(self), _values(other)))


_values = attrgetter(*name_fields(Counts))


class Books:
    """`counts` and histograms of one engine life. Time in the queue twice: `queue` as requests end, `queued` as they leave it."""

    __slots__ = (
        "computed", "counts", "decode", "e2e", "generation", "inference", "iteration", "itl", "preempted", "prefill", "prompt", "queue",
        "queued", "tpot", "ttft",
    )  # fmt: skip

    def __init__(self, edges: Edges) -> None:
        self.counts = Counts()
        self.ttft = Tally(edges.ttft)
        self.itl = Tally(edges.itl)
        self.tpot = Tally(edges.tpot)
        self.e2e = Tally(edges.e2e)
        self.queue = Tally(edges.queue)
        self.queued = Tally(edges.queue)
        self.prefill = Tally(edges.phase)
        self.decode = Tally(edges.phase)
        self.inference = Tally(edges.phase)
        self.prompt = Tally(edges.prompt)
        self.computed = Tally(edges.prompt)
        self.generation = Tally(edges.generation)
        self.iteration = Tally(edges.iteration)
        self.preempted = Tally(edges.preemptions)

    def first_token(self, record: Record) -> int:
        """A request's first token; the prompt tokens that were computed for it."""
        counts, request, latency = self.counts, record.request, record.ttft_seconds
        assert latency is not None
        counts.first_tokens += 1
        counts.prompt_tokens += request.prompt_tokens
        counts.prompt_hit_tokens += record.hit_tokens
        self.ttft.observe(latency)
        return request.prompt_tokens - record.hit_tokens

    def finished(self, record: Record, scheduled_seconds: float) -> None:
        """A request has its last token; it was admitted first at `scheduled_seconds`."""
        counts, request, generated = self.counts, record.request, record.generated_tokens
        at, first = record.ended_seconds, record.first_token_seconds
        assert at is not None
        assert first is not None
        if record.outcome is Outcome.ERROR:
            counts.finished_error += 1
        elif request.reason == "length":
            counts.finished_length += 1
        else:
            counts.finished_stop += 1
        counts.finished_prompt_tokens += request.prompt_tokens
        counts.finished_hit_tokens += record.hit_tokens
        counts.finished_generated_tokens += generated
        self.e2e.observe(at - record.arrived_seconds)
        self.queue.observe(scheduled_seconds - record.arrived_seconds)
        self.prefill.observe(first - scheduled_seconds)
        self.decode.observe(at - first)
        self.inference.observe(at - scheduled_seconds)
        self.tpot.observe((at - first) / (generated - 1) if generated > 1 else 0.0)
        self.prompt.observe(request.prompt_tokens)
        self.computed.observe(request.prompt_tokens - record.hit_tokens)
        self.generation.observe(generated)
        self.preempted.observe(record.preemptions)

    def passes(self, batch: int, micro_batches: int, steps: int) -> None:
        """Decode steps; each micro-batch is a pass through the model of its own."""
        self.counts.decode_passes += micro_batches * steps
        each, more = divmod(batch, micro_batches)
        self.iteration.observe(each, (micro_batches - more) * steps)
        if more:
            self.iteration.observe(each + 1, more * steps)


# --- What really happened in a fleet: its own counts over an interval.


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
