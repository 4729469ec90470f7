"""What a target's GPU time went to and what it cost, counted since the exporter's start."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.record import Struct, field

if TYPE_CHECKING:
    from llm_serving_exporter.model.device import BusySource
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


class Efficiency(Struct, frozen=True):
    """Shares of the peaks that work is assumed to reach, above 0, up to 1."""

    compute: float = 1.0  # of the dense tensor peak
    bandwidth: float = 1.0  # of the peak memory bandwidth


class Attribution(Struct, frozen=True):
    """How busy time is split into prefill and decode."""

    method: Method = Method.ROOFLINE  # what the split rests on
    # what a generated token weighs in computed prompt tokens; only for Method.PRICE_RATIO
    decode_to_prefill_ratio: float = 4.0
    efficiency: Efficiency = field(default_factory=Efficiency)  # only for Method.ROOFLINE


class TickWork(Struct, frozen=True):
    """What one engine did between its last two pages."""

    busy: bool  # whether a request ran or a token counter moved
    # by phase, what its work needs at the ceilings; {}: no token was booked; None: it cannot be known (no facts)
    seconds: Mapping[str, float] | None = None
    prefill_tokens: float | None = None  # computed prompt tokens that were booked; None: the engine does not count them
    decode_tokens: float | None = None  # generated tokens that were booked; None: the engine does not count them
    # what the prompt tokens from the prefix cache would have taken at least; None: it cannot be known
    cached_seconds: float | None = None
    # share of the time between the pages in which the device worked, by the engine's own count; None: it does not count
    device_share: float | None = None
    # the same as its steps, their latency and its work tell; None: they do not
    estimated_share: float | None = None


class EngineTotals(Struct, frozen=True):
    """Counters of one engine since the exporter's first start. None: never known so far."""

    # by state and name of the rate in force ("" without a price)
    gpu_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # by phase, rate and method; {} before the first price
    usd: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    # by rate, the price of busy time whose tokens are not booked yet; not in `usd` so far
    pending_usd: Mapping[str, float] = field(default_factory=dict)
    pending_seconds: float = 0.0  # how long that has been waiting
    savings_usd: float | None = None  # what the prompt tokens from the prefix cache would have cost at least
    energy_joules: float | None = None  # of the engine's GPUs, whatever they did
    energy_usd: float | None = None  # of that energy, where the price of the GPUs does not include it
    carbon_grams: float | None = None  # CO2 equivalent of that energy


class WindowCost(Struct, frozen=True):
    """Figures over the exporter's window. None, or an absent key: not known, or nothing happened."""

    # by phase (prefill, decode, blended) and basis (busy, allocated)
    usd_per_million_tokens: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tokens_per_usd: float | None = None  # prompt tokens as sent and generated tokens
    usd_per_request: float | None = None  # mean over the requests that finished
    joules_per_token: float | None = None  # mean over prompt tokens as sent and generated tokens, idle draw included


@dataclasses.dataclass(frozen=True, slots=True)
class EngineCost:
    """One engine of a target, under the labels that it had when it was last seen."""

    model_name: str  # as served
    engine: str  # the label `engine`: its rank within the server, "" where the page does not name one
    role: str  # a value of Role
    totals: EngineTotals  # since the exporter's start
    # the figures of `window`; nobody reads them at a tick
    of_window: Later[WindowCost] = dataclasses.field(default=Later(WindowCost), compare=False)

    @property
    def window(self) -> WindowCost:
        """Figures over the exporter's window; empty while no page of the engine can be read."""
        return self.of_window.value


@dataclasses.dataclass(frozen=True, slots=True)
class TargetCost:
    """A target's cost after a tick."""

    # of its last good page, and those that GPU time was booked to under earlier names, oldest first
    engines: tuple[EngineCost, ...]
    price: Price | None  # in force; None: there is none, `signals` has the reason
    method: Method  # that splits busy time
    # what the method splits busy time by, for cost_attribution_info
    inputs: str
    # what `signals` says
    reasons: Later[Mapping[str, Absence]] = dataclasses.field(compare=False)
    life: int = 0  # which counting of this process it is: another number where the target's cost began at 0 again
    busy_source: BusySource | None = None  # what says how long the GPUs were busy; None: no tick needed it yet

    @property
    def signals(self) -> Mapping[str, Absence]:
        """Each signal of cost and why it is absent; AVAILABLE: it is there."""
        return self.reasons.value
