"""The real exporter with a file of drill results: published, followed, over restarts, whatever stands in it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.state.drill_results import record_result
from tests.support.servers.exporter_process import Exporter, Scraped

pytestmark = pytest.mark.process

FAILED = DrillResult("chat", Role.DECODE, 1_795_000_000.0, 1_794_000_000.0, DrillVerdict.FAILED)
OF_CHAT = {"model_name": "chat", "role": "decode"}


def shown(page: Scraped) -> bool:
    return bool(page.series("drill_last_verdict"))


def verdicts(page: Scraped) -> dict[str, float]:
    return {verdict: page.value("drill_last_verdict", **OF_CHAT, verdict=verdict) for verdict in DrillVerdict}


def exporter(path: Path) -> Exporter:
    return Exporter("--target", "http://127.0.0.1:9", "--drill.result-file", str(path))


def test_results_are_published_followed_and_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "drills.json"
    record_result(str(path), FAILED)
    with exporter(path) as one:
        page = one.until(shown, "the result of the drill")
        assert page.value("drill_last_run_timestamp_seconds", **OF_CHAT) == 1_795_000_000
        assert page.value("drill_last_success_timestamp_seconds", **OF_CHAT) == 1_794_000_000
        assert verdicts(page) == {"passed": 0, "failed": 1, "aborted": 0}

        record_result(
            str(path), replace(FAILED, last_run_unix_seconds=1_796_000_000.0, last_verdict=DrillVerdict.PASSED)
        )
        one.process.send_signal(signal.SIGHUP)  # a reload looks at once; without one it is within half a minute
        page = one.until(lambda page: verdicts(page)["passed"] == 1, "the drill that passed")
        assert page.value("drill_last_success_timestamp_seconds", **OF_CHAT) == 1_796_000_000
    with exporter(path) as two:
        assert verdicts(two.until(shown, "the result after a restart")) == {"passed": 1, "failed": 0, "aborted": 0}


def test_a_model_that_no_drill_has_passed_has_no_time_of_success(tmp_path: Path) -> None:
    path = tmp_path / "drills.json"
    record_result(str(path), replace(FAILED, last_success_unix_seconds=None))
    with exporter(path) as one:
        page = one.until(shown, "the result of the drill")
        assert page.series("drill_last_run_timestamp_seconds")
        assert not page.series("drill_last_success_timestamp_seconds")


def test_a_file_that_breaks_leaves_what_it_said_and_one_line_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "drills.json"
    record_result(str(path), FAILED)
    with exporter(path) as one:
        one.until(shown, "the result of the drill")
        path.write_text('{"version": 9, "models": []}')
        for reload in range(3):
            one.process.send_signal(signal.SIGHUP)
            one.until(lambda _page, seen=reload: said(one, "configuration reloaded") > seen, "the reload")
        one.until(lambda _page: said(one, "its version is 9") > 0, "a line about the file")
        assert verdicts(one.scrape())["failed"] == 1
        assert said(one, "its version is 9") == 1


@pytest.mark.e2e
def test_without_a_file_nothing_is_published_until_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "later" / "drills.json"
    with exporter(path) as one:
        one.until(lambda _page: said(one, "there is no file of drill results") == 1, "a line about the file")
        assert not re.search("^llm_serving_drill", one.scrape().text, re.MULTILINE)
        path.parent.mkdir()
        record_result(str(path), FAILED)
        one.process.send_signal(signal.SIGHUP)
        one.until(shown, "the result of the drill")


@pytest.mark.e2e
def test_a_reload_without_the_setting_withdraws_the_results(tmp_path: Path) -> None:
    path, config = tmp_path / "drills.json", tmp_path / "config.yml"
    record_result(str(path), FAILED)
    target = "targets: ['http://127.0.0.1:9']\n"
    config.write_text(target + "drill: {result_file: drills.json}\n")
    with Exporter("--config.file", str(config)) as one:
        one.until(shown, "the result of the drill")
        config.write_text(target)
        one.process.send_signal(signal.SIGHUP)
        one.until(lambda page: not shown(page), "no result")


def said(one: Exporter, words: str) -> int:
    return sum(words in line for line in one.log)
