"""How near engines come to their ceilings: what fits step time = bytes / (e_b x bandwidth) + FLOPs / (e_c x peak) over windows of a fleet.

Prefill's FLOPs and decode's have coefficients of their own: on an H100 a third of decode's matrices run beside no read of memory, which is
what stands here where a fleet's batches do not differ enough to tell. A constant time of a step is fitted beside, and how much of the reads
runs at the same time as prompts do: hardly any on an H100, all of them in an engine that keeps to its roofline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, mul
from statistics import median

from llm_serving_exporter.derive.planning import replica_ceiling
from llm_serving_exporter.derive.work import Roof, compute_seconds, prefill_flops, weight_read_bytes
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field

# believed before anything is seen, and how far it may be off: seconds for each at the peak of bytes, of prefill's and of decode's
# FLOPs, seconds of a step, and of reads and prompts in one step the share of the shorter that the longer hides. Of the recordings on an
# H100: e_b 0.7 to 0.8, e_c 0.55 to 0.62, and what tells one phase from another best
_USUAL, _SPREAD = (1.25, 1.7, 0.5, 0.001, 0.0), (0.5, 0.6, 0.4, 0.001, 0.5)
# how far groups of like windows lie off their own time at first, and at least: 25 phases on an H100 scatter by less than a tenth
_SCATTER, _LEAST_SCATTER = 0.05, 0.01
# of one step's prompts, where it computes long ones in parts: vLLM's max_num_batched_tokens where nobody sets it
_PART_TOKENS = 2048.0
_PASSES = 4
# of the time of a group of windows that one of the two must take, so that its efficiency is measured there
_DOMINATES = {"decode": 0.6, "prefill": 0.3}
# like windows, among which one that is alone is an odd one
_MANY_ALIKE = 10
# times as long as its like, or as short: an engine that stood still, or a counter that was born within the window
_ODD = 2.0
# of the card's clock, below which power or heat holds it down (as the limiter's state `power`)
CAPPED_CLOCK = 0.95


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

    @property
    def cache_share(self) -> float:
        """Of a prompt, what the prefix cache had."""
        return self.cached_tokens / max(1.0, self.prompt_tokens + self.cached_tokens)


class Terms(Struct, frozen=True):
    """Seconds that a step needs at the peaks."""

    memory: float
    prefill: float
    decode: float
    prompt_share: float = 0.0  # of steps that have prompts

    def scaled(self, factors: Sequence[float]) -> tuple[float, ...]:
        """What it takes, part by part: memory, prefill, decode's FLOPs, what each step takes beside, and, below 0, what is hidden."""
        memory, prefill = self.memory * factors[0], self.prefill * factors[1]
        hidden = min(memory * self.prompt_share, prefill)
        return memory, prefill, self.decode * factors[2], factors[3], -hidden * factors[4]


Group = Sequence[tuple[Window, Terms]]
Factors = tuple[float, float, float, float, float]


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


def prompt_seconds(roof: Roof, computed_tokens: float, cached_tokens: float) -> float:
    """A prompt's FLOPs at the peak of all ranks. Here and below, the roof lacks no peak (`derive.roof.lacks`)."""
    seconds = compute_seconds(roof, prefill_flops(roof, computed_tokens, cached_tokens))
    assert seconds is not None
    return seconds / roof.parallel.data


def step_terms(
    roof: Roof, batch: float, context_tokens: float, prompts: float = 0.0, computed: float = 1.0, cached: float = 0.0
) -> Terms:
    """A mean step of `batch` sequences beside `prompts`, of each of which so many tokens are computed and cached."""
    prefill = prompts * prompt_seconds(roof, computed, cached)
    if batch <= 0:
        return Terms(0.0, prefill, 0.0)
    ceiling, bandwidth = replica_ceiling(roof, batch, context_tokens), roof.peaks.bandwidth_bytes_per_second
    assert ceiling is not None
    assert ceiling.compute_tokens_per_second
    assert bandwidth
    memory, compute = batch / ceiling.bandwidth_tokens_per_second, batch / ceiling.compute_tokens_per_second
    # they come at random
    share = -math.expm1(-prompts * max(1.0, computed / _PART_TOKENS))
    if share and roof.model.geometry.experts:
        # a prompt touches experts that the batch does not
        beside = prompts * computed / share
        few, many = (
            weight_read_bytes(roof, tokens / roof.parallel.data).expected for tokens in (batch, batch + beside)
        )
        memory += share * (many - few) / (bandwidth * roof.parallel.tensor)
    return Terms(memory, prefill, compute, share)


