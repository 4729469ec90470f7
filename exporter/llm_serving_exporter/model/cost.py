"""What a target's GPU time went to and what it cost, counted since the exporter's start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.prices import Price
from llm_serving_exporter.model.snapshot import Absence


class GpuState(StrEnum):
    """What an engine's GPUs did in a tick."""

    BUSY = "busy"
    IDLE = "idle"  # nothing to do, or weights loading, or asleep
    DOWN = "down"
    UNKNOWN = "unknown"


class CostPhase(StrEnum):
    """What a USD went to."""

    PREFILL = "prefill"
    DECODE = "decode"
    IDLE = "idle"
    DOWN = "down"
    UNATTRIBUTED = "unattributed"


class Method(StrEnum):
    """How busy time is split into prefill and decode (facts model-math G)."""

    ROOFLINE = "roofline"  # seconds that the work of each needs at its ceiling
    FLAT = "flat"  # every computed and every generated token alike
    OUTPUT_ONLY = "output_only"  # all of it to decode
    PRICE_RATIO = "price_ratio"  # a generated token weighs so many computed ones
    POOLS = "pools"  # by the role of a disaggregated replica; a unified one is unattributed


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the peaks that work is taken to reach, above 0, up to 1."""

    compute: float = 1.0
    bandwidth: float = 1.0


@dataclass(frozen=True, slots=True)
class Attribution:
    """How busy time is split. `decode_to_prefill_ratio`: of Method.PRICE_RATIO."""

    method: Method = Method.ROOFLINE
    decode_to_prefill_ratio: float = 4.0
    efficiency: Efficiency = field(default_factory=Efficiency)


@dataclass(frozen=True, slots=True)
class TickWork:
    """What one engine did between its last two pages.

    `seconds`: by phase what its work needs at the ceilings; empty where no token was booked, None where it cannot be known (no facts).
    `prefill_tokens`, `decode_tokens`: booked, None where the engine does not count them. `cached_seconds`: what the
    prompt tokens from the prefix cache would at least have taken, None where that cannot be known.
    """

    busy: bool
    seconds: Mapping[str, float] | None = None
    prefill_tokens: float | None = None
    decode_tokens: float | None = None
    cached_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """Counters of one engine since the exporter's start.

    `gpu_seconds` by state and rate ("" without a price); `usd` by phase, rate and method, empty before the first price. `pending_usd` by
    rate: busy time that waits for the tokens it was spent on, since `pending_seconds`. Others are None where they were never known.
    """

    gpu_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    usd: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    pending_usd: Mapping[str, float] = field(default_factory=dict)
    pending_seconds: float = 0.0
    savings_usd: float | None = None
    energy_joules: float | None = None
    energy_usd: float | None = None
    carbon_grams: float | None = None


@dataclass(frozen=True, slots=True)
class WindowCost:
    """Over the exporter's window; None and absent keys where a part is not known or nothing happened.

    `usd_per_million_tokens` by phase (prefill, decode, blended) and basis (busy, allocated).
    """

    usd_per_million_tokens: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tokens_per_usd: float | None = None
    usd_per_request: float | None = None
    joules_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class EngineCost:
    """One engine of a target under the labels that it had."""

    model_name: str
    engine: str
    role: str
    totals: EngineTotals
    window: WindowCost = field(default_factory=WindowCost)


@dataclass(frozen=True, slots=True)
class TargetCost:
    """A target's cost after a tick. `price`: in force, None where there is none. `signals`: why a signal is absent, "" where it is there.

    `inputs` names what the method splits busy time by.
    """

    engines: tuple[EngineCost, ...]
    price: Price | None
    method: Method
    inputs: str
    signals: Mapping[str, Absence]
