"""The review -> the same with its bills: what is read, what is compared, and what a reader must know of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.prices import RateKind
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import usd
from llm_serving_exporter.report.bills.charge import BillError
from llm_serving_exporter.report.bills.compare import BillReview, Comparison, compare
from llm_serving_exporter.report.bills.instances import GPU_FAMILIES, InstanceTypes
from llm_serving_exporter.report.bills.ledger import MOST_MACHINES, REST, Ledger
from llm_serving_exporter.report.bills.mapping import LABELS, Found
from llm_serving_exporter.report.bills.period import Period, find_period, is_preliminary
from llm_serving_exporter.report.bills.read import Bill, read_bill
from llm_serving_exporter.report.bills.resources import find_cloud, normalise_resource
from llm_serving_exporter.report.bills.scope import Scope
from llm_serving_exporter.report.evidence.places import NodePlaces
from llm_serving_exporter.report.evidence.usage import Evidence
from llm_serving_exporter.report.evidence.week import HOUR_SECONDS
from llm_serving_exporter.report.figures.counted_once import count_once
from llm_serving_exporter.report.figures.metered_hours import MeteredHour, measure_metered_hours
from llm_serving_exporter.report.figures.rates import find_rates_of_kind, sum_unused_usd
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.settings.settings import Settings
from llm_serving_exporter.schema.problems import shown

# an hour of a machine has one hour; more is a line that came twice
_DOUBLE = 1.001
_LEAST_DOUBLE_HOURS = 0.5
_SHOWN_STRANGERS = 3


def add_bills(
    review: Review, evidence: Evidence, settings: Settings, now: float, progress: Callable[[str], None]
) -> Review:
    """The review with its bills, where there are any. `now`: Unix seconds. What cannot be compared is said, and the review stays."""
    bills = settings.bills
    if bills is None or not bills.paths:
        return review
    pieces = _list_metered(review, evidence, settings)
    owned = find_rates_of_kind(evidence.book, RateKind.OWNED)
    metered = [piece for piece in pieces if piece.rate not in owned]
    known = {normalise_resource(piece.provider_id) for piece in metered if piece.provider_id}
    try:
        bill = read_bill(bills, evidence.week, known, progress)
    except BillError as error:
        return _refuse(review, str(error))
    period = find_period(bill.ledger, evidence.week)
    if period is None:
        first = f"; could not be used: {bill.fault_count:,}, the first: {bill.faults[0]}" if bill.faults else ""
        return _refuse(review, f"{_say_why_not(bill.ledger, evidence)}{first}")
    clouds = _find_clouds(bill)
    here = [piece for piece in metered if not _is_elsewhere(piece, clouds)]
    workloads = {one.labels.get("target", ""): one.labels.get("workload", "") for one in evidence.book.workloads}
    comparison = compare(
        bill.ledger, here, period, Scope(InstanceTypes(bills.instance_types or GPU_FAMILIES), bills.accounts, known),
        metered_unused_usd=_sum_unused(review, period), mapping=bills.mapping, tags=bills.tags,
        workloads=workloads,
        gpus_per_instance=bills.gpus_per_instance,
    )  # fmt: skip
    preliminary = is_preliminary(bill.ledger, now)
    notes = (
        *_list_notes(bill, comparison, evidence, preliminary=preliminary),
        *_list_strangers(bills.mapping, metered, workloads),
        *_list_left_out(_sum_paid(pieces) - _sum_paid(metered), _sum_paid(metered) - _sum_paid(here)),
    )
    return replace(review, bills=_describe(bill, comparison, notes, preliminary=preliminary))


def _say_why_not(ledger: Ledger, evidence: Evidence) -> str:
    week = evidence.week
    if ledger.daily_lines:
        return f"the bill has lines of whole days in UTC, and covers none that lies within {week.name}"
    if ledger.longer.lines:
        return f"the lines of the bill in {week.name} cover more than a day each, which says nothing of a week: export it by hours or days"
    if ledger.has_several_clouds:
        return (
            f"the bills of several clouds cover no time of {week.name} together: give one review the bills of one cloud"
        )
    return f"no line of the bill lies in {week.name}"


def _describe(bill: Bill, comparison: Comparison, notes: tuple[str, ...], *, preliminary: bool) -> BillReview:
    beside = [(kind.value, one) for kind, one in bill.ledger.beside.items()]
    beside += [
        ("unused commitments of which nobody knows what for", comparison.unassigned),
        ("unused commitments that are not of the fleet", comparison.other_unused),
        ("usage that is not of the fleet", bill.ledger.others),
    ]
    return BillReview(
        comparison, "", notes, bill.faults, bill.fault_count, tuple((what, one) for what, one in beside if one.lines),
        bill.files, bill.lines, bill.formats, preliminary,
    )  # fmt: skip


def _sum_paid(pieces: Iterable[MeteredHour]) -> float:
    return add_up(piece.paid_usd for piece in pieces)


def _list_metered(review: Review, evidence: Evidence, settings: Settings) -> tuple[MeteredHour, ...]:
    """The pieces after pools, where there are any."""
    if review.pools is not None:
        return review.pools.hours
    identity = settings.identity_labels
    stated = evidence.pools
    places = NodePlaces(
        evidence.book.places, identity, {} if stated is None else dict(stated.nodes), evidence.book.cluster_places
    )
    return measure_metered_hours(count_once(evidence.usage, identity), evidence.book, evidence.week, identity, places)


def _find_clouds(bill: Bill) -> frozenset[str]:
    """The clouds that the bill has lines of; none where it does not say. Who resells one may be called otherwise, but its machines say
    whose they are."""
    if not bill.clouds:
        return frozenset()
    return bill.clouds | {find_cloud(machine) for machine in bill.ledger.machines}


def _is_elsewhere(piece: MeteredHour, clouds: frozenset[str]) -> bool:
    """Whether it is of a cloud that is none of these."""
    cloud = find_cloud(normalise_resource(piece.provider_id))
    return bool(cloud and clouds) and cloud not in clouds


def _sum_unused(review: Review, period: Period) -> float:
    """USD of commitments that the review has as unused in the period; those of hours that a gap hides are paid all the same. Of rates
    with committed GPUs it is the week's, by length."""
    idle = {} if review.pools is None else review.pools.idle_usd
    # an hour at the period's edge counts whole: a pool's is cut to the week already
    pools = add_up(usd for at, usd in idle.items() if at < period.end and period.begin < at + HOUR_SECONDS)
    return pools + sum_unused_usd(review.commitments) * period.hours / review.week.length_hours


