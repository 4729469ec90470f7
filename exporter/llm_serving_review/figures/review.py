"""Evidence -> the review: every number that is shown, computed once. Pure."""

from __future__ import annotations

import json
from math import fsum

from llm_serving_exporter.model.cost import RateKind
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.bills.compare import BillReview
from llm_serving_review.evidence import names
from llm_serving_review.evidence.past import Past, WeekSpend
from llm_serving_review.evidence.usage import Evidence, Gap, Hours
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.actions import Action, Spare, choose_actions, measure_spare
from llm_serving_review.figures.beyond import NOT_BEYOND, Beyond, look_beyond
from llm_serving_review.figures.change import Change, explain_change
from llm_serving_review.figures.findings import Finding, apply_rules
from llm_serving_review.figures.outlook import (
    Outlook,
    can_split,
    explain_no_comparison,
    measure_coverage,
    note_gaps,
    project_month,
)
from llm_serving_review.figures.past_weeks import describe_read_week
from llm_serving_review.figures.pool_hours import PoolCash, sum_moves
from llm_serving_review.figures.pools import NO_POOLS, Pools, measure_pools, note_pools, sum_effect_seen
from llm_serving_review.figures.rates import (
    Commitment,
    find_cash_rates,
    find_rates_of_kind,
    find_steady_load,
    measure_commitments,
    sum_unused_usd,
    sum_unused_usd_seen,
)
from llm_serving_review.figures.rows import (
    AlertSums,
    Attainment,
    CheckRow,
    InvoiceRow,
    LabelRow,
    ModelRow,
    NodeRow,
    build_invoice_rows,
    build_label_rows,
    build_model_rows,
    build_node_rows,
    measure_attainments,
    sum_alerts,
    sum_checks,
    sum_invoice,
)
from llm_serving_review.figures.sizing import Sizing, size_models
from llm_serving_review.figures.split import Split
from llm_serving_review.figures.tenants import TenantSplit, split_by_tenant
from llm_serving_review.figures.totals import NOTHING, PHASES, Totals, read_totals
from llm_serving_review.settings.settings import Settings
from llm_serving_review.tables.facts import AT_RATES, BEFORE, NOW, FactTable
from llm_serving_review.tables.sums import group_by_key, sum_known

NO_PAST = Past()


class Hourly(Struct, frozen=True):
    """The week by hour; None in hours of which nothing is known."""

    usd: dict[str, Hours]  # USD by phase
    idle_gpu_hours: Hours  # GPU-hours in the state idle
    excess_replicas: Hours | None  # replicas beyond the demand and its reserve; None without the rule pack's records
    reserve_replicas: Hours | None  # replicas held against the loss of a node; None without the rule pack's records
    usd_by_day_before: tuple[float | None, ...] = (None,) * 7  # USD by day of the week before, Monday first
    usd_by_hour_before: Hours = ()  # USD by hour of the week before
    prompt_tokens: Hours = ()  # prompt tokens as sent
    generated_tokens: Hours = ()
    pools_usd: Hours = ()  # USD that pools add to GPU time, mostly less than nothing; () without pools


