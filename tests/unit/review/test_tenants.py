"""The spend by tenant: held against a simulated gateway whose truth is known, and by hand."""

from __future__ import annotations

import csv
import io

import pytest

from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.tenants import UNLABELLED, TenantKind
from llm_serving_exporter.settings.config import TenantsConfig
from llm_serving_review.evidence.context import QUANTITIES, TenantUsage
from llm_serving_review.evidence.usage import Line, Usage
from llm_serving_review.evidence.week import span_of
from llm_serving_review.figures.review import build_review
from llm_serving_review.figures.tenants import TenantCost, TenantSplit, split_by_tenant
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.spend import build_tenants
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.settings import Settings
from tests.support.builders import gatewayday as gateway
from tests.support.builders.costevidence import UTC, WEEK, evidence, facts_of, flat, joined, owner, usage
from tests.support.servers.replica import readings

DAY = span_of(WEEK.end, gateway.HOURS, UTC)
ENGINE, GATEWAY = owner("vllm-0", gateway.SERVED), "litellm"
NAMES = {"search": "search", "ads": "ads", "None": UNLABELLED}


def read_through_the_exporter(day: gateway.Day, tenants: TenantsConfig) -> TenantUsage:
    """What the exporter publishes of the gateway's pages, as growth of each hour."""
    found = readings([{"/metrics": page} for page in day.pages], seconds=3600 / gateway.TICKS_AN_HOUR, tenants=tenants)
    # an hour's growth: from its first reading to the next hour's, as increase() has it
    ends = [found[min((hour + 1) * gateway.TICKS_AN_HOUR, len(found)) - 1] for hour in range(gateway.HOURS)]
    lines: dict[str, dict[tuple[str, str], list[float]]] = {name: {} for name in QUANTITIES}
    for hour, reading in enumerate(ends):
        assert reading.page.tenants is not None
        for row in reading.page.tenants.rows:
            for name, quantity in QUANTITIES.items():
                if quantity.counter in row.counts:
                    into = lines[name].setdefault((row.model_name, row.tenant), [0.0] * gateway.HOURS)
                    into[hour] = row.counts[quantity.counter]
    return TenantUsage(
        **{
            name: tuple(
                Line(owner(GATEWAY, model, "frontend"), (tenant, "team"), grown(totals))
                for (model, tenant), totals in each.items()
            )
            for name, each in lines.items()
        }
    )


def grown(totals: list[float]) -> tuple[float, ...]:
    return tuple(now - before for before, now in zip([0.0, *totals], totals, strict=False))


def engines_of(day: gateway.Day) -> Usage:
    def line(of: tuple[str, ...], phase: str) -> Line:
        return Line(ENGINE, of, tuple(gateway.sum_phase(hour, phase) for hour in day.engine))

    usd = {"prefill": gateway.PREFILL_USD, "decode": gateway.DECODE_USD, "idle": gateway.IDLE_USD}
    return Usage(
        cost=tuple(Line(ENGINE, (phase, "spot", "roofline"), (value,) * gateway.HOURS) for phase, value in usd.items()),
        prefill_tokens=(line((), "prefill"),),
        decode_tokens=(line((), "decode"),),
        prompt_tokens=(line((), "prompt"),),
        cached_tokens=(line((), "cached"),),
    )


@pytest.fixture(scope="module")
def day() -> gateway.Day:
    return gateway.simulate()


@pytest.fixture(scope="module")
def split(day: gateway.Day) -> TenantSplit:
    config = TenantsConfig(TenantKind.TEAM, aliases={gateway.ALIAS: gateway.SERVED})
    found = split_by_tenant(facts_of(engines_of(day), week=DAY), read_through_the_exporter(day, config))
    assert found is not None
    return found


def served(split: TenantSplit) -> dict[str, TenantCost]:
    return {row.tenant: row for row in split.rows if row.served}


