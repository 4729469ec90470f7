"""A replica that is scaled down at night against an exporter that is dead, in a real Prometheus: one is no cost, the other a gap."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_review.command import make
from llm_serving_review.evidence.week import last_complete_week
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costfortnight import blocks
from tests.support.servers.prometheus_server import PrometheusServer

HOUR, STEP = 3600.0, 60.0
# hours of the week in which a target's series are not there
NIGHTS = [(22.0, 30.0), (46.0, 54.0)]
DARK = [(60.0, 64.0)]
# until then a target's data go on, until then it is tried
ENDS = {"removed": (50.0, 50.02), "dead": (80.0, 200.0), "given-up": (40.0, 46.0), "pushed": (70.0, 0.0)}


def within(hour: float, spans: list[tuple[float, float]]) -> bool:
    return any(begin < hour < end for begin, end in spans)


def history(monday: float) -> str:
    """`steady` always; `night` away for two nights and no target then; `dark` tried in vain; four whose data end: `removed` is a target no
    more, `dead` is tried in vain, `given-up` is for six hours, and `pushed` was never scraped. A GPU each at $2 an hour."""
    lines: dict[str, list[str]] = defaultdict(list)
    for name in ("steady", "night", "dark", *ENDS):
        ends, tried = ENDS.get(name, (200.0, 200.0))
        counted = 0.0
        at = 0.0
        while at <= 96 * HOUR:
            hour, stamp = at / HOUR, f"{monday + at + 7:.3f}"
            away, dead = name == "night" and within(hour, NIGHTS), name == "dark" and within(hour, DARK)
            away, dead = away or hour > tried, dead or hour > ends
            away = away or name == "pushed"
            of = f'job="llm",instance="{name}:10077"'
            if (away and name != "pushed") or dead:
                counted = 0.0
            else:
                own = f'{of},target="{name}:8000",model_name="m",role="unified",engine="0",rate="spot"'
                lines["seconds"].append(f'llm_serving_gpu_seconds_total{{{own},state="idle"}} {counted} {stamp}')
                usd = f'llm_serving_cost_usd_total{{{own},phase="idle",method="roofline"}} {counted * 2 / HOUR} {stamp}'
                lines["usd"].append(usd)
                gpus = f'llm_serving_target_gpus{{{of},target="{name}:8000",gpu_name="H100"}} 1 {stamp}'
                price = f'llm_serving_gpu_price_usd_per_hour{{{of},target="{name}:8000",gpu_name="H100",rate="spot"}} 2 {stamp}'
                lines["gpus"].append(gpus)
                lines["price"].append(price)
                counted += STEP
            if not away:
                lines["up"].append(f"up{{{of}}} {0 if dead else 1} {stamp}")
            at += STEP
    return "\n".join([line for name in sorted(lines) for line in lines[name]] + ["# EOF", ""])


@pytest.mark.e2e
def test_a_night_without_the_target_is_free_and_a_dead_exporter_is_a_gap(tmp_path: Path) -> None:
    monday = last_complete_week(time.time(), ZoneInfo("UTC")).begin
    blocks(history(monday), tmp_path / "data")
    with PrometheusServer(tmp_path, "global: {}\n") as server:
        asked = Prometheus(JsonApi(Access("Prometheus", server.url, "--prometheus.url"), 60.0))
        try:
            made = make(asked, Settings(), None, lambda text: None)
        finally:
            asked.close()
    gaps = {gap.target: gap for gap in made.gaps if gap.ends}
    assert set(gaps) == {"dark:8000", "given-up:8000"}
    assert gaps["dark:8000"].estimated_usd == pytest.approx(8.0, rel=0.01)
    # six hours of a GPU that was tried in vain, before somebody took it away
    assert gaps["given-up:8000"].estimated_usd == pytest.approx(12.0, rel=0.02)
    # 96 h each, less two nights of eight hours and four hours in the dark; and those that end
    assert made.now.usd == pytest.approx(2 * (96 + 80 + 92 + 50 + 80 + 40 + 70), rel=0.005)
    # to the end: where all data end, and one whose exporter was dead before
    to_end = {gap.target: (gap.end - gap.begin) / HOUR for gap in made.gaps if not gap.ends}
    assert to_end == {
        name: pytest.approx(hours, abs=0.05)
        for name, hours in (("steady:8000", 72), ("night:8000", 72), ("dark:8000", 72), ("dead:8000", 88))
    }
    # nothing was ever seen to try it
    (note,) = (note for note in made.notes if "nothing shows whether" in note)
    assert note.startswith("Data of pushed:8000 end before the week does")
    (note,) = (note for note in made.notes if "came back" in note)
    assert note.startswith("2 times a target disappeared and came back (night:8000; 16 hours in all)")
