"""Growth across a gap counts once, and where it happened, whatever a database's increase() makes of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_review.command import make
from llm_serving_review.evidence.week import last_complete_week
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costfortnight import blocks
from tests.support.quick import keep_quick
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.victoriametrics import VictoriaMetrics

HOUR, STEP = 3600.0, 60.0
# hours of the week between which nothing was scraped, though the exporter went on
UNSCRAPED = {"across": (5.3, 8.6), "border": (-1.4, 1.6), "within": (3.2, 3.6), "steady": (99.0, 99.0)}
BEGIN, END = -6.0, 24.0


def samples(monday: float) -> dict[str, list[tuple[str, float]]]:
    """By series' name: sample and time. A GPU each at $2 an hour, idle."""
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for name, (begin, end) in UNSCRAPED.items():
        for number in range(round((END - BEGIN) * HOUR / STEP) + 1):
            hour, counted = BEGIN + number * STEP / HOUR, 5000 + number * STEP
            at = monday + hour * HOUR + 7
            if begin < hour < end:
                continue
            scrape = f'job="llm",instance="{name}:10077",target="{name}:8000"'
            own = f'{scrape},model_name="m",role="unified",engine="0",rate="spot"'
            for series, value in (
                (f'llm_serving_gpu_seconds_total{{{own},state="idle"}}', counted),
                (f'llm_serving_cost_usd_total{{{own},phase="idle",method="roofline"}}', counted * 2 / HOUR),
                (f'llm_serving_target_gpus{{{scrape},gpu_name="H100"}}', 1),
                (f'llm_serving_gpu_price_usd_per_hour{{{scrape},gpu_name="H100",rate="spot"}}', 2),
            ):
                found[series.partition("{")[0]].append((f"{series} {value}", at))
    return found


@contextmanager
def prometheus(folder: Path, monday: float) -> Iterator[str]:
    lines = [f"{text} {at:.3f}" for name, points in sorted(samples(monday).items()) for text, at in points]
    blocks("\n".join([*lines, "# EOF", ""]), folder / "data")
    with PrometheusServer(folder, "global: {}\n") as server:
        yield server.url


@contextmanager
def victoriametrics(folder: Path, monday: float) -> Iterator[str]:
    with VictoriaMetrics(folder) as server:
        with server.importing() as lines:
            for points in samples(monday).values():
                lines.writelines(f"{text} {round(at * 1000)}\n" for text, at in points)
        yield server.url


@pytest.mark.process
@pytest.mark.parametrize("database", keep_quick([prometheus, victoriametrics], lambda database: database is prometheus))
def test_growth_across_a_gap_counts_once(database, tmp_path: Path) -> None:
    monday = last_complete_week(time.time(), ZoneInfo("UTC")).begin
    with database(tmp_path, monday) as url:
        asked = Prometheus(JsonApi(Access("Prometheus", url, "--prometheus.url"), 60.0))
        try:
            made = make(asked, Settings(), None, lambda text: None)
        finally:
            asked.close()
    gaps = {gap.target: gap for gap in made.gaps if gap.ends}
    assert set(gaps) == {"across:8000", "border:8000", "within:8000"}
    # $2 an hour of the gap that lies in the week; what lies within an hour was seen by its increase
    assert gaps["across:8000"].recovered["cost"] == pytest.approx(2 * 3.3, rel=0.02)
    assert gaps["border:8000"].recovered["cost"] == pytest.approx(2 * 1.6, rel=0.02)
    assert gaps["within:8000"].recovered == {}
    for gap in gaps.values():
        assert gap.estimated_usd == pytest.approx(0.0, abs=0.01)
    # four of them, and each hour what it was
    assert made.now.usd == pytest.approx(4 * 2 * END, rel=0.005)
    assert [made.hourly.usd["idle"][hour] for hour in range(24)] == [pytest.approx(8.0, rel=0.02)] * 24