def fit_reach(roof: Roof, windows: Iterable[Window]) -> Reach:
    """What the windows of replicas of one roof show; without any, what is usual, with nothing measured."""
    groups: dict[tuple[int, int], list[tuple[Window, Terms]]] = {}
    for window in windows:
        computed = max(1.0, window.prompt_tokens)
        prompts = window.prefill_tokens / computed
        terms = step_terms(roof, window.batch, window.context_tokens, prompts, computed, window.cached_tokens)
        # a step of no time, too, is none
        if terms.memory + terms.prefill < 2 * window.step_seconds:
            share = terms.prefill / window.step_seconds
            groups.setdefault((round(2 * math.log2(1 + window.batch)), round(5 * share)), []).append((window, terms))
    if not groups:
        return Reach()
    # a moment or two in a week that are like no other are at the edge of what was recorded
    fewest = 3 if max(map(len, groups.values())) >= _MANY_ALIKE else 1
    groups = {key: group for key, group in groups.items() if len(group) >= fewest}
    factors = _fit_factors(list(groups.values()))
    told: dict[str, list[Window]] = {"decode": [], "prefill": []}
    for group in groups.values():
        for window, terms in group:
            memory, prefill, decode, step, hidden = (part / window.step_seconds for part in terms.scaled(factors))
            if memory + decode + step + hidden >= _DOMINATES["decode"]:
                told["decode"].append(window)
            if prefill >= _DOMINATES["prefill"]:
                told["prefill"].append(window)
    count = add_up(map(len, groups.values()))
    return Reach(factors, _ranges(told["decode"]), _ranges(told["prefill"]), int(count))


def _fit_factors(groups: Sequence[Group]) -> Factors:
    """Of all groups, with what is usual where they do not tell. What is hidden depends on the others, and how far groups scatter is seen
    when they are fitted: so in passes."""
    usual = [
        (*(1 / spread if one == place else 0.0 for one in range(5)), mean / spread)
        for place, (mean, spread) in enumerate(zip(_USUAL, _SPREAD, strict=True))
    ]
    factors, scatter = _USUAL, _SCATTER
    for _ in range(_PASSES):
        means = [_mean(group, factors) for group in groups]
        weights = [1 / math.hypot(scatter, 2 * scatter / math.sqrt(len(group))) for group in groups]
        rows = [tuple(weight * part for part in row) for weight, row in zip(weights, means, strict=True)]
        factors = _solve_bounded([*rows, *usual])
        off = add_up((1 - add_up(map(mul, row, factors))) ** 2 for row in means)
        scatter = max(_LEAST_SCATTER, math.sqrt((_SCATTER**2 + off) / (1 + len(groups))))
    return factors


def _mean(group: Group, factors: Factors) -> tuple[float, ...]:
    """The mean of a group: each part that a factor multiplies as a share of the step's time, and 1."""
    usual = median(window.step_seconds for window, _ in group)
    group = [(window, terms) for window, terms in group if usual / _ODD <= window.step_seconds <= usual * _ODD]
    parts = [
        (*terms.scaled((1, 1, 1, 1, 0))[:4], terms.scaled((*factors[:4], 1))[4], window.step_seconds)
        for window, terms in group
    ]
    means = [add_up(column) / len(parts) for column in zip(*parts, strict=True)]
    return tuple(mean / means[-1] for mean in means)


def _ranges(windows: Sequence[Window]) -> dict[str, tuple[float, float]]:
    found = {}
    for name, of in (("batch", "batch"), ("prompt", "prompt_tokens"), ("cached", "cache_share"), ("clock", "clock")):
        values = [value for value in map(attrgetter(of), windows) if value is not None]
        if values:
            found[name] = (min(values), max(values))
    return found


def _solve_bounded(rows: Sequence[Sequence[float]]) -> Factors:
    """Least squares with no factor below 0, and no more hidden than all: one that would be is held at its bound, the furthest off first."""
    held: dict[int, float] = {}
    while True:
        free = [place for place in range(5) if place not in held]
        solved = dict(zip(free, _solve(rows, free, held), strict=True))
        off = {place: max(-value, value - 1 if place == 4 else -1.0) for place, value in solved.items()}
        worst = max(off, key=lambda place: off[place])
        if off[worst] <= 0:
            first, second, third, fourth, fifth = ({**solved, **held}[place] for place in range(5))
            return first, second, third, fourth, fifth
        held[worst] = 0.0 if solved[worst] < 0 else 1.0


def _solve(rows: Sequence[Sequence[float]], free: Sequence[int], held: Mapping[int, float]) -> list[float]:
    """Normal equations by elimination; each factor has a row of its own, so that none is singular."""
    rows = [(*row[:5], row[5] - add_up(row[place] * value for place, value in held.items())) for row in rows]
    matrix = [[add_up(row[one] * row[other] for row in rows) for other in (*free, 5)] for one in free]
    for pivot in range(len(matrix)):
        line = matrix[pivot] = [value / matrix[pivot][pivot] for value in matrix[pivot]]
        for other, row in enumerate(matrix):
            if other != pivot:
                matrix[other] = [value - row[pivot] * known for value, known in zip(row, line, strict=True)]
    return [line[-1] for line in matrix]
