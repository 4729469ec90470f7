"""What clients ask for, and when: a Poisson stream with lengths and shared prefixes drawn from one seed."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from llm_serving_exporter.model.record import Struct, field

# --- A request and what became of it: the truth that recorded series are compared with.


class Outcome(StrEnum):
    """How a request ended, or that it has not."""

    UNDER_WAY = "under_way"
    FINISHED = "finished"
    ERROR = "error"  # the engine ended it with an error
    REJECTED = "rejected"  # refused at the door: queue full, or larger than the context or the KV cache
    LOST = "lost"  # went down with its replica and was not tried again
    UNROUTED = "unrouted"  # no replica was ready


class Request(Struct, frozen=True):
    """What a client asks for."""

    at_seconds: float  # simulated time
    prompt_tokens: int  # the shared prefix included
    output_tokens: int  # of the answer, the first included
    prefix: str | None = None  # name of a shared beginning; None: a prompt like no other
    prefix_tokens: int = 0  # of the shared beginning
    luck: float = 1.0  # in [0, 1): the request ends in an error where the engine's share of errors is above it
    reason: str = "stop"  # how it finishes: "stop" or "length"

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request has at least one prompt and one output token")
        if self.prefix_tokens >= self.prompt_tokens:
            raise ValueError("a shared prefix is shorter than the prompt: the last prompt token is always its own")


class Quiet(Struct, frozen=True):
    """Nobody asks for anything until that time."""

    at_seconds: float  # simulated time


class Record(Struct):
    """What became of a request; None: it has not happened yet. Seconds are simulated time."""

    request: Request  # as it was asked for
    # at the engine that served it last; later than `request.at_seconds` where it was tried again
    arrived_seconds: float
    replica: str = ""  # that served it last
    first_token_seconds: float | None = None  # of the last try
    ended_seconds: float | None = None  # of the last try
    outcome: Outcome = Outcome.UNDER_WAY  # how it ended
    hit_tokens: int = 0  # found in the prefix cache at the first admission
    generated_tokens: int = 0  # of the last try
    preemptions: int = 0  # of the last try
    tries: int = 1  # how often it was sent to an engine

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token, from arrival at the engine, as the engine measures it."""
        return None if self.first_token_seconds is None else self.first_token_seconds - self.arrived_seconds


# --- Arrival rates over time: a base, the hours of a day, steps and bursts.


DAY_SECONDS = 86_400.0


class Rate(Protocol):
    """Requests/s as a function of simulated seconds."""

    def requests_per_second(self, seconds: float) -> float:
        """The rate then."""
        ...

    @property
    def highest(self) -> float:
        """No rate is above it."""
        ...


class Daily(Struct, frozen=True):
    """A sine over the day around 1, and another level at the weekend."""

    amplitude: float = 0.0  # 0-1
    peak_hour: float = 14.0
    weekend: float = 1.0  # factor on Saturday and Sunday
    begins_seconds: float = 0.0  # from Monday 0:00 to the beginning of simulated time

    def factor(self, seconds: float) -> float:
        """What the base rate is multiplied with then."""
        day, hour = divmod((seconds + self.begins_seconds) / 3600.0, 24.0)
        wave = 1.0 + self.amplitude * math.cos(2 * math.pi * (hour - self.peak_hour) / 24.0)
        return wave * (self.weekend if int(day) % 7 >= 5 else 1.0)


class Step(Struct, frozen=True):
    """From a time on, until the next step, the rate has a factor."""

    at_seconds: float  # of the scenario
    factor: float  # of the rate


class Burst(Struct, frozen=True):
    """For a while the rate has a factor."""

    at_seconds: float  # of the scenario
    for_seconds: float  # how long
    factor: float  # of the rate
    every_seconds: float | None = None  # how often it repeats; None: once

    def holds(self, seconds: float) -> bool:
        """Whether it is on then."""
        since = seconds - self.at_seconds
        if since < 0:
            return False
        return (since if self.every_seconds is None else since % self.every_seconds) < self.for_seconds


class Profile(Struct, frozen=True):
    """base x day x step x bursts, in requests/s."""

    base: float  # requests/s
    daily: Daily = field(default_factory=Daily)  # the day's course
    steps: tuple[Step, ...] = ()  # in order of time
    bursts: tuple[Burst, ...] = ()  # those under way multiply

    def requests_per_second(self, seconds: float) -> float:
        """The rate then."""
        rate = self.base * self.daily.factor(seconds)
        stepped = 1.0
        for step in self.steps:
            if step.at_seconds > seconds:
                break
            stepped = step.factor
        for burst in self.bursts:
            if burst.holds(seconds):
                rate *= burst.factor
        return rate * stepped

    @property
    def highest(self) -> float:
        """No rate is above it."""
        # before the first step the factor is 1
        rate = self.base * (1.0 + self.daily.amplitude) * max(1.0, self.daily.weekend)
        rate *= max((1.0, *(step.factor for step in self.steps)))
        for burst in self.bursts:
            rate *= max(1.0, burst.factor)
        return rate


