"""Pools in the review: the headline is what is paid, the page and the CSV say how it comes about, and what to do comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, PoolUse, SpendRate
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import NodePlace
from llm_serving_review.evidence.usage import Book, Fleet, Gap
from llm_serving_review.figures.actions import Kind
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.pages.page import render_page
from llm_serving_review.pages.summary import render_summary
from llm_serving_review.settings.price_files import read_price_files
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costevidence import gauge
from tests.support.builders.poolweek import H100, L4, P5, PoolWeek
from tests.support.rows import check_rows

ALL = range(168)
RESERVED = Pool("reserved", PoolKind.QUANTITY, PoolUse(instance_type=P5), 8.0, 2.5)


def week_of(gpus: float, **more: object) -> PoolWeek:
    week = PoolWeek()
    week.add("a", dict.fromkeys(ALL, gpus), **more)
    return week


def row_of(csv: str, section: str, item: str, unit: str, holds: str = "") -> float:
    (found,) = (
        line
        for line in csv.splitlines()
        if line.startswith(f"2026-W46,{section},{item},") and line.endswith(f",{unit}") and holds in line
    )
    return float(found.split(",")[-2])


def test_the_headline_is_what_is_paid() -> None:
    # 6 of 8 committed GPUs at $2.50 used: 168 x 6 x $4 = $4,032 metered; paid 168 x 8 x $2.50 = $3,360
    found = build_review(week_of(6.0).evidence(RESERVED), Settings())
    assert found.now.usd == pytest.approx(4032.0)
    assert found.invoice_usd == pytest.approx(3360.0)
    # 168 x 6 x $1.50 = $1,512 less, 168 x 2 x $2.50 = $840 unused
    assert dict(found.list_beside()) == {
        "taken off by pools": pytest.approx(-1512.0),
        "unused commitments": pytest.approx(840.0),
    }
    # the month: 730 h x 8 x $2.50
    assert found.outlook is not None
    assert found.outlook.projected_usd == pytest.approx(730 * 20.0)
    # the parts of the reconciliation add up
    csv = render_figures_csv(found)
    parts = [row_of(csv, "invoice", f"pools_{name}", "USD") for name in ("benefit", "unused", "unknown")]
    assert row_of(csv, "invoice", "gpu_time", "USD") + sum(parts) == pytest.approx(row_of(csv, "invoice", "sum", "USD"))
    assert row_of(csv, "pool", "saved", "USD") == pytest.approx(1512.0 - 840.0)
    assert row_of(csv, "pool_models", "after_commitments", "USD") == pytest.approx(168 * 6 * 2.5)


def test_the_page_says_how_it_comes_about() -> None:
    page = render_page(build_review(week_of(6.0).evidence(RESERVED), Settings()))
    assert "Pools: what is committed" in page
    assert "$4,032 of GPU time metered, less $1,512 that pools take off, with $840 that stood unused: $3,360." in page
    assert "before commitments" in page
    assert "use it or lose it" in page
    # a week without pools has no such section
    assert "Pools: what is committed" not in render_page(
        build_review(week_of(6.0, rate="on_demand").evidence(), Settings())
    )


def test_the_summary_says_it_in_a_line() -> None:
    said = render_summary(build_review(week_of(6.0).evidence(RESERVED), Settings()))
    assert "Pools: $3,360 committed, $840 of it unused; against the price without them they saved $672." in said
    assert "Pools:" not in render_summary(build_review(week_of(6.0, rate="on_demand").evidence(), Settings()))


def test_the_week_before_is_compared_after_its_own_commitments() -> None:
    before = week_of(8.0)
    found = build_review(week_of(6.0).evidence(RESERVED, before=before), Settings())
    # both weeks pay for 8 committed GPUs
    assert found.invoice_before_usd == pytest.approx(found.invoice_usd)
    assert found.earlier.usd == pytest.approx(168 * 8 * 4.0)


def test_pools_without_a_price_file_are_said() -> None:
    found = build_review(week_of(6.0).evidence(), Settings())
    assert found.pools is None
    assert any("$4,032 are metered at the rate pool" in note and "--price-file" in note for note in found.notes)
    assert found.invoice_usd == pytest.approx(4032.0)
    over = replace(RESERVED, until_unix_seconds=found.week.begin)
    for pools, why in (
        ((over,), "None of the price file is in force in this week."),
        ((), "The price file states none."),
    ):
        stated = replace(week_of(6.0).evidence(), pools=PoolBook(pools))
        assert any(
            note.endswith(f"no pool was taken off them. {why}") for note in build_review(stated, Settings()).notes
        )


def test_a_gap_makes_no_month_dearer() -> None:
    week = PoolWeek()
    # 8 GPUs of which half the week is not known: the commitment is paid either way
    week.add("a", dict.fromkeys(range(84), 8.0))
    at = week.week.begin + 84 * 3600
    gap = Gap((), "a", at, week.week.end, False, 8.0, 4.0)
    found = build_review(week.evidence(RESERVED, gaps=(gap,)), Settings())
    assert found.pools is not None
    assert (found.pools.unused_usd, found.pools.unknown_usd) == (pytest.approx(0.0), pytest.approx(84 * 20.0))
    assert found.outlook is not None
    assert found.outlook.projected_usd == pytest.approx(730 * 20.0)
    assert "and $1,680 of hours in gaps" in render_page(found)


def committed(unused: float, on_demand: float) -> Review:
    """GPUs of which `unused` stand idle at a rate of $2, beside others on demand at $4."""
    week = PoolWeek()
    week.add("r", dict.fromkeys(ALL, 8.0 - unused), 2.0, rate="reserved")
    week.add("d", dict.fromkeys(ALL, on_demand), 4.0, rate="on_demand")
    evidence = week.evidence()
    book: Book = replace(evidence.book, committed=(gauge(8.0, rate="reserved"),))
    return build_review(replace(evidence, book=book), Settings())


def test_four_idle_committed_gpus_beside_eight_on_demand_are_worth_using() -> None:
    found = committed(4.0, 8.0)
    (one,) = (action for action in found.actions if "reserved" in action.what and "Move" in action.what)
    # min(4, 8) x 168 h x $4 = $2,688 of cash, where four GPUs less at $2 would be $1,344
    assert (one.what, one.kind) == ("Move on-demand load onto the unused GPUs of “reserved”", Kind.CASH)
    assert one.usd_per_week == pytest.approx(2688.0)
    assert "saves $2,688 a week" in render_summary(found)
    # of six idle ones two stay unused beside four on demand: those are worth freeing
    found = committed(6.0, 4.0)
    amounts = {action.what: (action.kind, action.usd_per_week) for action in found.actions}
    assert amounts["Move on-demand load onto the unused GPUs of “reserved”"] == (
        Kind.CASH,
        pytest.approx(4 * 168 * 4.0),
    )
    freed = amounts["Move work onto the commitment “reserved”, or commit to fewer GPUs"]
    assert freed == (Kind.CAPACITY, pytest.approx(2 * 168 * 2.0))


def test_the_same_of_a_pool() -> None:
    week = week_of(4.0)
    week.add("d", dict.fromkeys(ALL, 8.0), 4.0, rate="on_demand", place=NodePlace())
    found = build_review(week.evidence(RESERVED), Settings())
    amounts = {action.what: (action.kind, action.usd_per_week) for action in found.actions}
    assert amounts["Move on-demand load onto the unused GPUs of “reserved”"] == (
        Kind.CASH,
        pytest.approx(4 * 168 * 4.0),
    )
    assert not any("or commit to less" in what for what in amounts)


def test_price_files_of_several_fleets(tmp_path: Path) -> None:
    east, west = tmp_path / "east.yml", tmp_path / "west.yml"
    # prices of cards that only the exporters' configuration describes are none of the review's business
    east.write_text(
        "prices: [{gpu_model: Hyper 9000, usd_per_gpu_hour: 4, rate: pool}]\n"
        "pools: [{name: east, kind: quantity, gpu_model: h100 sxm, gpus: 8, usd_per_gpu_hour: 2.5}]\n"
        "nodes: [{node: a, region: us-east-1}]\n"
    )
    west.write_text("pools: [{name: west, kind: quantity, gpu_model: Hyper 9000, gpus: 8, usd_per_gpu_hour: 2.5}]\n")
    found = read_price_files((str(east), str(west)))
    assert found is not None
    assert [(pool.name, pool.use.gpu_name) for pool in found.pools] == [("east", H100), ("west", "Hyper 9000")]
    assert found.nodes == (("a", NodePlace("us-east-1")),)
    assert read_price_files(()) is None


@check_rows(
    ("text", "said"),
    [
        (
            "pools: [{name: east, kind: quantity, gpu_model: H100 SXM, gpus: 9, usd_per_gpu_hour: 2}]",
            'there is another pool "east"',
        ),
        ("nodes: [{node: a, region: us-west-2}]", 'the node "a" stands elsewhere'),
        ("pools: [{name: x}]", "kind is missing"),
        ("- 1", "this is no price file"),
        (None, "does not exist"),
    ],
)
def test_bad_price_files_are_refused(tmp_path: Path, text: str | None, said: str) -> None:
    east, other = tmp_path / "east.yml", tmp_path / "other.yml"
    east.write_text(
        "pools: [{name: east, kind: quantity, gpu_model: H100 SXM, gpus: 8, usd_per_gpu_hour: 2}]\nnodes: [{node: a, region: us-east-1}]\n"
    )
    if text is not None:
        other.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_price_files((str(east), str(other)))
    assert said in str(raised.value)
    assert str(other) in str(raised.value)


def test_fewer_replicas_save_what_no_pool_covers() -> None:
    """16 GPUs of which 8 are committed, in 8 replicas of which 2 are needed: of 12 that go, 8 save $4 an hour, the others free capacity."""
    labels = {"model_name": "m", "role": "unified"}
    fleet = Fleet(
        (gauge(8.0, **labels),), (gauge(2.0, **labels, reserve="none"), gauge(2.0, **labels, reserve="nodes"))
    )
    found = build_review(replace(week_of(16.0).evidence(RESERVED), fleet=fleet), Settings())
    (one,) = (action for action in found.actions if action.what.startswith("Run fewer replicas"))
    assert (one.kind, one.usd_per_week) == (Kind.CASH, pytest.approx(168 * 8 * 4.0))
    assert "$2,688 more on GPUs that are committed or owned" in one.why
    # with 8 of 8 committed nothing is saved
    found = build_review(replace(week_of(8.0).evidence(RESERVED), fleet=fleet), Settings())
    (one,) = (action for action in found.actions if action.what.startswith("Run fewer replicas"))
    assert (one.kind, one.usd_per_week) == (Kind.CAPACITY, pytest.approx(168 * 6 * 4.0))


def test_uncovered_gpus_elsewhere_are_not_saved_by_fewer_replicas_here() -> None:
    labels = {"model_name": "m", "role": "unified"}
    fleet = Fleet(
        (gauge(8.0, **labels),), (gauge(2.0, **labels, reserve="none"), gauge(2.0, **labels, reserve="nodes"))
    )
    week = week_of(8.0)
    week.add("far", dict.fromkeys(ALL, 8.0), model="other", place=NodePlace("eu-west-1", "eu-west-1a", P5))
    here = replace(RESERVED, use=PoolUse(instance_type=P5, region="us-east-1"))
    found = build_review(replace(week.evidence(here), fleet=fleet), Settings())
    (one,) = (action for action in found.actions if action.what.startswith("Run fewer replicas"))
    assert one.kind is Kind.CAPACITY


def test_no_hour_of_load_is_promised_to_a_rate_and_to_a_pool() -> None:
    """Four GPUs of a pool and six of a rate stand idle beside eight on demand: the rate takes six, the pool two."""
    week = week_of(4.0)
    week.add("r", dict.fromkeys(ALL, 4.0), 2.0, rate="reserved")
    week.add("d", dict.fromkeys(ALL, 8.0), 4.0, rate="on_demand")
    evidence = week.evidence(replace(RESERVED, name="float"))
    book = replace(evidence.book, committed=(gauge(10.0, rate="reserved"),))
    found = build_review(replace(evidence, book=book), Settings())
    moved = {action.what: action.usd_per_week for action in found.actions if action.what.startswith("Move on-demand")}
    assert moved == {
        "Move on-demand load onto the unused GPUs of “reserved”": pytest.approx(168 * 6 * 4.0),
        "Move on-demand load onto the unused GPUs of “float”": pytest.approx(168 * 2 * 4.0),
    }


def test_a_rate_with_two_kinds_of_gpu_takes_over_no_more_than_stands_unused() -> None:
    week = PoolWeek()
    for card in (H100, L4):
        week.add(f"r-{card}", dict.fromkeys(ALL, 1.0), 2.0, rate="reserved", gpu_name=card)
        week.add(f"d-{card}", dict.fromkeys(ALL, 4.0), 4.0, rate="on_demand", gpu_name=card)
    evidence = week.evidence()
    book = replace(evidence.book, committed=(gauge(6.0, rate="reserved"),))
    (one,) = build_review(replace(evidence, book=book), Settings()).commitments
    assert (one.unused_gpu_hours, one.movable_gpu_hours) == (pytest.approx(672.0), pytest.approx(672.0))


def test_a_plan_that_is_dearer_than_the_price_adds() -> None:
    """$20 an hour at $5.00 a GPU cover four of eight GPUs at $4.00: $4 an hour more."""
    plan = Pool("dear", PoolKind.SPEND, usd_per_hour=20.0, rates=(SpendRate(PoolUse(instance_type=P5), 5.0),))
    found = build_review(week_of(8.0).evidence(plan), Settings())
    assert found.invoice_usd == pytest.approx(168 * 36.0)
    assert found.list_beside() == [("added by pools", pytest.approx(672.0))]
    assert "$5,376 of GPU time metered, with $672 that pools add, with $0.00 that stood unused: $6,048." in render_page(
        found
    )
    assert "against the price without them they cost $672 more." in render_summary(found)
