"""The real exporter with a cost review to make: made when it is due, sent, told of, and what happens where Prometheus is away."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from llm_serving_exporter.state.review_runs import NAME, Runs, begin_runs, read_runs
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.fakeprometheus import FakePrometheus
from tests.support.servers.server_process import free_port
from tests.support.waiting import wait_until
from tests.unit.review.test_deliver import Hook, listening

pytestmark = pytest.mark.process

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def settings(tmp_path: Path, prometheus: str, hook: str) -> Path:
    (tmp_path / "hook").write_text(hook)
    path = tmp_path / "report.yml"
    document = {
        "prometheus": {"url": prometheus},
        "out": "reviews",
        "keep": 2,
        # due half an hour ago, and in half an hour again: one review is due, however long the test takes
        "schedule": f"{(datetime.now(UTC).minute + 30) % 60} * * * *",
        "webhook_url_file": "hook",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def looked_at(exporter: Exporter, holds: Callable[[Scraped], bool], what: str) -> Scraped:
    """A reload looks at once; without one it is within half a minute."""

    def look(page: Scraped) -> bool:
        if holds(page):
            return True
        reloads = said(exporter, "configuration reloaded")
        exporter.process.send_signal(signal.SIGHUP)
        wait_until(lambda: said(exporter, "configuration reloaded") > reloads, "the reload")
        return False

    return exporter.until(look, what)


def said(exporter: Exporter, words: str) -> int:
    return sum(words in line for line in exporter.log)


@pytest.mark.e2e
def test_a_review_that_was_missed_is_made_sent_and_told_of(tmp_path: Path) -> None:
    folder, begun = tmp_path / "reviews", time.time()
    begin_runs(str(folder), begun - 86_400)
    hook = Hook()
    with FakePrometheus(NOW) as prometheus, listening(hook) as url:
        path = settings(tmp_path, prometheus.url, url)
        with Exporter("--target", "http://127.0.0.1:9", "--report.settings-file", str(path)) as exporter:
            # the command notes its success before it ends, and what it said is logged after that
            page = looked_at(
                exporter,
                lambda page: (
                    bool(page.series("report_last_success_timestamp_seconds"))
                    and any("sent to the webhook" in line for line in exporter.log)
                ),
                "no review was made",
            )
    made = page.value("report_last_success_timestamp_seconds")
    assert begun <= made <= time.time()
    assert page.value("report_last_run_timestamp_seconds") == made
    assert made - 3600 < page.value("report_due_timestamp_seconds") <= made
    assert {"cost-2026-W46.html", "cost-2026-W46.csv", "cost-2026-W46.md", NAME} <= {
        one.name for one in folder.iterdir()
    }
    assert "cost review: 2026-W46*" in str(hook.given[0][1]["text"])
    assert url not in "\n".join(exporter.log)


def test_where_prometheus_is_away_the_run_is_noted_as_failed_and_the_exporter_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "reviews"
    begin_runs(str(folder), time.time() - 86_400)
    path = settings(tmp_path, f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:9/hook")
    with Exporter("--target", "http://127.0.0.1:9", "--report.settings-file", str(path)) as exporter:
        # a run is noted before it begins, and what it said is logged after it has ended
        page = looked_at(
            exporter,
            lambda page: (
                bool(page.series("report_last_run_timestamp_seconds"))
                and any("; check --prometheus.url" in line for line in exporter.log)
            ),
            "no run was noted",
        )
        assert not page.series("report_last_success_timestamp_seconds")
    runs = read_runs(str(folder))
    assert runs.last_success is None


def test_an_exporter_that_only_tells_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "reviews"
    begin_runs(str(folder), 1_000.0)
    (folder / NAME).write_text(
        json.dumps(
            {"version": 1, "since_unix_seconds": 1000, "last_run_unix_seconds": 2000, "last_success_unix_seconds": 1500}
        )
    )
    path = settings(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9/hook")
    flags = ("--target", "http://127.0.0.1:9", "--report.settings-file", str(path), "--no-report.run")
    with Exporter(*flags) as exporter:
        page = exporter.until(lambda page: bool(page.series("report_due_timestamp_seconds")), "the file's times")
        assert page.value("report_last_run_timestamp_seconds") == 2000
        assert page.value("report_last_success_timestamp_seconds") == 1500
    assert read_runs(str(folder)) == Runs(1000.0, 2000.0, 1500.0)
