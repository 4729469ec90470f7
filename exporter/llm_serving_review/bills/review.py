"""The review -> the same with its bills: what is read, what is compared, and what a reader must know of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import fsum

from llm_serving_exporter.model.cost import RateKind
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import signed_percent, signed_usd_to_the_cent, usd, usd_to_the_cent
from llm_serving_exporter.settings.problems import shown
from llm_serving_review.bills.charge import CLOUD_NAMES, BillError, find_cloud, normalise_resource
from llm_serving_review.bills.compare import BillReview, Comparison, compare, name_labels
from llm_serving_review.bills.files import Found
from llm_serving_review.bills.ledger import MOST_MACHINES, REST, Ledger, Period, Scope, Sum, find_period, is_preliminary
from llm_serving_review.bills.read import Bill, read_bill
from llm_serving_review.evidence.usage import Evidence
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.findings import BILL_RULE, Finding
from llm_serving_review.figures.metered_hours import MeteredHour, measure_metered_hours
from llm_serving_review.figures.rates import find_rates_of_kind, sum_unused_usd
from llm_serving_review.figures.review import Review
from llm_serving_review.settings.settings import Settings

# --- What page one, the findings and the summary say of a bill, in sentences.


# by the names of `Reasons`
REASONS = {
    "not_metered": "Billed, not metered",
    "not_billed": "Metered, not billed",
    "hours": "Other hours",
    "unused_gpus": "GPUs of a machine that no target uses",
    "price": "Another price",
    "undivided": "Hours, unused GPUs or price: the bill counts no hours",
    "unused_commitments": "Unused commitments",
}
_LEAST_CENT = 0.005
_SHOWN_LEFT_OUT = 2


def write_difference(found: BillReview) -> str:
    """Both sums, what the bill has more, and the reason with most of it; why nothing is compared where nothing is."""
    if found.comparison is None:
        return f"The bill is not compared: {found.refused}."
    total, apart = found.comparison.total, found.comparison.total.difference_usd
    begin = f"{'Preliminary: the' if found.preliminary else 'The'} bill says {usd(total.billed_usd)}"
    if not apart:
        return f"{begin}, as much as was metered."
    ratio = total.difference_ratio
    share = f" ({signed_percent(ratio)})" if ratio is not None else ""
    name, value = max(found.comparison.reasons.parts().items(), key=lambda item: abs(item[1]))
    words = REASONS[name][0].lower() + REASONS[name][1:] if not REASONS[name].startswith("GPU") else REASONS[name]
    most = f" Most of it: {words}, {usd(value)}." if abs(value) >= _LEAST_CENT else ""
    more = "more" if apart > 0 else "less"
    return f"{begin}, {usd(abs(apart))} {more} than the {usd(total.metered_usd)} that were metered{share}.{most}"


def write_left_out(found: BillReview) -> str:
    """What of the bill in that time is in no sum, with the largest of it; "" for nothing, or where nothing is compared."""
    if found.comparison is None:
        return ""
    beside = [(what, one.effective_usd) for what, one in found.beside if abs(one.effective_usd) >= _LEAST_CENT]
    if not beside:
        return ""
    beside.sort(key=lambda item: -abs(item[1]))
    parts = [f"{what} {usd(value)}" for what, value in beside[:_SHOWN_LEFT_OUT]]
    if len(beside) > _SHOWN_LEFT_OUT:
        parts.append(f"{len(beside) - _SHOWN_LEFT_OUT} more")
    return f"Left out of it: {usd(fsum(value for _, value in beside))} ({', '.join(parts)})."


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
    identity = settings.identity_labels
    pieces = (
        review.pools.hours
        if review.pools is not None
        else measure_metered_hours(evidence.usage, evidence.book, evidence.week, identity, evidence.pools)
    )
    owned = find_rates_of_kind(evidence.book, RateKind.OWNED)
    metered = [piece for piece in pieces if piece.rate not in owned]
    known = {normalise_resource(piece.provider_id) for piece in metered if piece.provider_id}
    try:
        bill = read_bill(bills, evidence.week, known, progress)
    except BillError as error:
        return _refuse(review, str(error))
    scope = Scope(bills.instance_types, bills.accounts, known)
    period = find_period(bill.ledger, evidence.week)
    if period is None or not _has_gpus(bill.ledger, scope):
        first = f"; could not be used: {bill.fault_count:,}, the first: {bill.faults[0]}" if bill.faults else ""
        beside = _list_beside(bill.ledger)
        if bill.ledger.in_week.lines and not _has_gpus(bill.ledger, scope):
            why, details = _say_no_gpus(bill.ledger, evidence.week.name, scope, {*known, *bills.mapping})
            return _refuse(review, why, f"{details}{first}", beside)
        return _refuse(review, f"{_say_why_not(bill.ledger, evidence)}{first}", "", beside)
    # none where the bill does not say; who resells one may be called otherwise, but its machines say whose they are
    clouds = bill.clouds and bill.clouds | {find_cloud(machine) for machine in bill.ledger.machines}
    here = [piece for piece in metered if not _is_elsewhere(piece, clouds)]
    workloads = {one.labels.get("target", ""): one.labels.get("workload", "") for one in evidence.book.workloads}
    unused_usd = _sum_unused(review, period)
    comparison = compare(bill.ledger, here, period, scope, bills, metered_unused_usd=unused_usd, workloads=workloads)
    preliminary = is_preliminary(bill.ledger, now)
    notes = (
        *_list_notes(bill, comparison, evidence, preliminary=preliminary),
        *_list_strangers(bills.mapping, metered, workloads),
        *_list_left_out(_sum_paid(pieces) - _sum_paid(metered), _sum_paid(metered) - _sum_paid(here)),
    )
    compared = BillReview(
        comparison, "", notes, bill.faults, bill.fault_count, _list_beside(bill.ledger, comparison), bill.files, bill.lines,
        bill.formats, preliminary,
    )  # fmt: skip
    if not compared.differs:
        return replace(review, bills=compared)
    finding = Finding(BILL_RULE, f"{write_difference(compared)} {write_left_out(compared)}".rstrip())
    return replace(review, bills=compared, findings=(finding, *review.findings))


def _has_gpus(ledger: Ledger, scope: Scope) -> bool:
    """Whether anything on the bill is known to be a GPU's, used or not."""
    if ledger.machines:
        return True
    return any(scope.cover_type(one.instance_type) for one in ledger.commitments.values() if one.instance_type)


