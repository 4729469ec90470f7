"""Evidence: what Prometheus said of a week, by hour, before anything is worked out.

Hours run as in `Week.hours`; None = nothing was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.report.evidence.week import Week

Hours = tuple[float | None, ...]
Extra = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose hours they are. `extra`: identity labels and labels that the bill is split by, "" where a series has none."""

    extra: Extra
    target: str
    model_name: str
    role: str

    @property
    def who(self) -> tuple[Extra, str]:
        """Target and where it is, whatever it serves."""
        return self.extra, self.target

    def label(self, name: str) -> str:
        """One of the extra labels, "" where it has none."""
        return dict(self.extra).get(name, "")


@dataclass(frozen=True, slots=True)
class Line:
    """What one owner had of one thing. `of`: the thing's own labels, as its `names.Quantity.of`; `total`: of the hours that are known."""

    owner: Owner
    of: tuple[str, ...]
    hours: Hours
    # worked out once: it is asked for by every row of every table
    total: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(value for value in self.hours if value is not None))


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters' growth by hour: USD, GPU seconds, tokens, requests, joules, grams. `unread`: names of those that could not be read."""

    cost: tuple[Line, ...] = ()  # phase, rate, method
    gpu_seconds: tuple[Line, ...] = ()  # state, rate
    prefill_tokens: tuple[Line, ...] = ()
    decode_tokens: tuple[Line, ...] = ()
    prompt_tokens: tuple[Line, ...] = ()
    cached_tokens: tuple[Line, ...] = ()
    requests: tuple[Line, ...] = ()
    energy_joules: tuple[Line, ...] = ()
    energy_cost: tuple[Line, ...] = ()
    carbon_grams: tuple[Line, ...] = ()
    savings: tuple[Line, ...] = ()
    slo: tuple[Line, ...] = ()  # slo, outcome
    unread: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether neither money nor GPU time was counted."""
        return not any(line.total for line in (*self.cost, *self.gpu_seconds))


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge by hour. `labels`: its own, identity labels first."""

    labels: Mapping[str, str]
    hours: Hours


@dataclass(frozen=True, slots=True)
class RateFacts:
    """What the price file says of a rate. `kind`: reserved, on_demand, spot, owned, "" where it is not known."""

    name: str
    kind: str = ""
    includes_power: bool = True


@dataclass(frozen=True, slots=True)
class Book:
    """Prices and commitments. `prices`: USD per GPU and hour by target, gpu_name and rate; `gpus`: GPUs by target and gpu_name; `nodes`: by
    target and node; `committed`: GPUs by rate. `budget_usd_per_month`: the last that was in force, None for none."""

    prices: tuple[Gauge, ...] = ()
    gpus: tuple[Gauge, ...] = ()
    nodes: tuple[Gauge, ...] = ()
    committed: tuple[Gauge, ...] = ()
    rates: Mapping[str, RateFacts] = field(default_factory=dict)
    budget_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """By model and role: replicas that ran (mean of the hour) and that were required (highest of the hour), ratios (means)."""

    present: tuple[Gauge, ...] = ()
    required: tuple[Gauge, ...] = ()  # label reserve: none, nodes
    bandwidth: tuple[Gauge, ...] = ()  # label source
    batch: tuple[Gauge, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """A time in which an alert fired, at a minute's resolution. `what`: the labels that say of whom."""

    alert: str
    severity: str
    what: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without data of a target within the week, Unix seconds.

    `recovered`: growth that the counters show across it and that no hour had, by quantity, already among the hours of `Usage`;
    `seen_gpu_seconds`: all GPU time that they show across it. `gpus`, `usd_per_gpu_hour`: as they stood before, None where they are not
    known. `ends`: whether data came back.
    """

    extra: Extra
    target: str
    begin: float
    end: float
    ends: bool
    gpus: float | None = None
    usd_per_gpu_hour: float | None = None
    seen_gpu_seconds: float = 0.0
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it. `notes`: what a reader must know first, in sentences; `methods`: how busy time was split and from what. `gaps` None: they
    could not be looked for. `begins`: hours at a week's beginning before the first data of all;
    `memory`: notes that come before all others, of what Prometheus does not remember; `watched_hours`: in which alert
    rules were evaluated, None where that is not known."""

    week: Week
    previous: Week
    usage: Usage
    usage_before: Usage
    book: Book = Book()
    fleet: Fleet = Fleet()
    episodes: tuple[Episode, ...] | None = ()
    gaps: tuple[Gap, ...] | None = ()
    gaps_before: tuple[Gap, ...] | None = ()
    begins: int = 0
    begins_before: int = 0
    methods: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    missing_parts: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    watched_hours: float | None = None


def drop_unknown(values: Iterable[float | None]) -> Iterator[float]:
    """Those that are there."""
    return (value for value in values if value is not None)


def sum_lines(lines: Iterable[Line]) -> float | None:
    """The sum of lines; None where there is none."""
    found = [line.total for line in lines]
    return sum(found) if found else None


def sum_by_hour(lines: Iterable[Line], hours: int) -> Hours:
    """The sum of lines in each hour; None in hours of which none says anything."""
    sums: list[float | None] = [None] * hours
    for line in lines:
        for index, value in enumerate(line.hours):
            if value is not None:
                sums[index] = (sums[index] or 0.0) + value
    return tuple(sums)
