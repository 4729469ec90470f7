"""The last hours instead of a week: on the first day, beside the weeks, and never in their place."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.cli import main
from llm_serving_review.evidence.past import Source, WeekSpend
from llm_serving_review.evidence.week import last_complete_week, span_of, week_before
from llm_serving_review.figures.past_weeks import sum_month
from tests.support.rows import check_rows
from tests.support.servers.fakeprometheus import FakePrometheus, success

# Wednesday, twenty past two
NOW = datetime(2026, 11, 25, 14, 20, tzinfo=UTC).timestamp()


def report(server: FakePrometheus, out: Path, *words: str) -> int:
    return main(["report", "--prometheus.url", server.url, "--output-dir", str(out), *words])


def since(first: float) -> Any:
    """An override that knows nothing before a moment."""

    def override(path: str, form: dict[str, str]) -> Any:
        if "start" in form and ("increase(" in form["query"] or "gpu_seconds_total" in form["query"]):
            _, document = server.ordinary(path, form)
            for series in document["data"]["result"]:
                series["values"] = [point for point in series["values"] if point[0] > first]
            document["data"]["result"] = [one for one in document["data"]["result"] if one["values"]]
            return success(document["data"])
        return None

    server = FakePrometheus(NOW)
    return override


def test_a_span_is_whole_hours_that_are_over() -> None:
    span = span_of(NOW, 24, ZoneInfo("Europe/Berlin"))
    assert (span.end, span.begin) == (NOW - 20 * 60, NOW - 20 * 60 - 86_400)
    assert span.name == "24 hours to 2026-11-25 15:00"
    assert span.file_name == "since-2026-11-24T15-24h"
    assert span.days == ("Tue 24", "Wed 25")
    assert {hour.day for hour in span.hours} == {0, 1}
    before = week_before(span, ZoneInfo("Europe/Berlin"))
    assert (before.end, len(before.hours)) == (span.begin, 24)
    assert [(hour.day, hour.hour) for hour in before.hours] == [(hour.day, hour.hour) for hour in span.hours]


@pytest.mark.parametrize(("zone", "local"), [("Asia/Kolkata", (19, 0)), ("Asia/Kathmandu", (20, 0)), ("UTC", (14, 0))])
def test_a_span_has_the_hours_that_weeks_have(zone: str, local: tuple[int, int]) -> None:
    """In zones of half hours, too: else its hours would be in no month."""
    span = span_of(NOW, 24, ZoneInfo(zone))
    end = datetime.fromtimestamp(span.end, ZoneInfo(zone))
    assert (end.hour, end.minute) == local
    week = last_complete_week(NOW, ZoneInfo(zone))
    assert (span.begin - week.begin) % 3600 == 0
    usd = {round(hour.begin): 10.0 for hour in span.hours}
    month = sum_month(span, [WeekSpend(span, Source.COUNTERS, 240.0, None, None, 24.0, 0.0, usd)], None)
    assert month is not None
    assert (month.usd, month.known_hours) == (240.0, 24.0)


def test_it_works_on_the_first_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data for five hours: what they cost, from how many hours the month is, and nothing to compare with."""
    first = NOW - 20 * 60 - 5 * 3600
    with FakePrometheus(NOW, since(first)) as server:
        assert report(server, tmp_path, "--since", "24h") == 0
    said = capsys.readouterr().out
    assert said.startswith("# LLM serving: cost review: 24 hours to 2026-11-25 14:00\n")
    # $4 of GPU time and as much electricity an hour, as the fake has it
    assert "**$40.00** in all (–" in said
    assert "the first 19 hours of these 24 hours are in no figure" in said
    assert "A month at this rate (from 5.0 of 24.0 hours): $5,840." in said
    text = (tmp_path / "cost-since-2026-11-24T14-24h.html").read_text()
    assert "24 hours to 2026-11-25 14:00</h1>" in text
    assert "Paid for these 24 hours" in text
    assert "5.0 of its 590 hours so far are known" in text
    assert "a week" not in re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cost-since-2026-11-24T14-24h-hours.csv", "cost-since-2026-11-24T14-24h.csv", "cost-since-2026-11-24T14-24h.html",
        "cost-since-2026-11-24T14-24h.md",
    ]  # fmt: skip


def test_it_is_compared_with_as_many_hours_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, "--since", "3d") == 0
    said = capsys.readouterr().out
    assert "(0.0 % against 72 hours to 2026-11-22 14:00)" in said
    assert "GPU time cost the same as the 72 hours before." in said
    assert "A month at this rate (from 72.0 hours)" in said


@pytest.mark.e2e
def test_it_takes_no_week_s_place(tmp_path: Path) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, "--keep", "1") == 0
        assert report(server, tmp_path, "--since", "24h", "--keep", "1") == 0
        assert report(server, tmp_path, "--since", "25h", "--keep", "1") == 0
        assert report(server, tmp_path, "--keep", "1") == 0
    pages = sorted(path.name for path in tmp_path.glob("*.html"))
    assert pages == ["cost-2026-W47.html", "cost-since-2026-11-24T13-25h.html", "cost-since-2026-11-24T14-24h.html"]


@check_rows(
    ("words", "said"),
    [
        (["--since", "90m"], "flag --since: 90m is not a number of whole hours up to 14 days. Write 1h to 14d"),
        (["--since", "15d"], "flag --since: 15d is not a number of whole hours up to 14 days."),
        (["--since", "0s"], "--since"),
        (["--since", "yesterday"], "--since"),
        (["--since", "24h", "--week", "2026-W40"], "flag --since: it stands instead of --week. Give one of the two."),
        (["--since", "24h", "--deliver"], "flag --since: --deliver is for weeks on a schedule."),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, *words) == 2
    assert said in capsys.readouterr().err


@check_rows(
    ("hours", "words"),
    [
        (1, ("1 hour to 2026-11-24 14:00", "this hour", "the hour before", "an hour")),
        (24, ("24 hours to 2026-11-24 14:00", "these 24 hours", "the 24 hours before", "in 24 hours")),
    ],
)
def test_one_hour_is_no_hours(hours: int, words: tuple[str, ...]) -> None:
    span = span_of(datetime(2026, 11, 24, 14, 30, tzinfo=UTC).timestamp(), hours, ZoneInfo("UTC"))
    assert (span.name, span.this, span.one_before, span.each) == words
