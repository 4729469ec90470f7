"""The command with whatever may answer in Prometheus' place: a report that says what is missing, or one line and a status."""

from __future__ import annotations

import re
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
WEEK_USD = 168 * 4.0


def report(server: FakePrometheus | str, out: Path, *words: str) -> int:
    url = server if isinstance(server, str) else server.url
    return main(["report", "--prometheus.url", url, "--output-dir", str(out), *words])


def test_a_week_is_written_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path) == 0
    said = capsys.readouterr()
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


def test_a_day_at_a_time_is_asked_for(tmp_path: Path) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path) == 0
    spans = [
        (float(form["end"]) - float(form["start"]), float(form["step"]))
        for path, form in server.seen
        # records of the weeks before are read a sample an hour
        if path.endswith("query_range") and "[" in form["query"]
    ]
    assert max(seconds for seconds, _ in spans) <= 86_400
    assert {float(form["step"]) for path, form in server.seen if path.endswith("query_range")} == {60.0, 3600.0}
    assert {step for _, step in spans} == {3600.0}


@pytest.mark.e2e
def test_progress_is_said_where_asked_for_and_not_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, "--progress") == 0
        assert "2026-W46: cost\n" in capsys.readouterr().err
        assert report(server, tmp_path) == 0
    assert "2026-W46: cost" not in capsys.readouterr().err


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_nobody_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert report(url, tmp_path) == 1
    assert (
        only_line(capsys) == f"error: Prometheus at {url} cannot be reached: Connection refused; check --prometheus.url"
    )
    assert not list(tmp_path.iterdir())


def test_somebody_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(fault_page(b"<html>Grafana</html>", content_type="text/html")) as server:
        assert report(server.url, tmp_path) == 1
    assert only_line(capsys).endswith("did not answer with JSON; check --prometheus.url")
    with FaultServer(fault_page(b'{"version": 1}', content_type="application/json")) as server:
        assert report(server.url, tmp_path) == 1
    assert "is none: check --prometheus.url" in only_line(capsys)


def failing(words: str, code: int, **answer: Any) -> Any:
    def override(path: str, form: dict[str, str]) -> Any:
        return (code, answer) if words in form.get("query", "") else None

    return override


def test_money_that_cannot_be_read_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = failing("cost_usd_total", 503, status="error", errorType="unavailable", error="store is starting")
    with FakePrometheus(NOW, answer) as server:
        assert report(server, tmp_path) == 1
    assert "answered 503 Service Unavailable: store is starting; check --prometheus.url" in only_line(capsys)
    assert not list(tmp_path.iterdir())


def test_any_other_part_that_cannot_be_read_is_named_and_not_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = failing("decode_tokens_total", 422, status="error", errorType="execution", error="bad luck")
    with FakePrometheus(NOW, answer) as server:
        assert report(server, tmp_path) == 0
    said = capsys.readouterr()
    assert "decode tokens of 2026-W46 could not be read" in said.err
    assert "of it $672 for GPU time" in said.out
    # no price per token from half of the tokens
    assert "**–** a million tokens" in said.out
    page = (tmp_path / "cost-2026-W46.html").read_text()
    assert page.index("decode tokens of 2026-W46 could not be read") < page.index('class="headline"')


def test_gaps_that_cannot_be_looked_for_are_not_taken_for_none(tmp_path: Path) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        refused = form.get("query", "").startswith("max by") and form["query"].endswith("gpu_seconds_total)")
        return (422, {"status": "error", "errorType": "execution", "error": "bad luck"}) if refused else None

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    page = (tmp_path / "cost-2026-W46.html").read_text()
    assert "gaps could not be read" in page
    assert "Gaps are unknown because Prometheus could not be asked for them." in page
    assert "No minute of the week is without data" not in page


