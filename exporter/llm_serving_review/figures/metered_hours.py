"""What was metered, by UTC hour, machine, target and model: what commitments and bills of clouds are compared with. Pure.

Clouds count by UTC hour, a week may begin at another moment: hours of the week are cut at full UTC hours, in proportion to their length,
and a UTC hour at the week's edge counts with the part that lies within the week.

A target on several nodes is spread evenly over them. What is not known of a node is "", never left out: its hours are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_serving_exporter.model.cost import PoolBook
from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.usage import (
    Book,
    Hours,
    NodePlaces,
    Owner,
    Place,
    Usage,
    Where,
    drop_unknown,
    sum_by_hour,
)
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.rates import GpuKinds
from llm_serving_review.tables.sums import group_by_key


class MeteredHour(Struct, frozen=True):
    """GPU time within one UTC hour, of one model of a target on one node at one rate."""

    utc_begin: float  # Unix seconds of the full UTC hour in which it lies
    fleet: Where  # values of the identity labels
    target: str
    model_name: str  # the model that it serves; "" where it is unknown
    node: str  # "" where it is unknown
    provider_id: str  # what the cloud calls the machine; "" where it is unknown
    region: str  # of the node; "" where it is unknown
    zone: str  # of the node; "" where it is unknown
    instance_type: str  # of the node; "" where it is unknown
    gpu_name: str  # the kind of GPU, several joined with " + "; "" where it is unknown
    rate: str  # "" without a price
    gpu_hours: float  # in all states
    usd: float  # at the stated price; 0 without a price
    paid_usd: float  # after commitments: covered GPU-hours at the committed price, the others at the stated one
    # the stated price, as it was in force last in the hour; None where nothing says it. USD over GPU-hours of a single hour may differ:
    # busy time waits up to five minutes for its tokens before it is booked
    usd_per_gpu_hour: float | None = None


def measure_metered_hours(
    usage: Usage, book: Book, week: Week, identity: Sequence[str], stated: PoolBook | None = None
) -> tuple[MeteredHour, ...]:
    """The pieces of a week, in the order of hours. Their GPU-hours and USD add up to those of `usage`. `stated`: what the price file says
    of nodes."""
    places = NodePlaces(book, identity, None if stated is None else dict(stated.nodes))
    kinds, nodes = GpuKinds(book, identity), Nodes(book, identity, len(week.hours))
    cuts = [list(_cut_at_utc_hours(hour.begin, hour.end)) for hour in week.hours]
    found = []
    for (owner, rate), both in _sum_by_owner(usage, len(week.hours)).items():
        fleet, kind, prices = owner.fleet(identity), kinds.find_kinds(owner, rate), kinds.find_prices(owner, rate)
        for index, known in enumerate(zip(*both, strict=True)):
            if not any(known):
                continue
            time, money = known[0] or 0.0, known[1] or 0.0
            gpu_name = kind if isinstance(kind, str) else kind(index)
            price = next(drop_unknown(gauge.hours[index] for gauge in prices), None)
            there = nodes.find((fleet, owner.target), index)
            for node in there:
                at = places.find(fleet, owner.target, node, index)
                for utc_begin, part in cuts[index]:
                    share = part / len(there)
                    found.append(
                        MeteredHour(
                            utc_begin, fleet, owner.target, owner.model_name, node, at.provider_id, at.region, at.zone,
                            at.instance_type, gpu_name, rate, time / HOUR_SECONDS * share, money * share, money * share, price,
                        )
                    )  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.utc_begin))


class Nodes:
    """The nodes of a target in an hour."""

    def __init__(self, book: Book, identity: Sequence[str], hours: int) -> None:
        gauges = group_by_key((gauge.place(identity), gauge) for gauge in book.nodes)
        self._by_hour = {
            place: [sorted({one.label("node") for one in each if one.hours[hour] is not None}) for hour in range(hours)]
            for place, each in gauges.items()
        }
        self._ever = {place: sorted(set().union(*each)) for place, each in self._by_hour.items()}

    def find(self, place: Place, hour: int) -> Sequence[str]:
        """In that hour, else ever in the week, else one without a name."""
        return (place in self._by_hour and self._by_hour[place][hour]) or self._ever.get(place) or ("",)


def _sum_by_owner(usage: Usage, hours: int) -> Mapping[tuple[Owner, str], tuple[Hours, Hours]]:
    """Seconds and USD by hour over states, phases and methods."""
    seconds, usd = (
        group_by_key(((line.owner, line.of[1]), line) for line in lines) for lines in (usage.gpu_seconds, usage.cost)
    )
    return {
        who: (sum_by_hour(seconds.get(who, ()), hours), sum_by_hour(usd.get(who, ()), hours))
        for who in {**seconds, **usd}
    }


def _cut_at_utc_hours(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The full UTC hours that a time touches, each with its share of that time."""
    at = begin // HOUR_SECONDS * HOUR_SECONDS
    while at < end:
        yield at, (min(end, at + HOUR_SECONDS) - max(begin, at)) / (end - begin)
        at += HOUR_SECONDS
