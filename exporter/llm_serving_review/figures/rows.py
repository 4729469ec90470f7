"""Tables of the review: by model, by label, by node, for an invoice, objectives, alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.names import PAGE, TICKET
from llm_serving_review.evidence.usage import Book, Episode, Fleet, Gauge, Line, Usage, drop_unknown
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.metered_hours import Nodes
from llm_serving_review.figures.rates import Commitment, GpuKinds, sum_unused_usd
from llm_serving_review.figures.split import Split
from llm_serving_review.figures.totals import NOTHING, Totals, ratio, read_totals
from llm_serving_review.tables.facts import BEFORE, NOW, FactTable
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known

# of the exporter's sources the first that is there; the engine's own estimate is no measurement
_BANDWIDTH_SOURCES = ("gpm", "dcgm", "model")
# of a row's cost: more than that is no cost that waits for its tokens, which is booked after five minutes at the latest
_MOST_PENDING = 0.1


class ModelRow(Struct, frozen=True):
    """A model in both weeks."""

    model_name: str  # "" where it is unknown
    now: Totals  # totals of the week
    before: Totals  # totals of the week before
    bandwidth_ratio: float | None  # share of the bandwidth ceiling, mean of its engines; None where that is unknown
    batch_ratio: float | None  # batch utilisation, mean of its engines; None where that is unknown
    split: Split | None = None  # why its spend changed; None where the weeks cannot be compared


def build_model_rows(facts: FactTable, fleet: Fleet) -> tuple[ModelRow, ...]:
    """A row for each model, the most expensive first."""
    return tuple(
        ModelRow(
            model,
            now,
            before,
            _average_bandwidth(fleet, model),
            _average(gauge for gauge in fleet.batch if gauge.labels.get("model_name") == model),
        )
        for model, now, before in _list_totals(facts, "model")
    )


def _list_totals(facts: FactTable, section: str) -> list[tuple[str, Totals, Totals]]:
    """What has a cost in either week, or GPU time in this one: both weeks' totals, the most expensive item first."""
    totals = read_totals(facts, section)
    items = {item: (totals.get((NOW, item), NOTHING), totals.get((BEFORE, item), NOTHING)) for _, item in totals}
    rows = [
        (item, now, before)
        for item, (now, before) in items.items()
        if any(value is not None for value in (now.usd, now.gpu_hours, before.usd))
    ]
    return sorted(rows, key=lambda row: (-(row[1].usd or 0.0), row[0]))


class LabelRow(Struct, frozen=True):
    """A value of a label that the bill is split by."""

    label: str
    value: str  # "" for series without the label
    now: Totals  # totals of the week
    before: Totals  # totals of the week before


def build_label_rows(facts: FactTable, labels: Iterable[str]) -> tuple[LabelRow, ...]:
    """Rows label by label, the most expensive value first. The values of each label add up to the spend."""
    return tuple(LabelRow(label, *row) for label in labels for row in _list_totals(facts, f"label {label}"))


class NodeRow(Struct, frozen=True):
    """A node. The cost of a target on several nodes is split evenly."""

    node: str  # "" where it is unknown
    usd: float  # cost of GPU time in the week
    gpu_hours: float


def build_node_rows(usage: Usage, book: Book, hours: int, identity: Sequence[str] = ()) -> tuple[NodeRow, ...]:
    """A row for each node, the most expensive first."""
    nodes = Nodes(book, identity, hours)

    def list_parts(lines: Iterable[Line]) -> Iterator[tuple[str, float]]:
        for line in lines:
            place = line.owner.place(identity)
            for hour, value in enumerate(line.hours):
                if value:
                    there = nodes.find(place, hour)
                    yield from ((node, value / len(there)) for node in there)

    usd, seconds = sum_by_key(list_parts(usage.cost)), sum_by_key(list_parts(usage.gpu_seconds))
    rows = [NodeRow(node, usd.get(node, 0.0), seconds.get(node, 0.0) / 3600) for node in {**usd, **seconds}]
    return tuple(sorted(rows, key=lambda row: (-row.usd, row.node)))


class InvoiceRow(Struct, frozen=True):
    """GPU-hours of a rate and a kind of GPU."""

    rate: str  # "" for GPU time without a price
    kind: str  # reserved, on_demand, spot or owned; "" where it is unknown
    gpu_name: str  # the kind of GPU, several joined with " + "; "" where it is unknown
    gpu_hours: float
    usd: float  # what they cost
    # the one price that was in force all the time; None where it changed, or nobody knows it
    flat_price: float | None = None

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """Mean over the week. Cost is booked minutes later than its GPU time: a price that never changed is taken as it is."""
        mean, flat = ratio(self.usd, self.gpu_hours), self.flat_price
        return flat if mean is not None and flat is not None and abs(mean / flat - 1) <= _MOST_PENDING else mean


def build_invoice_rows(usage: Usage, book: Book, identity: Sequence[str] = ()) -> tuple[InvoiceRow, ...]:
    """A row for each rate and kind of GPU; their USD add up to the spend."""
    kinds = GpuKinds(book, identity)
    prices: dict[tuple[str, str], set[float]] = {}

    def find_cell(line: Line) -> tuple[str, str]:
        rate = line.of[1]
        cell = rate, kinds.find_all_kinds(line.owner, rate)
        gauges = kinds.find_prices(line.owner, rate)
        # a target whose price nobody knows makes it one that is not known
        stated = {price for gauge in gauges for price in drop_unknown(gauge.hours)} if gauges else {0.0}
        prices.setdefault(cell, set()).update(stated)
        return cell

    seconds, usd = (
        sum_by_key((find_cell(line), line.total) for line in lines) for lines in (usage.gpu_seconds, usage.cost)
    )
    rows = [
        InvoiceRow(
            rate,
            book.rates.get(rate, ""),
            gpu,
            seconds.get((rate, gpu), 0.0) / 3600,
            usd.get((rate, gpu), 0.0),
            next(iter(prices[rate, gpu])) or None if len(prices[rate, gpu]) == 1 else None,
        )
        for rate, gpu in prices
        if seconds.get((rate, gpu)) or usd.get((rate, gpu))
    ]
    return tuple(sorted(rows, key=lambda row: (-row.usd, row.rate, row.gpu_name)))


