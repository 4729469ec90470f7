"""Models that fewer or cheaper replicas would carry: the answers of `ceiling --from-prometheus` to the week's own load.

A line needs a whole replica less, or another kind of GPU of the fleet at the price that is paid for it, objectives that were attained, and
a saving that is worth it. It keeps the reserve for a lost node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from llm_serving_exporter.commands.what_if.answer import (
    USUAL_SHARE,
    Answer,
    Asked,
    answer,
    watch,
)
from llm_serving_exporter.commands.what_if.week import UnansweredError
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import amount, count, percent, seconds, usd
from llm_serving_review.evidence.context import LEAST_SHARE, ModelLoad, find_gauge_key
from llm_serving_review.evidence.usage import Book, Evidence, Fleet, drop_unknown
from llm_serving_review.figures.actions import Action, save_or_free, shorten_name
from llm_serving_review.figures.rates import find_cash_rates
from llm_serving_review.figures.totals import ratio
from llm_serving_review.settings.settings import Settings
from llm_serving_review.tables.facts import AT_RATES, NOW, OF_MODEL, FactTable, name_model

_WEEK_HOURS = 168.0
# of what is paid today: what another kind of GPU has to save beyond fewer of the same, because its steps are scaled, not measured
_LEAST_GAIN_OF_ANOTHER_GPU = 0.1
_NEXT = {
    "ttft": "the objective of first tokens", "itl": "the objective of gaps", "e2e": "the objective of whole answers",
    "batch limit": "the batch limit", "KV cache": "the size of the KV cache",
}  # fmt: skip
_WORDS = {"ttft": "first tokens", "itl": "gaps between tokens", "e2e": "whole answers"}


class Sizing(Struct, frozen=True):
    """A model with the replicas that would do, and what they rest on."""

    model_name: str
    found: Answer  # today beside the replicas that are meant, as `ceiling --from-prometheus --replicas` has it
    needed: int  # replicas that the peak needs; those that are meant are these and the reserve
    action: Action  # what to do, why, and the USD
    rests_on: str  # the unit cost, and how sure it is, in sentences
    risks: tuple[str, ...]  # what may go wrong, in sentences


def size_models(evidence: Evidence, facts: FactTable, settings: Settings) -> tuple[Sizing, ...]:
    """A line for each model and role that has something to gain, the largest amount first."""
    identity = settings.identity_labels
    spend = facts.sum_total(NOW, "quantity = 'cost'") or 0.0
    cash_rates = find_cash_rates(evidence.book)
    found = []
    for load in evidence.loads:
        share = _find_share(facts, load, settings)
        if share is None:
            continue
        cost = f"quantity = 'cost' and {OF_MODEL}"
        paid = facts.sum_total(NOW, cost, **name_model(load.key)) or 0.0
        by_the_hour = (
            facts.sum_total(NOW, f"{cost} and {AT_RATES}", rates=json.dumps([*cash_rates]), **name_model(load.key))
            or 0.0
        )
        cash_share = ratio(by_the_hour, paid) or 0.0
        prices = _list_prices(evidence.book, cash_rates) if cash_share > 1 - LEAST_SHARE else {}
        chosen = _choose(load, share, prices)
        if chosen is None:
            continue
        needed, best = chosen
        worth = min(paid, _find_weekly_gain(best) * evidence.week.length_hours / _WEEK_HOURS)
        least = LEAST_SHARE * spend
        if worth > least:
            action = save_or_free(
                _write_what(load, best), _write_why(needed, best, share), worth, worth * cash_share, least
            )
            action = replace(action, each=evidence.week.each, this=evidence.week.this)
            risks = tuple(_list_risks(best, evidence.fleet, load, identity))
            found.append(Sizing(load.load.model_name, best, needed, action, _write_rests_on(best), risks))
    return tuple(sorted(found, key=lambda one: -one.action.usd_per_week))


def _find_share(facts: FactTable, load: ModelLoad, settings: Settings) -> float | None:
    """The share of events that has to be within objectives; None where the week missed one with the replicas that it had."""
    for slo in load.load.objectives:
        if slo in _WORDS:
            objective = settings.objectives.get(slo, USUAL_SHARE)
            good, bad = (
                facts.sum_total(
                    NOW, f"slo = :slo and outcome = :outcome and {OF_MODEL}", slo=slo, outcome=outcome, **name_model(load.key)
                ) or 0.0
                for outcome in ("good", "bad")
            )  # fmt: skip
            # a sum of hours is off in its last digits
            if good + bad and good / (good + bad) < objective - 1e-9:
                return None
    return max(
        (settings.objectives[slo] for slo in load.load.objectives if slo in settings.objectives), default=USUAL_SHARE
    )


def _list_prices(book: Book, rates: Collection[str]) -> Mapping[str, float]:
    """USD per GPU-hour of each kind of GPU that is paid by the hour, the highest as it stood last."""
    found: dict[str, float] = {}
    for gauge in book.prices:
        values = list(drop_unknown(gauge.hours))
        if values and gauge.label("rate") in rates:
            kind = gauge.label("gpu_name")
            found[kind] = max(found.get(kind, 0.0), values[-1])
    return found


def _choose(load: ModelLoad, share: float, prices: Mapping[str, float]) -> tuple[int, Answer] | None:
    """Replicas that the peak needs, and the answer for these and the reserve; None where nothing is gained."""
    asked = Asked(load.load.model_name, share=share)
    try:
        watched = watch(load.load, asked)
    except (UnansweredError, FactsError):
        return None
    best, most = None, 0.0
    for kind in (None, *(kind for kind in prices if kind != load.load.gpu_name)):
        there = asked if kind is None else replace(asked, gpu=kind, usd_per_gpu_hour=prices[kind])
        try:
            first = answer(watched, there).question
            if first.needed is None:
                continue
            meant = answer(watched, replace(there, replicas=first.with_reserve or first.needed))
        except (UnansweredError, FactsError):
            # another kind may be too small, or not be known
            continue
        gain, today, state = _find_weekly_gain(meant), meant.today, meant.question.state
        if kind is not None:
            gain -= _LEAST_GAIN_OF_ANOTHER_GPU * (today.weekly_usd or 0.0)
        elif meant.question.replicas > round(today.replicas) - 1:
            continue
        if gain > most and state is not None and state.holds:
            best, most = (first.needed, meant), gain
    return best


def _find_weekly_gain(found: Answer) -> float:
    """USD; below 0: it would cost more."""
    before, after = found.today.weekly_usd, found.question.weekly_usd
    return 0.0 if before is None or after is None else before - after


def _write_what(load: ModelLoad, found: Answer) -> str:
    week, after = found.week, found.question
    role = "" if week.role == "unified" else f" ({week.role})"
    of, instead = "", ""
    if after.server.roof.peaks.name != found.today.server.roof.peaks.name:
        of, instead = (
            f" of {one.server.roof.parallel.gpus} x {one.server.roof.peaks.name}" for one in (after, found.today)
        )
    name = " / ".join([*(value for _, value in load.key[0] if value), week.model_name])
    return f"Run {shorten_name(name)}{role} on {count(after.replicas)} replicas{of} instead of {amount(found.today.replicas)}{instead}"


def _write_why(needed: int, found: Answer, share: float) -> str:
    """The peak, what carries it, and the reserve."""
    week, today, after = found.week, found.today, found.question
    request = today.request
    limits = " and ".join(
        f"{_WORDS.get(name, name)} within {seconds(limit)}" for name, limit in sorted(week.objectives.items())
    )
    within = f", with {100 * share:g} % of {limits}" if limits else ""
    reserve = after.replicas - needed
    more = f"; {count(reserve)} more {'stands' if reserve == 1 else 'stand'} in for a lost node" if reserve else ""
    return (
        f"{needed} {'carries' if needed == 1 else 'carry'} the peak of {amount(today.requests_per_second)} requests/s, "
        f"{request.sent:,.0f} + {request.output:,.0f} tokens each{within}{more}"
    )


def _write_rests_on(found: Answer) -> str:
    reach, before, after = found.question.server.reach, found.today, found.question
    least, most = reach.batches
    at = f" at batches of {least:.0f} to {most:.0f}" if reach.decode or reach.prefill else ""
    return (
        f"A million tokens would cost {usd(after.usd_per_million_tokens)} instead of {usd(before.usd_per_million_tokens)}. "
        f"How sure: {found.sure}, by {count_nouns(reach.windows, 'window')} of a replica{at}."
    )


def _list_risks(found: Answer, fleet: Fleet, load: ModelLoad, identity: Sequence[str]) -> Iterator[str]:
    state = found.question.state
    if state is not None:
        free = "" if state.kv_free is None else f", with {percent(state.kv_free, 0)} of the KV cache free"
        yield f"A higher peak meets {_NEXT.get(state.binds, state.binds)} next{free}."
    for note in found.notes:
        yield f"{note[:1].upper()}{note[1:]}."
    required = [
        value
        for gauge in fleet.required
        if gauge.label("reserve") == "nodes" and find_gauge_key(gauge, identity) == load.key
        for value in drop_unknown(gauge.hours)
    ]
    over = sum(value > found.question.replicas for value in required)
    if over:
        yield f"The rules, which go by what replicas have shown, required up to {max(required):.0f} in {over} hours: N-1 may fire."
