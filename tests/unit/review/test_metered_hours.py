"""GPU time by UTC hour and machine: cut at the edges of weeks that begin elsewhere, nothing lost, places from whoever knows them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.model.target import NodePlace
from llm_serving_review.evidence.usage import Book, Gauge, Line, NodePlaces, Usage
from llm_serving_review.evidence.week import Week, parse_week
from llm_serving_review.figures.metered_hours import measure_metered_hours
from llm_serving_review.tables.sums import sum_by_key
from tests.support.builders.costevidence import owner

A = owner("a:8000")
HERE = {"region": "us-east-1", "zone": "us-east-1a", "instance_type": "p5.48xlarge", "provider_id": "aws:///i-1"}


def line(of: tuple[str, ...], values: dict[int, float], hours: int = 168) -> Line:
    """A quantity of the target that is known in some hours."""
    return Line(A, of, tuple(values.get(hour) for hour in range(hours)))


def gauge(hours: dict[int, float], **labels: str) -> Gauge:
    """A gauge that is known in some hours."""
    return Gauge(labels, tuple(hours.get(hour) for hour in range(168)))


def week_in(zone: str, name: str = "2026-W46") -> Week:
    """A week in a zone."""
    return parse_week(name, ZoneInfo(zone))


def used(values: dict[int, float], price: float = 3.0) -> Usage:
    """GPU-hours by hour of the week, half of them idle, at a price."""
    seconds = {hour: value * 1800.0 for hour, value in values.items()}
    usd = {hour: value * price / 2 for hour, value in values.items()}
    return Usage(
        cost=(line(("decode", "pool", "x"), usd), line(("idle", "pool", "x"), usd)),
        gpu_seconds=(line(("busy", "pool"), seconds), line(("idle", "pool"), seconds)),
    )


@pytest.mark.parametrize(("zone", "offset_hours"), [("UTC", 0), ("Europe/Berlin", 1)])
def test_whole_hours_stay_whole(zone: str, offset_hours: int) -> None:
    week = week_in(zone)
    (one,) = measure_metered_hours(used({5: 4.0}), Book(), week, ())
    # Monday at 5:00 in the zone; 2026-11-09 is a Monday in winter time
    assert one.utc_begin == week_in("UTC").begin + (5 - offset_hours) * 3600
    assert (one.gpu_hours, one.usd, one.paid_usd) == (4.0, 12.0, 12.0)
    assert (one.target, one.model_name, one.rate, one.node) == ("a:8000", "m", "pool", "")


def test_hours_of_half_hour_zones_are_cut_in_proportion() -> None:
    # India is 5:30 ahead: its first hour is 18:30 to 19:30 of Sunday in UTC
    week = week_in("Asia/Kolkata")
    pieces = measure_metered_hours(used({0: 4.0, 1: 6.0}), Book(), week, ())
    sunday_18 = week.begin - 1800
    # 18-19 h: half of the first; 19-20 h: the other half and half of the second; 20-21 h: the rest
    usd = sum_by_key((one.utc_begin, one.usd) for one in pieces)
    gpu_hours = sum_by_key((one.utc_begin, one.gpu_hours) for one in pieces)
    assert [(at, gpu_hours[at], usd[at]) for at in gpu_hours] == [
        (sunday_18, 2.0, 6.0), (sunday_18 + 3600, 5.0, 15.0), (sunday_18 + 7200, 3.0, 9.0),
    ]  # fmt: skip
    assert sunday_18 % 3600 == 0


def test_two_nodes_share_a_target_and_one_whose_labels_change_is_one_node() -> None:
    both = {0: 1.0, 1: 1.0}
    who = {"target": "a:8000"}
    book = Book(
        nodes=(gauge(both, **who, node="n1"), gauge({1: 1.0}, **who, node="n2")),
        places=(
            # within the first hour nobody knew yet, then its labels came
            gauge({0: 1.0}, **who, node="n1", region="", zone="", instance_type="", provider_id=""),
            gauge(both, **who, node="n1", **HERE),
        ),
    )
    pieces = measure_metered_hours(used({0: 8.0, 1: 8.0}), book, week_in("UTC"), ())
    begin = week_in("UTC").begin
    assert sum_by_key(((one.utc_begin, one.provider_id, one.node, one.target), one.gpu_hours) for one in pieces) == {
        (begin, "aws:///i-1", "n1", "a:8000"): 8.0,
        (begin + 3600, "aws:///i-1", "n1", "a:8000"): 4.0,
        (begin + 3600, "", "n2", "a:8000"): 4.0,
    }
    first = pieces[0]
    assert (first.region, first.instance_type) == ("us-east-1", "p5.48xlarge")


def test_targets_of_the_same_name_in_two_fleets_are_two_and_stand_where_their_own_cluster_says() -> None:
    both = {"east": owner("a:8000", cluster="east"), "west": owner("a:8000", cluster="west")}
    gauges = [gauge({0: 1.0}, target="a:8000", node="n1", cluster=name, region=f"us-{name}") for name in both]
    prices = [
        gauge({0: 3.0 + at}, target="a:8000", gpu_name="H100", rate="pool", cluster=name)
        for at, name in enumerate(both)
    ]
    usage = Usage(
        gpu_seconds=tuple(Line(one, ("busy", "pool"), (3600.0, *(None,) * 167)) for one in both.values()),
        cost=tuple(
            Line(one, ("decode", "pool", "x"), (3.0 + at, *(None,) * 167)) for at, one in enumerate(both.values())
        ),
    )
    nodes = [gauge({0: 1.0}, target="a:8000", node="n1", cluster=name) for name in both]
    book = Book(
        nodes=tuple(nodes), places=tuple(gauges), prices=tuple(prices),
        # of the west's kube-state-metrics
        cluster_places={((("cluster", "west"),), "n1"): NodePlace(zone="us-west-2a", provider_id="i-9")},
    )  # fmt: skip
    found = measure_metered_hours(usage, book, week_in("UTC"), ("cluster",))
    assert {one.fleet: (one.region, one.zone, one.provider_id, one.usd, one.usd_per_gpu_hour) for one in found} == {
        ("east",): ("us-east", "", "", 3.0, 3.0),
        ("west",): ("us-west", "us-west-2a", "i-9", 4.0, 4.0),
    }


def test_the_price_file_is_believed_before_series_and_these_before_the_cluster() -> None:
    said = (gauge({0: 1.0}, target="a:8000", node="n1", region="said", instance_type="said"),)
    of_cluster = {((), "n1"): NodePlace(region="kube", instance_type="kube", provider_id="kube")}
    places = NodePlaces(Book(places=said, cluster_places=of_cluster), (), {"n1": NodePlace(region="stated")})
    found = places.find((), "a:8000", "n1", 0)
    assert found == NodePlace(region="stated", instance_type="said", provider_id="kube")
    # an hour in which nothing was said has what was said in others
    assert places.find((), "a:8000", "n1", 100) == found
    assert places.find((), "a:8000", "n2", 0) == NodePlace()


def test_nothing_is_lost_in_the_week_of_a_clock_change() -> None:
    # 169 hours: clocks go back on 2026-10-25
    week = week_in("Europe/Berlin", "2026-W43")
    assert len(week.hours) == 169
    seconds = tuple(float(hour % 7) * 600 for hour in range(169))
    usage = Usage(gpu_seconds=(Line(A, ("busy", "pool"), seconds),))
    pieces = measure_metered_hours(usage, Book(), week, ())
    assert sum(one.gpu_hours for one in pieces) == pytest.approx(sum(seconds) / 3600)
    assert len({one.utc_begin for one in pieces}) == len([value for value in seconds if value])
