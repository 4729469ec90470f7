"""What GPUs cost, as stated in the price file, and what follows for one target."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.pools import NodePlace, Pool
from llm_serving_exporter.model.record import Struct, field


class RateKind(StrEnum):
    """How GPUs are paid for."""

    RESERVED = "reserved"
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    OWNED = "owned"
    # at the uncommitted price: what commitments take off it is known by the hour and over all of a fleet, in the review
    POOL = "pool"


class Scope(StrEnum):
    """What a price is stated for, the most specific first: that one wins."""

    TARGET = "target"
    NODE = "node"
    GPU_MODEL = "gpu_model"


class Rate(Struct, frozen=True):
    """A named way to pay for GPUs."""

    name: str  # the user's own, unique in the price file
    kind: RateKind  # how such GPUs are paid for
    includes_power: bool = True  # whether the price covers electricity
    committed_gpus: int | None = None  # that are paid for, used or not; None: none


class PriceStatement(Struct, frozen=True):
    """What a GPU costs in an hour, for everything that the scope and its value name."""

    scope: Scope  # what `value` names
    value: str  # a target's or node's name, or a GPU product's name as the metric target_gpus has it
    usd_per_gpu_hour: float  # at the rate
    rate: str  # name of a rate of the same book
    from_unix_seconds: float | None = None  # when it comes into force; None: it always was


class Power(Struct, frozen=True):
    """Electricity."""

    usd_per_kwh: float | None = None  # None: not stated
    pue: float = 1.0  # energy of the whole site over that of its computers, 1 or more
    carbon_grams_per_kwh: float | None = None  # of CO2 equivalent; None: not stated


class PriceBook(Struct, frozen=True):
    """The price file."""

    statements: tuple[PriceStatement, ...]  # no two of the same scope, value and moment
    rates: tuple[Rate, ...]  # every rate of a statement is among them
    power: Power = field(default_factory=Power)  # what a kilowatt-hour costs and emits
    budget_usd_per_month: float | None = None  # of a month of 730 hours; None: not stated
    pools: tuple[Pool, ...] = ()  # what is committed at a cloud; they apply in the review
    nodes: tuple[tuple[str, NodePlace], ...] = ()  # where nodes stand, by name; no name twice


class Price(Struct, frozen=True):
    """What one GPU of a target costs now."""

    usd_per_gpu_hour: float  # at the rate
    rate: Rate

    @property
    def before_commitments(self) -> bool:
        """Whether commitments are yet to be taken off it."""
        return self.rate.kind is RateKind.POOL