def test_each_teams_share_is_what_it_caused_within_one_percent(day: gateway.Day, split: TenantSplit) -> None:
    rows = served(split)
    assert set(rows) == set(NAMES.values())
    spend = gateway.HOURS * (gateway.PREFILL_USD + gateway.DECODE_USD + gateway.IDLE_USD)
    for team, name in NAMES.items():
        truth = day.usd_of(team)
        assert rows[name].usd / spend == pytest.approx(sum(truth.values()) / spend, rel=0.01), name
        assert rows[name].prefill_usd == pytest.approx(truth["prefill"], rel=0.01), name
        assert rows[name].decode_usd == pytest.approx(truth["decode"], rel=0.01), name
        assert rows[name].rest_usd == pytest.approx(truth["idle"], rel=0.01), name


def test_the_rows_add_up_to_the_spend_and_none_is_negative(split: TenantSplit) -> None:
    spend = gateway.HOURS * (gateway.PREFILL_USD + gateway.DECODE_USD + gateway.IDLE_USD)
    assert split.usd == pytest.approx(spend, rel=1e-12)
    for row in (*split.rows, *split.unexplained):
        assert min(row.prefill_usd, row.decode_usd, row.prefill_rest_usd, row.decode_rest_usd) >= 0
    # nothing is left over: the gateway was read in every hour
    assert split.unexplained_usd == 0


def test_the_scale_is_that_of_retries_cache_and_tokenizer(split: TenantSplit) -> None:
    (scale,) = split.scales
    # of 100 requests 10 are the cache's; of the others each is computed, a twentieth twice, and 3 in 100 are counted by nobody
    sent = 0.9 * 1.05 / ((0.1 + 0.9 * 0.97) * 1.08)
    # the first page of all is where counting begins
    assert scale.prompt == pytest.approx(sent, rel=0.02)
    assert scale.flagged


def test_what_an_api_would_bill_adds_up_to_the_cost(split: TenantSplit) -> None:
    for row in served(split).values():
        assert row.cached_tokens is not None
        assert not row.cached_is_mean
        prompt, computed = row.prompt_tokens / 1e6, (row.prompt_tokens - row.cached_tokens) / 1e6
        output = (row.output_usd_per_million or 0.0) * row.decode_tokens / 1e6
        assert (row.input_usd_per_million or 0.0) * prompt + output == pytest.approx(row.usd)
        assert (row.uncached_usd_per_million or 0.0) * computed + output == pytest.approx(row.usd)


def test_a_model_that_no_engine_serves_is_external(split: TenantSplit) -> None:
    (outside,) = (row for row in split.rows if not row.served)
    assert (outside.tenant, outside.model_name) == ("search", gateway.OUTSIDE)
    assert outside.usd == 0
    assert outside.prompt_tokens > 0
    assert outside.input_usd_per_million is None


def test_without_the_alias_a_teams_model_is_external_and_its_cost_the_others(day: gateway.Day) -> None:
    """What a reader sees who forgot the map: the engines counted far more than the gateway."""
    found = split_by_tenant(
        facts_of(engines_of(day), week=DAY), read_through_the_exporter(day, TenantsConfig(TenantKind.TEAM))
    )
    assert found is not None
    assert {row.model_name for row in found.rows if not row.served} == {gateway.ALIAS, gateway.OUTSIDE}
    assert (found.scales[0].decode or 0.0) > 1.5


# --- by hand ----------------------------------------------------------------------------------------------------

A = owner("a:8000", "m")


def counted(tenant: str, prompt: float, decode: float, cached: float | None = None, **more: str) -> TenantUsage:
    whose = owner("gateway", more.pop("model", "m"), "frontend", **more)
    of = (tenant, "team")
    known = () if cached is None else (flat(whose, of, cached),)
    return TenantUsage((flat(whose, of, decode),), (flat(whose, of, prompt),), known, (flat(whose, of, 10.0),))


def together(*parts: TenantUsage) -> TenantUsage:
    names = name_fields(TenantUsage)
    return TenantUsage(**{name: tuple(line for part in parts for line in getattr(part, name)) for name in names})