def _say_why_not(ledger: Ledger, evidence: Evidence) -> str:
    week = evidence.week
    if not ledger.in_week.lines:
        return f"no line of the bill lies in {week.name}"
    if ledger.daily_lines:
        return f"the bill has lines of whole days in UTC, and covers none that lies within {week.name}"
    if ledger.longer.lines:
        return f"the lines of the bill in {week.name} cover more than a day each, which says nothing of a week: export it by hours or days"
    return f"no line of any usage on the bill lies in {week.name}"


def _say_no_gpus(ledger: Ledger, week: str, scope: Scope, known: Collection[str]) -> tuple[str, str]:
    """That no line is known to be a GPU's; why, and what makes it so."""
    lines = ledger.in_week
    whys = []
    rest = lines.lines - ledger.other_account_lines
    if ledger.other_account_lines:
        other = count_nouns(ledger.other_account_lines, "line is", "lines are")
        whys.append(f"{other} of other accounts than accounts lists")
    beside = "machines of the fleet only where it bills no time of them, such as network"
    machines = beside if ledger.fleet_lines else "no machine of the fleet"
    if rest and ledger.other_types:
        whys.append(f"no instance type that it names has GPUs ({_name_some(sorted(ledger.other_types))})")
        whys.append(f"it names {machines}")
    elif rest:
        whys.append(f"it names no instance types and {machines}")
    if rest and not known:
        whys.append("no node of the fleet says its provider_id")
    sums = f"in {week}, {usd_to_the_cent(lines.effective_usd)}"
    return (
        f"its only line {sums}, is not known to be a GPU's"
        if lines.lines == 1
        else f"none of its {lines.lines:,} lines {sums} in all, is known to be a GPU's",
        f"{'; '.join(whys)}. Set mapping_file (what runs on which machine) or instance_types below bills, "
        f"{'list all of the accounts that pay for the fleet' if scope.has_accounts else 'or export the accounts that pay for the fleet'}, "
        "with instance types and resource ids",
    )


def _name_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_STRANGERS:,} more" if len(names) > _SHOWN_STRANGERS else ""
    return f"{', '.join(names[:_SHOWN_STRANGERS])}{more}"


