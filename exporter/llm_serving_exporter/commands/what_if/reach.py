"""How near engines come to their ceilings: what fits step time = bytes / (e_b x bandwidth) + FLOPs / (e_c x peak) over windows of a fleet.

Prefill's FLOPs and decode's have coefficients of their own: on an H100 a third of decode's matrices run beside no read of memory, which is
what stands here where a fleet's batches do not differ enough to tell. A constant time of a step is fitted beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import median

from llm_serving_exporter.derive.planning import replica_ceiling
from llm_serving_exporter.derive.work import Roof, compute_seconds, prefill_flops
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field

# believed before anything is seen, and how far it may be off: seconds for each at the peak of bytes, of prefill's and of decode's
# FLOPs, and seconds of a step. Of the recordings on an H100: e_b 0.7 to 0.8, e_c 0.55 to 0.62, and what tells one phase from another best
_USUAL, _SPREAD = (1.25, 1.7, 0.5, 0.001), (0.5, 0.6, 0.4, 0.001)
# how far a group of like windows lies off its own time: 25 phases on an H100 scatter by less than a tenth
_SCATTER = 0.05
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

    def scaled(self, factors: Sequence[float]) -> tuple[float, ...]:
        """What it takes, part by part: memory, prefill, decode's FLOPs, and what each step takes beside."""
        return self.memory * factors[0], self.prefill * factors[1], self.decode * factors[2], factors[3]


class Reach(Struct, frozen=True):
    """Seconds for each second at the peaks, by part as in `Terms`, and seconds of each step; and over what they were measured."""

    factors: tuple[float, float, float, float] = _USUAL
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
    def capped(self) -> bool:
        """Whether power or heat held the clock down where prefill was measured."""
        return self.prefill.get("clock", (1.0, 1.0))[0] < CAPPED_CLOCK

    def on_another_card(self) -> Reach:
        """The same for another GPU: what was measured under a cap on power stays with its card, and the usual stands instead."""
        if not self.capped:
            return self
        return Reach((self.factors[0], *_USUAL[1:3], self.factors[3]), self.decode, {}, self.windows)


def prompt_seconds(roof: Roof, computed_tokens: float, cached_tokens: float) -> float | None:
    """A prompt's FLOPs at the peak of all ranks; None where the peak is not known."""
    seconds = compute_seconds(roof, prefill_flops(roof, computed_tokens, cached_tokens))
    return None if seconds is None else seconds / roof.parallel.data


def step_terms(roof: Roof, batch: float, context_tokens: float, prefill_seconds: float) -> Terms | None:
    """A step of `batch` sequences, beside prompts that need so long at the peak; None where a peak is not known."""
    if batch <= 0:
        return Terms(0.0, prefill_seconds, 0.0)
    ceiling = replica_ceiling(roof, batch, context_tokens)
    if ceiling is None or not ceiling.compute_tokens_per_second:
        return None
    memory, compute = batch / ceiling.bandwidth_tokens_per_second, batch / ceiling.compute_tokens_per_second
    return Terms(memory, prefill_seconds, compute)


def fit_reach(roof: Roof, windows: Iterable[Window]) -> Reach:
    """What the windows of replicas of one roof show; without any, what is usual, with nothing measured."""
    groups: dict[tuple[int, int], list[tuple[Window, Terms]]] = {}
    for window in windows:
        prompt = prompt_seconds(roof, max(1.0, window.prompt_tokens), window.cached_tokens)
        if prompt is None or window.step_seconds <= 0:
            continue
        prefill = prompt * window.prefill_tokens / max(1.0, window.prompt_tokens)
        terms = step_terms(roof, window.batch, window.context_tokens, prefill)
        if terms is not None and terms.memory + terms.prefill < 2 * window.step_seconds:
            share = terms.prefill / window.step_seconds
            groups.setdefault((round(2 * math.log2(1 + window.batch)), round(5 * share)), []).append((window, terms))
    if not groups:
        return Reach()
    # a moment or two in a week that are like no other are at the edge of what was recorded
    fewest = 3 if max(map(len, groups.values())) >= _MANY_ALIKE else 1
    groups = {key: group for key, group in groups.items() if len(group) >= fewest}
    rows = [_row(group) for group in groups.values()]
    rows += [
        (*(1 / spread if one == place else 0.0 for one in range(4)), usual / spread)
        for place, (usual, spread) in enumerate(zip(_USUAL, _SPREAD, strict=True))
    ]
    factors = _solve_not_negative(rows)
    told: dict[str, list[Window]] = {"decode": [], "prefill": []}
    for group in groups.values():
        for window, terms in group:
            memory, prefill, decode, step = (part / window.step_seconds for part in terms.scaled(factors))
            if memory + decode + step >= _DOMINATES["decode"]:
                told["decode"].append(window)
            if prefill >= _DOMINATES["prefill"]:
                told["prefill"].append(window)
    count = add_up(map(len, groups.values()))
    return Reach(factors, _ranges(told["decode"]), _ranges(told["prefill"]), int(count))


def _row(group: Sequence[tuple[Window, Terms]]) -> tuple[float, ...]:
    """The mean of a group, each part as a share of the step's time; a group of one window says less than one of many."""
    weight = 1 / math.hypot(_SCATTER, 2 * _SCATTER / math.sqrt(len(group)))
    usual = median(window.step_seconds for window, _ in group)
    group = [(window, terms) for window, terms in group if usual / _ODD <= window.step_seconds <= usual * _ODD]
    parts = [(*terms.scaled((1, 1, 1, 1)), window.step_seconds) for window, terms in group]
    means = [add_up(column) / len(parts) for column in zip(*parts, strict=True)]
    return tuple(weight * mean / means[-1] for mean in means)


def _ranges(windows: Sequence[Window]) -> dict[str, tuple[float, float]]:
    found = {}
    for name, of in (("batch", "batch"), ("prompt", "prompt_tokens"), ("cached", "cache_share"), ("clock", "clock")):
        values = [value for value in map(attrgetter(of), windows) if value is not None]
        if values:
            found[name] = (min(values), max(values))
    return found


def _solve_not_negative(rows: Sequence[Sequence[float]]) -> tuple[float, float, float, float]:
    """Least squares with no factor below 0: those that would be are left out, the most negative first."""
    free = list(range(4))
    while True:
        found = dict(zip(free, _solve(rows, free), strict=True))
        worst = min(found, key=lambda place: found[place])
        if found[worst] >= 0:
            first, second, third, fourth = (found.get(place, 0.0) for place in range(4))
            return first, second, third, fourth
        free.remove(worst)


def _solve(rows: Sequence[Sequence[float]], free: Sequence[int]) -> list[float]:
    """Normal equations by elimination; each factor has a row of its own, so that none is singular."""
    matrix = [[add_up(row[one] * row[other] for row in rows) for other in (*free, 4)] for one in free]
    for pivot in range(len(matrix)):
        line = matrix[pivot] = [value / matrix[pivot][pivot] for value in matrix[pivot]]
        for other, row in enumerate(matrix):
            if other != pivot:
                matrix[other] = [value - row[pivot] * known for value, known in zip(row, line, strict=True)]
    return [line[-1] for line in matrix]
