"""A day of a simulated fleet whose spend, tokens and idle hours the simulator knows: what the review, the rules and the counters say of it.

The day is the 25 hours of a clock change; `make test-e2e` plays it. `make test-soak` does whole weeks of 167 and 169 hours.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_review.command import make
from llm_serving_review.evidence.week import parse_week
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.csv_files import render_figures_csv
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costweek import HOUR, NEW_USD, CostWeek, Plan, Truth
from tests.support.builders.costweek_checks import CLOSE, agree, agree_with_rules
from tests.support.servers.prometheus_server import PrometheusServer

pytestmark = pytest.mark.e2e

BERLIN = ZoneInfo("Europe/Berlin")
PLAN = Plan(datetime(2026, 10, 25, tzinfo=BERLIN).timestamp(), 25 * HOUR, 120.0)


@pytest.fixture(scope="module")
def day() -> CostWeek:
    return CostWeek(PLAN)


@pytest.fixture(scope="module")
def prometheus(day: CostWeek, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("prometheus")
    day.write(folder)
    with PrometheusServer(folder, "global: {}\n", retention="10y") as server:
        yield server


@pytest.fixture(scope="module")
def truth(day: CostWeek, prometheus: PrometheusServer) -> Truth:
    return day.truth()


def reviewed(prometheus: PrometheusServer, zone: ZoneInfo, week: str) -> Review:
    asked = Prometheus(JsonApi(Access("Prometheus", prometheus.url, "--prometheus.url"), 60.0))
    try:
        return make(asked, Settings(timezone=zone.key), parse_week(week, zone), lambda text: None)
    finally:
        asked.close()


@pytest.fixture(scope="module")
def made(prometheus: PrometheusServer) -> Review:
    return reviewed(prometheus, BERLIN, "2026-W43")


def test_the_review_says_what_happened(made: Review, truth: Truth) -> None:
    assert len(made.week.hours) == 169
    agree(made, PLAN, truth)
    # every target did both phases, so that tokens bear all of it
    assert sum(made.now.allocated_usd.values()) == pytest.approx(made.now.usd, abs=0.005)


def test_weeks_that_begin_at_half_past_share_the_day(prometheus: PrometheusServer, truth: Truth) -> None:
    """In Kolkata, hours begin at half past of UTC: the last 4.5 of the 25 hours, all of rest, are the next week's."""
    first, second = (reviewed(prometheus, ZoneInfo("Asia/Kolkata"), week).now for week in ("2026-W43", "2026-W44"))
    rest_usd = 5 * 4.5 * NEW_USD
    assert first.usd == pytest.approx(truth.usd - rest_usd, rel=CLOSE)
    assert first.decode_tokens == pytest.approx(truth.decode_tokens, rel=CLOSE)
    assert second.usd == pytest.approx(rest_usd, rel=CLOSE)
    assert second.requests == 0


def test_nothing_is_taken_for_a_gap(made: Review) -> None:
    # the fleet's first day, a target that came and went, and a minute without an exporter
    assert made.gaps == ()


@pytest.mark.parametrize("after", [False, True])
def test_the_phases_are_all_gpu_time_to_the_cent(day: CostWeek, prometheus: PrometheusServer, after: bool) -> None:
    """Of both exporters of the regular replicas, by their own counters; their ticks, and with them the prices, are known to the second."""
    spent = sum(value for (name, _), value in day.last[after].items() if name == "llm_serving_cost_usd_total")
    seconds = sum(value for (name, _), value in day.last[after].items() if name == "llm_serving_gpu_seconds_total")
    begin = math.ceil(PLAN.restart[1] / PLAN.interval) * PLAN.interval if after else 0.0
    end = PLAN.seconds if after else math.floor(PLAN.restart[0] / PLAN.interval) * PLAN.interval
    gpus = 5
    assert seconds == pytest.approx(gpus * (end - begin), abs=1e-6)
    # a tick is priced by its end, and one ends when the price changes
    old = max(0.0, min(PLAN.price_change - PLAN.interval, end) - begin)
    assert spent == pytest.approx(gpus * (old * 2.40 + (end - begin - old) * 1.80) / HOUR, abs=0.005)


def test_the_table_adds_up_to_the_cent(made: Review) -> None:
    rows = list(csv.DictReader(io.StringIO(render_figures_csv(made))))
    phases = [float(row["value"]) for row in rows if (row["section"], row["week"]) == ("spend_by_phase", "2026-W43")]
    assert len(phases) == 5
    assert made.now.usd is not None
    assert sum(phases) == pytest.approx(made.now.usd, abs=0.005)


def test_the_recorded_hours_say_the_same(prometheus: PrometheusServer, truth: Truth) -> None:
    agree_with_rules(prometheus, PLAN, truth)
