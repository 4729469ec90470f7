"""How near engines come to their ceilings: what fits step time = bytes / (e_b x bandwidth) + FLOPs / (e_c x peak) over windows of a fleet.

Prefill's FLOPs and decode's have coefficients of their own: on an H100 a third of decode's matrices run beside no read of memory, which is
what stands here where a fleet's batches do not differ enough to tell. A constant time of a step is fitted beside, and how much of the reads
runs at the same time as prompts do: hardly any on an H100, all of them in an engine that keeps to its roofline. What tells the two apart is
how long a prompt takes from the queue to its first token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, mul
from statistics import median

from llm_serving_exporter.derive.planning import replica_ceiling
from llm_serving_exporter.derive.work import Roof, compute_seconds, prefill_flops, weight_read_bytes
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, name_fields

# believed before anything is seen, and how far it may be off: seconds for each at the peak of bytes, of prefill's and of decode's
# FLOPs, seconds of a step, and of reads and prompts in one step the share of the shorter that the longer hides. Of the recordings on an
# H100: e_b 0.7 to 0.8, e_c 0.55 to 0.62, and what tells one phase from another best
_USUAL, _SPREAD = (1.25, 1.7, 0.5, 0.001, 0.0), (0.3, 0.3, 0.3, 0.001, 1.0)
# the best kernels reach 95 % of the bandwidth and 87 % of the FLOP/s (docs/accuracy.md), and no more than all is hidden
_LEAST, _MOST = (1.05, 1.15, 0.0, 0.0, 0.0), (math.inf, math.inf, math.inf, math.inf, 1.0)
# how far groups of like windows lie off their own time at first, and at least: 25 phases on an H100 scatter by less than a tenth
_SCATTER, _LEAST_SCATTER = 0.05, 0.01
# of one step's prompts, where it computes long ones in parts: vLLM's max_num_batched_tokens where nobody sets it
PART_TOKENS = 2048.0
_PASSES, _ROUNDS = 12, 200
# of the time of a group of windows that one of the two must take, so that its efficiency is measured there
_DOMINATES = {"decode": 0.6, "prefill": 0.3}
# like windows, among which one that is alone is an odd one
_MANY_ALIKE = 10
# times as long as its like, or as short: an engine that stood still, or a counter that was born within the window
_ODD = 2.0
# of the card's clock, below which power or heat holds it down (as the limiter's state `power`)
CAPPED_CLOCK = 0.95
# of each factor, over which a slope is taken
_SLOPE = 1e-6
Factors = tuple[float, float, float, float, float]


class Window(Struct, frozen=True):
    """Some minutes of one replica, as a mean engine step in them."""

    step_seconds: float
    # sequences that decode in it, of all ranks; 0: none did
    batch: float
    context_tokens: float
    # prompt tokens computed in a step, and of one prompt what is computed and what the prefix cache has
    prefill_tokens: float
    prompt_tokens: float
    cached_tokens: float = 0.0
    # of the card's highest; None: not known
    clock: float | None = None
    # of a prompt, from the queue to its first token; None: not known
    first_token_seconds: float | None = None

    @property
    def cache_share(self) -> float:
        """Of a prompt, what the prefix cache had."""
        return self.cached_tokens / max(1.0, self.prompt_tokens + self.cached_tokens)


class Terms(Struct, frozen=True):
    """Seconds that steps need at the peaks."""

    memory: float
    prefill: float
    decode: float
    # of the two, in steps that have prompts
    memory_beside_prompts: float = 0.0
    decode_beside_prompts: float = 0.0
    steps: float = 1.0

    def scaled(self, factors: Sequence[float]) -> tuple[float, ...]:
        """What it takes, part by part: memory, prefill, decode's FLOPs, what each step takes beside, and, below 0, what is hidden."""
        prefill, all_decode = self.prefill * factors[1], self.decode_beside_prompts * factors[1]
        # beside prompts, whose FLOPs hide reads, reads hide no FLOPs of decode
        hidden = min(self.memory_beside_prompts * factors[0], prefill + all_decode)
        hidden -= max(0.0, all_decode - self.decode_beside_prompts * factors[2])
        return (
            self.memory * factors[0],
            prefill,
            self.decode * factors[2],
            self.steps * factors[3],
            -max(0.0, hidden) * factors[4],
        )


_fields = attrgetter(*name_fields(Terms))


