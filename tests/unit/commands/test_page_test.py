"""Command `page-test`: what PagerDuty and Alertmanager get, over real HTTP, and what the user is told."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.cli import main
from llm_serving_exporter.clients import http as webhook
from llm_serving_exporter.commands.page_test import find_group_wait, run
from llm_serving_exporter.errors import ConfigError, PageError
from tests.support.rows import check_rows
from tests.support.servers.alertmanager import Alertmanager, alert, write_config
from tests.support.servers.faultbehaviours import drip, redirect, silent, status
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.servers.pagerduty import ENQUEUE, ROUTING_KEY, PagerDuty
from tests.support.waiting import PATIENCE_SECONDS

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "routing-key"
    path.write_text(f"{ROUTING_KEY}\n")
    return str(path)


@pytest.fixture
def inbox() -> Iterator[PagerDuty]:
    with PagerDuty() as running:
        yield running


class Pauses:
    """Waits for nothing and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


def refusals(*words: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run(words)
    return [str(problem) for problem in caught.value.problems]


# --- straight to PagerDuty ------------------------------------------------------------------------------------------------------------


def test_a_page_says_that_it_is_a_test_and_its_end_has_the_same_key(
    inbox: PagerDuty, key_file: str, capsys: Said
) -> None:
    pauses = Pauses()
    assert run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url], pauses) == 0
    page, end = inbox.events
    assert (page["event_action"], end["event_action"]) == ("trigger", "resolve")
    assert page["dedup_key"] == end["dedup_key"]
    assert page["routing_key"] == end["routing_key"] == ROUTING_KEY
    assert page["payload"]["summary"].startswith("TEST PAGE from llm-serving-exporter")
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["class"] == "test"
    assert page["payload"]["custom_details"]["test"] == "true"
    assert pauses.asked == [5.0]
    said = capsys.readouterr()
    assert page["payload"]["summary"] in said.out
    assert "resolved again" in said.out
    assert ROUTING_KEY not in said.out + said.err


def test_a_second_page_is_an_incident_of_its_own(inbox: PagerDuty, key_file: str) -> None:
    for _ in range(2):
        run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url], Pauses())
    assert len({event["dedup_key"] for event in inbox.events}) == 2


def test_the_command_waits_as_long_as_it_is_told(inbox: PagerDuty, key_file: str, capsys: Said) -> None:
    assert main(["page-test", "--routing-key-file", key_file, "--pagerduty.url", inbox.url, "--wait", "50ms"]) == 0
    assert [event["event_action"] for event in inbox.events] == ["trigger", "resolve"]


def test_an_incident_that_is_to_stay_is_not_resolved_and_its_key_is_told(
    inbox: PagerDuty, key_file: str, capsys: Said
) -> None:
    assert run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url, "--no-resolve"], Pauses()) == 0
    (page,) = inbox.events
    assert page["event_action"] == "trigger"
    assert page["dedup_key"] in capsys.readouterr().out


def test_a_wait_cut_short_still_resolves_the_incident(inbox: PagerDuty, key_file: str) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    assert run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url], interrupted) == 0
    assert [event["event_action"] for event in inbox.events] == ["trigger", "resolve"]


@pytest.mark.parametrize(
    ("code", "header", "pause"),
    [(429, "", 5.0), (429, "7", 7.0), (429, "99999", 60.0), (429, "soon", 5.0), (503, "", 5.0)],
)
def test_a_busy_pagerduty_is_asked_once_more_after_a_pause(
    inbox: PagerDuty, key_file: str, code: int, header: str, pause: float
) -> None:
    inbox.answer(code, headers={"Retry-After": header} if header else {})
    pauses = Pauses()
    assert run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url], pauses) == 0
    assert pauses.asked == [pause, 5.0]
    assert [event["event_action"] for event in inbox.events] == ["trigger", "resolve"]
    assert inbox.attempts == 3


def test_a_pagerduty_that_stays_busy_is_said_so_and_not_asked_a_third_time(
    inbox: PagerDuty, key_file: str, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PAUSE_SECONDS", 0.01)
    inbox.answer(429, times=2)
    assert main(["page-test", "--routing-key-file", key_file, "--pagerduty.url", inbox.url]) == 1
    said = capsys.readouterr()
    assert "takes no events for now (429, twice)" in said.err
    assert inbox.attempts == 2
    assert not inbox.events


def test_an_end_that_is_not_taken_is_said_with_what_stays_open(inbox: PagerDuty, key_file: str) -> None:
    def busy_from_now_on(seconds: float) -> None:
        inbox.answer(500, times=2)

    with pytest.raises(PageError) as caught:
        run(["--routing-key-file", key_file, "--pagerduty.url", inbox.url], busy_from_now_on)
    assert "500" in str(caught.value)
    assert (
        f"The incident stays open: resolve it in PagerDuty; its deduplication key is {inbox.events[0]['dedup_key']}"
        in str(caught.value)
    )


def test_a_key_that_pagerduty_does_not_know_is_refused_in_its_words_without_the_key(key_file: str) -> None:
    # as PagerDuty answers, and with the key in it, which nobody may print
    body = f'{{"status":"invalid event","message":"Event object is invalid","errors":["\'routing_key\' {ROUTING_KEY} is invalid"]}}'
    with FaultServer({ENQUEUE: status(400, body.encode())}) as server, pytest.raises(PageError) as caught:
        run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())
    assert "PagerDuty refuses the trigger (400)" in str(caught.value)
    assert "'routing_key' *** is invalid" in str(caught.value)
    assert "integration key of an Events API v2 integration" in str(caught.value)
    assert ROUTING_KEY not in str(caught.value)


