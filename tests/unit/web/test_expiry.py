"""When certificates expire, and who is told."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from llm_serving_exporter.web.guard import Guard, read_expiry
from tests.support.rows import check_rows
from tests.support.servers.webaccess import write

TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 11, 30, 12, 30, 1, tzinfo=UTC),
        datetime(1999, 1, 2, tzinfo=UTC),
        datetime(2080, 5, 6, 7, 8, 9, tzinfo=UTC),
    ],
)
def test_the_time_is_that_of_the_certificate(moment: datetime) -> None:
    made = trustme.CA().issue_cert("a.example", not_before=moment - timedelta(days=9), not_after=moment)
    pem = made.cert_chain_pems[0].bytes().decode()
    assert read_expiry(f"some words\n{pem}") == moment.timestamp()


@check_rows(
    "text",
    [
        "",
        "words",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "-----END CERTIFICATE----------BEGIN CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_has_none(text: str) -> None:
    assert read_expiry(text) is None


def test_somebody_is_told_two_weeks_before_and_after_once_a_day(tmp_path, caplog) -> None:
    end = datetime(2030, 1, 31, tzinfo=UTC)
    made = trustme.CA().issue_cert("127.0.0.1", not_before=end - timedelta(days=90), not_after=end)
    made.private_key_pem.write_to_path(tmp_path / "server.key")
    made.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    now = [(end - timedelta(days=20)).timestamp()]
    caplog.set_level(logging.WARNING)
    guard = Guard(write(tmp_path, TLS), logging.getLogger("test"), lambda: now[0])
    assert guard.expiry == end.timestamp()
    guard.context()
    assert caplog.text == ""
    for days, said in ((-13, "expires in 13.0 days, at 2030-01-31 00:00 UTC"), (1, "expired at 2030-01-31 00:00 UTC")):
        caplog.clear()
        now[0] = (end + timedelta(days=days)).timestamp()
        for _ in range(3):
            guard.context()
        assert len(caplog.records) == 1
        assert said in caplog.text