class Reach(Struct, frozen=True):
    """Seconds for each second at the peaks, by part as in `Terms`, and seconds of each step; and over what they were measured."""

    factors: Factors = _USUAL
    # least and most of batch, prompt, cached share and clock, of the windows of each phase that tell of it; {}: none do, it is assumed
    decode: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prefill: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    windows: int = 0

    @property
    def bandwidth_efficiency(self) -> float:
        """e_b."""
        return 1 / self.factors[0]

    @property
    def compute_efficiency(self) -> float:
        """e_c."""
        return 1 / self.factors[1]

    @property
    def batches(self) -> tuple[float, float]:
        """Least and most that a step was measured at, in whichever phase."""
        ranges = [ranges["batch"] for ranges in (self.decode, self.prefill) if "batch" in ranges]
        return min((least for least, _ in ranges), default=0.0), max((most for _, most in ranges), default=math.inf)

    @property
    def capped(self) -> bool:
        """Whether power or heat held the clock down where prefill was measured."""
        return self.prefill.get("clock", (1.0, 1.0))[0] < CAPPED_CLOCK

    def on_another_card(self) -> Reach:
        """The same for another GPU: what was measured under a cap on power stays with its card, and the usual stands instead."""
        if not self.capped:
            return self
        return Reach((self.factors[0], *_USUAL[1:3], *self.factors[3:]), self.decode, {}, self.windows)


def step_terms(
    roof: Roof,
    batch: float,
    context_tokens: float,
    prompts: float = 0.0,
    computed: float = 1.0,
    cached: float = 0.0,
    steps: float | None = None,
) -> Terms:
    """A mean step of `batch` sequences beside `prompts`, of each of which so many tokens are computed and cached; `steps`: all of the steps
    that these prompts are spread over, each with a part of them. The roof lacks no peak (`derive.roof.lacks`)."""
    prompt = compute_seconds(roof, prefill_flops(roof, computed, cached))
    assert prompt is not None
    prefill = prompts * prompt / roof.parallel.data
    if batch <= 0:
        return Terms(0.0, prefill, 0.0)
    ceiling, bandwidth = replica_ceiling(roof, batch, context_tokens), roof.peaks.bandwidth_bytes_per_second
    assert ceiling is not None
    assert ceiling.compute_tokens_per_second
    assert bandwidth
    memory, compute = batch / ceiling.bandwidth_tokens_per_second, batch / ceiling.compute_tokens_per_second
    # they come at random
    share, count = (-math.expm1(-prompts * _parts(computed)), 1.0) if steps is None else (1.0, steps)
    beside = memory
    if share and roof.model.geometry.experts:
        # a prompt touches experts that the batch does not
        few, many = (
            weight_read_bytes(roof, tokens / roof.parallel.data).expected
            for tokens in (batch, batch + prompts * computed / (share * count))
        )
        beside += (many - few) / (bandwidth * roof.parallel.tensor)
    memory += share * (beside - memory)
    return Terms(count * memory, prefill, count * compute, count * share * beside, count * share * compute, count)


def _parts(computed: float) -> float:
    """Steps that a prompt is computed in; the last has half a part on average."""
    return max(1.0, computed / PART_TOKENS + 0.5)


