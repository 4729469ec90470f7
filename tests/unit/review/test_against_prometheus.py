"""A real Prometheus with a fortnight in it: the review's figures are those that plain addition has."""

from __future__ import annotations

import pytest

from llm_serving_review.figures.review import Review
from llm_serving_review.pages.page import render_page
from tests.support.builders.costfortnight import TARGETS, Fortnight

pytestmark = pytest.mark.e2e

# increase() extrapolates to the edges of each hour
CLOSE = 0.005


def close(value: float) -> object:
    return pytest.approx(value, rel=CLOSE)


def test_the_spend_is_what_it_was(made: Review, fortnight: Fortnight) -> None:
    before, now = fortnight.weeks
    assert made.now.usd == close(now.usd)
    assert made.earlier.usd == close(before.usd)
    for phase in ("prefill", "decode", "idle"):
        assert made.now.usd_by_phase[phase] == close(now.by["usd", phase]), phase
    assert made.now.gpu_hours_by_state == {"busy": close(now.gpu_hours["busy"]), "idle": close(now.gpu_hours["idle"])}


def test_tokens_and_requests_are_those_that_were(made: Review, fortnight: Fortnight) -> None:
    now = fortnight.weeks[1]
    assert made.now.prefill_tokens == close(now.tokens["prefill"])
    assert made.now.decode_tokens == close(now.tokens["decode"])
    assert made.now.prompt_tokens == close(now.tokens["prompt"])
    assert made.now.cached_tokens == close(now.tokens["cached_prompt"])
    assert made.now.requests == close(now.requests)
    assert made.now.blended_usd_per_million == close(now.usd / (now.tokens["prompt"] + now.tokens["decode"]) * 1e6)


def test_models_teams_nodes_and_rates_are_told_apart(made: Review, fortnight: Fortnight) -> None:
    truth = fortnight.weeks[1].by
    assert {row.model_name: row.now.usd for row in made.models} == {
        name: close(truth["usd", name]) for name in ("m-large", "m-small")
    }
    assert {row.value: row.now.usd for row in made.labels} == {
        name: close(truth["usd", name]) for name in ("red", "blue")
    }
    assert {row.node: row.usd for row in made.nodes} == {name: close(truth["usd", name]) for name in ("n1", "n2", "n3")}
    assert {(row.rate, row.gpu_name): row.usd for row in made.invoice} == {
        ("reserved-1y", "H100"): close(truth["usd", "reserved-1y"]),
        ("on-demand", "H100"): close(truth["usd", "on-demand"]),
        ("spot", "A100"): close(truth["usd", "spot"]),
    }
    # three days at $2.00 and four at $2.50
    (reserved,) = (row for row in made.invoice if row.rate == "reserved-1y")
    assert reserved.usd_per_gpu_hour == close((3 * 2.0 + 4 * 2.5) / 7)


def test_a_time_that_prometheus_missed_is_recovered_and_one_without_an_exporter_is_named(
    made: Review, fortnight: Fortnight
) -> None:
    gaps = {gap.target: gap for gap in made.gaps}
    # nothing else: what came and went is no gap
    assert set(gaps) == {"unscraped:8000", "dark:8000"}
    (unscraped,) = (target for target in TARGETS if target.name == "unscraped:8000")
    begin, end = unscraped.unscraped[0]
    # $4 for each of its hours, of which the last sample before and the first after see each an end
    assert gaps["unscraped:8000"].recovered["cost"] == pytest.approx(4 * (end - begin), rel=0.05)
    assert gaps["unscraped:8000"].estimated_usd == pytest.approx(0.0, abs=0.05)
    assert made.recovered_usd == pytest.approx(4 * (end - begin), rel=0.06)
    dark = fortnight.weeks[1].missing_gpu_hours * 4.0
    assert gaps["dark:8000"].estimated_usd == pytest.approx(dark, rel=0.05)
    assert made.missing_usd == pytest.approx(dark, rel=0.05)
    assert any("gaps of the data" in finding.sentence for finding in made.findings) == (
        dark > 0.01 * (made.now.usd or 0)
    )


def test_allocated_costs_add_up_to_the_spend(made: Review) -> None:
    assert sum(made.now.allocated_usd.values()) == pytest.approx(made.now.usd)
    assert made.split is not None
    assert made.split.total == pytest.approx((made.now.usd or 0) - (made.earlier.usd or 0), abs=0.01)
    assert sum(row.now.usd or 0 for row in made.models) == pytest.approx(made.now.usd)
    assert sum(row.usd for row in made.invoice) == pytest.approx(made.now.usd)
    assert sum(row.usd for row in made.nodes) == pytest.approx(made.now.usd)


def test_commitment_and_spare_replicas(made: Review) -> None:
    (commitment,) = made.commitments
    # three are paid for, two are used
    assert commitment.committed_gpu_hours == 3 * 168
    assert commitment.unused_gpu_hours == pytest.approx(168, rel=0.01)
    assert made.spare is not None
    # six hours of each night one replica is enough, reserve included; by day two are required of which one is reserve. An hour's
    # highest is looked at, and the sample on the hour belongs to both: five hours of a night
    assert made.spare.excess_hours == pytest.approx(7 * 6, abs=7)
    assert made.spare.excess_usd is not None


def test_objectives_alerts_method_and_budget(made: Review, fortnight: Fortnight) -> None:
    (ttft,) = made.attainments
    assert (ttft.slo, ttft.objective) == ("ttft", 0.99)
    assert ttft.share == pytest.approx(0.985, abs=1e-6)
    assert made.alerts is not None
    assert (made.alerts.pages, made.alerts.tickets) == (2, 1)
    # an instant query sees an alert's last sample for five minutes more, where no stale marker ends it
    assert made.alerts.page_minutes == pytest.approx(30 + 2 * 5, abs=3)
    assert [row.alert for row in made.alerts.noisiest] == ["LLMServingTTFTBurn", "LLMServingKVSaturated"]
    assert made.alerts.watched_hours == pytest.approx(156, abs=0.1)
    assert "Rules were evaluated for 156 of 168 hours." in render_page(made)
    assert made.methods == (("roofline", "model,gpu"),)
    assert made.outlook is not None
    assert made.outlook.budget_usd == 4000
    spent = (made.now.usd or 0) + (made.now.energy_usd or 0) + (made.commitments[0].unused_usd or 0)
    # of the hours of a GPU some are in no figure
    known = made.now.gpu_hours or 0
    assert made.outlook.seen is not None
    seen = 168 * known / (known + fortnight.weeks[1].missing_gpu_hours)
    assert made.outlook.seen.hours == pytest.approx(seen, rel=1e-3)
    assert made.outlook.projected_usd == pytest.approx(spent / seen * 730, rel=1e-3)
    assert made.missing_parts == ()
    # nothing in it says who was scraped
    (note,) = made.notes
    assert note.startswith("Data of brief:8000 end before the week does")


def test_the_api_is_compared_by_tokens_as_sent(made: Review, fortnight: Fortnight) -> None:
    now = fortnight.weeks[1].tokens
    assert made.outlook is not None
    api = made.outlook.api
    assert api is not None
    fresh = now["prompt"] - now["cached_prompt"]
    assert api.api_usd == close((fresh * 0.6 + now["cached_prompt"] * 0.15 + now["decode"] * 2.4) / 1e6)
    assert api.payback is not None
    assert api.break_even_tokens_per_month is not None
    month = made.outlook.own_usd
    assert api.break_even_tokens_per_month * (api.api_usd_per_million or 0) / 1e6 == pytest.approx(month)