def _refuse(review: Review, why: str) -> Review:
    sentence = f"The bill is not compared: {why.removesuffix('.')}."
    return replace(review, bills=BillReview(None, why), missing_parts=(*review.missing_parts, sentence))


def _list_notes(bill: Bill, comparison: Comparison, evidence: Evidence, *, preliminary: bool) -> Iterator[str]:
    ledger, period = bill.ledger, comparison.period
    if period.by_days:
        yield (
            "The bill has lines of whole days, which end at midnight UTC: "
            f"compared are {period.hours / 24:.0f} days in UTC, {_write_span(period.begin, period.end)}."
        )
    elif (period.begin, period.end) != (evidence.week.begin, evidence.week.end):
        yield f"The bill covers a part of the week, and only that is compared: {_write_span(period.begin, period.end)}."
    for begin, end in ledger.find_holes():
        if begin < period.end and end > period.begin:
            yield (
                f"The bill has no line of any usage from {_write_span(begin, end)}: is a file missing? "
                "What was metered then counts as hours that are not billed."
            )
    if bill.converted_lines:
        yield (
            f"In another currency, and read in USD by the bill's own columns x_EffectiveCostInUsd and x_BilledCostInUsd: "
            f"{count_nouns(bill.converted_lines, 'line')}."
        )
    if bill.net_files:
        yield (
            f"After discounts, by the net columns of AWS CUR: {bill.net_files} of {count_nouns(bill.cur_files, 'file')}. "
            "What savings plans were not used for has none, and is before discounts."
        )
    if preliminary:
        yield "Preliminary: the bill's last period is younger than 72 h, and clouds still add to it and change it."
    if bill.fault_count:
        yield f"Could not be used and in no sum: {count_nouns(bill.fault_count, 'line or file', 'lines or files')}."
    if bill.older:
        yield f"Not read: {count_nouns(len(bill.older), 'older version')} of an export. Only the newest of a month counts."
    if ledger.repeated_lines:
        yield f"Came twice by its number and counts once: {count_nouns(ledger.repeated_lines, 'line')}."
    if ledger.unnamed_lines:
        unnamed = count_nouns(ledger.unnamed_lines, "line")
        yield f"Name no machine, so that nothing finds them: {unnamed}. Export the bill with resource ids."
    if ledger.forgot_identities:
        yield "There are too many lines to tell those that come twice."
    double = _measure_double(ledger, period)
    if double > _LEAST_DOUBLE_HOURS:
        yield f"Machines are billed for {double:,.1f} hours more than there are: the bill may hold two versions of an export."
    if ledger.longer.lines:
        yield (
            f"Covers more than a day and counts evenly over its time: {count_nouns(ledger.longer.lines, 'line')}, "
            f"{usd(ledger.longer.effective_usd)}."
        )
    if REST in ledger.machines:
        yield f"Beyond {MOST_MACHINES:,} machines all further ones are one row."
    if comparison.unassigned.effective_usd >= 0.005:
        yield (
            f"{usd(comparison.unassigned.effective_usd)} of unused commitments say neither a type of instance nor what they covered: "
            "they are in no sum."
        )


def _list_strangers(
    mapping: Mapping[str, tuple[Found, ...]], metered: Iterable[MeteredHour], workloads: Mapping[str, str]
) -> Iterator[str]:
    """What the mapping file names and nothing was metered of: a slip of the pen, or what did not run."""
    there: set[tuple[str, str]] = set()
    for piece in metered:
        there.update(
            zip(LABELS, (piece.target, piece.node, workloads.get(piece.target, ""), piece.model_name), strict=True)
        )
    lost = sorted({f"{one.label} {shown(one.value)}" for ones in mapping.values() for one in ones if one not in there})
    if lost:
        more = f" and {len(lost) - _SHOWN_STRANGERS:,} more" if len(lost) > _SHOWN_STRANGERS else ""
        yield f"The mapping file names what was not metered here: {', '.join(lost[:_SHOWN_STRANGERS])}{more}."


def _list_left_out(owned_usd: float, elsewhere_usd: float) -> Iterator[str]:
    """What was metered and belongs to no cloud, or to another one."""
    if elsewhere_usd >= 0.005:
        yield f"{usd(elsewhere_usd)} of GPUs in clouds of which the bill has no line is not compared."
    if owned_usd >= 0.005:
        yield f"{usd(owned_usd)} of GPUs at owned rates is not compared: no cloud bills them."


def _write_span(begin: float, end: float) -> str:
    first, last = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (begin, end))
    return f"{first} to {last} UTC"


def _measure_double(ledger: Ledger, period: Period) -> float:
    """Hours of single machines beyond what an hour has."""
    return add_up(
        max(0.0, hours - _DOUBLE * period.step)
        for key, machine in ledger.machines.items()
        if machine.counts_hours and key.startswith(("i-", "gce/"))
        for hours in period.fold(machine.hours)
    )
