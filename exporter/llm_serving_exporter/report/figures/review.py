"""Evidence -> the review: every number that is shown, worked out once. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from llm_serving_exporter.model.prices import RateKind
from llm_serving_exporter.report.evidence import names
from llm_serving_exporter.report.evidence.usage import Evidence, Gap, Hours, Usage, by_hour
from llm_serving_exporter.report.evidence.week import Week
from llm_serving_exporter.report.figures.actions import Action, actions
from llm_serving_exporter.report.figures.comparable import in_gaps, not_compared, splittable
from llm_serving_exporter.report.figures.counted_once import counted
from llm_serving_exporter.report.figures.coverage import seen
from llm_serving_exporter.report.figures.findings import Facts, Finding, findings
from llm_serving_exporter.report.figures.outlook import Outlook, outlook
from llm_serving_exporter.report.figures.rates import (
    Commitment,
    Steady,
    cash_rates,
    commitments,
    of_kind,
    steady,
    unused_rate,
)
from llm_serving_exporter.report.figures.rows import (
    AlertSums,
    Attainment,
    InvoiceRow,
    LabelRow,
    ModelRow,
    NodeRow,
    alert_sums,
    attainments,
    invoice_rows,
    invoice_sum,
    label_rows,
    model_rows,
    node_rows,
)
from llm_serving_exporter.report.figures.spare import Spare, spare
from llm_serving_exporter.report.figures.split import Split, split
from llm_serving_exporter.report.figures.totals import PHASES, Totals, cells, totals
from llm_serving_exporter.report.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Hourly:
    """By hour of the week. USD by phase, idle GPU-hours, replicas beyond the demand and in reserve; None where nothing is known.

    `usd_by_day_before`: of the week before, Monday first.
    """

    usd: dict[str, Hours]
    idle_gpu_hours: Hours
    excess_replicas: Hours | None
    reserve_replicas: Hours | None
    usd_by_day_before: tuple[float | None, ...] = (None,) * 7


@dataclass(frozen=True, slots=True)
class Review:
    """All that the page, the CSV and the summary show. `notes` and `missing_parts` come first."""

    title: str
    week: Week
    previous: Week
    methods: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    missing_parts: tuple[str, ...]
    now: Totals
    earlier: Totals
    split: Split | None
    findings: tuple[Finding, ...]
    actions: tuple[Action, ...]
    models: tuple[ModelRow, ...]
    labels: tuple[LabelRow, ...]
    nodes: tuple[NodeRow, ...]
    outlook: Outlook | None
    spare: Spare | None
    commitments: tuple[Commitment, ...]
    steady: tuple[Steady, ...]
    attainments: tuple[Attainment, ...]
    alerts: AlertSums | None
    gaps: tuple[Gap, ...] | None
    invoice: tuple[InvoiceRow, ...]
    invoice_usd: float
    hourly: Hourly
    recovered_usd: float

    @property
    def missing_usd(self) -> float | None:
        """Estimated cost of what is in no figure; None where no gap can be estimated."""
        known = [gap.estimated_usd for gap in self.gaps or () if gap.estimated_usd is not None]
        return sum(known) if known else None

    @property
    def about_missing(self) -> str:
        """How that is to be read: of some gaps the GPUs or their price may not be known."""
        return "at least" if any(gap.estimated_usd is None for gap in self.gaps or ()) else "about"


def review(evidence: Evidence, settings: Settings) -> Review:
    """The review of a week."""
    book = evidence.book
    usage, earlier_usage = (counted(week, settings.identity_labels) for week in (evidence.usage, evidence.usage_before))
    count = len(evidence.week.hours)
    now, earlier = totals(usage), totals(earlier_usage)
    there = seen(evidence.week, usage, now, evidence.gaps, evidence.begins)
    before = seen(evidence.previous, earlier_usage, earlier, evidence.gaps_before, evidence.begins_before)
    refused = not_compared(evidence, (now, there), (earlier, before))
    if refused:
        earlier_usage, earlier = Usage(), Totals()
    cause, by_tokens = None, splittable(usage, earlier_usage)
    if by_tokens and now.usd is not None and earlier.usd is not None:
        (old, old_nobody), (new, new_nobody) = cells(earlier_usage), cells(usage)
        cause = split(old, new, old_nobody, new_nobody) if old and new else None
    models = model_rows(usage, earlier_usage, evidence.fleet)
    if not by_tokens:
        models = tuple(replace(row, split=None) for row in models)
    gaps = evidence.gaps or ()
    identity, by_the_hour, owned = settings.identity_labels, cash_rates(book), of_kind(book, RateKind.OWNED)
    unneeded = spare(usage, evidence.fleet, count, by_the_hour)
    bought = commitments(usage, book, evidence.week, identity, gaps)
    offers = steady(usage, book, count, bought, identity)
    owned_usd = sum(line.total for line in usage.cost if line.of[1] in owned)
    part = there.hours / there.of
    owned_usd += unused_rate((one for one in bought if one.rate in owned), part)
    ahead = outlook(now, there, book.budget_usd_per_month, settings, owned_usd, unused_rate(bought, part))
    reached = attainments(usage, settings.objectives)
    fired = None if evidence.episodes is None else alert_sums(evidence.episodes, evidence.week, evidence.watched_hours)
    invoice = invoice_rows(usage, book, identity)
    facts = Facts(now, earlier, cause, models, unneeded, bought, ahead, gaps, fired, reached)
    return Review(
        settings.title,
        evidence.week,
        evidence.previous,
        evidence.methods,
        (*evidence.memory, *refused, *in_gaps(evidence, now), *evidence.notes),
        evidence.missing_parts,
        now,
        earlier,
        cause,
        findings(facts),
        actions(now, unneeded, bought, offers, _by_phase(usage, by_the_hour)),
        models,
        label_rows(usage, earlier_usage, settings.by_labels),
        node_rows(usage, book, count),
        ahead,
        unneeded,
        bought,
        offers,
        reached,
        fired,
        evidence.gaps,
        invoice,
        invoice_sum(invoice, bought, now.energy_usd),
        Hourly(
            {phase: by_hour((line for line in usage.cost if line.of[0] == phase), count) for phase in PHASES},
            tuple(
                None if seconds is None else seconds / 3600
                for seconds in by_hour((line for line in usage.gpu_seconds if line.of[0] == "idle"), count)
            ),
            None if unneeded is None else unneeded.excess_by_hour,
            None if unneeded is None else unneeded.reserve_by_hour,
            by_day(by_hour(earlier_usage.cost, len(evidence.previous.hours)), evidence.previous),
        ),
        sum(gap.recovered.get(names.COST.name, 0.0) for gap in gaps),
    )


def _by_phase(usage: Usage, rates: Collection[str]) -> dict[str, float]:
    """USD at some rates."""
    found: dict[str, float] = {}
    for line in usage.cost:
        if line.of[1] in rates:
            found[line.of[0]] = found.get(line.of[0], 0.0) + line.total
    return found


def by_day(hours: Hours, week: Week) -> tuple[float | None, ...]:
    """Sums of the seven days, Monday first; None for a day of which nothing is known."""
    days: list[float | None] = [None] * 7
    for hour, value in zip(week.hours, hours, strict=True):
        if value is not None:
            days[hour.day] = (days[hour.day] or 0.0) + value
    return tuple(days)