def test_a_server_that_is_no_pagerduty_and_echoes_is_said_so_without_the_key(key_file: str) -> None:
    echo = status(200, b"x" * 280 + ROUTING_KEY.encode() + b"y" * 100_000)
    with FaultServer({ENQUEUE: echo}) as server, pytest.raises(PageError) as caught:
        run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())
    assert "answered 200: xxx" in str(caught.value)
    assert "Check --pagerduty.url" in str(caught.value)
    assert ROUTING_KEY[:8] not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_redirect_is_not_followed(key_file: str) -> None:
    with FaultServer(status(200, b"stolen")) as thief:
        away = redirect(f"{thief.url}/", 307)
        with FaultServer({ENQUEUE: away}) as server, pytest.raises(PageError) as caught:
            run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())
        assert not thief.connections
    assert f'redirects (307) to "{thief.url}/"' in str(caught.value)


def test_nobody_there_and_nobody_who_answers_are_said(key_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer(silent()) as server:
        monkeypatch.setattr(webhook, "READ_SECONDS", 0.2)
        with pytest.raises(PageError, match=r"did not answer within 200ms; the page may have arrived all the same"):
            run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())
        gone = server.url
    with pytest.raises(PageError, match=r"cannot be reached: Connection refused"):
        run(["--routing-key-file", key_file, "--pagerduty.url", gone + ENQUEUE], Pauses())


def test_an_answer_that_never_ends_is_cut_at_the_deadline(key_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "READ_SECONDS", 2.0)
    endless = drip(b"x" * 10_000, interval_seconds=0.02)
    with FaultServer(endless) as server, pytest.raises(PageError, match=r"answered 200: x+, not 202"):
        run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(key_file: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with FaultServer(status(202, b"{}"), tls=context) as server:
        with pytest.raises(
            PageError, match=r"has a TLS certificate that is not accepted: .*issuer.*REQUESTS_CA_BUNDLE"
        ):
            run(["--routing-key-file", key_file, "--pagerduty.url", server.url + ENQUEUE], Pauses())
        assert not server.requests


# --- arguments ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"0123456789abcdef0123456789abcde\n", "holds 31 characters"),
        (b"key: 0123456789abcdef0123456789abcdef", "holds 37 characters"),
        (b"0123456789abcdef 123456789abcdef", "holds 32 characters, not a key of 32 letters and digits"),
        ("0123456789abcdef0123456789abcdé".encode(), "has characters that no HTTP header may carry"),
    ],
)
def test_a_key_file_that_holds_no_key_is_refused_with_what_to_write(
    tmp_path: Path, inbox: PagerDuty, capsys: Said, content: bytes | None, fault: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    assert main(["page-test", "--routing-key-file", str(path), "--pagerduty.url", inbox.url]) == 2
    said = capsys.readouterr().err
    assert fault in said
    assert "integration key of a service's Events API v2" in said
    assert "456789abcdef" not in said
    assert not inbox.attempts


def test_every_fault_of_the_arguments_is_told_at_once(tmp_path: Path) -> None:
    found = refusals("--routing-key-file", str(tmp_path), "--pagerduty.url", "ftp://x", "--wait", "5")
    assert len(found) == 3
    assert any("Is a directory" in one for one in found)
    assert any("flag --pagerduty.url" in one and "http and https" in one for one in found)
    assert any("flag --wait" in one and "no unit" in one for one in found)


@check_rows(
    ("words", "fault"),
    [
        ((), "neither --routing-key-file nor --alertmanager.url is given"),
        (("--alertmanager.url", "localhost:9093", "--routing-key-file", "KEY"), "both ways are given"),
        (
            ("--alertmanager.url", "localhost:9093", "--pagerduty.url", "http://localhost"),
            "flag --pagerduty.url: it is for --routing-key-file only",
        ),
        (
            ("--alertmanager.url", "localhost:9093", "--no-resolve"),
            "flag --no-resolve: it is for --routing-key-file only",
        ),
        (
            ("--alertmanager.url", "http://me:secret@localhost:9093"),
            "flag --alertmanager.url: the URL holds a user name",
        ),
        (("--routing-key-file", "KEY", "--wait", "2d"), '"2d" is too long. Write 1d or less'),
        (("--routing-key-file", "KEY", "--wait", "0"), "is not longer than 0"),
    ],
    shared=["key_file"],
)
def test_arguments_that_cannot_work_are_refused(key_file: str, words: tuple[str, ...], fault: str) -> None:
    (found,) = refusals(*(key_file if word == "KEY" else word for word in words))
    assert fault in found
    assert "secret" not in found.replace("a secret stands in no command line", "")


@pytest.mark.process
def test_the_daemon_and_the_command_line_start_without_requests() -> None:
    code = "import sys; import llm_serving_exporter.cli, llm_serving_exporter.daemon.service; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the whole way --------------------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_through_alertmanager_the_page_arrives_by_the_example_routes_and_ends_by_itself(
    inbox: PagerDuty, tmp_path: Path, capsys: Said
) -> None:
    config = write_config(alertmanager_files(default_settings()), tmp_path, inbox)
    with Alertmanager(config) as running:
        assert main(["page-test", "--alertmanager.url", running.url, "--wait", "8s"]) == 0
        said = capsys.readouterr().out
        page = inbox.wait_for(lambda event: event["event_action"] == "trigger", "the page")
        end = inbox.wait_for(lambda event: event["event_action"] == "resolve", "its end")
    assert "It routes it to: pagerduty." in said
    assert page["payload"]["summary"].startswith("TEST PAGE from llm-serving-exporter on ")
    assert page["payload"]["summary"].endswith(": nothing is wrong. First: nothing to do, this is a test")
    assert page["payload"]["severity"] == "critical"
    assert page["dedup_key"] == end["dedup_key"]