def divide(week: Usage, tenants: TenantUsage, identity: tuple[str, ...] = ()) -> TenantSplit:
    found = split_by_tenant(facts_of(week, identity=identity), tenants)
    assert found is not None
    return found


def test_shares_by_hand_with_the_models_mean_of_cached_tokens() -> None:
    """1,250 of prompt of which 250 are cached; x sends three quarters of the prompts and generates a quarter."""
    week = usage(A, {"prefill": 40.0, "decode": 40.0, "idle": 20.0}, 1000.0, 1000.0)
    found = divide(week, together(counted("x", 900.0, 200.0), counted("y", 300.0, 600.0)))
    rows = {row.tenant: row for row in found.rows}
    assert rows["x"].prefill_usd == pytest.approx(30.0)
    assert rows["x"].decode_usd == pytest.approx(10.0)
    # half of the busy time
    assert rows["x"].rest_usd == pytest.approx(10.0)
    assert rows["x"].cached_is_mean
    assert rows["x"].cached_tokens == pytest.approx(180.0)
    assert found.scales[0].prompt == pytest.approx(1250 / 1200)
    assert found.scales[0].decode == pytest.approx(1000 / 800)
    assert found.scales[0].flagged


def test_cached_tokens_that_the_gateway_knows_count() -> None:
    week = usage(A, {"prefill": 40.0}, 600.0, 0.0)
    found = divide(week, together(counted("x", 900.0, 1.0, cached=600.0), counted("y", 100.0, 1.0)))
    rows = {row.tenant: row for row in found.rows}
    assert rows["x"].prefill_usd == pytest.approx(30.0)
    assert rows["y"].cached_tokens == 0
    # more cached than sent is a gateway's fault, and no tenant's gain
    odd = divide(week, together(counted("x", 400.0, 1.0, cached=900.0), counted("y", 400.0, 1.0)))
    assert {row.tenant: row.prefill_usd for row in odd.rows} == {"x": 0.0, "y": pytest.approx(40.0)}


def test_hours_without_a_tenant_and_far_more_on_the_engines_than_at_the_gateway_are_no_tenants() -> None:
    week = usage(A, {"decode": 168.0, "idle": 168.0}, 0.0, 1680.0)
    # in 100 of 168 hours; in the first of them a fifth of what the engine generated
    hours = (2.0, *(10.0,) * 99, *(None,) * 68)
    found = divide(week, TenantUsage((Line(owner("gateway", "m", "frontend"), ("x", "team"), hours),)))
    (row,) = found.rows
    # twice its 2 of 10 tokens, then all
    assert row.decode_usd == pytest.approx(0.4 + 99)
    assert found.unexplained_usd == pytest.approx(2 * (0.6 + 68))
    assert found.usd == pytest.approx(336.0)


def test_a_model_without_a_gateway_is_no_tenants() -> None:
    week = joined(
        usage(A, {"decode": 10.0}, 1.0, 1e6), usage(owner("b:8000", "other"), {"decode": 5.0, "down": 1.0}, 1.0, 1e6)
    )
    found = divide(week, counted("x", 1.0, 1e6))
    assert [(row.model_name, row.usd) for row in found.unexplained] == [("other", pytest.approx(6.0))]
    assert found.usd == pytest.approx(16.0)


def test_without_phases_the_tokens_divide_the_cost() -> None:
    found = divide(
        usage(A, {"unattributed": 30.0}, 1000.0, 1000.0),
        together(counted("x", 500.0, 500.0), counted("y", 500.0, 500.0)),
    )
    assert [row.usd for row in found.rows] == [pytest.approx(15.0)] * 2


def test_a_gateway_of_another_fleet_stands_for_the_only_one_that_serves_its_model() -> None:
    engine = owner("a:8000", "m", cluster="east")
    tenants = counted("x", 1.0, 1e6, cluster="edge")
    assert divide(usage(engine, {"decode": 10.0}, 1.0, 1e6), tenants, ("cluster",)).rows[0].usd == pytest.approx(10.0)
    twice = joined(
        usage(engine, {"decode": 10.0}, 1.0, 1e6), usage(owner("b", "m", cluster="west"), {"decode": 1.0}, 1.0, 1e6)
    )
    assert not divide(twice, tenants, ("cluster",)).rows[0].served


