"""Evidence: what Prometheus said of a week, by hour, before anything is computed.

Hours run as in `Week.hours`; None: nothing is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from math import fsum
from typing import TYPE_CHECKING

from llm_serving_exporter.model.cost import PoolBook
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import NodePlace
from llm_serving_review.evidence.week import Week
from llm_serving_review.tables.sums import sum_known

if TYPE_CHECKING:
    from llm_serving_review.evidence.tenants import TenantUsage

Hours = tuple[float | None, ...]
Extra = tuple[tuple[str, str], ...]


class Owner(Struct, frozen=True):
    """Which target, model and role a series belongs to."""

    # identity labels and labels that the bill is split by, with their values; "" where a series has none
    extra: Extra
    # the target's name, as its series have it
    target: str
    # the model that it serves; "" where it is unknown
    model_name: str
    # unified, prefill, decode or frontend
    role: str

    @property
    def who(self) -> tuple[Extra, str]:
        """Target and where it is, whatever it serves."""
        return self.extra, self.target

    def label(self, name: str) -> str:
        """One of the extra labels, "" where it has none."""
        return dict(self.extra).get(name, "")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One quantity of one owner, by hour."""

    # whose it is
    owner: Owner
    # the values of the quantity's own labels, in the order of `names.Quantity.of`
    of: tuple[str, ...]
    # growth in each hour of the week; None where nothing is known
    hours: Hours
    # sum of the known hours; computed once because every row of every table needs it
    total: float = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", fsum(value for value in self.hours if value is not None))