def fit_reach(roof: Roof, windows: Iterable[Window]) -> Reach:
    """What the windows of replicas of one roof show; without any, what is usual, with nothing measured."""
    groups: dict[tuple[int, int], list[tuple[Window, Terms, Terms]]] = {}
    for window in windows:
        batch, context, computed = window.batch, window.context_tokens, max(1.0, window.prompt_tokens)
        prompts, cached, parts = window.prefill_tokens / computed, window.cached_tokens, _parts(computed)
        terms = step_terms(roof, batch, context, prompts, computed, cached)
        # a step of no time, too, is none
        if terms.memory + terms.prefill < 2 * window.step_seconds:
            key = round(2 * math.log2(1 + batch)), round(5 * terms.prefill / window.step_seconds)
            # beside a prompt are those that came while its steps took place
            first = step_terms(roof, batch, context, 1 + prompts * parts, computed, cached, parts)
            groups.setdefault(key, []).append((window, terms, first))
    # a moment or two in a week that are like no other are at the edge of what was recorded
    fewest = 3 if max(map(len, groups.values()), default=0) >= _MANY_ALIKE else 1
    kept = [group for group in groups.values() if len(group) >= fewest]
    if not kept:
        return Reach()
    steps = [[(window.step_seconds, terms) for window, terms, _ in group] for group in kept]
    firsts = [
        [(seconds, first) for window, _, first in group if (seconds := window.first_token_seconds)] for group in kept
    ]
    firsts = [group for group in firsts if len(group) >= fewest]
    factors = _fit_factors(steps)
    # a first token takes its steps, and on a real server more: it tells of them where they are said to take longer
    if add_up(add_up(_mean(group).scaled(factors)) - 1 for group in firsts) > 0:
        factors = _fit_factors([*steps, *firsts])
    tell: dict[str, list[Window]] = {"decode": [], "prefill": []}
    for window, terms, _ in (one for group in kept for one in group):
        memory, prefill, decode, beside, hidden = terms.scaled(factors)
        for phase, seconds in (("decode", memory + decode + beside + hidden), ("prefill", prefill)):
            if seconds >= _DOMINATES[phase] * window.step_seconds:
                tell[phase].append(window)
    return Reach(factors, _ranges(tell["decode"]), _ranges(tell["prefill"]), sum(map(len, kept)))


# seconds that were seen, and what they are made of
_Group = Sequence[tuple[float, Terms]]


def _fit_factors(groups: Sequence[_Group]) -> Factors:
    """Of all groups, with what is usual where they do not tell. What is hidden depends on the others, and how far groups scatter is seen
    when they are fitted: so in passes."""
    usual = [
        [*(float(one == place) / spread for one in range(5)), mean / spread]
        for place, (mean, spread) in enumerate(zip(_USUAL, _SPREAD, strict=True))
    ]
    # an engine whose reads hide behind prompts hides decode's FLOPs behind reads
    usual[2][4] = _USUAL[2] / _SPREAD[2]
    means = [(_mean(group), 1 / math.hypot(1, 2 / math.sqrt(len(group)))) for group in groups]
    factors, scatter = _USUAL, _SCATTER
    for _ in range(_PASSES):
        rows = [[weight / scatter * part for part in _linearise(terms, factors)] for terms, weight in means]
        factors = _solve_bounded([*rows, *usual], factors)
        off = add_up((1 - add_up(terms.scaled(factors))) ** 2 for terms, _ in means)
        scatter = max(_LEAST_SCATTER, math.sqrt((_SCATTER**2 + off) / (1 + len(means))))
    return factors


def _mean(group: _Group) -> Terms:
    """The mean of a group, as a share of the time that was seen."""
    usual = median(seconds for seconds, _ in group)
    group = [(seconds, terms) for seconds, terms in group if usual / _ODD <= seconds <= usual * _ODD]
    seen = add_up(seconds for seconds, _ in group)
    return Terms(*(add_up(column) / seen for column in zip(*(_fields(terms) for _, terms in group), strict=True)))


def _linearise(terms: Terms, factors: Factors) -> list[float]:
    """What each factor more adds near these, and what they are to add up to."""
    now = add_up(terms.scaled(factors))
    slopes = [
        (add_up(terms.scaled([value + _SLOPE * (one == place) for one, value in enumerate(factors)])) - now) / _SLOPE
        for place in range(5)
    ]
    return [*slopes, 1 - now + add_up(map(mul, slopes, factors))]


def _ranges(windows: Sequence[Window]) -> dict[str, tuple[float, float]]:
    found = {}
    for name, of in (("batch", "batch"), ("prompt", "prompt_tokens"), ("cached", "cache_share"), ("clock", "clock")):
        values = [value for value in map(attrgetter(of), windows) if value is not None]
        if values:
            found[name] = (min(values), max(values))
    return found


def _solve_bounded(rows: Sequence[Sequence[float]], factors: Factors) -> Factors:
    """Least squares within bounds from those factors on, one after the other; each has a row of its own, so that none is free."""
    matrix = [[add_up(row[one] * row[other] for row in rows) for other in range(6)] for one in range(5)]
    values = list(factors)
    for _ in range(_ROUNDS):
        for place, line in enumerate(matrix):
            rest = line[5] - add_up(map(mul, line, values)) + line[place] * values[place]
            values[place] = min(max(_LEAST[place], rest / line[place]), _MOST[place])
    first, second, third, fourth, fifth = values
    return first, second, third, fourth, fifth
