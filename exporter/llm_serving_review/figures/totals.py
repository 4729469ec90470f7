"""A week's usage -> totals over all owners or some, and unit costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import fsum

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.render.numbers import percent
from llm_serving_review.evidence.usage import Line, Owner, Usage
from llm_serving_review.figures.counted_once import Counting, find_counting
from llm_serving_review.figures.formulas import allocated, ratio, usd_per_million
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known

PHASES = ("prefill", "decode", "idle", "down", "unattributed")
STATES = ("busy", "idle", "down", "unknown")
TOKEN_PHASES = ("prefill", "decode")
_JOULES_PER_KWH = 3.6e6

# of the spend: where less is not counted, nothing is said of it
_LEAST_UNCOUNTED = 0.005

Chosen = Callable[[Owner], bool]


class Counted(Struct, frozen=True):
    """Both sides of a unit cost: GPU time and tokens of the same engines. None: nothing was counted, which is not 0."""

    usd: float | None  # GPU time
    prompt_tokens: float | None  # as clients sent them, cached ones included
    cached_tokens: float | None  # that the prefix cache had
    decode_tokens: float | None


class Totals(Struct, frozen=True):
    """Sums over a week. None: nothing was counted, which is not 0."""

    usd: float | None = None  # GPU time
    usd_by_phase: Mapping[str, float] = field(default_factory=dict)  # GPU time by phase
    gpu_hours: float | None = None  # in all states
    gpu_hours_by_state: Mapping[str, float] = field(default_factory=dict)  # busy, idle, down, unknown
    unpriced_gpu_hours: float = 0.0  # part of `gpu_hours` that is in no cost
    prefill_tokens: float | None = None  # prompt tokens that were computed
    decode_tokens: float | None = None
    prompt_tokens: float | None = None  # prompt tokens as clients sent them, cached ones included
    cached_tokens: float | None = None  # prompt tokens that the prefix cache had
    requests: float | None = None
    energy_kwh: float | None = None  # energy of the GPUs
    energy_usd: float | None = None  # electricity that the GPU rates do not include
    carbon_kg: float | None = None  # kilograms of CO2 equivalent
    savings_usd: float | None = None  # GPU time that the prefix cache saved
    # by phase, with idle and down time borne by the tokens of the same target
    allocated_usd: Mapping[str, float] = field(default_factory=dict)
    tokenless_usd: float = (
        0.0  # cost that no token bears, because its target did neither phase, or counts no tokens of it
    )
    counted: Counted | None = (
        None  # of engines whose tokens, prompt as sent and generated, are counted; None where that is all of them
    )
    # `usd_by_phase` of engines whose tokens of that phase are counted; None where that is all of them
    counted_usd_by_phase: Mapping[str, float] | None = None
    requests_usd: float | None = None  # `usd` of engines whose requests are counted; None where that is all of them
    cacheable_tokens: float | None = (
        None  # `prompt_tokens` of engines whose cached ones are counted; None where that is all of them
    )

    @property
    def all_usd(self) -> float | None:
        """GPU time and electricity."""
        return sum_known((self.usd, self.energy_usd))

    @property
    def of_tokens(self) -> Counted:
        """Both sides of what a token costs."""
        return self.counted or Counted(self.usd, self.prompt_tokens, self.cached_tokens, self.decode_tokens)

    @property
    def tokens(self) -> float | None:
        """Prompt as sent and generated, of engines that count both; None where none does."""
        counted = self.of_tokens
        if counted.prompt_tokens is None or counted.decode_tokens is None:
            return None
        return counted.prompt_tokens + counted.decode_tokens

    @property
    def tokens_share(self) -> float | None:
        """Share of the spend whose tokens are counted: the others' money is in no unit cost."""
        return ratio(self.of_tokens.usd, self.usd)

    @property
    def requests_share(self) -> float | None:
        """Share of the spend whose requests are counted."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.usd)

    def phase_tokens(self, phase: str) -> float | None:
        """Tokens computed (prefill) or generated (decode)."""
        return self.prefill_tokens if phase == "prefill" else self.decode_tokens

    def busy_usd_per_million(self, phase: str) -> float | None:
        """Of the phase's own GPU time, of engines that count its tokens."""
        of = self.usd_by_phase if self.counted_usd_by_phase is None else self.counted_usd_by_phase
        return usd_per_million(of.get(phase), self.phase_tokens(phase))

    def allocated_usd_per_million(self, phase: str) -> float | None:
        """With idle and down time borne by the tokens."""
        return usd_per_million(self.allocated_usd.get(phase), self.phase_tokens(phase))

    @property
    def blended_usd_per_million(self) -> float | None:
        """All GPU cost of engines whose tokens are counted, over these."""
        return usd_per_million(self.of_tokens.usd, self.tokens)

    @property
    def usd_per_request(self) -> float | None:
        """All GPU cost of engines whose requests are counted, over these, whatever the reason of their end."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.requests)

    @property
    def usd_per_thousand_requests(self) -> float | None:
        """The same of a thousand."""
        return None if self.usd_per_request is None else 1000 * self.usd_per_request

    @property
    def tokens_per_usd(self) -> float | None:
        """All tokens over all GPU cost of engines that count them."""
        return ratio(self.tokens, self.of_tokens.usd)

    def share(self, phase: str) -> float | None:
        """A phase's share of the cost."""
        return ratio(self.usd_by_phase.get(phase, 0.0), self.usd)

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over prompt tokens as sent, of engines that count both."""
        return ratio(self.cached_tokens, self.prompt_tokens if self.cacheable_tokens is None else self.cacheable_tokens)


def say_counted(share: float | None, what: str = "tokens") -> str:
    """Of how much of the spend a unit cost is: `of the 12 % of the spend whose tokens are counted`; "" where it is of all of it."""
    if share is None or share >= 1 - _LEAST_UNCOUNTED:
        return ""
    return f"of the {percent(share, 0)} of the spend whose {what} are counted"


def sum_usage(usage: Usage, chosen: Chosen = lambda owner: True, counting: Counting | None = None) -> Totals:
    """Totals over the owners that `chosen` accepts. `counting`: of this usage, None to find it for fleets without identity labels."""
    counts = counting or find_counting(usage)

    def one(lines: Iterable[Line], of: Collection[Owner] | None = None) -> float | None:
        return sum_known(line.total for line in lines if chosen(line.owner) and (of is None or line.owner in of))

    def each(lines: Iterable[Line]) -> dict[str, float]:
        return sum_by_key((line.of[0], line.total) for line in lines if chosen(line.owner))

    cost = [line for line in usage.cost if chosen(line.owner)]

    def narrow(owners: frozenset[Owner], *summed: Iterable[Line]) -> frozenset[Owner] | None:
        """None where that is all of them."""
        every = all(line.owner in owners for lines in (cost, *summed) for line in lines if chosen(line.owner))
        return None if every else owners

    hours_by_state = {state: seconds / 3600 for state, seconds in each(usage.gpu_seconds).items()}
    joules, grams = one(usage.energy_joules), one(usage.carbon_grams)
    by_phase = {phase: narrow(counts.of_phase[phase]) for phase in TOKEN_PHASES}
    borne, tokenless = _allocate(cost, by_phase)
    both = narrow(counts.tokens, usage.prompt_tokens, usage.decode_tokens)
    requests, cached = narrow(counts.requests), narrow(counts.cached, usage.prompt_tokens)
    return Totals(
        usd=one(usage.cost),
        usd_by_phase=each(usage.cost),
        gpu_hours=fsum(hours_by_state.values()) if hours_by_state else None,
        gpu_hours_by_state=hours_by_state,
        unpriced_gpu_hours=fsum(
            line.total for line in usage.gpu_seconds if not line.of[1] and chosen(line.owner)
        ) / 3600,
        prefill_tokens=one(usage.prefill_tokens),
        decode_tokens=one(usage.decode_tokens),
        prompt_tokens=one(usage.prompt_tokens),
        cached_tokens=one(usage.cached_tokens),
        requests=one(usage.requests),
        energy_kwh=None if joules is None else joules / _JOULES_PER_KWH,
        energy_usd=one(usage.energy_cost),
        carbon_kg=None if grams is None else grams / 1000,
        savings_usd=one(usage.savings),
        allocated_usd=borne,
        tokenless_usd=tokenless,
        counted=None if both is None else Counted(
            *(one(lines, both) for lines in (usage.cost, usage.prompt_tokens, usage.cached_tokens, usage.decode_tokens))
        ),
        counted_usd_by_phase=None if by_phase == dict.fromkeys(TOKEN_PHASES) else {
            phase: one((line for line in cost if line.of[0] == phase), owners) or 0.0 for phase, owners in by_phase.items()
        },
        requests_usd=None if requests is None else one(usage.cost, requests) or 0.0,
        cacheable_tokens=None if cached is None else one(usage.prompt_tokens, cached) or 0.0,
    )  # fmt: skip


def _allocate(cost: Iterable[Line], counting: Mapping[str, Collection[Owner] | None]) -> tuple[dict[str, float], float]:
    """USD by phase with idle and down time borne by the tokens, and what no token bears. `counting`: by phase, who counts its tokens; None
    for all."""
    borne: dict[str, list[float]] = {phase: [] for phase in TOKEN_PHASES}
    nobody = []
    for owner, phases in sum_by_owner(cost).items():
        prefill, decode, everything = phases.get("prefill", 0.0), phases.get("decode", 0.0), fsum(phases.values())
        for phase in TOKEN_PHASES:
            share = allocated(phases.get(phase, 0.0), prefill, decode, everything)
            who = counting[phase]
            if share is not None and (who is None or owner in who):
                borne[phase].append(share)
            else:
                nobody.append(share or 0.0)
        if prefill + decode <= 0:
            nobody.append(everything)
    return {phase: fsum(shares) for phase, shares in borne.items()}, fsum(nobody)


def sum_by_owner(lines: Iterable[Line]) -> dict[Owner, dict[str, float]]:
    """Sums by owner and by the first of the line's own labels."""
    of_owner = group_by_key((line.owner, (line.of[0], line.total)) for line in lines)
    return {owner: sum_by_key(pairs) for owner, pairs in of_owner.items()}
