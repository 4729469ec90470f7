"""Evidence: what Prometheus said of a week, by hour, before anything is computed.

Hours run as in `Week.hours`; None: nothing is known.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum, nan
from typing import TYPE_CHECKING

from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS
from llm_serving_exporter.model.cost import PoolBook
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import NOWHERE, NodePlace
from llm_serving_review.evidence.week import Week
from llm_serving_review.tables.sums import group_by_key, sum_known

if TYPE_CHECKING:
    from llm_serving_review.evidence.context import ModelLoad, TenantUsage


Hours = tuple[float | None, ...]
Extra = tuple[tuple[str, str], ...]
# values of the labels that tell fleets apart
Where = tuple[str, ...]
# a fleet and a target of it
Place = tuple[Where, str]
# of a gap; less is the edge of a scrape, or what a restart loses
_KNOWN_SECONDS = 60.0


def find_fleet(labels: Mapping[str, str], identity: Iterable[str]) -> Where:
    """The fleet of a series; `identity`: labels that tell fleets apart, "" where it has none."""
    return tuple(labels.get(name, "") for name in identity)


class Owner(Struct, frozen=True):
    """Which target, model and role a series belongs to."""

    extra: Extra  # identity labels and labels that the bill is split by, with their values; "" where a series has none
    target: str  # the target's name, as its series have it
    model_name: str  # the model that it serves; "" where it is unknown
    role: str  # unified, prefill, decode or frontend

    @property
    def who(self) -> tuple[Extra, str]:
        """Target and where it is, whatever it serves."""
        return self.extra, self.target

    def label(self, name: str) -> str:
        """One of the extra labels, "" where it has none."""
        return dict(self.extra).get(name, "")

    def fleet(self, identity: Iterable[str]) -> Where:
        """The fleet that it belongs to."""
        return find_fleet(dict(self.extra), identity)

    def place(self, identity: Iterable[str]) -> Place:
        """Its fleet and target."""
        return self.fleet(identity), self.target


def pack(hours: Iterable[float | None]) -> bytes:
    """Values by hour in an eighth of the memory; NaN stands for None, no value is NaN."""
    return array("d", [nan if value is None else value for value in hours]).tobytes()


def unpack(packed: bytes) -> Hours:
    """The same back."""
    return tuple([value if value == value else None for value in array("d", packed)])


def total_packed(packed: bytes) -> float:
    """The sum of the known hours."""
    total = fsum(values := array("d", packed))
    return total if total == total else fsum(value for value in values if value == value)


def sum_packed(rows: Iterable[bytes]) -> bytes | None:
    """The sum in each hour, unknown in hours without any value; None without any row."""
    sums = array("d", map(fsum, columns := list(zip(*(array("d", row) for row in rows), strict=True))))
    for hour, value in enumerate(sums):
        if value != value:
            known = sum_known(one for one in columns[hour] if one == one)
            sums[hour] = nan if known is None else known
    return sums.tobytes() if columns else None


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Line:
    """One quantity of one owner, by hour."""

    owner: Owner
    of: tuple[str, ...]  # the values of the quantity's own labels, in the order of `names.Quantity.of`
    packed: bytes  # growth in each hour of the week, as `pack` has it: a large fleet has millions of values
    # sum of the known hours; computed once because every row of every table needs it
    total: float = dataclasses.field(compare=False)

    def __init__(self, owner: Owner, of: tuple[str, ...], hours: Hours) -> None:
        packed = pack(hours)
        for name, value in (("owner", owner), ("of", of), ("packed", packed), ("total", total_packed(packed))):
            object.__setattr__(self, name, value)

    @property
    def hours(self) -> Hours:
        """Growth in each hour of the week; None where nothing is known."""
        return unpack(self.packed)


class Usage(Struct, frozen=True):
    """Growth of counters by hour of a week, one `Line` for each owner and set of labels."""

    cost: tuple[Line, ...] = ()  # USD; labels phase, rate, method
    gpu_seconds: tuple[Line, ...] = ()  # seconds times GPUs; labels state, rate
    prefill_tokens: tuple[Line, ...] = ()  # prompt tokens that were computed
    decode_tokens: tuple[Line, ...] = ()
    prompt_tokens: tuple[Line, ...] = ()  # prompt tokens as clients sent them, cached ones included
    cached_tokens: tuple[Line, ...] = ()  # prompt tokens that the prefix cache had
    requests: tuple[Line, ...] = ()
    energy_joules: tuple[Line, ...] = ()  # energy of the GPUs
    energy_cost: tuple[Line, ...] = ()  # USD of electricity that the GPU rates do not include
    carbon_grams: tuple[Line, ...] = ()  # grams of CO2 equivalent
    savings: tuple[Line, ...] = ()  # USD of GPU time that the prefix cache saved
    slo: tuple[Line, ...] = ()  # events of objectives; labels slo, outcome
    unread: tuple[str, ...] = ()  # names of the quantities that could not be read

    @property
    def empty(self) -> bool:
        """Whether neither money nor GPU time was counted."""
        return not any(line.total for line in (*self.cost, *self.gpu_seconds))


class Gauge(Struct, frozen=True):
    """A gauge by hour."""

    labels: Mapping[str, str]  # its labels, identity labels first
    hours: Hours  # its value in each hour; None where nothing is known

    def label(self, name: str) -> str:
        """One of its labels, "" where it has none."""
        return self.labels.get(name, "")

    def place(self, identity: Iterable[str]) -> Place:
        """Its fleet and target."""
        return find_fleet(self.labels, identity), self.label("target")


class Book(Struct, frozen=True):
    """Prices and commitments, as they were in force."""

    prices: tuple[Gauge, ...] = ()  # USD per GPU and hour; labels target, gpu_name, rate
    gpus: tuple[Gauge, ...] = ()  # number of GPUs; labels target, gpu_name
    nodes: tuple[Gauge, ...] = ()  # 1 where a target runs on a node; labels target, node
    # 1 where a target belongs to a workload; labels target, workload, workload_kind, namespace
    workloads: tuple[Gauge, ...] = ()
    committed: tuple[Gauge, ...] = ()  # GPUs that are committed; label rate
    # by a rate's name: reserved, on_demand, spot or owned; "" where it is unknown
    rates: Mapping[str, str] = field(default_factory=dict)
    budget_usd_per_month: float | None = None  # the last budget that was in force; None for none
    # as `nodes`, with the labels region, zone, instance_type, provider_id: two for a node where they changed
    places: tuple[Gauge, ...] = ()
    # what the cluster itself says of its nodes: by the values of the identity labels that scrapes add, and node
    cluster_places: Mapping[tuple[Extra, str], NodePlace] = field(default_factory=dict)

    def index_prices(self, identity: Sequence[str]) -> dict[tuple[Where, str, str], list[Gauge]]:
        """Prices by fleet, target and rate."""
        return group_by_key(((*gauge.place(identity), gauge.label("rate")), gauge) for gauge in self.prices)


class Fleet(Struct, frozen=True):
    """Replicas and ratios by model and role."""

    present: tuple[Gauge, ...] = ()  # replicas that ran, mean of the hour
    required: tuple[Gauge, ...] = ()  # replicas that were required, highest of the hour; label reserve: none, nodes
    bandwidth: tuple[Gauge, ...] = ()  # share of the bandwidth ceiling, mean; label source
    batch: tuple[Gauge, ...] = ()  # batch utilisation, mean
    verdicts: tuple[Gauge, ...] = ()  # hours by model, role, check and verdict


class Episode(Struct, frozen=True):
    """A time in which an alert fired, to the minute. Times are Unix seconds."""

    alert: str
    severity: str  # critical, warning or another severity of the rules
    what: str  # the labels of what it fired for, joined with " / "
    begin: float  # the first minute in which it fired
    end: float  # a minute after the last


class Gap(Struct, frozen=True):
    """A time within the week without data of a target. Times are Unix seconds."""

    extra: Extra  # identity labels of the target
    target: str
    begin: float  # when data ended, or the week began
    end: float  # when data came back, or the week ended
    ends: bool  # whether data came back within the week
    gpus: float | None = None  # the target's GPUs before the gap; None where that is unknown
    usd_per_gpu_hour: float | None = None  # their price before the gap; None where that is unknown
    seen_gpu_seconds: float = 0.0  # all GPU time that counters show across the gap
    # growth that counters show across the gap and no hour had, by quantity; already part of `Usage`
    recovered: Mapping[str, float] = field(default_factory=dict)

    def place(self, identity: Iterable[str]) -> Place:
        """Its fleet and target."""
        return find_fleet(dict(self.extra), identity), self.target

    @property
    def hides_use(self) -> bool:
        """Whether more is missing than the edge of a scrape."""
        return self.missing_gpu_seconds is None or self.missing_gpu_seconds > _KNOWN_SECONDS

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


class Evidence(Struct, frozen=True):
    """All that the review is computed from."""

    week: Week
    previous: Week
    usage: Usage  # counters of the week
    usage_before: Usage  # counters of the week before
    book: Book = Book()  # prices and commitments of the week
    fleet: Fleet = Fleet()  # replicas and ratios of the week
    episodes: tuple[Episode, ...] | None = ()  # alerts that fired; None where they could not be read
    gaps: tuple[Gap, ...] | None = ()  # gaps of the week; None where they could not be read
    gaps_before: tuple[Gap, ...] | None = ()  # gaps of the week before; None where they could not be read
    begins: int = 0  # hours at the beginning of the week before the first data of all
    begins_before: int = 0  # the same of the week before
    methods: tuple[tuple[str, str], ...] = ()  # how busy time was split, and from which inputs
    notes: tuple[str, ...] = ()  # what a reader must know, in sentences
    missing_parts: tuple[str, ...] = ()  # what could not be read, in sentences
    memory: tuple[str, ...] = ()  # what Prometheus no longer has, in sentences; shown before all other notes
    watched_hours: float | None = None  # hours in which alert rules were evaluated; None where that is unknown
    book_before: Book = Book()  # prices, GPUs, nodes and commitments of the week before
    pools: PoolBook | None = None  # commitments and nodes of the price files; None where the review has none
    tenants: TenantUsage | None = None  # what gateways counted by tenant in the week; None where none does
    loads: tuple[ModelLoad, ...] = ()  # of the models that cost most; () without the rule pack's records


def drop_unknown(values: Iterable[float | None]) -> Iterator[float]:
    """The values that are known."""
    return (value for value in values if value is not None)


def sum_by_hour(lines: Iterable[Line], hours: int) -> Hours:
    """The sum of lines in each hour; None in hours without any value."""
    packed = sum_packed(line.packed for line in lines)
    return (None,) * hours if packed is None else unpack(packed)


# --- Where nodes stand, hour by hour: by the price file, by the exporter's series, by kube-state-metrics, in this order of belief. Pure.


_Key = tuple[tuple[str, ...], str, str]


class NodePlaces:
    """Places by fleet, target, node and hour. `stated`: by node, what the price file says.

    A node whose labels change within an hour has two gauges, and counts as one: what is known of it wins over what is not.
    """

    def __init__(self, book: Book, identity: Sequence[str], stated: Mapping[str, NodePlace] | None = None) -> None:
        self._identity, self._stated, self._of_cluster = tuple(identity), stated or {}, book.cluster_places
        self._said: dict[_Key, list[tuple[NodePlace, Gauge]]] = {}
        for gauge in book.places:
            labels = gauge.labels
            place = NodePlace(*(labels.get(name, "") for name in NODE_LABELS))
            if place != NOWHERE:
                fleet = tuple(labels.get(name, "") for name in identity)
                key = fleet, labels.get("target", ""), labels.get("node", "")
                self._said.setdefault(key, []).append((place, gauge))
        self._merged: dict[tuple[_Key, tuple[NodePlace, ...]], NodePlace] = {}

    def find(self, fleet: tuple[str, ...], target: str, node: str, hour: int) -> NodePlace:
        """The place of a target's node in an hour of the week; what was said of it in other hours where that hour has nothing."""
        key = fleet, target, node
        said = self._said.get(key, ())
        now = tuple(place for place, gauge in said if gauge.hours[hour] is not None) or tuple(
            place for place, _ in said
        )
        found = self._merged.get((key, now))
        if found is None:
            found = self._stated.get(node, NOWHERE)
            # the fullest first: where the machine behind a name changed, fields of both are not mixed more than need be
            for place in sorted(now, key=lambda one: (-_count_known(one), one.provider_id)):
                found = found.fill_up(place)
            found = found.fill_up(self._find_in_cluster(fleet, node))
            self._merged[key, now] = found
        return found

    def _find_in_cluster(self, fleet: tuple[str, ...], node: str) -> NodePlace:
        # what a target has of its own, such as its namespace, is another one on series about nodes
        of = zip(self._identity, fleet, strict=True)
        scraped = tuple((name, text) for name, text in of if name not in IDENTITY_LABELS)
        return self._of_cluster.get((scraped, node), NOWHERE)


def _count_known(place: NodePlace) -> int:
    return sum(bool(getattr(place, name)) for name in NODE_LABELS)