class Review(Struct, frozen=True):
    """Every figure that the page, the CSV files and the summary show."""

    title: str
    week: Week
    previous: Week
    methods: tuple[tuple[str, str], ...]  # how busy time was split, and from which inputs
    notes: tuple[str, ...]  # what a reader must know first, in sentences
    missing_parts: tuple[str, ...]  # what could not be read, in sentences
    now: Totals  # totals of the week
    earlier: Totals  # totals of the week before; empty where the weeks cannot be compared
    change: Change | None  # why the spend changed; None where the weeks cannot be compared
    findings: tuple[Finding, ...]  # what stands out, in the order of the rules
    actions: tuple[Action, ...]  # what to do, the largest amount first
    models: tuple[ModelRow, ...]  # the most expensive first
    labels: tuple[LabelRow, ...]  # label by label, the most expensive value first
    nodes: tuple[NodeRow, ...]  # the most expensive first
    outlook: Outlook | None  # the month at this week's rate; None without a cost
    spare: Spare | None  # replicas beyond need; None without the rule pack's records
    commitments: tuple[Commitment, ...]  # by fleet and rate
    attainments: tuple[Attainment, ...]  # by objective
    alerts: AlertSums | None  # what fired; None where that is unknown
    checks: tuple[CheckRow, ...]  # by model and check, the worst first; () without the rule pack's verdicts
    gaps: tuple[Gap, ...] | None  # times without data; None where they could not be read
    invoice: tuple[InvoiceRow, ...]  # by rate and kind of GPU
    invoice_usd: float  # what is paid: GPU time less what pools took off it, unused commitments, electricity
    invoice_before_usd: float | None  # the same of the week before; None where the weeks cannot be compared
    hourly: Hourly  # the week by hour
    recovered_usd: float  # part of the spend that counters recovered across gaps
    # what is committed at a cloud and floats over the week's GPU time; None where the price files state none that is in force
    pools: Pools | None = None
    bills: BillReview | None = None  # against the bills of clouds; None where none are given
    tenants: TenantSplit | None = None  # the spend by tenant; None where no gateway counts by tenant
    sizings: tuple[Sizing, ...] = ()  # models that fewer or cheaper replicas would carry, the largest amount first
    beyond: Beyond = NOT_BEYOND  # the weeks before, the month, and days that are unlike others
    identity_labels: tuple[str, ...] = ()  # labels that tell fleets apart, as the settings have them
    dashboards_url: str = ""  # where Grafana shows the dashboards; "" where the settings do not say

    @property
    def split(self) -> Split | None:
        """The change by cause; None where the weeks cannot be compared."""
        return None if self.change is None else self.change.split

    def list_beside(self) -> list[tuple[str, float]]:
        """What is paid beside GPU time, in words with its USD."""
        found = [("unused commitments", sum_unused_usd(self.commitments))]
        if (pools := self.pools) is not None:
            found = [
                ("taken off by pools" if pools.benefit_usd >= 0 else "added by pools", -pools.benefit_usd),
                ("unused commitments", found[0][1] + pools.unused_usd),
                ("committed in hours of gaps", pools.unknown_usd),
            ]
        found.append(("electricity", self.now.energy_usd or 0.0))
        return [(what, usd) for what, usd in found if usd]

    @property
    def missing_usd(self) -> float | None:
        """Estimated cost of what is in no figure; None where no gap can be estimated."""
        known = [gap.estimated_usd for gap in self.gaps or () if gap.estimated_usd is not None]
        return fsum(known) if known else None

    @property
    def about_missing(self) -> str:
        """How that is to be read: of some gaps the GPUs or their price may not be known."""
        return "at least" if any(gap.estimated_usd is None for gap in self.gaps or ()) else "about"


