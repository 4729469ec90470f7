"""What GPUs cost, as stated in the price file, and what follows for one target."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class RateKind(StrEnum):
    """How GPUs are paid for."""

    RESERVED = "reserved"
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    OWNED = "owned"


class Scope(StrEnum):
    """What a price is stated for, the most specific first: that one wins."""

    TARGET = "target"
    NODE = "node"
    GPU_MODEL = "gpu_model"


@dataclass(frozen=True, slots=True)
class Rate:
    """A named way to pay. `includes_power`: the price covers electricity. `committed_gpus`: paid for, used or not; None: none."""

    name: str
    kind: RateKind
    includes_power: bool = True
    committed_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class PriceStatement:
    """USD per GPU and hour at a rate, for everything of a scope, from a moment on (Unix seconds; None: always).

    `value`: a target's or node's name, or a GPU's as `target_gpus` has it.
    """

    scope: Scope
    value: str
    usd_per_gpu_hour: float
    rate: str
    from_unix_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Power:
    """Electricity. `pue`: energy of the site over that of its computers. `carbon_grams_per_kwh`: of CO2 equivalent, None: not stated;
    `usd_per_kwh` likewise."""

    usd_per_kwh: float | None = None
    pue: float = 1.0
    carbon_grams_per_kwh: float | None = None


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The price file: no two statements of the same scope, value and moment; every rate of a statement is in `rates`."""

    statements: tuple[PriceStatement, ...]
    rates: tuple[Rate, ...]
    power: Power = field(default_factory=Power)
    budget_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU of a target costs now."""

    usd_per_gpu_hour: float
    rate: Rate
