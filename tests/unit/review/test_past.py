"""The weeks before, from what earlier reviews left in their folder and from hourly records: whatever lies there, no week is made up."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_exporter.model.record import replace
from llm_serving_review.command import write
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.names import Asking
from llm_serving_review.evidence.past import (
    MOST_BYTES,
    WEEKS,
    KeptFileError,
    Past,
    Source,
    WeekSpend,
    list_weeks_before,
    read_kept_week,
    read_past,
)
from llm_serving_review.evidence.week import Week, last_complete_week, parse_week, span_of, week_before
from llm_serving_review.figures.past_weeks import build_trend, describe_recorded_week, list_known_weeks
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costevidence import WEEK, evidence, fleet_of, joined, owner, usage
from tests.support.builders.costfortnight import blocks
from tests.support.rows import check_rows
from tests.support.servers.fakeprometheus import OWN, FakePrometheus, success
from tests.support.servers.prometheus_server import PrometheusServer

SETTINGS = Settings(by_labels=("team",), identity_labels=("cluster",))
# Monday noon after 2026-W46
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def review() -> Review:
    return build_review(fleet_of(6, 3, 2), SETTINGS)


def test_a_review_reads_back_what_an_earlier_one_wrote(review: Review, tmp_path: Path) -> None:
    write(review, tmp_path, None)
    found = read_kept_week(tmp_path, WEEK, ("cluster",))
    assert found is not None
    assert found.paid_usd == pytest.approx(review.invoice_usd)
    assert found.tokens == pytest.approx(review.now.tokens)
    assert found.usd_per_million == pytest.approx(review.now.blended_usd_per_million)
    assert review.outlook is not None
    assert review.outlook.seen is not None
    assert found.hours_seen == pytest.approx(review.outlook.seen.hours)
    assert found.missing_usd == pytest.approx(review.missing_usd or 0.0)
    assert found.marks == ()
    assert len(found.usd_by_hour) == 168
    assert sum(found.usd_by_hour.values()) == pytest.approx(review.now.usd)
    assert sum(found.tokens_by_hour.values()) == pytest.approx(review.now.tokens)
    # the table has the week before in it, too: as that review saw it
    assert read_kept_week(tmp_path, week_before(WEEK, ZoneInfo("UTC"))) is None


def damage(name: str, text: bytes) -> Any:
    def do(folder: Path) -> None:
        (folder / name).write_bytes(text)

    return do


def cut(folder: Path) -> None:
    whole = (folder / "cost-2026-W46.csv").read_bytes()
    (folder / "cost-2026-W46.csv").write_bytes(whole[: len(whole) // 2])


def make_folder(folder: Path) -> None:
    (folder / "cost-2026-W46.csv").unlink()
    (folder / "cost-2026-W46.csv").mkdir()


def make_pipe(folder: Path) -> None:
    (folder / "cost-2026-W46.csv").unlink()
    os.mkfifo(folder / "cost-2026-W46.csv")


def put_word(folder: Path) -> None:
    path = folder / "cost-2026-W46.csv"
    path.write_text(re.sub(r"(,invoice,sum,+)[0-9.e]+", r"\1nan", path.read_text()))


@check_rows(
    ("spoil", "said"),
    [
        (damage("cost-2026-W46.csv", b""), "ends within a line"),
        (damage("cost-2026-W46.csv", b"a,b\n1,2\n"), "is not a review's table"),
        (damage("cost-2026-W46.csv", b"\x89PNG\r\n\x1a\n\xff\xfe"), "is not text"),
        (damage("cost-2026-W46.csv", b"\n" * (MOST_BYTES + 2)), "is larger than 32 MiB"),
        (
            damage("cost-2026-W46-hours.csv", b"week,hour_begin_unix_seconds,idle_usd\n2026-W46,soon,1\n"),
            "'soon' where a number belongs",
        ),
        (
            damage("cost-2026-W46-hours.csv", b"week,hour_begin_unix_seconds,idle_usd\n2026-W40,1,1\n"),
            "hours of another week",
        ),
        (
            damage("cost-2026-W46-hours.csv", b'week,hour_begin_unix_seconds,idle_usd\n2026-W46,1,"1\n'),
            "is not a table",
        ),
        (cut, "cost-2026-W46.csv"),
        (make_folder, "is not a file"),
        (make_pipe, "is not a file"),
        (put_word, "cost-2026-W46.csv has"),
    ],
    shared=["review"],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(spoil: Any, said: str, review: Review, tmp_path: Path) -> None:
    write(review, tmp_path, None)
    spoil(tmp_path)
    with pytest.raises(KeptFileError) as refused:
        read_kept_week(tmp_path, WEEK)
    assert said in str(refused.value)
    assert str(refused.value).startswith("cost-2026-W46")
    assert str(refused.value).endswith("It is left out.")


def test_a_review_of_another_zone_or_fleet_is_marked(review: Review, tmp_path: Path) -> None:
    write(review, tmp_path, None)
    found = read_kept_week(tmp_path, parse_week("2026-W46", ZoneInfo("Europe/Berlin")), ("site",))
    assert found is not None
    assert found.source is Source.FILE
    assert found.marks[:2] == ("weeks of UTC", "other identity labels")
    found = read_kept_week(tmp_path, WEEK, ("cluster",))
    assert found is not None
    assert "weeks of UTC" not in found.marks
    assert list_known_weeks(weeks_later(WEEK, 1), Past((found,)), ()) == (found,)


def test_weeks_that_nothing_knows_are_blank_and_not_0() -> None:
    known = build_review(evidence(usage(owner(), {"idle": 5.0}), joined()), Settings()).beyond
    assert known.trend == ()  # nothing before: no trend
    one = week_before(WEEK, ZoneInfo("UTC"))
    two = week_before(one, ZoneInfo("UTC"))
    kept = WeekSpend(two, Source.FILE, 100.0, None, None, 150.0)
    trend = build_trend(WEEK, list_known_weeks(WEEK, Past((kept,)), ()))
    assert len(trend) == WEEKS
    assert [week.name for week in trend][-3:] == [two.name, one.name, "2026-W46"]
    assert [week.known is None for week in trend] == [True] * 9 + [False, True, True]
    assert trend[9].known == kept


def test_hourly_records_fill_in_and_counters_are_not_asked(tmp_path: Path) -> None:
    """Ten weeks of a record of $5 an hour; the counters know none of them."""
    begin = parse_week("2026-W40", ZoneInfo("UTC")).begin

    def override(path: str, form: dict[str, str]) -> Any:
        query = form.get("query", "")
        # only what asks for the record alone: the review's own weeks take it beside the counter
        for record, labels, value in (
            ("target:llm_serving_cost_usd:increase1h", {"phase": "idle", "rate": "spot", "method": "x"}, 5.0),
            ("target:llm_serving_gpu_seconds:increase1h", {"state": "idle", "rate": "spot"}, 3600.0),
            ("target:llm_serving_prompt_tokens:increase1h", {}, 4e6),
            ('target:llm_serving_phase_tokens:increase1h{phase="decode"}', {}, 1e6),
        ):
            if query.startswith("max by") and query.endswith(f"({record})"):
                start, end = float(form["start"]), float(form["end"])
                moments = [start + 3600 * n for n in range(round((end - start) / 3600) + 1)]
                points = [[at, str(value)] for at in moments if at > begin]
                return success(
                    {
                        "resultType": "matrix",
                        "result": [{"metric": {**OWN, **labels}, "values": points}] if points else [],
                    }
                )
        return None

    with FakePrometheus(NOW, override) as server:
        assert main(["report", "--prometheus.url", server.url, "--output-dir", str(tmp_path)]) == 0
        early = [
            form
            for _, form in server.seen
            if "start" in form and float(form["end"]) < parse_week("2026-W45", ZoneInfo("UTC")).begin
        ]
    assert early
    assert not [form["query"] for form in early if "[" in form["query"]]
    text = (tmp_path / "cost-2026-W46.html").read_text()
    for name in ("2026-W40", "2026-W44"):
        row = text[text.index(f'title="{name}"') :].partition("</tr>")[0]
        assert ">840<" in row, row
        assert "without unused commitments; from hourly records" in row
        assert ">1.00<" in row  # USD for a million: 840 / (168 x 5 million)
    row = text[text.index('title="2026-W39"') :].partition("</tr>")[0]
    assert "not known" in row
    assert ">0" not in row


def test_a_damaged_file_is_named_on_the_page_and_its_week_stays_blank(tmp_path: Path) -> None:
    (tmp_path / "cost-2026-W44.csv").write_text("not a table")
    (tmp_path / "cost-2026-W43.csv").write_text("a;b\n1;2\n")
    with FakePrometheus(NOW) as server:
        assert main(["report", "--prometheus.url", server.url, "--output-dir", str(tmp_path)]) == 0
    text = (tmp_path / "cost-2026-W46.html").read_text()
    assert "cost-2026-W44.csv ends within a line: it is cut off. It is left out." in text
    assert "cost-2026-W43.csv is not a review&#39;s table. It is left out." in text
    # the file of somebody else stays
    assert (tmp_path / "cost-2026-W44.csv").read_text() == "not a table"


def test_reviews_of_one_folder_become_a_trend(tmp_path: Path) -> None:
    for week in ("2026-W42", "2026-W44", "2026-W45"):
        made = build_review(fleet_of(2, 1, 0), Settings())
        named = replace(made, week=parse_week(week, ZoneInfo("UTC")))
        write(named, tmp_path, None)
    with FakePrometheus(NOW) as server:
        assert main(["report", "--prometheus.url", server.url, "--output-dir", str(tmp_path)]) == 0
    text = (tmp_path / "cost-2026-W46.html").read_text()
    assert "<h2>12 weeks</h2>" in text
    assert "Of 12 weeks 8 are not known and stay blank" in text


def test_the_weeks_before_a_span_begin_with_its_own() -> None:
    wednesday = datetime(2026, 11, 11, 14, 20, tzinfo=UTC).timestamp()
    span = span_of(wednesday, 24, ZoneInfo("UTC"))
    assert [week.name for week in list_weeks_before(span, 2)] == ["2026-W46", "2026-W45", "2026-W44"]


@pytest.mark.process
def test_a_real_prometheus_has_the_records_of_weeks_that_its_counters_have_not(tmp_path: Path) -> None:
    """Two weeks of records, the last 100 hours of the earlier one only; evaluated every four minutes by a pair of evaluators."""
    week = week_before(week_before(last_complete_week(time.time(), ZoneInfo("UTC")), ZoneInfo("UTC")), ZoneInfo("UTC"))
    earlier = week_before(week, ZoneInfo("UTC"))
    lines: dict[str, list[str]] = {}
    at = earlier.end - 100 * 3600
    while at <= week.end:
        for record, labels, value in (
            ("target:llm_serving_cost_usd:increase1h", 'phase="idle",rate="spot",method="x"', 1.0),
            ("target:llm_serving_cost_usd:increase1h", 'phase="decode",rate="spot",method="x"', 3.0),
            ("target:llm_serving_gpu_seconds:increase1h", 'state="busy",rate="spot"', 3600.0),
            ("target:llm_serving_prompt_tokens:increase1h", "", 4e6),
            ("target:llm_serving_phase_tokens:increase1h", 'phase="decode"', 1e6),
            ("target:llm_serving_phase_tokens:increase1h", 'phase="prefill"', 3e6),
        ):
            for replica in "ab":
                own = (
                    f'target="a:8000",model_name="m",role="unified",replica="{replica}"{"," if labels else ""}{labels}'
                )
                lines.setdefault(record, []).append(f"{record}{{{own}}} {value} {at - 30:.0f}")
        at += 3600
    text = "\n".join([line for name in sorted(lines) for line in lines[name]] + ["# EOF", ""])
    blocks(text, tmp_path / "data")
    with PrometheusServer(tmp_path, "global: {}\n", retention="90d") as server:
        prometheus = Prometheus(JsonApi(Access("Prometheus", server.url, "--prometheus.url"), 60.0))
        reader = Reader(prometheus, Asking(), lambda text: None)
        after = weeks_later(week, 1)
        past = read_past(reader, tmp_path, after, describe_recorded_week)
        prometheus.close()
    assert not reader.missing
    assert {one.week.name for one in past.weeks} == {week.name, earlier.name}
    part, whole = list_known_weeks(after, past, ())
    assert (whole.paid_usd, whole.tokens, whole.hours_seen) == pytest.approx((168 * 4.0, 168 * 5e6, 168.0))
    assert whole.usd_per_million == pytest.approx(0.8)
    # the hour that ends where the samples begin has one, too
    assert (part.hours_seen, part.paid_usd) == pytest.approx((101.0, 404.0))
    assert part.marks == ("without unused commitments", "101 of 168 hours")


def weeks_later(week: Week, later: int) -> Week:
    """The week that many weeks later."""
    year, number, _ = (week.monday + timedelta(days=7 * later)).isocalendar()
    return parse_week(f"{year}-W{number:02d}", ZoneInfo("UTC"))