def build_review(evidence: Evidence, settings: Settings, past: Past = NO_PAST) -> Review:
    """Computes the review of a week; `past` is what is known of the weeks before both."""
    week, previous, usage, book, identity = (
        evidence.week, evidence.previous, evidence.usage, evidence.book, settings.identity_labels,
    )  # fmt: skip
    facts = FactTable({NOW: (week, usage), BEFORE: (previous, evidence.usage_before)}, identity, settings.by_labels)
    count = len(week.hours)
    totals = read_totals(facts)
    now, earlier = (totals.get((name, ""), NOTHING) for name in (NOW, BEFORE))
    there = measure_coverage(facts, NOW, now, evidence.gaps, evidence.begins)
    before = measure_coverage(facts, BEFORE, earlier, evidence.gaps_before, evidence.begins_before)
    refused = explain_no_comparison(evidence, (now, there), (earlier, before))
    gaps, gaps_before = evidence.gaps or (), evidence.gaps_before or ()
    read: list[WeekSpend] = []
    paid_before = None
    if earlier.usd is not None:
        bought_before = measure_commitments(
            evidence.usage_before, evidence.book_before, previous, identity, gaps_before
        )
        pools_before = measure_pools(
            evidence.usage_before, evidence.book_before, previous, evidence.pools, identity, gaps_before, evidence.begins_before
        ) or NO_POOLS  # fmt: skip
        paid_before = (
            earlier.usd + sum_unused_usd(bought_before) + (earlier.energy_usd or 0.0) + pools_before.effect_usd
        )
        effect = pools_before.effect_by_hour
        read.append(describe_read_week(facts, BEFORE, paid_before, before.hours, gaps_before, effect))
    by_the_hour, owned = find_cash_rates(book), find_rates_of_kind(book, RateKind.OWNED)
    bought = measure_commitments(usage, book, week, identity, gaps)
    pools = measure_pools(usage, book, week, evidence.pools, identity, gaps, evidence.begins, bought)
    applied = pools or NO_POOLS
    pool_cash = PoolCash(applied.uses, week, identity)
    unneeded = measure_spare(facts, evidence.fleet, by_the_hour, pool_cash)
    offers = find_steady_load(usage, book, count, bought, identity, sum_moves(applied.moves))
    owned_usd = facts.sum_total(NOW, f"quantity = 'cost' and {AT_RATES}", rates=json.dumps([*owned])) or 0.0
    idle_cash = facts.sum_total(NOW, f"phase = 'idle' and {AT_RATES}", rates=json.dumps([*by_the_hour])) or 0.0
    idle_cash += pool_cash.limit(pool_cash.sum_cost(facts.lines(NOW, "cost", "phase = 'idle'")))
    part = there.hours / there.of
    owned_usd += sum_unused_usd_seen((one for one in bought if one.rate in owned), part)
    beside = sum_unused_usd_seen(bought, part) + sum_effect_seen(applied, there, evidence.begins)
    ahead = project_month(now, there, book.budget_usd_per_month, settings, owned_usd, beside)
    reached = measure_attainments(facts, settings.objectives)
    fired = None if evidence.episodes is None else sum_alerts(evidence.episodes, week, evidence.watched_hours)
    invoice = build_invoice_rows(usage, book, identity)
    paid = sum_invoice(invoice, bought, now.energy_usd) + applied.effect_usd
    if now.usd is not None:
        read.append(describe_read_week(facts, NOW, paid, there.hours, gaps, applied.effect_by_hour))
    beyond = look_beyond(facts, past, read, book.budget_usd_per_month)
    if refused:
        # what stands on the week before stands further up
        facts.forget(BEFORE)
        earlier = NOTHING
    is_compared = not refused and can_split(evidence, facts)
    changed = explain_change(evidence, facts, identity) if is_compared else None
    by_model = changed.by_model if changed is not None else {}
    models = tuple(replace(row, split=by_model.get(row.model_name)) for row in build_model_rows(facts, evidence.fleet))
    usd_before = facts.sum_hours(BEFORE, "quantity = 'cost'")
    review = Review(
        settings.title,
        week,
        previous,
        evidence.methods,
        (
            *evidence.memory,
            *refused,
            *note_gaps(evidence, now),
            *note_pools(facts, pools, evidence.pools),
            *evidence.notes,
        ),
        evidence.missing_parts,
        now,
        earlier,
        changed,
        (),
        tuple(
            replace(action, each=week.each, this=week.this)
            for action in choose_actions(now, unneeded, bought, offers, idle_cash, applied)
        ),
        models,
        build_label_rows(facts, settings.by_labels),
        build_node_rows(usage, book, count, identity),
        ahead,
        unneeded,
        bought,
        reached,
        fired,
        sum_checks(evidence.fleet, week),
        evidence.gaps,
        invoice,
        paid,
        None if earlier.usd is None else paid_before,
        Hourly(
            {phase: facts.sum_hours(NOW, f"phase = '{phase}'") for phase in PHASES},
            tuple(None if seconds is None else seconds / 3600 for seconds in facts.sum_hours(NOW, "state = 'idle'")),
            None if unneeded is None else unneeded.excess_by_hour,
            None if unneeded is None else unneeded.reserve_by_hour,
            sum_by_day(usd_before, previous),
            usd_before,
            facts.sum_hours(NOW, "quantity = 'prompt_tokens'"),
            facts.sum_hours(NOW, "quantity = 'decode_tokens'"),
            applied.effect_by_hour,
        ),
        fsum(gap.recovered.get(names.COST.name, 0.0) for gap in gaps),
        pools,
        tenants=None if evidence.tenants is None else split_by_tenant(facts, evidence.tenants),
        sizings=size_models(evidence, facts, settings),
        beyond=beyond,
        identity_labels=identity,
        dashboards_url=settings.dashboards_url,
    )
    return replace(review, findings=apply_rules(review))


def sum_by_day(hours: Hours, week: Week) -> tuple[float | None, ...]:
    """Sums of the days, Monday first; None for a day without data."""
    by_day = group_by_key((hour.day, value) for hour, value in zip(week.hours, hours, strict=True))
    return tuple(sum_known(by_day.get(day, ())) for day in range(len(week.days)))
