"""What GPUs cost, as price files state it, and what a target's GPU time went to, in seconds and USD."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.hardware import BusySource, Efficiency, TargetGpus
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, NodePlace


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
    kind: RateKind
    includes_power: bool = True  # whether the price covers electricity
    committed_gpus: int | None = None  # that are paid for, used or not; None: none


class PriceStatement(Struct, frozen=True):
    """What a GPU costs in an hour, for everything that the scope and its value name."""

    scope: Scope
    value: str  # a target's or node's name, or a GPU product's name as the metric target_gpus has it
    usd_per_gpu_hour: float
    rate: str  # the name of one of the same book
    from_unix_seconds: float | None = None  # when it comes into force; None: it always was


class Power(Struct, frozen=True):
    """Electricity."""

    usd_per_kwh: float | None = None
    pue: float = 1.0  # energy of the whole site over that of its computers, 1 or more
    carbon_grams_per_kwh: float | None = None  # of CO2 equivalent


class PriceBook(Struct, frozen=True):
    """The price file."""

    statements: tuple[PriceStatement, ...]  # no two of the same scope, value and moment
    rates: tuple[Rate, ...]
    power: Power = field(default_factory=Power)
    budget_usd_per_month: float | None = None  # of a month of 730 hours
    pools: tuple[Pool, ...] = ()  # they apply in the review
    nodes: tuple[tuple[str, NodePlace], ...] = ()  # by name; no name twice


class Price(Struct, frozen=True):
    """What one GPU of a target costs now."""

    usd_per_gpu_hour: float
    rate: Rate

    @property
    def before_commitments(self) -> bool:
        """Whether commitments are yet to be taken off it."""
        return self.rate.kind is RateKind.POOL


class PoolKind(StrEnum):
    """How a commitment is counted. The order is that in which they apply to the same hour."""

    WINDOW = "window"
    QUANTITY = "quantity"
    SPEND = "spend"


class PoolUse(Struct, frozen=True):
    """Which GPUs a commitment is for. "" for all; exactly one of the kind of GPU and the instance type is given."""

    gpu_name: str = ""  # a product's name as the metric target_gpus has it
    instance_type: str = ""  # as the cloud writes it
    region: str = ""  # GPUs elsewhere are not covered
    zone: str = ""  # likewise


class SpendRate(Struct, frozen=True):
    """What a GPU-hour takes from a spend commitment."""

    use: PoolUse
    usd_per_gpu_hour: float  # at the committed price


class Pool(Struct, frozen=True):
    """A commitment at a cloud, which floats over whatever runs there.

    A quantity or a window is of GPUs of one kind; a spend is of USD, with a price for each kind.
    """

    name: str  # unique in the price file
    kind: PoolKind  # says which of the fields below count
    use: PoolUse = PoolUse()  # of a quantity or window: what it is for; of a spend: where
    gpus: float = 0.0  # of a quantity or window
    usd_per_gpu_hour: float = 0.0  # of a quantity or window: of each GPU, used or not
    usd_per_hour: float = 0.0  # of a spend: used or not
    rates: tuple[SpendRate, ...] = ()  # of a spend: never empty
    from_unix_seconds: float | None = None  # None: it always was
    until_unix_seconds: float | None = None  # None: it has no end
    size_flexible: bool = False  # whether other sizes of the instance type's family are covered


class PoolBook(Struct, frozen=True):
    """Everything of price files that the review applies."""

    pools: tuple[Pool, ...] = ()
    nodes: tuple[tuple[str, NodePlace], ...] = ()  # by name; no name twice


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


class Attribution(Struct, frozen=True):
    """How busy time is split into prefill and decode."""

    method: Method = Method.ROOFLINE
    decode_to_prefill_ratio: float = 4.0  # a generated token in computed prompt tokens; only for PRICE_RATIO
    efficiency: Efficiency = field(default_factory=Efficiency)  # only for ROOFLINE


class TickWork(Struct, frozen=True):
    """What one engine did between its last two pages."""

    busy: bool  # whether a request ran or a token counter moved
    seconds: Mapping[str, float] | None = None  # at the ceilings, by phase; {}: no token was booked; None: no facts
    prefill_tokens: float | None = None  # computed, that were booked; None: not counted
    decode_tokens: float | None = None  # generated, that were booked; None: not counted
    cached_seconds: float | None = None  # that the prompt tokens from the prefix cache would have taken at least
    device_share: float | None = None  # of the time between the pages, by the engine's own count of its device's work
    estimated_share: float | None = None  # the same by its steps, their latency and its work


class EngineTotals(Struct, frozen=True):
    """Counters of one engine since the exporter's first start. None: never known so far."""

    # by state and rate in force ("": no price)
    gpu_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    usd: Mapping[tuple[str, str, str], float] = field(default_factory=dict)  # by phase, rate and method
    # by rate: busy time whose tokens are not booked yet; not in `usd` so far
    pending_usd: Mapping[str, float] = field(default_factory=dict)
    pending_seconds: float = 0.0  # how long that has waited
    savings_usd: float | None = None  # what prompt tokens from the prefix cache would have cost at least
    energy_joules: float | None = None  # of the engine's GPUs, whatever they did
    energy_usd: float | None = None  # where the price of the GPUs does not include it
    carbon_grams: float | None = None  # CO2 equivalent