# --- The stream of requests


_MOST_THINNED = 100


class Lengths(Struct, frozen=True):
    """Tokens of prompts or answers: lognormal, with a tail from a Pareto distribution."""

    median: float  # tokens, of the lognormal distribution
    sigma: float = 0.6  # of its logarithm
    least: int = 1  # tokens; shorter ones are lengthened to it
    most: int = 16384  # tokens; longer ones are cut to it
    tail_share: float = 0.0  # of requests from the Pareto distribution
    tail_from: float = 4096.0  # tokens at which it begins
    tail_alpha: float = 1.5  # exponent with which it falls

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError("lengths need 1 <= least <= most")
        if self.median <= 0 or self.sigma < 0 or self.tail_from <= 0 or self.tail_alpha <= 0:
            raise ValueError("median, tail_from and tail_alpha must be above 0, sigma not below")

    def draw(self, rng: random.Random) -> int:
        """One length. Takes the same number of draws whatever comes of them."""
        which, body, tail = rng.random(), rng.gauss(0.0, 1.0), rng.random()
        if which < self.tail_share:
            length = self.tail_from * (1.0 - tail) ** (-1.0 / self.tail_alpha)
        else:
            length = self.median * math.exp(self.sigma * body)
        return int(min(max(length, self.least), self.most))


class Prefixes(Struct, frozen=True):
    """A share of requests begins with one of a few prefixes."""

    share: float = 0.0  # of requests
    count: int = 1  # of prefixes
    tokens: int = 0  # of each prefix
    zipf: float = 1.0  # the n-th prefix is used as often as 1 / n^zipf


class Mix(Struct, frozen=True):
    """What requests are like from a time on. A prompt is its prefix and tokens of its own."""

    prompt: Lengths  # own tokens of a prompt
    output: Lengths  # tokens of an answer
    prefixes: Prefixes = field(default_factory=Prefixes)  # shared beginnings
    from_seconds: float = 0.0  # of the scenario


class PoissonWorkload:
    """A Poisson stream of `rate`, of requests as the mix of the moment has them (`mixes` in order of their times).

    Arrivals are thinned out of a stream at the highest rate, and each request is drawn from numbers of its own, so that a change of the
    rate at one time leaves everything before it as it was.
    """

    def __init__(self, rate: Rate, mixes: Sequence[Mix], seed: int) -> None:
        if not mixes:
            raise ValueError("a workload needs a mix")
        self.rate, self.mixes, self.seed = rate, tuple(mixes), seed
        self._begins = [mix.from_seconds for mix in self.mixes]
        self._cumulative = [list(accumulate(_zipf(mix.prefixes))) for mix in self.mixes]

    def requests(self) -> Iterator[Request | Quiet]:
        """Requests in order of time, without end unless the highest rate is 0. While the rate is low for long, or for ever, it says so:
        whoever looks for the next request must not look without end."""
        # the second is seeded for each request: a new one would be seeded twice
        rng, own = random.Random(f"{self.seed}/arrivals"), random.Random()
        highest, at, thinned = self.rate.highest, 0.0, 0
        while highest > 0:
            at += rng.expovariate(highest)
            thinned += 1
            if rng.random() * highest < self.rate.requests_per_second(at):
                own.seed(rng.getrandbits(64))
                yield self._request(at, own)
                thinned = 0
            elif thinned >= _MOST_THINNED:
                yield Quiet(at)
                thinned = 0

    def _request(self, at: float, rng: random.Random) -> Request:
        index = max(0, bisect_right(self._begins, at) - 1)
        mix = self.mixes[index]
        output, tail = mix.output.draw(rng), mix.prompt.draw(rng)
        luck, shares, which = rng.random(), rng.random(), rng.random()
        prefix, head = None, 0
        if shares < mix.prefixes.share and mix.prefixes.tokens:
            weights = self._cumulative[index]
            # named by its length too: one that is longer from some time on is another one
            prefix = f"{mix.prefixes.tokens}-{bisect_right(weights, which * weights[-1])}"
            head = mix.prefixes.tokens
        reason = "length" if output == mix.output.most else "stop"
        return Request(at, head + tail, output, prefix, head, luck, reason)


def _zipf(prefixes: Prefixes) -> list[float]:
    return [1.0 / (rank**prefixes.zipf) for rank in range(1, prefixes.count + 1)]