def sum_invoice(rows: Iterable[InvoiceRow], unused: Iterable[Commitment], energy_usd: float | None) -> float:
    """What invoices should come to: GPU-hours that were used, unused commitments whose price is known, electricity."""
    return fsum(row.usd for row in rows) + sum_unused_usd(unused) + (energy_usd or 0.0)


class Attainment(Struct, frozen=True):
    """How far an objective was attained."""

    slo: str
    good: float
    total: float  # all events
    objective: float | None  # share of good events that is asked for; None where none is set

    @property
    def share(self) -> float | None:
        """Good ones over all; None without events."""
        return ratio(self.good, self.total)


def measure_attainments(facts: FactTable, objectives: Mapping[str, float]) -> tuple[Attainment, ...]:
    """A row for each objective, over all models."""
    return tuple(
        Attainment(**row, objective=objectives.get(row["slo"])) for row in facts.rows("select * from attainments")
    )


class AlertRow(Struct, frozen=True):
    """How often one alert fired."""

    alert: str
    severity: str
    episodes: int  # times that it fired
    minutes: float  # for how long in all


class AlertSums(Struct, frozen=True):
    """Pages (critical) and tickets (warning) of the week."""

    pages: int  # episodes that paged
    page_minutes: float  # how long they fired in all
    tickets: int  # episodes that opened a ticket
    ticket_minutes: float  # how long they fired in all
    noisiest: tuple[AlertRow, ...]  # alerts that fired most often
    watched_hours: float | None = None  # hours in which rules were evaluated; None where that is unknown


def sum_alerts(
    episodes: Iterable[Episode], week: Week, watched_hours: float | None = None, shown: int = 5
) -> AlertSums | None:
    """Pages and tickets of the week. An episode that began earlier counts with its minutes within the week. None where no alert fired
    because nothing evaluated the rules."""
    episodes = tuple(episodes)
    if not watched_hours and not episodes:
        return None
    minutes = group_by_key(
        ((one.alert, one.severity), max(0.0, (min(one.end, week.end) - max(one.begin, week.begin)) / 60))
        for one in episodes
    )
    rows = [AlertRow(alert, severity, len(each), fsum(each)) for (alert, severity), each in minutes.items()]
    rows.sort(key=lambda row: (-row.episodes, -row.minutes, row.alert))

    def sum_of_severity(severity: str) -> tuple[int, float]:
        chosen = [row for row in rows if row.severity == severity]
        return add_up(row.episodes for row in chosen), fsum(row.minutes for row in chosen)

    notified = [row for row in rows if row.severity in (PAGE, TICKET)]
    return AlertSums(*sum_of_severity(PAGE), *sum_of_severity(TICKET), tuple(notified[:shown]), watched_hours or None)


def _average_bandwidth(fleet: Fleet, model: str) -> float | None:
    of_model = group_by_key(
        (gauge.label("source"), gauge) for gauge in fleet.bandwidth if gauge.label("model_name") == model
    )
    means = (_average(of_model.get(source, ())) for source in _BANDWIDTH_SOURCES)
    return next(drop_unknown(means), None)


def _average(gauges: Iterable[Gauge]) -> float | None:
    values = [value for gauge in gauges for value in drop_unknown(gauge.hours)]
    return fsum(values) / len(values) if values else None


# --- How long each check of each model was fine, a ticket, a page, or not known, by the verdicts that the rules record.


class CheckRow(Struct, frozen=True):
    """One check of one model and role. Hours of the week."""

    # the fleet's identity labels, the model and its role, as they tell it from others
    labels: tuple[tuple[str, str], ...]
    check: str  # phases, ttft, kv, tail, node_loss, slo, cost, gpu or exporter
    page_hours: float  # in which an alert of it paged
    ticket_hours: float  # in which one opened a ticket and none paged
    fine_hours: float  # in which none fired
    unknown_hours: float  # without a verdict: its inputs were absent, or its alerts were not evaluated


def sum_checks(fleet: Fleet, week: Week) -> tuple[CheckRow, ...]:
    """A row for each check of each model that had a verdict at all, the worst first."""
    verdicts = group_by_key(
        (
            (
                tuple(sorted(pair for pair in gauge.labels.items() if pair[0] not in ("check", "verdict"))),
                gauge.labels.get("check", ""),
            ),
            (gauge.labels["verdict"], sum_known(gauge.hours) or 0.0),
        )
        for gauge in fleet.verdicts
    )
    rows = []
    for (labels, check), pairs in verdicts.items():
        hours = sum_by_key(pairs)
        page, ticket, fine = (hours.get(said, 0.0) for said in ("page", "ticket", "fine"))
        rows.append(CheckRow(labels, check, page, ticket, fine, max(0.0, week.length_hours - page - ticket - fine)))
    return tuple(
        sorted(rows, key=lambda row: (-row.page_hours, -row.ticket_hours, -row.unknown_hours, row.labels, row.check))
    )
