"""Each token, request and event counts once, beside its cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_serving_exporter.report.evidence.usage import Line, Usage
from llm_serving_exporter.report.figures.counted_once import count_once
from llm_serving_exporter.report.figures.review import build_review
from llm_serving_exporter.report.figures.rows import measure_attainments
from llm_serving_exporter.report.figures.totals import sum_usage
from llm_serving_exporter.report.settings.settings import Settings
from tests.support.builders.costevidence import evidence, flat, joined, owner, usage
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
    alone = sum_usage(worker)
    assert found.now.tokens == pytest.approx(alone.tokens)
    assert found.now.requests == pytest.approx(alone.requests)
    assert found.now.blended_usd_per_million == pytest.approx(alone.blended_usd_per_million)
    (row,) = found.models
    assert row.now.tokens == pytest.approx(alone.tokens)
    assert found.attainments[0].total == pytest.approx(1000.0)


def test_a_front_end_speaks_for_workers_that_count_no_tokens() -> None:
    worker = replace(usage(WORKER, COST), prefill_tokens=(), decode_tokens=(), prompt_tokens=(), requests=())
    found = sum_usage(count_once(joined(worker, bare(usage(FRONT, {}, 8e6, 2e6)))))
    assert found.decode_tokens == pytest.approx(2e6)
    assert found.prompt_tokens == pytest.approx(10e6)
    # one with GPUs of its own is a target like others
    assert sum_usage(count_once(usage(FRONT, COST, 8e6, 2e6))).decode_tokens == pytest.approx(2e6)


def test_a_model_of_one_name_in_two_fleets_is_two() -> None:
    here, there = owner("a:8000", cluster="here"), owner("b:8000", role="frontend", cluster="there")
    week = joined(usage(here, COST, 8e6, 2e6), usage(there, COST, 8e6, 2e6))
    assert sum_usage(count_once(week, ("cluster",))).decode_tokens == pytest.approx(4e6)
    assert sum_usage(count_once(week)).decode_tokens == pytest.approx(2e6)


def test_of_split_pools_each_thing_is_counted_on_one_side() -> None:
    prefill, decode = owner("p:8000", role="prefill"), owner("d:8000", role="decode")
    # each side counts the prompts; the prefill side generates a token a request
    week = joined(usage(prefill, {"prefill": 40.0}, 8e6, 1e4), usage(decode, {"decode": 60.0}, 8e6, 2e6))
    found = sum_usage(count_once(week))
    assert found.prompt_tokens == pytest.approx(10e6)
    assert found.cached_tokens == pytest.approx(2e6)
    assert found.decode_tokens == pytest.approx(2e6)
    assert found.requests == pytest.approx(2e6 / 250)
    assert found.blended_usd_per_million == pytest.approx(100 / 12)
    # a pool alone is what it is
    assert sum_usage(count_once(usage(decode, COST, 8e6, 2e6))).prompt_tokens == pytest.approx(10e6)


def test_tokens_without_a_price_are_in_no_unit_cost() -> None:
    unpriced = replace(usage(owner("free:8000"), COST, 8e6, 2e6, rate=""), cost=())
    priced = usage(WORKER, COST, 8e6, 2e6)
    found, alone = sum_usage(count_once(joined(priced, unpriced))), sum_usage(priced)
    assert found.tokens == pytest.approx(alone.tokens)
    assert found.usd_per_request == pytest.approx(alone.usd_per_request)
    # none that count is not 0 that count
    for nobody in (unpriced, bare(usage(FRONT, {}, 8e6, 2e6))):
        assert sum_usage(count_once(nobody)).tokens is None
        assert sum_usage(count_once(nobody)).requests is None


def test_prices_that_came_late_leave_the_hours_before_out() -> None:
    share = [None if hour < 84 else 1.0 if hour > 84 else 0.25 for hour in range(168)]
    cost = Line(WORKER, ("decode", "spot", "roofline"), tuple(None if one is None else one * 2.0 for one in share))
    seconds = [Line(WORKER, ("busy", "spot"), tuple(None if one is None else one * 3600.0 for one in share))]
    seconds.append(Line(WORKER, ("busy", ""), tuple(3600.0 * (1 - (one or 0.0)) for one in share)))
    week = Usage(cost=(cost,), gpu_seconds=tuple(seconds), decode_tokens=(flat(WORKER, (), 168e6),))
    # 83 hours, and a quarter of the one in which the price came
    assert sum_usage(count_once(week)).decode_tokens == pytest.approx(83.25e6)


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
    (found,) = measure_attainments(count_once(Usage(slo=tuple(lines))), {})
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
    few = replace(hours, gpu_seconds=tuple(replace(line, hours=(1.0,) * 168) for line in hours.gpu_seconds))
    assert build_review(evidence(joined(whole, few), whole), Settings()).split is not None