class WindowCost(Struct, frozen=True):
    """Figures over the exporter's window. None, or an absent key: not known, or nothing happened."""

    # by phase (prefill, decode, blended) and basis (busy, allocated)
    usd_per_million_tokens: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tokens_per_usd: float | None = None  # prompt tokens as sent, and generated ones
    usd_per_request: float | None = None  # mean of those that finished
    joules_per_token: float | None = None  # of those tokens, idle draw included


@dataclasses.dataclass(frozen=True, slots=True)
class EngineCost:
    """One engine of a target, under the labels that it had when it was last seen."""

    model_name: str
    engine: str  # rank within the server; "": the page does not name one
    role: str  # a value of Role
    totals: EngineTotals
    # `window`, which nobody reads at a tick
    of_window: Later[WindowCost] = dataclasses.field(default=Later(WindowCost), compare=False)

    @property
    def window(self) -> WindowCost:
        """Figures over the exporter's window; empty while no page of the engine can be read."""
        return self.of_window.value


@dataclasses.dataclass(frozen=True, slots=True)
class TargetCost:
    """A target's cost after a tick."""

    engines: tuple[EngineCost, ...]  # of its last good page, and under earlier names, oldest first
    price: Price | None  # in force; None: `signals` has the reason
    method: Method
    inputs: str  # what the method splits busy time by, for cost_attribution_info
    reasons: Later[Mapping[str, Absence]] = dataclasses.field(compare=False)  # `signals`
    life: int = 0  # another number where the target's cost began at 0 again in this process
    busy_source: BusySource | None = None  # None: no tick needed it yet

    @property
    def signals(self) -> Mapping[str, Absence]:
        """Each signal of cost and why it is absent; AVAILABLE: it is there."""
        return self.reasons.value


class KeptCost(Struct, frozen=True):
    """What one target has cost so far."""

    name: str
    identity: Identity  # another pod of that name does not go on from it
    # digests of its address, and of that with its stated GPUs; "": no tick was counted
    server: tuple[str, str] = ("", "")
    gpu_uuids: tuple[str, ...] = ()  # at its last tick, as far as they were seen
    gpus: TargetGpus | None = None  # None: not known
    counted_seconds: float | None = None  # its last tick, by the clock of the host's boot; None: never
    joules: Mapping[str, float] = field(default_factory=dict)  # what each GPU's energy counter showed then, by UUID
    engines: tuple[EngineCost, ...] = ()  # oldest first; those of its last good page at the end
    current: int = 0  # how many of them are of its last good page
    life: int = 0  # as `TargetCost.life`; never written


class CostSnapshot(Struct, frozen=True):
    """What all targets of one exporter had cost at one moment."""

    boot: str  # of the host; "": not known
    boot_seconds: float  # by the clock of that boot
    unix_seconds: float
    targets: tuple[KeptCost, ...]  # in no order


class Storage(StrEnum):
    """Where the counters of cost are safe."""

    NONE = "none"  # nowhere: no folder is configured
    DISK = "disk"  # they are published as far as they are in the folder
    BEHIND = "behind"  # the folder cannot be written: they stand still at what is there
    MEMORY = "memory"  # they go on without the folder, and begin at 0 after a restart
    ELSEWHERE = "elsewhere"  # another exporter has the folder: as memory


class StorageReport(Struct, frozen=True):
    """How keeping the counters of cost goes."""

    storage: Storage = Storage.NONE
    snapshot_unix_seconds: float | None = None  # of the last that is on disk; None: none since the start
    failures_total: int | None = None  # snapshots that could not be written; None: no folder is configured