def _list_beside(ledger: Ledger, comparison: Comparison | None = None) -> tuple[tuple[str, Sum], ...]:
    """What of the bill is in no sum: with what is compared it is all that lies in the week."""
    beside = [(kind.value, one) for kind, one in ledger.beside.items()]
    if comparison is not None:
        beside += [
            ("unused commitments of which nobody knows what for", comparison.unassigned),
            ("unused commitments that are not of the fleet", comparison.other_unused),
            ("usage of the fleet outside of the time that is compared", comparison.other_time),
        ]
    else:
        # such as lines of months
        of_fleet, unused = Sum(), Sum()
        for machine in ledger.machines.values():
            of_fleet.add(fsum(machine.effective), fsum(machine.billed), 0)
        for one in ledger.commitments.values():
            unused.add(fsum(one.unused), 0.0, one.lines)
        beside += [("usage of the fleet", of_fleet), ("unused commitments", unused)]
    beside.append(("usage that is not of the fleet", ledger.others))
    return tuple((what, one) for what, one in beside if one.lines or abs(one.effective_usd) >= 0.005)


def _sum_paid(pieces: Iterable[MeteredHour]) -> float:
    return fsum(piece.paid_usd for piece in pieces)


def _is_elsewhere(piece: MeteredHour, clouds: frozenset[str]) -> bool:
    """Whether it is of a cloud that is none of these."""
    cloud = find_cloud(normalise_resource(piece.provider_id))
    return bool(cloud and clouds) and cloud not in clouds


def _sum_unused(review: Review, period: Period) -> float:
    """USD of commitments that the review has as unused in the period; those of hours that a gap hides are paid all the same. Of rates
    with committed GPUs it is the week's, by length."""
    idle = {} if review.pools is None else review.pools.idle_usd
    # an hour at the period's edge counts whole: a pool's is cut to the week already
    pools = fsum(usd for at, usd in idle.items() if at < period.end and period.begin < at + HOUR_SECONDS)
    return pools + sum_unused_usd(review.commitments) * period.hours / review.week.length_hours


def _refuse(review: Review, why: str, details: str = "", beside: tuple[tuple[str, Sum], ...] = ()) -> Review:
    found = BillReview(None, why.removesuffix("."), beside=beside, refused_because=details)
    sentence = f"The bill is not compared: {found.whole_refusal}."
    return replace(review, bills=found, missing_parts=(*review.missing_parts, sentence))


def _list_notes(bill: Bill, comparison: Comparison, evidence: Evidence, *, preliminary: bool) -> Iterator[str]:
    ledger, period = bill.ledger, comparison.period
    if period.by_days:
        yield (
            "The bill has lines of whole days, which end at midnight UTC: "
            f"compared are {count_nouns(round(period.hours / 24), 'day')} in UTC, {_write_span(period.begin, period.end)}."
        )
    week = evidence.week
    whole = (period.begin, period.end) if period.by_days else (week.begin, week.end)
    if len(period.by_cloud) > 1:
        for cloud, part in sorted(period.by_cloud.items()):
            if (part.begin, part.end) != whole:
                span = _write_span(part.begin, part.end)
                yield f"The bill of {CLOUD_NAMES[cloud]} covers a part of the week, and only that of it is compared: {span}."
    elif (period.begin, period.end) != whole:
        yield f"The bill covers a part of the week, and only that is compared: {_write_span(period.begin, period.end)}."
    if comparison.uncounted_types:
        yield (
            f"How many GPUs these types have nobody says, so that the most in use counts: {_name_some(comparison.uncounted_types)}. "
            "Set gpus_per_instance."
        )
    if comparison.reasons.undivided:
        yield (
            "Of some machines the bill counts no hours of instances, so that hours, unused GPUs and price are one sum: "
            f"{signed_usd_to_the_cent(comparison.reasons.undivided)}. Export it by the hour, or with its quantities."
        )
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
        there.update(name_labels(piece, workloads))
    lost = sorted({f"{one.label} {shown(one.value)}" for ones in mapping.values() for one in ones if one not in there})
    if lost:
        yield f"The mapping file names what was not metered here: {_name_some(lost)}."


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
    return fsum(
        max(0.0, hours - _DOUBLE * period.step)
        for key, machine in ledger.machines.items()
        if machine.counts_hours and key.startswith(("i-", "gce/"))
        for hours in period.fold(machine.hours)
    )
