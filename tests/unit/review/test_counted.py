"""Each token, request and event counts once, beside its cost."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Line, Usage
from llm_serving_review.figures.past_weeks import describe_read_week
from llm_serving_review.figures.review import build_review
from llm_serving_review.figures.rows import measure_attainments
from llm_serving_review.pages.first_page import build_first_page
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings
from llm_serving_review.tables.facts import NOW
from tests.support.builders.costevidence import evidence, facts_of, flat, joined, owner, totals_of, usage
from tests.support.rows import check_rows

COST = {"prefill": 10.0, "decode": 30.0}
WORKER = owner("worker:8000")
FRONT = owner("front:8000", role="frontend")


def bare(whole: Usage) -> Usage:
    """Without a GPU of its own."""
    return replace(whole, cost=(), gpu_seconds=())


def test_a_front_end_beside_its_workers_doubles_nothing() -> None:
    worker = usage(WORKER, COST, 8e6, 2e6)
    both = joined(worker, bare(usage(FRONT, COST, 8e6, 2e6)))
    found = build_review(evidence(both, both), Settings())
    alone = totals_of(worker)
    assert found.now.tokens == pytest.approx(alone.tokens)
    assert found.now.requests == pytest.approx(alone.requests)
    assert found.now.blended_usd_per_million == pytest.approx(alone.blended_usd_per_million)
    (row,) = found.models
    assert row.now.tokens == pytest.approx(alone.tokens)
    assert found.attainments[0].total == pytest.approx(1000.0)


def test_a_front_end_speaks_for_workers_that_count_no_tokens() -> None:
    worker = replace(usage(WORKER, COST), prefill_tokens=(), decode_tokens=(), prompt_tokens=(), requests=())
    found = totals_of(joined(worker, bare(usage(FRONT, {}, 8e6, 2e6))))
    assert found.decode_tokens == pytest.approx(2e6)
    assert found.prompt_tokens == pytest.approx(10e6)
    # one with GPUs of its own is a target like others
    assert totals_of(usage(FRONT, COST, 8e6, 2e6)).decode_tokens == pytest.approx(2e6)


def test_a_model_of_one_name_in_two_fleets_is_two() -> None:
    here, there = owner("a:8000", cluster="here"), owner("b:8000", role="frontend", cluster="there")
    week = joined(usage(here, COST, 8e6, 2e6), usage(there, COST, 8e6, 2e6))
    assert totals_of(week, ("cluster",)).decode_tokens == pytest.approx(4e6)
    assert totals_of(week).decode_tokens == pytest.approx(2e6)


def test_of_split_pools_each_thing_is_counted_on_one_side() -> None:
    prefill, decode = owner("p:8000", role="prefill"), owner("d:8000", role="decode")
    # each side counts the prompts; the prefill side generates a token a request
    week = joined(usage(prefill, {"prefill": 40.0}, 8e6, 1e4), usage(decode, {"decode": 60.0}, 8e6, 2e6))
    found = totals_of(week)
    assert found.prompt_tokens == pytest.approx(10e6)
    assert found.cached_tokens == pytest.approx(2e6)
    assert found.decode_tokens == pytest.approx(2e6)
    assert found.requests == pytest.approx(2e6 / 250)
    assert found.blended_usd_per_million == pytest.approx(100 / 12)
    # a pool alone is what it is
    assert totals_of(usage(decode, COST, 8e6, 2e6)).prompt_tokens == pytest.approx(10e6)


def test_tokens_without_a_price_are_in_no_unit_cost() -> None:
    unpriced = replace(usage(owner("free:8000"), COST, 8e6, 2e6, rate=""), cost=())
    priced = usage(WORKER, COST, 8e6, 2e6)
    found, alone = totals_of(joined(priced, unpriced)), totals_of(priced)
    assert found.tokens == pytest.approx(alone.tokens)
    assert found.usd_per_request == pytest.approx(alone.usd_per_request)
    # none that count is not 0 that count
    for nobody in (unpriced, bare(usage(FRONT, {}, 8e6, 2e6))):
        assert totals_of(nobody).tokens is None
        assert totals_of(nobody).requests is None


def without(whole: Usage, *names: str) -> Usage:
    return replace(whole, **dict.fromkeys(names or _COUNTS, ()))


_COUNTS = ("prefill_tokens", "decode_tokens", "prompt_tokens", "cached_tokens", "requests")


def counting(target: str, model: str, usd: float, tokens: float) -> Usage:
    """All its time is busy; of its tokens 1/250 were generated requests."""
    return usage(owner(target, model), {"decode": usd}, 0.8 * (tokens - 1000.0), 1000.0)


def field_week() -> Usage:
    """An hour of four engines and a target that was down: two of them count tokens, of the others only clients know."""
    return joined(
        without(usage(owner("gone:1", ""), {"down": 3.85})),
        without(usage(owner("sgl:1", "tiny-sgl"), {"unattributed": 1.25})),
        without(usage(owner("sim:1", "tiny-sim"), {"unattributed": 0.613})),
        counting("llmd:1", "tiny-llmd", 0.497, 5127.0),
        counting("llama:1", "tiny-llama", 0.274, 4162.0),
    )


def test_money_of_what_counts_no_tokens_stands_beside() -> None:
    api = ApiPrice("An API", 100.0, 100.0, 100.0)
    settings = Settings(api_price=api, purchase_usd=1000.0, monthly_costs=MonthlyCosts(engineering=100.0))
    found = build_review(evidence(field_week(), Usage()), settings)
    assert found.now.usd == pytest.approx(6.484)
    assert found.now.tokens == pytest.approx(9289.0)
    right = (0.497 + 0.274) / 9289 * 1e6
    assert right == pytest.approx(83.00, abs=0.005)
    assert found.now.blended_usd_per_million == pytest.approx(right)
    assert found.now.tokens_per_usd == pytest.approx(1e6 / right)
    assert found.now.usd_per_request == pytest.approx(0.771 / 8)
    rows = {row.model_name: row.now.blended_usd_per_million for row in found.models}
    assert rows == {
        "": None, "tiny-sgl": None, "tiny-sim": None,
        "tiny-llmd": pytest.approx(0.497 / 5127 * 1e6), "tiny-llama": pytest.approx(0.274 / 4162 * 1e6),
    }  # fmt: skip
    of = "of the 12 % of the spend whose tokens are counted"
    summary = render_summary(found)
    assert f"**$83.00** a million tokens ({of}; " in summary
    first = build_first_page(found)
    assert [(one.value, one.below) for one in first.figures[:1]] == [("$83.00", f"nothing to compare with; {of}")]
    assert "of the 12 % of the spend whose requests are counted" in first.figures[2].below
    (said,) = (one.sentence for one in found.findings if one.rule == "tokens not counted")
    assert said.startswith(
        "$5.71, 88 % of the spend, went to GPUs whose engines count no tokens ((no model name), tiny-sgl, tiny-sim): it is in no "
    )
    # the API is asked for the tokens that are counted, and they bear their share of what is paid beside GPU time
    assert found.outlook is not None
    assert (compared := found.outlook.api) is not None
    share = 0.771 / 6.484
    months = 168 / 730
    assert compared.api_usd == pytest.approx(9289 * 100 / 1e6)
    assert compared.own_usd == pytest.approx(share * (6.484 + 100 * months))
    assert compared.break_even_tokens_per_month == pytest.approx(compared.own_usd / months / 100 * 1e6)
    assert compared.payback is not None
    assert (compared.payback.months, compared.payback.is_known) == (None, False)
    assert f"the tokens of the week, {of}, would have cost $0.929" in " ".join(one.sentence for one in found.findings)
    assert "<dt>Purchase paid back in</dt><dd>–</dd>" in render_page(found)


def test_where_all_is_counted_nothing_is_said() -> None:
    found = build_review(evidence(counting("a:1", "m", 5.0, 5000.0), Usage()), Settings())
    assert found.now.counted is None
    assert "are counted" not in render_summary(found) + render_page(found)


PREFILL, DECODE = owner("p:8000", role="prefill"), owner("d:8000", role="decode")
OTHER = owner("o:8000")


@check_rows(
    ("week", "usd"),
    [
        # another replica of the same model, of an engine without counters
        (joined(usage(WORKER, COST, 8e6, 2e6), without(usage(OTHER, COST))), 40.0),
        # one that was down, or had nothing to do, is borne by its model's tokens
        (joined(usage(WORKER, COST, 8e6, 2e6), without(usage(OTHER, {"down": 7.0}))), 47.0),
        (joined(usage(WORKER, COST, 8e6, 2e6), without(usage(OTHER, {"idle": 7.0}))), 47.0),
        (joined(usage(WORKER, COST, 8e6, 2e6), usage(OTHER, {"idle": 7.0})), 47.0),
        # of one without a name nobody knows which model's it is
        (joined(usage(owner("w:8000", ""), COST, 8e6, 2e6), without(usage(owner("o:8000", ""), {"down": 7.0}))), 40.0),
        # a model with counters that served nothing is too, one that worked and counted nothing is not
        (joined(usage(WORKER, COST, 8e6, 2e6), usage(owner("o:8000", "other"), {"idle": 7.0})), 47.0),
        (joined(usage(WORKER, COST, 8e6, 2e6), usage(owner("o:8000", "other"), {"unattributed": 7.0})), 40.0),
        # one side alone is no token's price
        (joined(usage(WORKER, COST, 8e6, 2e6), without(usage(owner("o:8000", "other"), COST, 8e6, 2e6), "prompt_tokens")), 40.0),
        (joined(usage(WORKER, COST, 8e6, 2e6), without(usage(owner("o:8000", "other"), COST, 8e6, 2e6), "decode_tokens")), 40.0),
        # an embedding model generates nothing, and counts that
        (joined(usage(WORKER, COST, 7e6, 2e6), usage(owner("o:8000", "other"), COST, 1e6, 0.0)), 80.0),
        # a front end counts for all workers of its model
        (joined(without(usage(WORKER, COST)), without(usage(OTHER, COST)), bare(usage(FRONT, {}, 8e6, 2e6))), 80.0),
        (joined(without(usage(owner("o:8000", "other"), COST)), without(usage(WORKER, COST)), bare(usage(FRONT, {}, 8e6, 2e6))), 40.0),
        # each pool for the other
        (joined(without(usage(PREFILL, COST, 8e6, 1e4), "decode_tokens"), without(usage(DECODE, COST, 8e6, 2e6), "prompt_tokens")), 80.0),
        (joined(usage(PREFILL, COST, 8e6, 1e4), without(usage(DECODE, COST))), 40.0),
    ],
)  # fmt: skip
def test_both_sides_of_a_unit_cost_are_of_the_same_engines(week: Usage, usd: float) -> None:
    found = build_review(evidence(week, Usage()), Settings()).now
    assert found.of_tokens.usd == pytest.approx(usd)
    assert found.tokens is not None
    assert found.blended_usd_per_million == pytest.approx(usd / found.tokens * 1e6)


def test_one_cluster_does_not_count_for_another() -> None:
    here, there = owner("a:8000", cluster="here"), owner("b:8000", cluster="there")
    week = joined(usage(here, COST, 8e6, 2e6), without(usage(there, {"idle": 7.0})))
    assert totals_of(week, ("cluster",)).of_tokens.usd == pytest.approx(40.0)
    assert totals_of(week).of_tokens.usd == pytest.approx(47.0)


def test_other_quotients_have_one_set_of_engines_too() -> None:
    dumb = replace(usage(owner("o:8000", "other"), COST, 8e6, 2e6), cached_tokens=(), requests=(), prefill_tokens=())
    week = joined(usage(WORKER, COST, 8e6, 2e6), dumb)
    both, alone = totals_of(week), totals_of(usage(WORKER, COST, 8e6, 2e6))
    for read in (lambda sums: sums.cached_ratio, lambda sums: sums.usd_per_request, lambda sums: sums.busy_usd_per_million("prefill"),
                 lambda sums: sums.allocated_usd_per_million("prefill")):  # fmt: skip
        assert read(both) == pytest.approx(read(alone))
    # of the other one's prompts no token bears the cost
    assert sum(both.allocated_usd.values()) == pytest.approx((both.usd or 0.0) - COST["prefill"])
    assert both.requests_share == pytest.approx(0.5)


def test_the_weeks_before_and_days_have_the_same_unit_cost() -> None:
    known = describe_read_week(facts_of(field_week()), NOW, 6.484, 168.0, ())
    assert known.usd_per_million == pytest.approx(83.0, abs=0.005)
    assert sum(known.counted_usd_by_hour.values()) == pytest.approx(0.771)
    assert sum(known.usd_by_hour.values()) == pytest.approx(6.484)
    assert (
        describe_read_week(facts_of(counting("a:1", "m", 5.0, 5000.0)), NOW, 5.0, 168.0, ()).counted_usd_by_hour == {}
    )


def test_prices_that_came_late_leave_the_hours_before_out() -> None:
    share = [None if hour < 84 else 1.0 if hour > 84 else 0.25 for hour in range(168)]
    cost = Line(WORKER, ("decode", "spot", "roofline"), tuple(None if one is None else one * 2.0 for one in share))
    seconds = [Line(WORKER, ("busy", "spot"), tuple(None if one is None else one * 3600.0 for one in share))]
    seconds.append(Line(WORKER, ("busy", ""), tuple(3600.0 * (1 - (one or 0.0)) for one in share)))
    week = Usage(cost=(cost,), gpu_seconds=tuple(seconds), decode_tokens=(flat(WORKER, (), 168e6),))
    # 83 hours, and a quarter of the one in which the price came
    assert totals_of(week).decode_tokens == pytest.approx(83.25e6)


@check_rows(
    ("roles", "seen"),
    [
        (("frontend", "unified"), "frontend"),
        (("decode", "unified"), "unified"),
        (("prefill", "decode"), "decode"),
        (("prefill",), "prefill"),
    ],
)
def test_objectives_are_seen_where_users_are(roles: tuple[str, ...], seen: str) -> None:
    good = {"frontend": 900.0, "unified": 800.0, "decode": 700.0, "prefill": 600.0}
    lines = [
        flat(owner(f"{role}:8000", role=role), ("ttft", outcome), good[role] if outcome == "good" else 100.0)
        for role in roles
        for outcome in ("good", "bad")
    ]
    (found,) = measure_attainments(facts_of(Usage(slo=tuple(lines))), {})
    assert found.good == pytest.approx(good[seen])
    assert found.total == pytest.approx(good[seen] + 100.0)


def test_a_week_without_prices_of_many_hours_is_compared_with_nothing() -> None:
    whole = usage(WORKER, COST, 8e6, 2e6)
    hours = replace(usage(owner("free:8000"), {"idle": 1.2}, rate="", price=1.0), cost=(), slo=())
    # 20 GPU-hours have a price
    for now, before in ((joined(whole, hours), whole), (whole, joined(whole, hours))):
        found = build_review(evidence(now, before), Settings())
        assert found.split is None
        assert found.earlier.usd is None
        (note,) = (note for note in found.notes if "is not compared" in note)
        assert "5.7 % of the GPU-hours of 2026-W4" in note
    few = replace(hours, gpu_seconds=tuple(Line(line.owner, line.of, (1.0,) * 168) for line in hours.gpu_seconds))
    assert build_review(evidence(joined(whole, few), whole), Settings()).split is not None
