"""The command with whatever may answer in Prometheus' place: a report that says what is missing, or one line and a status."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.cli import main
from tests.support.rows import check_rows
from tests.support.servers.fakeprometheus import FakePrometheus, success
from tests.support.servers.faultbehaviours import page as fault_page
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.server_process import free_port

# Monday noon: the last complete week is 2026-W46
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
# what a healthy Prometheus answers
ordinary = FakePrometheus(NOW).ordinary


@dataclass
class Reported:
    """What `report` said, and what it asked."""

    folder: Path
    out: str
    err: str
    server: FakePrometheus

    @property
    def page(self) -> str:
        return (self.folder / "cost-2026-W46.html").read_text()

    @property
    def only_line(self) -> str:
        (line,) = self.err.splitlines()
        return line


Report = Callable[..., Reported]


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Report:
    """Runs the command against a Prometheus that answers as `override` says, or against a URL; it has to end with that status."""

    def run(
        *words: str, override: Any = lambda path, form: None, status: int = 0, now: float = NOW, url: str = "", out: Path = tmp_path
    ) -> Reported:  # fmt: skip
        with FakePrometheus(now, override) as server:
            assert main(["report", "--prometheus.url", url or server.url, "--output-dir", str(out), *words]) == status
        return Reported(out, *capsys.readouterr(), server)

    return run


def test_a_week_is_written_and_summed_up(report: Report, tmp_path: Path) -> None:
    said = report()
    assert said.out.startswith("# LLM serving: cost review: 2026-W46\n")
    # 168 hours of $4, of which $3 served 11 million tokens
    assert (
        "**$1,344** in all (0.0 % against 2026-W45), of it $672 for GPU time, **$0.364** a million tokens" in said.out
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cost-2026-W46-hours.csv", "cost-2026-W46.csv", "cost-2026-W46.html", "cost-2026-W46.md",
    ]  # fmt: skip
    assert said.err.count("written: ") == 4
    assert len(said.out.splitlines()) < 40
    # nobody may look at what half a write left
    assert not list(tmp_path.glob(".*"))


def test_a_day_at_a_time_is_asked_for(report: Report) -> None:
    ranges = [form for path, form in report().server.seen if path.endswith("query_range")]
    # records of the weeks before are read a sample an hour
    spans = [
        (float(form["end"]) - float(form["start"]), float(form["step"])) for form in ranges if "[" in form["query"]
    ]
    assert max(seconds for seconds, _ in spans) <= 86_400
    assert {float(form["step"]) for form in ranges} == {60.0, 3600.0}
    assert {step for _, step in spans} == {3600.0}


@pytest.mark.e2e
def test_progress_is_said_where_asked_for_and_not_elsewhere(report: Report) -> None:
    assert "2026-W46: cost\n" in report("--progress").err
    assert "2026-W46: cost" not in report().err


def test_nobody_there_is_one_line(report: Report, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = report(url=url, status=1).only_line
    assert line == f"error: Prometheus at {url} cannot be reached: Connection refused; check --prometheus.url"
    assert not list(tmp_path.iterdir())


def test_somebody_else_is_one_line(report: Report) -> None:
    with FaultServer(fault_page(b"<html>Grafana</html>", content_type="text/html")) as server:
        line = report(url=server.url, status=1).only_line
    assert line.endswith("did not answer with JSON; check --prometheus.url")
    with FaultServer(fault_page(b'{"version": 1}', content_type="application/json")) as server:
        assert "is none: check --prometheus.url" in report(url=server.url, status=1).only_line


def failing(words: str, code: int = 422, kind: str = "execution", error: str = "bad luck") -> Any:
    answer = {"status": "error", "errorType": kind, "error": error}
    return lambda path, form: (code, answer) if words in form.get("query", "") else None


def test_money_that_cannot_be_read_is_no_report(report: Report, tmp_path: Path) -> None:
    said = report(override=failing("cost_usd_total", 503, "unavailable", "store is starting"), status=1)
    assert "answered 503 Service Unavailable: store is starting; check --prometheus.url" in said.only_line
    assert not list(tmp_path.iterdir())


def test_any_other_part_that_cannot_be_read_is_named_and_not_0(report: Report) -> None:
    said = report(override=failing("decode_tokens_total"))
    assert "decode tokens of 2026-W46 could not be read" in said.err
    assert "of it $672 for GPU time" in said.out
    # no price per token from half of the tokens
    assert "**–** a million tokens" in said.out
    assert said.page.index("decode tokens of 2026-W46 could not be read") < said.page.index('class="headline"')


def test_gaps_that_cannot_be_looked_for_are_not_taken_for_none(report: Report) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        is_gaps = form.get("query", "").startswith("max by") and form["query"].endswith("gpu_seconds_total)")
        return failing("")(path, form) if is_gaps else None

    page = report(override=override).page
    assert "gaps could not be read" in page
    assert "Gaps are unknown because Prometheus could not be asked for them." in page
    assert "No minute of the week is without data" not in page


@pytest.mark.parametrize("week", ["2026-W45", "2026-W46"])
@pytest.mark.e2e
def test_without_a_week_of_tokens_there_is_no_cause(week: str, report: Report, tmp_path: Path) -> None:
    monday = NOW - 12 * 3600 - 7 * 86_400

    def override(path: str, form: dict[str, str]) -> Any:
        if "increase(" not in form.get("query", "") or "start" not in form:
            return None
        of = "2026-W45" if float(form["end"]) <= monday else "2026-W46"
        if of == week and "decode_tokens_total" in form["query"]:
            return failing("")(path, form)
        _, document = ordinary(path, form)
        if of == "2026-W46" and "cost_usd_total" in form["query"]:
            for series in document["data"]["result"]:
                series["values"] = [[at, str(2 * float(value))] for at, value in series["values"]]
        return success(document["data"])

    said = report(override=override).out
    # twice the price: without half of the tokens it would look like a mix
    assert "of it $1,344 for GPU time" in said
    assert "Why it changed" not in said
    assert "what drove it up most" not in said
    assert "change_of_" not in (tmp_path / "cost-2026-W46.csv").read_text()


@pytest.mark.e2e
def test_what_is_too_large_is_asked_for_in_smaller_pieces(report: Report, tmp_path: Path) -> None:
    words = "query processing would load too many samples into memory in query execution"

    def override(path: str, form: dict[str, str]) -> Any:
        is_long = float(form.get("end", 0)) - float(form.get("start", 0)) > 12 * 3600
        return failing("", error=words)(path, form) if is_long else None

    report(override=override)
    assert "672," in (tmp_path / "cost-2026-W46.csv").read_text()


def test_a_partial_answer_is_said_first(report: Report) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        if "increase(" not in form.get("query", ""):
            return None
        _, document = ordinary(path, form)
        return success(document["data"], warnings=["receive store 10.0.0.7:\x1b[31m timed out"])

    lines = report(override=override).out.splitlines()
    assert lines[2].startswith("- **Note:** Prometheus warned: receive store 10.0.0.7:")
    assert "\x1b" not in "".join(lines)


def within(path: str, form: dict[str, str], begin: float, end: float) -> Any:
    """The ordinary answer with what lies in that time."""
    _, document = ordinary(path, form)
    for series in document["data"]["result"]:
        series["values"] = [point for point in series["values"] if begin < point[0] <= end]
    return success(document["data"])


@pytest.mark.e2e
def test_a_short_memory_is_said_first(report: Report) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        if path.endswith("/runtimeinfo"):
            return success({"storageRetention": "10d or 512MiB"})
        # nothing before ten days ago: Friday noon of the week before
        return within(path, form, NOW - 10 * 86_400, NOW) if "start" in form and "increase(" in form["query"] else None

    text = report(override=override).out
    assert "Prometheus keeps samples for 10d; the review of 2026-W46 and the week before needs 14d12h" in text
    assert "Data of 2026-W45 begin on Fri 06 Nov at 12:00: the first 108 hours of the week are in no figure." in text
    assert "2026-W46 is not compared with 2026-W45: 64.3 % of the GPU time of 2026-W45 is missing." in text
    assert "**$1,344** in all (– against 2026-W45), of it $672 for GPU time" in text


def test_no_data_say_what_to_look_at(report: Report) -> None:
    def nothing(path: str, form: dict[str, str]) -> Any:
        return success({"resultType": "matrix", "result": []}) if "increase(" in form.get("query", "") else None

    line = report(override=nothing, status=1).only_line
    assert "has no llm_serving_cost_usd_total of 2026-W46; check that it scrapes the exporters" in line
    line = report("--week", "2026-W20", override=nothing, status=1).only_line
    assert "keeps samples for 30d and no longer has any of 2026-W20" in line


def test_data_that_end_are_a_gap_to_the_end(report: Report) -> None:
    end = NOW - 12 * 3600 - 86_400  # Saturday midnight

    def override(path: str, form: dict[str, str]) -> Any:
        query = form.get("query", "")
        if path.endswith("/query") and "__name__" in query:
            metric = {"__name__": "llm_serving_target_gpus", "target": "a:8000", "gpu_name": "H100"}
            price = {"__name__": "llm_serving_gpu_price_usd_per_hour", "target": "a:8000", "rate": "spot"}
            samples = [{"metric": metric, "value": [0, "2"]}, {"metric": price, "value": [0, "2.5"]}]
            return success({"resultType": "vector", "result": samples})
        return within(path, form, 0.0, end) if "start" in form else None

    said = report(override=override).out
    # 24 hours of two GPUs at $2.50
    assert "Gaps in the data hide about $120 that is not in the spend." in said
    assert said.index("48.0 GPU-hours, about $120, fall into gaps") < said.index("for GPU time")
    # 144 GPU-hours were counted, 48 are missing; this server has as much electricity as GPU time
    assert f"A month at this rate (from 126 of 168 hours): ${144 * (4 + 4) / 126 * 730:,.0f}" in said
    # six days of seven would be a fall of the spend
    assert "2026-W46 is not compared with 2026-W45: 25.0 % of the GPU time of 2026-W46 is missing." in said
    assert "Why it changed" not in said


@check_rows(
    ("words", "message"),
    [
        (("--week", "2026-W47"), "error: flag --week: 2026-W47 is not over. The last that is over is 2026-W46."),
        (("--week", "2026-47"), "error: flag --week: '2026-47' is not an ISO week; write it as in 2026-W46."),
        (("--timezone", "Mars/Olympus"), 'error: flag --timezone: "Mars/Olympus" is not a time zone.'),
        (("--keep", "0"), "error: flag --keep: 0 is out of range."),
        (("--by-label", "model_name"), "error: flag --by-label: model_name is a label of the series themselves."),
        (("--bearer-token-file", "/nowhere"), "error: file /nowhere: the bearer token cannot be read: No such file or directory."),
        (("--username", "me"), "error: flag --username: it stands with --password-file"),
        (("--ca-file", "/nowhere"), "error: flag --ca-file: there is no file /nowhere."),
        (("--prometheus.url", "http://me:secret@prometheus:9090"), "error: flag --prometheus.url: the URL holds a user name or password."),
        (("--config.file", "/nowhere.yml"), "error: /nowhere.yml: the file does not exist."),
    ],
    shared=("report",),
)  # fmt: skip
def test_bad_usage_is_refused_with_what_to_do(words: tuple[str, ...], message: str, report: Report) -> None:
    said = report(*words, status=2).err
    assert said.startswith(message)
    assert "secret" not in said


def test_a_python_with_an_old_sqlite_is_refused(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.26.0")
    said = "error: this Python: it has SQLite 3.26.0, and the review wants 3.32 or newer. Use a newer Python, or the container's image."
    assert report(status=2).err.startswith(said)


def test_whom_to_ask_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert "Give --prometheus.url http://prometheus:9090." in capsys.readouterr().err


def test_a_token_is_sent_and_in_no_message(report: Report, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    refused = failing("cost_usd_total", 401, error="not t0ken")
    said = report("--bearer-token-file", str(tmp_path / "token"), override=refused, status=1)
    assert said.server.headers[-1]["Authorization"] == "Bearer t0ken"
    assert "t0ken" not in said.err


@pytest.mark.e2e
def test_older_weeks_are_removed_and_nothing_else(report: Report, tmp_path: Path) -> None:
    for name in (
        "cost-2026-W40.html", "cost-2026-W44.csv", "cost-2026-W45-hours.csv", "cost-2026-W45.md", "notes.html", "cost-2026.csv",
    ):  # fmt: skip
        (tmp_path / name).write_text("")
    report("--keep", "2")
    assert {re.sub(r"^cost-(\d+-W\d+).*", r"\1", path.name) for path in tmp_path.iterdir()} == {
        "2026-W46", "2026-W45", "notes.html", "cost-2026.csv",
    }  # fmt: skip


def test_what_cannot_be_written_is_still_printed(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = report(out=tmp_path / "file", status=1)
    assert "the report cannot be written to" in said.err
    assert "of it $672 for GPU time" in said.out


def test_an_interrupt_leaves_nothing(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llm_serving_review.command.gather", interrupted)
    assert report(status=130).err == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.e2e
def test_weeks_of_other_zones_are_asked_for_by_their_own_hours(report: Report) -> None:
    asked = report("--timezone", "Asia/Kolkata").server.seen
    assert {float(form["end"]) % 3600 for _, form in asked if form.get("step") == "3600.000"} == {1800.0}


@pytest.mark.e2e
def test_a_week_of_169_hours_has_169_rows(report: Report, tmp_path: Path) -> None:
    report("--timezone", "Europe/Berlin", now=datetime(2026, 10, 26, 12, tzinfo=UTC).timestamp())
    rows = (tmp_path / "cost-2026-W43-hours.csv").read_text().splitlines()
    assert len(rows) == 1 + 169
    assert len(set(rows)) == len(rows)
    assert "169 hours" in (tmp_path / "cost-2026-W43.html").read_text()