@pytest.mark.parametrize("week", ["2026-W45", "2026-W46"])
@pytest.mark.e2e
def test_without_a_week_of_tokens_there_is_no_cause(
    week: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monday = NOW - 12 * 3600 - 7 * 86_400

    def override(path: str, form: dict[str, str]) -> Any:
        if "increase(" not in form.get("query", "") or "start" not in form:
            return None
        of = "2026-W45" if float(form["end"]) <= monday else "2026-W46"
        if of == week and "decode_tokens_total" in form["query"]:
            return 422, {"status": "error", "errorType": "execution", "error": "bad luck"}
        _, document = server.ordinary(path, form)
        if of == "2026-W46" and "cost_usd_total" in form["query"]:
            for series in document["data"]["result"]:
                series["values"] = [[at, str(2 * float(value))] for at, value in series["values"]]
        return success(document["data"])

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    said = capsys.readouterr().out
    # twice the price: without half of the tokens it would look like a mix
    assert "of it $1,344 for GPU time" in said
    assert "Why it changed" not in said
    assert "what drove it up most" not in said
    assert "change_of_" not in (tmp_path / "cost-2026-W46.csv").read_text()


@pytest.mark.e2e
def test_what_is_too_large_is_asked_for_in_smaller_pieces(tmp_path: Path) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        long = float(form.get("end", 0)) - float(form.get("start", 0)) > 12 * 3600
        words = "query processing would load too many samples into memory in query execution"
        return (422, {"status": "error", "errorType": "execution", "error": words}) if long else None

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    assert "672," in (tmp_path / "cost-2026-W46.csv").read_text()


def test_a_partial_answer_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        if "increase(" not in form.get("query", ""):
            return None
        _, document = server.ordinary(path, form)
        return success(document["data"], warnings=["receive store 10.0.0.7:\x1b[31m timed out"])

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("- **Note:** Prometheus warned: receive store 10.0.0.7:")
    assert "\x1b" not in "".join(lines)


@pytest.mark.e2e
def test_a_short_memory_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def override(path: str, form: dict[str, str]) -> Any:
        if path.endswith("/runtimeinfo"):
            return success({"storageRetention": "10d or 512MiB"})
        if "start" in form and "increase(" in form["query"]:
            # nothing before ten days ago: Friday noon of the week before
            _, document = server.ordinary(path, form)
            for series in document["data"]["result"]:
                series["values"] = [point for point in series["values"] if point[0] > NOW - 10 * 86_400]
            return success(document["data"])
        return None

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    text = capsys.readouterr().out
    assert "Prometheus keeps samples for 10d; the review of 2026-W46 and the week before needs 14d12h" in text
    assert "Data of 2026-W45 begin on Fri 06 Nov at 12:00: the first 108 hours of the week are in no figure." in text
    assert "2026-W46 is not compared with 2026-W45: 64.3 % of the GPU time of 2026-W45 is missing." in text
    assert "**$1,344** in all (– against 2026-W45), of it $672 for GPU time" in text


def test_no_data_say_what_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing(path: str, form: dict[str, str]) -> Any:
        return success({"resultType": "matrix", "result": []}) if "increase(" in form.get("query", "") else None

    with FakePrometheus(NOW, nothing) as server:
        assert report(server, tmp_path) == 1
        assert "has no llm_serving_cost_usd_total of 2026-W46; check that it scrapes the exporters" in only_line(capsys)
        assert report(server, tmp_path, "--week", "2026-W20") == 1
        assert "keeps samples for 30d and no longer has any of 2026-W20" in only_line(capsys)


def test_data_that_end_are_a_gap_to_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = NOW - 12 * 3600 - 86_400  # Saturday midnight

    def override(path: str, form: dict[str, str]) -> Any:
        query = form.get("query", "")
        if path.endswith("/query") and "__name__" in query:
            metric = {"__name__": "llm_serving_target_gpus", "target": "a:8000", "gpu_name": "H100"}
            price = {"__name__": "llm_serving_gpu_price_usd_per_hour", "target": "a:8000", "rate": "spot"}
            samples = [{"metric": metric, "value": [0, "2"]}, {"metric": price, "value": [0, "2.5"]}]
            return success({"resultType": "vector", "result": samples})
        if "start" not in form:
            return None
        _, document = server.ordinary(path, form)
        for series in document["data"]["result"]:
            series["values"] = [point for point in series["values"] if point[0] <= end]
        return success(document["data"])

    with FakePrometheus(NOW, override) as server:
        assert report(server, tmp_path) == 0
    said = capsys.readouterr().out
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
)  # fmt: skip
def test_bad_usage_is_refused_with_what_to_do(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert "secret" not in said


def test_whom_to_ask_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert "Give --prometheus.url http://prometheus:9090." in capsys.readouterr().err


def test_a_token_is_sent_and_in_no_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    answer = failing("cost_usd_total", 401, status="error", error="not t0ken")
    with FakePrometheus(NOW, answer) as server:
        assert report(server, tmp_path, "--bearer-token-file", str(tmp_path / "token")) == 1
    assert server.headers[-1]["Authorization"] == "Bearer t0ken"
    assert "t0ken" not in capsys.readouterr().err


@pytest.mark.e2e
def test_older_weeks_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (
        "cost-2026-W40.html",
        "cost-2026-W44.csv",
        "cost-2026-W45-hours.csv",
        "cost-2026-W45.md",
        "notes.html",
        "cost-2026.csv",
    ):
        (tmp_path / name).write_text("")
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, "--keep", "2") == 0
    assert {re.sub(r"^cost-(\d+-W\d+).*", r"\1", path.name) for path in tmp_path.iterdir()} == {
        "2026-W46", "2026-W45", "notes.html", "cost-2026.csv",
    }  # fmt: skip


def test_what_cannot_be_written_is_still_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path / "file") == 1
    said = capsys.readouterr()
    assert "the report cannot be written to" in said.err
    assert "of it $672 for GPU time" in said.out


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llm_serving_review.command.gather", interrupted)
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path) == 130
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.e2e
def test_weeks_of_other_zones_are_asked_for_by_their_own_hours(tmp_path: Path) -> None:
    with FakePrometheus(NOW) as server:
        assert report(server, tmp_path, "--timezone", "Asia/Kolkata") == 0
    ends = [float(form["end"]) for path, form in server.seen if form.get("step") == "3600.000"]
    assert {end % 3600 for end in ends} == {1800.0}


@pytest.mark.e2e
def test_a_week_of_169_hours_has_169_rows(tmp_path: Path) -> None:
    with FakePrometheus(datetime(2026, 10, 26, 12, tzinfo=UTC).timestamp()) as server:
        assert report(server, tmp_path, "--timezone", "Europe/Berlin") == 0
    rows = (tmp_path / "cost-2026-W43-hours.csv").read_text().splitlines()
    assert len(rows) == 1 + 169
    assert len(set(rows)) == len(rows)
    assert "169 hours" in (tmp_path / "cost-2026-W43.html").read_text()
