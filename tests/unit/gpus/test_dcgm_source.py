"""dcgm-exporter over real HTTP: every scrape ends in readings, and a failed one leaves nothing."""

from __future__ import annotations

import base64
import logging
import ssl
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.gpus import device_page as page_table
from llm_serving_exporter.gpus.dcgm import select_dcgm_ratios
from llm_serving_exporter.gpus.dcgm_source import DcgmSource
from llm_serving_exporter.model.sample import FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings.config import DcgmConfig
from tests.support.builders.dcgmpages import MIXED, PLAIN, T4
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import Behaviour, FaultServer

NO_PROFILING = "".join(line for line in PLAIN.splitlines(keepends=True) if "PROF" not in line)


def config_of(url: str, **settings: object) -> DcgmConfig:
    return DcgmConfig(url, **{"http": HttpSettings(timeout_seconds=2.0), **settings})


def test_a_page_becomes_readings_with_the_time_they_were_read() -> None:
    clock = iter(range(1000, 2000))
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(
            DcgmSource(
                config_of(server.url, http=HttpSettings(timeout_seconds=500.0)),
                monotonic=lambda: float(next(clock)),
                wall=lambda: 1_795_000_000.0,
            )
        ) as source,
    ):
        first, second = source.read(), source.read()
        # the connection is kept
        assert server.connections == 1
        assert [request.path for request in server.requests] == ["/metrics", "/metrics"]
    attempt = first.attempt
    assert (attempt.ok, attempt.stage, attempt.status, attempt.page_bytes) == (True, Stage.GPU, 200, len(PLAIN))
    assert attempt.at_unix_seconds == 1_795_000_000.0
    assert 1000 < first.monotonic_seconds < second.monotonic_seconds
    assert attempt.duration_seconds > 0
    assert first.quality is Quality.SLOW
    assert first.gpus == second.gpus
    assert select_dcgm_ratios([T4], first, []).by_uuid == {T4: 0.092781}


def test_a_new_layout_and_another_path() -> None:
    with (
        FaultServer({"/dcgm": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, metrics_path="/dcgm"))) as source,
    ):
        assert len(source.read().gpus) == 1
        server.behave("/dcgm", fault.page(MIXED.encode()))
        assert [gpu.dram_bandwidth_ratio for gpu in source.read().gpus] == [None, 0.64]


@check_rows(
    ("behaviour", "stage", "reason"),
    [
        (fault.status(500), Stage.SCRAPE, FailureReason.STATUS),
        (fault.status(404), Stage.SCRAPE, FailureReason.STATUS),
        (fault.status(401), Stage.SCRAPE, FailureReason.UNAUTHORIZED),
        (fault.page(b""), Stage.SCRAPE, FailureReason.EMPTY),  # before its first collection
        (fault.page(b"<html></html>", "text/html"), Stage.SCRAPE, FailureReason.CONTENT_TYPE),
        (fault.hang_up(), Stage.SCRAPE, FailureReason.CLOSED),
        (fault.garbage(), Stage.SCRAPE, FailureReason.PROTOCOL),
        (fault.page(b"DCGM_FI_DEV_FB_USED{ 1\n"), Stage.PARSE, FailureReason.MALFORMED),
        (fault.page(PLAIN.encode()[:-20]), Stage.PARSE, FailureReason.TRUNCATED),
        (fault.page(b"a 1\n" * 101), Stage.PARSE, FailureReason.TOO_MANY_SERIES),
        (fault.page(b"node_load1 0.5\n"), Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME),
    ],
)
def test_a_failed_scrape_leaves_nothing_and_the_next_one_is_its_retry(
    behaviour: Behaviour, stage: Stage, reason: FailureReason
) -> None:
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, max_series=100))) as source,
    ):
        assert source.read().attempt.ok
        server.behave("/metrics", behaviour)
        failed = source.read()
        server.behave("/metrics", fault.page(PLAIN.encode()))
        again = source.read()
    assert (failed.attempt.stage, failed.attempt.reason, failed.gpus) == (stage, reason, ())
    assert failed.attempt.detail
    found = select_dcgm_ratios([T4], failed, [])
    assert (found.by_uuid, found.absence) == (None, Absence.INPUT_MISSING)
    assert failed.attempt.detail in found.why
    assert select_dcgm_ratios([T4], again, []).by_uuid == {T4: 0.092781}


def test_nothing_listens() -> None:
    with FaultServer({}) as server:
        url = server.url
    with closing(DcgmSource(config_of(url))) as source:
        assert source.read().attempt.reason is FailureReason.REFUSED


def test_a_server_that_never_answers_costs_the_timeout() -> None:
    settings = HttpSettings(timeout_seconds=0.2)
    with (
        FaultServer({"/metrics": fault.silent()}) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.reason is FailureReason.TIMEOUT


def test_a_body_beyond_its_bound_is_refused() -> None:
    settings = HttpSettings(timeout_seconds=2.0, max_body_bytes=1024)
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.reason is FailureReason.TOO_LARGE


def test_credentials_and_tls_as_for_a_target(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "password").write_text("s3cret\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("dcgm.internal").configure_cert(context)
    settings = HttpSettings(
        timeout_seconds=2.0,
        basic_username="reader",
        basic_password=Secret(file=str(tmp_path / "password")),
        headers=(("X-Scope", "blue"),),
        ca_file=str(tmp_path / "ca.pem"),
        server_name="dcgm.internal",
    )
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}, tls=context) as server,
        closing(DcgmSource(config_of(server.url, http=settings))) as source,
    ):
        assert source.read().attempt.ok
        (request,) = server.requests
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"reader:s3cret").decode()
    assert request.headers["x-scope"] == "blue"


def test_a_url_that_cannot_be_used_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError):
        DcgmSource(config_of("http://host:9400/path"))


def test_a_fault_of_ours_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(page_table, "MOST_GPUS", "no number")
    with (
        FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server,
        closing(DcgmSource(config_of(server.url))) as source,
    ):
        attempt = source.read().attempt
    assert attempt.reason is FailureReason.INTERNAL
    assert "please report it" in caplog.text


def test_closed_twice_and_read_again() -> None:
    with FaultServer({"/metrics": fault.page(PLAIN.encode())}) as server:
        source = DcgmSource(config_of(server.url))
        source.close()
        source.close()
        assert source.read().attempt.ok
        source.close()


def test_the_log_says_what_changed_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llm_serving_exporter.dcgm")
    pages = [PLAIN, PLAIN, NO_PROFILING, NO_PROFILING, None, None, PLAIN]
    with FaultServer({}) as server, closing(DcgmSource(config_of(server.url))) as source:
        for text in pages:
            server.behave("/metrics", fault.status(503) if text is None else fault.page(text.encode()))
            source.read()
    said = [(record.levelname, record.getMessage().partition(": ")[2]) for record in caplog.records]
    assert [level for level, _ in said] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert said[0][1] == said[3][1] == "up, 1 GPU or MIG instance"
    assert said[1][1].startswith(
        "up, without memory bandwidth: profiling fields (DCGM_FI_PROF_…) need a datacenter GPU"
    )
    assert said[2][1].startswith("scrape failed, reason=http_status: ")