def test_without_counts_by_tenant_the_review_says_nothing_of_them() -> None:
    week = usage(A, {"decode": 10.0}, 1.0, 1e6)
    for found in (None, TenantUsage()):
        review = build_review(replace(evidence(week, week), tenants=found), Settings())
        assert review.tenants is None
        assert "Tenants" not in render_page(review)
        assert "tenant" not in render_summary(review)


def test_the_page_the_csv_and_the_summary_show_it() -> None:
    week = usage(A, {"prefill": 40.0, "decode": 40.0, "idle": 20.0}, 1000.0, 1000.0)
    tenants = together(counted("<x>", 900.0, 200.0), counted("y", 300.0, 600.0), counted("y", 5.0, 5.0, model="claude"))
    review = build_review(replace(evidence(week, week), tenants=tenants), Settings())
    page, summary = render_page(review), render_summary(review)
    for text in ("Tenants", "&lt;x&gt;", "claude", "external", "tenants.aliases", "below 0.9 or above 1.1"):
        assert text in page
    assert "<x>" not in page
    assert r"By tenant: \<x\> $50.00, y $50.00." in summary
    rows = [
        row for row in csv.DictReader(io.StringIO(render_figures_csv(review))) if row["section"].startswith("tenants")
    ]
    spend = {row["tenant"]: float(row["value"]) for row in rows if row["item"] == "spend"}
    assert spend == {"<x>": pytest.approx(50.0), "y": pytest.approx(50.0)}
    outside = [row for row in rows if row["section"] == "tenants_external" and row["value"]]
    assert {row["item"]: float(row["value"]) for row in outside}["decode"] == pytest.approx(5)


def test_requests_that_no_gateway_counts_are_not_known() -> None:
    week = usage(A, {"prefill": 40.0, "decode": 40.0}, 1000.0, 1000.0)
    uncounted = replace(counted("x", 900.0, 200.0), requests=())
    (row,) = divide(week, uncounted).rows
    assert row.requests is None
    csv_rows = csv.DictReader(
        io.StringIO(render_figures_csv(build_review(evidence(week, Usage(), tenants=uncounted), Settings())))
    )
    (finished,) = (one for one in csv_rows if (one["section"], one["item"]) == ("tenants", "finished"))
    assert finished["value"] == ""
    # one gateway of two that counts is known for its part
    both = divide(week, together(uncounted, counted("y", 100.0, 100.0)))
    assert {one.tenant: one.requests for one in both.rows} == {"x": None, "y": pytest.approx(10.0)}


def test_what_is_shown_adds_up_however_many_tenants_there_are() -> None:
    week = usage(A, {"prefill": 40.0, "decode": 40.0, "idle": 20.0}, 1000.0, 1000.0)
    elsewhere = usage(owner("b:8000", "other"), {"decode": 5.0}, 1.0, 1e6)
    many = together(*[counted(f"t{number}", 5.0 + number, 1.0) for number in range(120)])
    both = joined(week, elsewhere)
    shown = build_tenants(build_review(replace(evidence(both, both), tenants=many), Settings()))
    assert shown is not None
    assert [row[0].shown for row in shown.costs.rows[-2:]] == ["(22 more)", "(no tenant)"]
    assert sum(float(row[1].sort_key or 0.0) for row in shown.costs.rows) == pytest.approx(105.0)


def test_a_gateway_that_counts_prompts_only_divides_prefill() -> None:
    week = usage(A, {"prefill": 40.0, "decode": 40.0}, 1000.0, 1000.0)
    found = divide(week, TenantUsage(prompt=counted("x", 900.0, 0.0).prompt))
    assert [row.usd for row in found.rows] == [pytest.approx(40.0)]
    assert found.unexplained_usd == pytest.approx(40.0)