@pytest.mark.process
def test_an_alert_that_would_be_over_before_its_group_is_told_lasts_longer(
    inbox: PagerDuty, tmp_path: Path, capsys: Said
) -> None:
    config = write_config(alertmanager_files(default_settings()), tmp_path, inbox)
    config.write_text(config.read_text().replace("group_wait: 600ms", "group_wait: 2s"))
    with Alertmanager(config) as running:
        assert main(["page-test", "--alertmanager.url", running.url, "--wait", "1s"]) == 0
        said = capsys.readouterr().out
        inbox.wait_for(lambda event: event["event_action"] == "trigger", "the page")
    assert "It routes it to: pagerduty." in said
    assert (
        "That route waits 2s before it pages (group_wait), and sends nothing that is over by then: the alert ends at "
        in said
    )


@check_rows(
    ("configuration", "seconds"),
    [
        ("route: {receiver: pages}", 30.0),
        ("route: {receiver: pages, group_wait: 15s}", 15.0),
        ("route: {receiver: t, group_wait: 1m, routes: [{receiver: pages}, {receiver: u, group_wait: 5m}]}", 60.0),
        ("route: {receiver: t, routes: [{group_wait: 2m, routes: [{receiver: pages}]}, {receiver: pages}]}", 120.0),
        ("route: {receiver: pages, group_wait: soon}", 30.0),
        ("route: {receiver: t}", None),
        ("route: [pages]", None),
        ("route: {receiver: {a: b}, routes: {receiver: pages}}", None),
        ("{", None),
        ("", None),
    ],
)
def test_the_wait_of_a_route_is_read_from_alertmanagers_own_configuration(
    configuration: str, seconds: float | None
) -> None:
    # the default is Alertmanager's (prometheus.io, docs/alerting/latest/configuration, route)
    assert find_group_wait(configuration, ["pages"]) == seconds


@pytest.mark.process
def test_two_tests_through_alertmanager_are_two_pages_and_hide_no_real_one(inbox: PagerDuty, tmp_path: Path) -> None:
    config = write_config(alertmanager_files(default_settings()), tmp_path, inbox)
    with Alertmanager(config) as running:
        for _ in range(2):
            run(["--alertmanager.url", running.url + "/"])
        running.post(alert({"alertname": "LLMServingExporterAbsent", "severity": "critical", "check": "exporter"}))
        inbox.until(lambda: len({event["dedup_key"] for event in inbox.events}) == 3, "three incidents")


@pytest.mark.process
def test_a_test_that_is_silenced_is_said_so(inbox: PagerDuty, tmp_path: Path) -> None:
    config = write_config(alertmanager_files(default_settings()), tmp_path, inbox)
    with Alertmanager(config) as running:
        silence = {
            "matchers": [{"name": "test", "value": "true", "isRegex": False, "isEqual": True}],
            "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2100-01-01T00:00:00Z", "createdBy": "a test", "comment": "-",
        }  # fmt: skip
        answer = running.http.post(f"{running.url}/api/v2/silences", json=silence, timeout=PATIENCE_SECONDS)
        with pytest.raises(PageError, match=rf"silenced or inhibited by {answer.json()['silenceID']}"):
            run(["--alertmanager.url", running.url])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(404, b"page not found\n"), "answered 404: page not found, not 200. Check --alertmanager.url"),
        (status(200, b"<html>\n"), "does not show the alert that it has just taken"),
    ],
)
def test_something_else_than_an_alertmanager_is_said_so(answer: Behaviour, said: str) -> None:
    with FaultServer(answer) as server, pytest.raises(PageError, match=said):
        run(["--alertmanager.url", server.url])
