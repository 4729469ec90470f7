"""Whole weeks of a simulated fleet, those of both clock changes: the review and the recorded hours against the simulator's own counts."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_review.command import make
from llm_serving_review.evidence.week import parse_week
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costweek import DAY, HOUR, CostWeek, Plan
from tests.support.builders.costweek_checks import agree, agree_with_rules
from tests.support.servers.prometheus_server import PrometheusServer

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("week", "monday", "hours"),
    [("2026-W13", datetime(2026, 3, 23, tzinfo=BERLIN), 167), ("2026-W43", datetime(2026, 10, 19, tzinfo=BERLIN), 169)],
)
def test_a_week_of_a_clock_change(tmp_path: Path, week: str, monday: datetime, hours: int) -> None:
    plan = Plan(
        monday.timestamp(),
        hours * HOUR,
        60.0,
        outage=(DAY + 10 * HOUR + 5, DAY + 15 * HOUR + 5),
        restart=(2 * DAY + 11.5 * HOUR, 2 * DAY + 11.5 * HOUR + 300),
        replaced=True,
        price_change=3 * DAY + 13 * HOUR,
        guest=(2 * DAY + 9 * HOUR, 4 * DAY + 15 * HOUR),
    )
    fleet = CostWeek(plan)
    fleet.write(tmp_path)
    truth = fleet.truth()
    with PrometheusServer(tmp_path, "global: {}\n", retention="10y") as prometheus:
        asked = Prometheus(JsonApi(Access("Prometheus", prometheus.url, "--prometheus.url"), 120.0))
        try:
            made = make(asked, Settings(timezone="Europe/Berlin"), parse_week(week, BERLIN), lambda text: None)
        finally:
            asked.close()
        assert len(made.week.hours) == hours
        agree(made, plan, truth)
        agree_with_rules(prometheus, plan, truth)
