"""What is worked out from evidence made by hand."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.context import join_minutes
from llm_serving_review.evidence.usage import Book, Episode, Fleet, Gap, Line, Usage
from llm_serving_review.figures.actions import measure_spare
from llm_serving_review.figures.rates import find_steady_load, measure_commitments, sum_unused_usd_seen
from llm_serving_review.figures.review import build_review
from llm_serving_review.figures.rows import build_invoice_rows, sum_alerts, sum_invoice
from llm_serving_review.pages.page import render_page
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings
from tests.support.builders.costevidence import (
    WEEK,
    evidence,
    facts_of,
    flat,
    fleet_of,
    gauge,
    joined,
    owner,
    totals_of,
    usage,
)

A, B = owner("a:8000"), owner("b:8000", "other")


def test_idle_time_is_borne_by_the_tokens_target_by_target() -> None:
    week = joined(
        usage(A, {"prefill": 10.0, "decode": 30.0, "idle": 40.0}, 1e6, 1e6),
        usage(B, {"prefill": 5.0, "decode": 5.0}, 1e6, 1e6),
    )
    found = totals_of(week)
    # a: twice its own, b: its own
    assert found.allocated_usd == {"prefill": pytest.approx(25.0), "decode": pytest.approx(65.0)}
    assert found.busy_usd_per_million("prefill") == pytest.approx(7.5)
    assert found.allocated_usd_per_million("decode") == pytest.approx(32.5)
    assert sum(found.allocated_usd.values()) == pytest.approx(found.usd)


def test_targets_without_tokens_are_borne_by_nobody() -> None:
    week = joined(usage(A, {"decode": 30.0}, 0.0, 1e6), usage(B, {"idle": 40.0}))
    assert sum(totals_of(week).allocated_usd.values()) == pytest.approx(30.0)


def test_what_nothing_says_is_none_and_not_0() -> None:
    found = totals_of(Usage(cost=(flat(A, ("idle", "r", "x"), 5.0),)))
    assert found.usd == pytest.approx(5.0)
    for value in (
        found.tokens,
        found.requests,
        found.energy_usd,
        found.energy_kwh,
        found.gpu_hours,
        found.blended_usd_per_million,
    ):
        assert value is None
    assert totals_of(Usage()).usd is None


def test_spare_replicas_and_the_reserve_apart() -> None:
    model = {"model_name": "m", "role": "unified"}
    week = usage(A, {"decode": 4 * 168.0})
    fleet = Fleet((gauge(4.0, **model),), (gauge(1.0, **model, reserve="none"), gauge(2.5, **model, reserve="nodes")))
    found = measure_spare(facts_of(week), fleet)
    assert found is not None
    # $1 a replica and hour
    assert (found.excess_hours, found.reserve_hours) == (1.5 * 168, 1.5 * 168)
    assert (found.excess_usd, found.reserve_usd) == (pytest.approx(252.0), pytest.approx(252.0))
    assert measure_spare(facts_of(week), Fleet()) is None
    fewer = Fleet((gauge(1.0, **model),), fleet.required)
    short = measure_spare(facts_of(week), fewer)
    assert short is not None
    assert (short.excess_hours, short.reserve_hours) == (0.0, 0.0)


def test_the_run_rate_is_that_of_the_hours_seen() -> None:
    # 84 hours of a GPU at $2, and nothing was there before
    half = tuple(2.0 if hour >= 84 else None for hour in range(168))
    line = Line(A, ("decode", "spot", "roofline"), half)
    seconds = Line(A, ("busy", "spot"), tuple(None if one is None else 3600.0 for one in half))
    week = Usage(
        cost=(line,), gpu_seconds=(seconds,), decode_tokens=(flat(A, (), 1e6),), prompt_tokens=(flat(A, (), 1e6),)
    )
    settings = Settings(api_price=ApiPrice("api", 1.0, 1.0, 1.0), monthly_costs=MonthlyCosts(storage=730.0))
    found = build_review(evidence(week, Usage(), begins=84), settings)
    assert found.outlook is not None
    assert found.outlook.projected_usd == pytest.approx(2 * 730)
    assert found.outlook.tco_usd == pytest.approx(2 * 720 + 730)
    assert found.outlook.api is not None
    assert found.outlook.api.own_usd == pytest.approx(84 * 3.0)
    assert found.outlook.of_hours == "from 84.0 of 168 hours"
    assert "from 84.0 of 168 hours" in render_page(found)
    # a gap of another GPU for as long
    hole = Gap((), "b:8000", WEEK.begin + 84 * 3600, WEEK.end, False, 1.0, 2.0)
    found = build_review(evidence(week, week, begins=84, gaps=(hole,)), settings)
    assert found.outlook is not None
    assert found.outlook.of_hours == "from 42.0 of 168 hours"


def test_tokens_that_were_read_of_neither_week_are_no_cause() -> None:
    week = usage(A, {"prefill": 100.0, "decode": 236.0}, 1e6, 1e6)
    half = replace(week, decode_tokens=(), unread=("decode_tokens",))
    found = build_review(evidence(half, half), Settings())
    assert found.split is None
    assert [row.split for row in found.models] == [None]
    # a model that makes no tokens has none
    embeds = replace(week, decode_tokens=())
    assert build_review(evidence(embeds, embeds), Settings()).split is not None


@pytest.mark.parametrize("where", ["gaps", "gaps_before"])
def test_weeks_with_much_missing_are_not_compared(where: str) -> None:
    week = usage(A, {"prefill": 100.0, "decode": 236.0}, 1e6, 1e6)
    # 168 GPU-hours, and some more that nobody saw
    for hours, compared in ((8.0, True), (9.0, False)):
        hole = Gap((), "a:8000", WEEK.begin, WEEK.begin + hours * 3600, True, 1.0, 2.0)
        found = build_review(evidence(week, week, **{where: (hole,)}), Settings())
        assert (found.split is not None, found.earlier.usd is not None) == (compared, compared)
        assert any("is not compared" in note for note in found.notes) != compared


def test_dead_replicas_and_those_without_a_price_make_living_ones_no_dearer() -> None:
    model = {"model_name": "m", "role": "unified"}
    required = gauge(1.0, **model, reserve="none"), gauge(1.0, **model, reserve="nodes")
    # two run at $1 an hour each, two more are down
    week = joined(usage(A, {"decode": 168.0, "idle": 168.0}, price=1.0), usage(B, {"down": 336.0}, price=1.0))
    week = replace(week, cost=tuple(Line(A, line.of, line.hours) for line in week.cost))
    found = measure_spare(facts_of(week), Fleet((gauge(2.0, **model),), required), {"spot"})
    assert found is not None
    assert found.excess_usd == pytest.approx(168.0)
    assert found.excess_cash_usd == pytest.approx(168.0)
    # of two that run one has a price, $1 an hour
    priced = usage(A, {"decode": 168.0}, price=1.0)
    free = replace(usage(A, {"decode": 168.0}, rate="", price=1.0), cost=())
    found = measure_spare(facts_of(joined(priced, free)), Fleet((gauge(2.0, **model),), required))
    assert found is not None
    assert found.excess_usd == pytest.approx(168.0)
    assert found.excess_cash_usd == 0.0


def test_a_commitment_is_used_hour_by_hour() -> None:
    half = tuple(2 * 3600.0 if hour < 84 else 0.0 for hour in range(168))
    week = Usage(gpu_seconds=(flat(A, ("busy", "r"), 0.0), Line(A, ("idle", "r"), half)))
    book = Book(prices=(gauge(3.0, target="a:8000", gpu_name="H100", rate="r"),), committed=(gauge(1.0, rate="r"),))
    (found,) = measure_commitments(week, book, WEEK)
    # two GPUs by day do not make up for none by night
    assert (found.committed_gpu_hours, found.used_gpu_hours, found.unused_gpu_hours) == (168.0, 168.0, 84.0)
    assert found.unused_usd == 252.0
    (nobody,) = measure_commitments(week, Book(committed=book.committed), WEEK)
    assert nobody.unused_usd is None
    # four hours of that target are not known: nobody can say that nothing was used in them
    hole = Gap((), "a:8000", WEEK.begin + 100 * 3600, WEEK.begin + 104 * 3600, True, 2.0, 3.0)
    other = replace(hole, target="b:8000")
    (found,) = measure_commitments(week, book, WEEK, gaps=(hole, other))
    assert (found.committed_gpu_hours, found.unused_gpu_hours) == (164.0, 80.0)
    # a month has such hours, too: 164 of 168 were known
    assert sum_unused_usd_seen((found,), 1.0) == pytest.approx(80 * 3.0 * 168 / 164)
    assert sum_unused_usd_seen((found,), 0.5) == pytest.approx(40 * 3.0 * 168 / 164)


def test_a_rate_costs_what_its_gpu_time_cost() -> None:
    book = Book(
        prices=(
            gauge(3.0, target="a:8000", gpu_name="H100", rate="r"),
            gauge(1.0, target="b:8000", gpu_name="H100", rate="r"),
        ),
        committed=(gauge(5.0, rate="r"),),
    )
    week = joined(usage(A, {"idle": 3 * 168.0}, rate="r", price=1.0), usage(B, {"idle": 168.0}, rate="r", price=1.0))
    (found,) = measure_commitments(week, book, WEEK)
    assert found.usd_per_gpu_hour == pytest.approx((3 * 3 + 1) / 4)


def test_fleets_with_the_same_names_are_two() -> None:
    here, there = owner(cluster="here"), owner(cluster="there")
    identity = {"target": "a:8000", "rate": "r"}
    book = Book(
        prices=(
            gauge(3.0, **identity, gpu_name="H100", cluster="here"),
            gauge(1.0, **identity, gpu_name="A100", cluster="there"),
        ),
        committed=(gauge(1.0, rate="r", cluster="here"), gauge(2.0, rate="r", cluster="there")),
        rates={"r": "reserved"},
    )
    week = joined(
        usage(here, {"idle": 3 * 84.0}, rate="r", price=3.0), usage(there, {"idle": 168.0}, rate="r", price=1.0)
    )
    found = build_review(evidence(week, week, book=book), Settings(identity_labels=("cluster",)))
    assert {row.gpu_name: row.usd for row in found.invoice} == {
        "H100": pytest.approx(252.0),
        "A100": pytest.approx(168.0),
    }
    assert [(one.name, one.unused_usd) for one in found.commitments] == [
        ("r / here", pytest.approx(84 * 3.0)),
        ("r / there", pytest.approx(168.0)),
    ]


def test_unused_commitments_are_in_the_month_and_owned_ones_not_in_what_pays_a_purchase_back() -> None:
    book = Book(
        prices=(gauge(2.0, target="a:8000", gpu_name="H100", rate="ours"),),
        committed=(gauge(2.0, rate="ours"), gauge(1.0, rate="elsewhere")),
        rates={"ours": "owned"},
    )
    week = usage(A, {"prefill": 168.0, "decode": 168.0}, 8e6, 2e6, rate="ours")
    price = ApiPrice("api", 73.0, 73.0, 73.0)
    found = build_review(evidence(week, week, book=book), Settings(api_price=price, purchase_usd=12_000.0))
    assert found.outlook is not None
    # a GPU that works and one that does not, $2 each; what nobody knows the price of is named
    assert found.outlook.projected_usd == pytest.approx(4 * 730)
    assert found.outlook.tco_usd == pytest.approx(4 * 720)
    api = found.outlook.api
    assert api is not None
    assert api.own_usd == pytest.approx(4 * 168)
    # both are the purchase itself: the whole price of the API pays it back, $876 a week
    assert api.payback is not None
    assert api.payback.months == pytest.approx(12_000 / (876 / 168 * 730))
    assert "Commitment elsewhere is not in this sum because its price is unknown." in render_page(found)
    assert any("“elsewhere”" in finding.sentence for finding in found.findings)


def test_steady_gpus_are_those_of_the_quietest_hour() -> None:
    seconds = tuple(3.0 * 3600 if hour % 24 < 12 else 2.0 * 3600 for hour in range(168))
    line = Line(A, ("busy", "od"), seconds)
    prices = (
        gauge(4.0, target="a:8000", gpu_name="H100", rate="od"),
        gauge(2.5, target="b:8000", gpu_name="H100", rate="res"),
        gauge(1.0, target="c:8000", gpu_name="A100", rate="res"),
    )
    rates = {"od": "on_demand", "res": "reserved"}
    (found,) = find_steady_load(Usage(gpu_seconds=(line,)), Book(prices=prices, rates=rates), 168)
    assert (found.gpus, found.rate, found.usd) == (2.0, "res", 2 * 1.5 * 168)
    # hours of which nothing is known have no saving
    known = Line(A, ("busy", "od"), tuple(None if hour < 24 else value for hour, value in enumerate(seconds)))
    (found,) = find_steady_load(Usage(gpu_seconds=(known,)), Book(prices=prices, rates=rates), 168)
    assert found.usd == 2 * 1.5 * 144
    # a commitment that stands unused is filled first
    book = Book(prices=prices, rates=rates, committed=(gauge(2.0, rate="res"),))
    week = Usage(gpu_seconds=(line,))
    assert find_steady_load(week, book, 168, measure_commitments(week, book, WEEK)) == ()
    # and so is a pool: 1.5 of two GPUs in the mean are two whole ones
    bare = Book(prices=prices, rates=rates)
    assert find_steady_load(week, bare, 168, promised={"H100": 1.5 * 168}) == ()
    assert [one.gpus for one in find_steady_load(week, bare, 168, promised={"H100": 168.0, "A100": 500.0})] == [1.0]
    # what adding up leaves behind the point is no GPU, and a price that changed is the one that stands in the file
    rest = replace(measure_commitments(week, book, WEEK)[0], unused_gpu_hours=168.00000000000023)
    changed = (
        gauge(tuple(3.0 if hour < 84 else 4.0 for hour in range(168)), target="a:8000", gpu_name="H100", rate="od"),
        *prices[1:],
    )
    (found,) = find_steady_load(week, Book(prices=changed, rates=rates), 168, [rest])
    assert (found.gpus, found.usd_per_gpu_hour) == (1.0, 4.0)
    dearer = (prices[0], gauge(5.0, target="b:8000", gpu_name="H100", rate="res"))
    assert find_steady_load(Usage(gpu_seconds=(line,)), Book(prices=dearer, rates=rates), 168) == ()


def test_a_target_on_several_nodes_is_split_evenly() -> None:
    book = Book(nodes=(gauge(1.0, target="a:8000", node="n1"), gauge(1.0, target="a:8000", node="n2")))
    found = build_review(
        evidence(joined(usage(A, {"decode": 10.0}), usage(B, {"decode": 4.0})), Usage(), book=book), Settings()
    )
    assert {row.node: row.usd for row in found.nodes} == {
        "n1": pytest.approx(5.0),
        "n2": pytest.approx(5.0),
        "": pytest.approx(4.0),
    }


def test_a_price_that_never_changed_is_shown_as_it_is() -> None:
    """Busy time is booked with its tokens, up to five minutes later: of an hour at a flat $2.49 there are $2.4712 so far."""
    week = usage(A, {"decode": 2.4712}, 1e6, 1e6, price=2.4712)
    flat_price = gauge(2.49, target="a:8000", gpu_name="H100", rate="spot")
    (row,) = build_invoice_rows(week, Book(prices=(flat_price,)))
    assert (row.gpu_hours, row.usd) == (pytest.approx(1.0), pytest.approx(2.4712))
    assert row.usd_per_gpu_hour == 2.49
    changed = gauge((2.0,) * 84 + (3.0,) * 84, target="a:8000", gpu_name="H100", rate="spot")
    far = gauge(5.0, target="a:8000", gpu_name="H100", rate="spot")
    for book in (Book(prices=(changed,)), Book(prices=(far,)), Book()):
        assert build_invoice_rows(week, book)[0].usd_per_gpu_hour == pytest.approx(2.4712)


def test_the_invoice_adds_up() -> None:
    found = build_review(fleet_of(4, 2, 0), Settings())
    assert sum(row.usd for row in found.invoice) == pytest.approx(found.now.usd)
    unused = sum(one.unused_usd or 0.0 for one in found.commitments)
    assert found.invoice_usd == pytest.approx((found.now.usd or 0) + unused)
    assert sum_invoice((), (), 5.0) == 5.0


def test_alerts_are_episodes_whoever_evaluates_them() -> None:
    labels = {"alertname": "LLMServingA", "severity": "critical", "model_name": "m"}
    minute = 60.0
    pieces = [
        (labels, [(minute * at, 1.0) for at in range(0, 10)]),
        # a day's next piece
        (labels, [(minute * at, 1.0) for at in (*range(10, 15), *range(30, 35))]),
    ]
    found = join_minutes(pieces, ())
    assert [(one.begin, one.end) for one in found] == [(0.0, 15 * minute), (30 * minute, 35 * minute)]
    assert found[0].what == "m"


def test_only_minutes_within_the_week_count() -> None:
    early = Episode("A", "critical", "", WEEK.begin - 600, WEEK.begin + 600)
    late = Episode("B", "warning", "", WEEK.end - 60, WEEK.end + 600)
    info = Episode("C", "info", "", WEEK.begin, WEEK.end)
    found = sum_alerts((early, late, info), WEEK)
    assert found is not None
    assert found.watched_hours is None
    assert (found.pages, found.page_minutes, found.tickets, found.ticket_minutes) == (1, 10.0, 1, 1.0)
    assert {row.alert for row in found.noisiest} == {"A", "B"}


def test_no_page_is_not_known_where_nobody_evaluates_the_rules() -> None:
    assert sum_alerts((), WEEK, 0.0) is None
    calm = sum_alerts((), WEEK, 168.0)
    assert calm is not None
    assert (calm.pages, calm.watched_hours) == (0, 168.0)
    week = usage(A, {"decode": 168.0}, 1e6, 1e6)
    nobody = render_page(build_review(evidence(week, week, watched_hours=0.0), Settings()))
    assert "Pages and tickets are unknown: either nothing evaluated the rules" in nobody
    assert "0 pages" not in nobody
    assert "0 pages (0.0 h firing)" in render_page(build_review(evidence(week, week, watched_hours=168.0), Settings()))
