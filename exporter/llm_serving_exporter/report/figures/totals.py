"""A week's usage -> totals over all owners or some, and unit costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from llm_serving_exporter.model.frozen import dataclass
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.report.evidence.usage import Line, Owner, Usage
from llm_serving_exporter.report.figures.formulas import allocated, plus, ratio, usd_per_million

PHASES = ("prefill", "decode", "idle", "down", "unattributed")
STATES = ("busy", "idle", "down", "unknown")
TOKEN_PHASES = ("prefill", "decode")
_JOULES_PER_KWH = 3.6e6

Chosen = Callable[[Owner], bool]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a week. None: nothing was counted, which is not 0."""

    # GPU time
    usd: float | None = None
    # GPU time by phase
    usd_by_phase: Mapping[str, float] = field(default_factory=dict)
    # in all states
    gpu_hours: float | None = None
    # busy, idle, down, unknown
    gpu_hours_by_state: Mapping[str, float] = field(default_factory=dict)
    # part of `gpu_hours` that is in no cost
    unpriced_gpu_hours: float = 0.0
    # prompt tokens that were computed
    prefill_tokens: float | None = None
    # tokens that were generated
    decode_tokens: float | None = None
    # prompt tokens as clients sent them, cached ones included
    prompt_tokens: float | None = None
    # prompt tokens that the prefix cache had
    cached_tokens: float | None = None
    # finished requests
    requests: float | None = None
    # energy of the GPUs
    energy_kwh: float | None = None
    # electricity that the GPU rates do not include
    energy_usd: float | None = None
    # kilograms of CO2 equivalent
    carbon_kg: float | None = None
    # GPU time that the prefix cache saved
    savings_usd: float | None = None
    # by phase, with idle and down time borne by the tokens of the same target
    allocated_usd: Mapping[str, float] = field(default_factory=dict)
    # cost of targets without tokens in either phase, which no token bears
    tokenless_usd: float = 0.0

    @property
    def all_usd(self) -> float | None:
        """GPU time and electricity."""
        return plus(self.usd, self.energy_usd)

    @property
    def tokens(self) -> float | None:
        """Prompt as sent and generated; None where either is not counted."""
        if self.prompt_tokens is None or self.decode_tokens is None:
            return None
        return self.prompt_tokens + self.decode_tokens

    def phase_tokens(self, phase: str) -> float | None:
        """Tokens computed (prefill) or generated (decode)."""
        return self.prefill_tokens if phase == "prefill" else self.decode_tokens

    def busy_usd_per_million(self, phase: str) -> float | None:
        """Of the phase's own GPU time."""
        return usd_per_million(self.usd_by_phase.get(phase), self.phase_tokens(phase))

    def allocated_usd_per_million(self, phase: str) -> float | None:
        """With idle and down time borne by the tokens."""
        return usd_per_million(self.allocated_usd.get(phase), self.phase_tokens(phase))

    @property
    def blended_usd_per_million(self) -> float | None:
        """All GPU cost over all tokens."""
        return usd_per_million(self.usd, self.tokens)

    @property
    def usd_per_request(self) -> float | None:
        """All GPU cost over finished requests, whatever their reason."""
        return ratio(self.usd, self.requests)

    @property
    def tokens_per_usd(self) -> float | None:
        """All tokens over all GPU cost."""
        return ratio(self.tokens, self.usd)

    def share(self, phase: str) -> float | None:
        """A phase's share of the cost."""
        return ratio(self.usd_by_phase.get(phase, 0.0), self.usd)

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over prompt tokens as sent."""
        return ratio(self.cached_tokens, self.prompt_tokens)


def sum_usage(usage: Usage, chosen: Chosen = lambda owner: True) -> Totals:
    """Totals over the owners that `chosen` accepts."""

    def one(lines: Iterable[Line]) -> float | None:
        found = [line.total for line in lines if chosen(line.owner)]
        return add_up(found) if found else None

    def each(lines: Iterable[Line]) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in lines:
            if chosen(line.owner):
                found[line.of[0]] = found.get(line.of[0], 0.0) + line.total
        return found

    hours_by_state = {state: seconds / 3600 for state, seconds in each(usage.gpu_seconds).items()}
    joules, grams = one(usage.energy_joules), one(usage.carbon_grams)
    borne, tokenless = _allocate(line for line in usage.cost if chosen(line.owner))
    return Totals(
        usd=one(usage.cost),
        usd_by_phase=each(usage.cost),
        gpu_hours=add_up(hours_by_state.values()) if hours_by_state else None,
        gpu_hours_by_state=hours_by_state,
        unpriced_gpu_hours=add_up(
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
    )  # fmt: skip


def _allocate(cost: Iterable[Line]) -> tuple[dict[str, float], float]:
    borne = dict.fromkeys(TOKEN_PHASES, 0.0)
    nobody = 0.0
    for phases in _sum_by_owner(cost).values():
        prefill, decode, everything = phases.get("prefill", 0.0), phases.get("decode", 0.0), add_up(phases.values())
        for phase in TOKEN_PHASES:
            share = allocated(phases.get(phase, 0.0), prefill, decode, everything)
            if share is not None:
                borne[phase] += share
        if prefill + decode <= 0:
            nobody += everything
    return borne, nobody


def _sum_by_owner(lines: Iterable[Line]) -> dict[Owner, dict[str, float]]:
    """Sums by owner and by the first of the line's own labels."""
    found: dict[Owner, dict[str, float]] = {}
    for line in lines:
        into = found.setdefault(line.owner, {})
        into[line.of[0]] = into.get(line.of[0], 0.0) + line.total
    return found