class Usage(Struct, frozen=True):
    """Growth of counters by hour of a week, one `Line` for each owner and set of labels."""

    # USD; labels phase, rate, method
    cost: tuple[Line, ...] = ()
    # seconds times GPUs; labels state, rate
    gpu_seconds: tuple[Line, ...] = ()
    # prompt tokens that were computed
    prefill_tokens: tuple[Line, ...] = ()
    # tokens that were generated
    decode_tokens: tuple[Line, ...] = ()
    # prompt tokens as clients sent them, cached ones included
    prompt_tokens: tuple[Line, ...] = ()
    # prompt tokens that the prefix cache had
    cached_tokens: tuple[Line, ...] = ()
    # finished requests
    requests: tuple[Line, ...] = ()
    # energy of the GPUs
    energy_joules: tuple[Line, ...] = ()
    # USD of electricity that the GPU rates do not include
    energy_cost: tuple[Line, ...] = ()
    # grams of CO2 equivalent
    carbon_grams: tuple[Line, ...] = ()
    # USD of GPU time that the prefix cache saved
    savings: tuple[Line, ...] = ()
    # events of objectives; labels slo, outcome
    slo: tuple[Line, ...] = ()
    # names of the quantities that could not be read
    unread: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether neither money nor GPU time was counted."""
        return not any(line.total for line in (*self.cost, *self.gpu_seconds))


class Gauge(Struct, frozen=True):
    """A gauge by hour."""

    # its labels, identity labels first
    labels: Mapping[str, str]
    # its value in each hour; None where nothing is known
    hours: Hours


class RateFacts(Struct, frozen=True):
    """What the price file says of a rate."""

    # the rate's name
    name: str
    # reserved, on_demand, spot or owned; "" where it is unknown
    kind: str = ""
    # whether the rate pays for electricity too
    includes_power: bool = True


class Book(Struct, frozen=True):
    """Prices and commitments, as they were in force."""

    # USD per GPU and hour; labels target, gpu_name, rate
    prices: tuple[Gauge, ...] = ()
    # number of GPUs; labels target, gpu_name
    gpus: tuple[Gauge, ...] = ()
    # 1 where a target runs on a node; labels target, node
    nodes: tuple[Gauge, ...] = ()
    # 1 where a target belongs to a workload; labels target, workload, workload_kind, namespace
    workloads: tuple[Gauge, ...] = ()
    # GPUs that are committed; label rate
    committed: tuple[Gauge, ...] = ()
    # facts of each rate, by its name
    rates: Mapping[str, RateFacts] = field(default_factory=dict)
    # the last budget that was in force; None for none
    budget_usd_per_month: float | None = None
    # as `nodes`, with the labels region, zone, instance_type, provider_id: two for a node where they changed
    places: tuple[Gauge, ...] = ()
    # what the cluster itself says of its nodes: by the values of the identity labels that scrapes add, and node
    cluster_places: Mapping[tuple[Extra, str], NodePlace] = field(default_factory=dict)


class Fleet(Struct, frozen=True):
    """Replicas and ratios by model and role."""

    # replicas that ran, mean of the hour
    present: tuple[Gauge, ...] = ()
    # replicas that were required, highest of the hour; label reserve: none, nodes
    required: tuple[Gauge, ...] = ()
    # share of the bandwidth ceiling, mean; label source
    bandwidth: tuple[Gauge, ...] = ()
    # batch utilisation, mean
    batch: tuple[Gauge, ...] = ()
    # hours by model, role, check and verdict
    verdicts: tuple[Gauge, ...] = ()


class Episode(Struct, frozen=True):
    """A time in which an alert fired, to the minute. Times are Unix seconds."""

    # the alert's name
    alert: str
    # critical, warning or another severity of the rules
    severity: str
    # the labels of what it fired for, joined with " / "
    what: str
    # the first minute in which it fired
    begin: float
    # a minute after the last
    end: float


class Gap(Struct, frozen=True):
    """A time within the week without data of a target. Times are Unix seconds."""

    # identity labels of the target
    extra: Extra
    # the target's name
    target: str
    # when data ended, or the week began
    begin: float
    # when data came back, or the week ended
    end: float
    # whether data came back within the week
    ends: bool
    # the target's GPUs before the gap; None where that is unknown
    gpus: float | None = None
    # their price before the gap; None where that is unknown
    usd_per_gpu_hour: float | None = None
    # all GPU time that counters show across the gap
    seen_gpu_seconds: float = 0.0
    # growth that counters show across the gap and no hour had, by quantity; already part of `Usage`
    recovered: Mapping[str, float] = field(default_factory=dict)

    @property
    def missing_gpu_seconds(self) -> float | None:
        """GPU time of which nothing is known; None where the number of GPUs is not."""
        return None if self.gpus is None else max(0.0, self.gpus * (self.end - self.begin) - self.seen_gpu_seconds)

    @property
    def estimated_usd(self) -> float | None:
        """What that time cost at the price before it. Never part of the spend."""
        missing = self.missing_gpu_seconds
        if missing is None or self.usd_per_gpu_hour is None:
            return None
        return missing / 3600 * self.usd_per_gpu_hour


class Absence(Struct, frozen=True):
    """A time in which a target was not there: free, and no gap. Times are Unix seconds."""

    # identity labels of the target
    extra: Extra
    # the target's name
    target: str
    # when it went
    begin: float
    # when it came back; None where it did not by the end of the week
    end: float | None
    # whether its exporter lived on without it; else it went with its exporter
    exporter_lived: bool
    # whether anything shows that it was taken away
    sure: bool = True


class Evidence(Struct, frozen=True):
    """All that the review is computed from."""

    # the week that is reviewed
    week: Week
    # the week before
    previous: Week
    # counters of the week
    usage: Usage
    # counters of the week before
    usage_before: Usage
    # prices and commitments of the week
    book: Book = Book()
    # replicas and ratios of the week
    fleet: Fleet = Fleet()
    # alerts that fired; None where they could not be read
    episodes: tuple[Episode, ...] | None = ()
    # gaps of the week; None where they could not be read
    gaps: tuple[Gap, ...] | None = ()
    # gaps of the week before; None where they could not be read
    gaps_before: tuple[Gap, ...] | None = ()
    # hours at the beginning of the week before the first data of all
    begins: int = 0
    # the same of the week before
    begins_before: int = 0
    # how busy time was split, and from which inputs
    methods: tuple[tuple[str, str], ...] = ()
    # what a reader must know, in sentences
    notes: tuple[str, ...] = ()
    # what could not be read, in sentences
    missing_parts: tuple[str, ...] = ()
    # what Prometheus no longer has, in sentences; shown before all other notes
    memory: tuple[str, ...] = ()
    # hours in which alert rules were evaluated; None where that is unknown
    watched_hours: float | None = None
    # times of both weeks in which a target was not there
    absences: tuple[Absence, ...] = ()
    # prices, GPUs, nodes and commitments of the week before
    book_before: Book = Book()
    # commitments and nodes of the price files; None where the review has none
    pools: PoolBook | None = None
    # what gateways counted by tenant in the week; None where none does
    tenants: TenantUsage | None = None


def drop_unknown(values: Iterable[float | None]) -> Iterator[float]:
    """The values that are known."""
    return (value for value in values if value is not None)


def sum_lines(lines: Iterable[Line]) -> float | None:
    """The sum of lines; None without a line."""
    found = [line.total for line in lines]
    return fsum(found) if found else None


def sum_by_hour(lines: Iterable[Line], hours: int) -> Hours:
    """The sum of lines in each hour; None in hours without any value."""
    return tuple(map(sum_known, zip(*(line.hours for line in lines), strict=True))) or (None,) * hours
