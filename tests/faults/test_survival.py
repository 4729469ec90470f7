"""The daemon outlives its targets: every fault has one defined health series, and a good page afterwards is read again."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.builders.recordings import page as recorded_page
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.faultserver import FaultServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.process

GOOD_PAGE = recorded_page("vllm-0.32", 60)
GOOD = fault.page(GOOD_PAGE)


def with_every_value(value: str) -> bytes:
    lines = GOOD_PAGE.decode().splitlines()
    return (
        "\n".join(line if line.startswith("#") else f"{line.rsplit(' ', 1)[0]} {value}" for line in lines) + "\n"
    ).encode()


def many_series(count: int) -> bytes:
    return GOOD_PAGE + b"".join(b'filler_total{n="%d"} 1\n' % number for number in range(count))


FIRST_COUNTER = next(line for line in GOOD_PAGE.splitlines() if line.startswith(b"vllm:generation_tokens_total"))

# fault: behaviour, state, stage, reason
FAULTS = {
    "connection closed": (fault.hang_up(), "down", "scrape", "connection_closed"),
    "timeout": (fault.silent(), "down", "scrape", "timeout"),
    "a byte a second": (fault.drip(GOOD_PAGE, interval_seconds=1.0), "down", "scrape", "timeout"),
    "1 GB body": (fault.endless(b"filler_total 1\n" * 4096, cap_bytes=1 << 30), "unknown", "scrape", "body_too_large"),
    "gzip bomb": (fault.gzip_bomb(1 << 30), "unknown", "scrape", "body_too_large"),
    "500": (fault.status(500, b"Internal Server Error"), "down", "scrape", "http_status"),
    "404": (fault.status(404, b"Not Found"), "unknown", "scrape", "http_status"),
    "503 while loading": (fault.loading(), "loading", "scrape", "loading"),
    "503 of a proxy": (fault.status(503, b"<html>upstream</html>", "text/html"), "down", "scrape", "http_status"),
    "503 of a gateway": (
        fault.status(503, b'{"message":"no healthy upstream"}', "application/json"), "down", "scrape", "http_status"
    ),
    "401": (fault.status(401, b"no"), "unknown", "scrape", "unauthorized"),
    "HTML": (fault.page(b"<html><body>hello</body></html>", "text/html"), "unknown", "scrape", "content_type"),
    "JSON": (fault.page(b'{"a": 1}', "application/json"), "unknown", "scrape", "content_type"),
    "empty body": (fault.page(b""), "unknown", "scrape", "empty_body"),
    "garbage": (fault.garbage(), "down", "scrape", "bad_http"),
    "truncated page": (fault.page(GOOD_PAGE[:-7]), "unknown", "parse", "truncated_page"),
    "malformed page": (fault.page(b"vllm:oops{ 1\n"), "unknown", "parse", "malformed_page"),
    "100,000 series": (fault.page(many_series(100_000)), "unknown", "parse", "too_many_series"),
    "redirect to another host": (fault.redirect("http://127.0.0.9:1/metrics"), "unknown", "scrape", "redirect_refused"),
    "web framework's series only": (
        fault.page(b'http_requests_total{handler="/",method="GET",status="2xx"} 3\n'), "unknown", "normalise", "unknown_runtime"
    ),
    "another program's page": (fault.page(b"# TYPE apples_total counter\napples_total 3\n"), "unknown", "normalise", "unknown_runtime"),
}  # fmt: skip


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[FaultServer, Exporter]]:
    with (
        FaultServer({"/metrics": GOOD}) as server,
        Exporter(
            "--target",
            server.url,
            "--scrape.interval",
            "500ms",
            "--scrape.timeout",
            "400ms",
            "--scrape.stale-after",
            "60s",
        ) as exporter,
    ):
        yield server, exporter


def is_up(page: Scraped) -> bool:
    return bool(page.series("target_up")) and page.total("target_up") == 1


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_shows_and_passes(watched: tuple[FaultServer, Exporter], name: str) -> None:
    server, exporter = watched
    behaviour, state, stage, reason = FAULTS[name]
    server.behave("/metrics", GOOD)
    before = exporter.until(is_up, "target_up 1").value("scrape_failures_total", stage=stage)

    server.behave("/metrics", behaviour)
    # on a busy machine a scrape in between may fail by the timeout
    page = exporter.until(
        lambda page: (
            page.value("scrape_failures_total", stage=stage) > before
            and bool(page.series("target_last_failure_timestamp_seconds", stage=stage, reason=reason))
            and page.value("target_state", state=state) == 1
        ),
        f"a failure by {reason} and the state {state}",
    )
    assert page.value("target_up") == 0
    assert page.total("target_state") == 1
    # the last good values stay, with their age, until they are stale
    assert page.value("decode_tokens_total") == float(FIRST_COUNTER.rsplit(b" ", 1)[1])
    assert page.value("target_sample_age_seconds") > 0

    server.behave("/metrics", GOOD)
    recovered = exporter.until(is_up, f"recovery from {name}")
    # why and when it failed stays
    assert len(recovered.series("target_last_failure_timestamp_seconds")) == 1


def test_values_that_are_no_numbers_are_absent_not_zero(watched: tuple[FaultServer, Exporter]) -> None:
    server, exporter = watched
    server.behave("/metrics", fault.page(with_every_value("NaN")))
    page = exporter.until(
        lambda page: (
            is_up(page) and bool(page.series("signal_available", signal="decode_tokens_total", reason="implausible"))
        ),
        "NaN seen",
    )
    assert not page.series("decode_tokens_total")
    assert not page.series("requests_running")
    server.behave("/metrics", GOOD)
    exporter.until(lambda page: bool(page.series("decode_tokens_total")), "numbers again")


def test_duplicate_series_void_their_field_only(watched: tuple[FaultServer, Exporter]) -> None:
    server, exporter = watched
    server.behave("/metrics", fault.page(GOOD_PAGE + FIRST_COUNTER + b"\n"))
    page = exporter.until(
        lambda page: (
            is_up(page)
            and bool(page.series("signal_available", signal="decode_tokens_total", reason="duplicate_series"))
        ),
        "duplicates seen",
    )
    assert not page.series("decode_tokens_total")
    assert page.value("prompt_tokens_total") > 0
    server.behave("/metrics", GOOD)
    exporter.until(lambda page: bool(page.series("decode_tokens_total")), "one series again")


def test_a_model_renamed_is_another_identity(watched: tuple[FaultServer, Exporter]) -> None:
    server, exporter = watched
    server.behave("/metrics", fault.page(GOOD_PAGE.replace(b"tiny-llama", b"renamed")))
    page = exporter.until(lambda page: bool(page.series("decode_tokens_total", model_name="renamed")), "the new name")
    assert not page.series("decode_tokens_total", model_name="tiny-llama")
    assert page.value("target_info", model_name="renamed") == 1
    server.behave("/metrics", GOOD)
    exporter.until(lambda page: bool(page.series("decode_tokens_total", model_name="tiny-llama")), "the old name")


@pytest.mark.seam("daemon")
def test_refused_connection_then_stale_then_gone() -> None:
    with FaultServer({"/metrics": GOOD}) as server:
        url = server.url
        exporter = Exporter("--target", url, "--scrape.interval", "200ms", "--scrape.stale-after", "1s")
        with exporter:
            exporter.until(is_up, "target_up 1")
            server.__exit__(None, None, None)
            page = exporter.until(
                lambda page: bool(page.series("target_last_failure_timestamp_seconds", reason="connection_refused")),
                "a refused connection",
            )
            assert page.value("target_state", state="down") == 1
            page = exporter.until(lambda page: not page.series("decode_tokens_total"), "serving series gone")
            assert page.value("target_up") == 0
            assert page.value("target_info", runtime="vllm", model_name="tiny-llama") == 1
            assert page.value("signal_available", signal="decode_tokens_total", reason="target_down") == 0
            assert server.url == url


def test_memory_stays_bounded_under_hostile_pages(watched: tuple[FaultServer, Exporter]) -> None:
    server, exporter = watched

    def resident_mb() -> float:
        return exporter.scrape().samples["process_resident_memory_bytes", frozenset()] / 1e6

    server.behave("/metrics", fault.gzip_bomb(1 << 30))
    exporter.after_ticks(4)
    server.behave("/metrics", fault.endless(b"filler_total 1\n" * 4096, cap_bytes=1 << 30))
    exporter.after_ticks(4)
    # the cap is 16 MiB a page; a page of 1 GiB must not show
    assert resident_mb() < 200
    server.behave("/metrics", GOOD)
    exporter.until(is_up, "recovery")


@pytest.mark.seam("daemon")
def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [
            sys.executable, "-m", "llm_serving_exporter", "--target", "http://127.0.0.1:1", "--web.listen-address",
            address,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 1
    assert address in done.stderr
    assert "--web.listen-address" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.seam("daemon")
def test_a_bad_config_is_refused_before_listening(tmp_path: Path) -> None:
    bad = tmp_path / "exporter.yml"
    bad.write_text("targets:\n  - url: http://localhost:8000\n    rolle: prefill\nscrape:\n  interval: 5\n")
    command = [sys.executable, "-m", "llm_serving_exporter", "--config.file", str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 2
    assert "targets[0].rolle" in done.stderr
    assert "scrape.interval" in done.stderr
    assert "listening" not in done.stderr
    checked = subprocess.run(
        [*command[:3], "check-config", *command[3:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert checked.returncode == 2
    assert checked.stderr == done.stderr


def config_text(url: str, window: str = "60s") -> str:
    return f"targets:\n  - name: replica-0\n    url: {url}\nscrape:\n  interval: 200ms\nwindow: {window}\ngpu:\n  enabled: false\n"


@pytest.mark.seam("daemon")
def test_sighup_with_a_bad_config_changes_nothing_and_a_good_one_takes_effect(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    with FaultServer({"/metrics": GOOD}) as server:
        file.write_text(config_text(server.url))
        with Exporter("--config.file", str(file), gpus=True) as exporter:
            before = exporter.until(is_up, "target_up 1")
            sha = next(iter(before.series("exporter_config_info")))
            file.write_text("targets: [")
            exporter.process.send_signal(1)
            page = exporter.until(lambda page: page.value("exporter_config_reload_success") == 0, "a failed reload")
            assert next(iter(page.series("exporter_config_info"))) == sha
            exporter.after_ticks()
            exporter.until(is_up, "target_up 1 by the configuration before")
            file.write_text(config_text(server.url).replace("replica-0", "replica-1"))
            exporter.process.send_signal(1)
            page = exporter.until(lambda page: bool(page.series("target_up", target="replica-1")), "the new target")
            assert page.value("exporter_config_reload_success") == 1
            assert not page.series("target_info", target="replica-0")
            assert next(iter(page.series("exporter_config_info"))) != sha


@pytest.mark.seam("daemon")
def test_sigterm_in_the_middle_of_a_scrape_does_not_wait_for_its_end() -> None:
    with FaultServer({"/metrics": fault.silent()}) as server:
        exporter = Exporter(
            "--target", server.url, "--scrape.interval", "10m", "--scrape.timeout", "9m", "--window", "20m"
        )
        with exporter:
            server.wait_for_requests(1)
            exporter.process.terminate()
            assert exporter.process.wait(PATIENCE_SECONDS) == 0


def test_one_wedged_engine_does_not_block_the_others() -> None:
    with FaultServer({"/metrics": fault.silent()}) as wedged, FaultServer({"/metrics": GOOD}) as good:
        arguments = (
            "--target", wedged.url, "--target", good.url, "--scrape.interval", "10m", "--scrape.timeout", "9m",
            "--window", "20m",
        )  # fmt: skip
        with Exporter(*arguments) as exporter:
            page = exporter.until(
                lambda page: any(value == 1 for value in page.series("target_up").values()), "the good one"
            )
            assert page.total("decode_tokens_total") > 0


def test_the_log_says_a_failure_once(watched: tuple[FaultServer, Exporter]) -> None:
    server, exporter = watched
    server.behave("/metrics", GOOD)
    exporter.until(is_up, "target_up 1")
    seen = len(exporter.log)
    server.behave("/metrics", fault.status(418, b"teapot"))
    exporter.until(lambda _page: any("418" in line for line in exporter.log[seen:]), "the failure in the log")
    exporter.after_ticks(5)
    # a scrape in between that fails by the timeout is another failure
    reasons = re.findall(r"level=warn .*reason=(\w+)", "\n".join(exporter.log[seen:]))
    assert "http_status" in reasons
    assert all(before != after for before, after in pairwise(reasons))
    server.behave("/metrics", GOOD)
    exporter.until(is_up, "recovery")


def test_debug_targets_tells_the_last_failures_and_no_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    file = tmp_path / "exporter.yml"
    with FaultServer({"/metrics": fault.status(500, b"boom")}) as server:
        file.write_text(
            config_text(server.url).replace("    url:", f"    auth: {{bearer_token_file: {token}}}\n    url:")
        )
        with Exporter("--config.file", str(file), "--log.level", "debug", gpus=True) as exporter:
            exporter.until(lambda _page: "500" in exporter.get("/debug/targets").text, "the failure")
            answer = exporter.get("/debug/targets")
            document = answer.json()
            landing = exporter.get("/").text
            metrics = exporter.scrape().text
        assert server.requests[0].headers["authorization"] == "Bearer s3cret-token"
    assert "500" in json.dumps(document)
    for text in (answer.text, landing, metrics, "\n".join(exporter.log)):
        assert "s3cret-token" not in text


@pytest.mark.e2e
def test_what_one_server_says_cannot_take_the_page_down() -> None:
    hostile = fault.page(b'{"version":"\\ud800<script>"}', "application/json")
    with (
        FaultServer({"/metrics": GOOD, "/version": hostile}) as server,
        FaultServer({"/metrics": GOOD}) as other,
        Exporter("--target", server.url, "--target", other.url, "--scrape.interval", "200ms") as exporter,
    ):
        exporter.until(
            lambda page: "<script>" in page.text and sum(page.series("target_up").values()) == 2,
            "the version, and both targets up",
        )
        assert "<script>" not in exporter.get("/").text
