"""What clients ask for, and when: a Poisson stream with lengths and shared prefixes drawn from one seed, or a trace."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.sim.fleet.rate import Rate
from llm_serving_exporter.sim.fleet.request import Quiet, Request

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
        output, own = mix.output.draw(rng), mix.prompt.draw(rng)
        luck, shares, which = rng.random(), rng.random(), rng.random()
        prefix, head = None, 0
        if shares < mix.prefixes.share and mix.prefixes.tokens:
            weights = self._cumulative[index]
            # named by its length too: one that is longer from some time on is another one
            prefix = f"{mix.prefixes.tokens}-{bisect_right(weights, which * weights[-1])}"
            head = mix.prefixes.tokens
        reason = "length" if output == mix.output.most else "stop"
        return Request(at, head + own, output, prefix, head, luck, reason)


class TraceWorkload:
    """Requests as they were seen elsewhere, in order of their times."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = sorted(requests, key=lambda request: request.at_seconds)

    def requests(self) -> Iterator[Request]:
        """All of them."""
        return iter(self._requests)


def _zipf(prefixes: Prefixes) -> list[float]:
    return [1.0 / (rank**prefixes.zipf) for rank in range(1, prefixes.count + 1)]
