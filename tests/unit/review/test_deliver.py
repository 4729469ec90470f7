"""A finished review to a webhook and to a mail server: what arrives, and what is said where it does not."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from llm_serving_exporter.errors import ConfigError, DeliveryError, Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Secret
from llm_serving_review.deliver import LONGEST_TEXT, deliver, write_slack_text
from llm_serving_review.settings.settings import Settings, Smtp
from tests.support.servers.http_server import QuietHandler, serve
from tests.support.servers.server_process import free_port
from tests.support.servers.smtpsink import SmtpSink

SUMMARY = """# Costs: 2026-W46

**$1,234.00** for GPU time (+3.1 %), model m\\_x\\<\\@here\\>.

| model | USD |
|---|---:|
| a\\|b | $1.00 |
"""


class Hook:
    """A webhook that answers `status` and keeps what it was given."""

    def __init__(self, status: int = 200, answer: bytes = b"ok") -> None:
        self.status, self.answer = status, answer
        self.given: list[tuple[str, dict[str, object]]] = []


@contextmanager
def listening(hook: Hook) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            hook.given.append((self.path, json.loads(self.read_body())))
            self.answer(hook.status, hook.answer)

    with serve(Handler) as url:
        yield f"{url}/services/T0/B0/secret"


def opened(secrets: dict[str, str]):
    return lambda secret, what: secrets[secret.env]


def sent(settings: Settings, files: tuple[Path, ...] = (), **secrets: str) -> tuple[str, ...]:
    return deliver(SUMMARY, files, "Costs: 2026-W46", settings, opened(secrets))


HOOKED = Settings(webhook_url=Secret(env="hook"))


def test_the_webhook_gets_the_summary_as_slack_writes_it() -> None:
    hook = Hook()
    with listening(hook) as url:
        assert sent(HOOKED, hook=url) == ("the webhook",)
    ((path, document),) = hook.given
    assert path == "/services/T0/B0/secret"
    assert document == {"text": write_slack_text(SUMMARY)}


def test_slacks_own_marks_cannot_come_from_outside() -> None:
    text = write_slack_text(SUMMARY)
    assert text.startswith("*Costs: 2026-W46*\n\n*$1,234.00* for GPU time")
    assert "&lt;@\u200bhere&gt;" in text
    assert "\nmodel · USD\na|b · $1.00\n" in text
    assert "---" not in text
    assert len(write_slack_text("x" * 10_000)) == LONGEST_TEXT - 1


@pytest.mark.parametrize(("status", "answer"), [(404, b"no_service"), (500, b""), (302, b"")])
def test_a_webhook_that_refuses_is_told_without_its_url(status: int, answer: bytes) -> None:
    hook = Hook(status, answer)
    with listening(hook) as url, pytest.raises(DeliveryError) as caught:
        sent(HOOKED, hook=url)
    assert f"the webhook did not take the review: it answered {status}" in str(caught.value)
    assert answer.decode() in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_webhook_that_is_not_there_is_told_without_its_url() -> None:
    url = f"http://127.0.0.1:{free_port()}/services/T0/B0/secret"
    with pytest.raises(DeliveryError, match="cannot be reached") as caught:
        sent(HOOKED, hook=url)
    assert "secret" not in str(caught.value)


MAILED = Smtp("127.0.0.1", "review@example.com", ("finance@example.com", "sre@example.com"), 0, starttls=False)


def files(tmp_path: Path) -> tuple[Path, ...]:
    contents = {"cost-2026-W46.html": "<p>page</p>", "cost-2026-W46.csv": "a,b\r\n1,2\r\n", "cost-2026-W46.md": SUMMARY}
    for name, content in contents.items():
        (tmp_path / name).write_text(content, newline="")
    return tuple(tmp_path / name for name in contents)


def test_mail_has_the_summary_and_the_page_and_the_table_with_it(tmp_path: Path) -> None:
    with SmtpSink() as sink:
        settings = Settings(smtp=replace(MAILED, port=sink.port))
        assert sent(settings, files(tmp_path)) == (f"127.0.0.1:{sink.port}",)
    (mail,) = sink.mails
    assert (mail["Subject"], mail["From"]) == ("Costs: 2026-W46", "review@example.com")
    assert mail["To"] == "finance@example.com, sre@example.com"
    assert mail["Date"]
    assert sink.recipients == [["finance@example.com", "sre@example.com"]]
    body = mail.get_body(("plain",))
    assert body is not None
    assert "**$1,234.00** for GPU time" in body.get_content()
    attached = {part.get_filename(): part.get_content_type() for part in mail.iter_attachments()}
    assert attached == {"cost-2026-W46.html": "text/html", "cost-2026-W46.csv": "text/csv"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_a_password_goes_over_an_encrypted_line_only(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with SmtpSink(tls=context, login=("mailer", "hunter2")) as sink:
        smtp = replace(
            MAILED, host="localhost", port=sink.port, starttls=True, username="mailer", password=Secret(env="password")
        )
        with pytest.raises(DeliveryError, match="its certificate is not accepted"):
            sent(Settings(smtp=smtp), password="hunter2")
        with authority.cert_pem.tempfile() as trusted:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            assert sent(Settings(smtp=smtp), password="hunter2") == (f"localhost:{sink.port}",)
            assert sink.encrypted == [True]
            with pytest.raises(DeliveryError, match="535 who are you") as caught:
                sent(Settings(smtp=smtp), password="hunter3")
            assert "who are you, ('mailer', '***') or ***" in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_a_server_without_encryption_is_not_told_anything() -> None:
    with SmtpSink() as sink, pytest.raises(DeliveryError, match="STARTTLS"):
        sent(Settings(smtp=replace(MAILED, port=sink.port, starttls=True)))
    assert sink.mails == []


def test_a_recipient_that_is_refused_is_named() -> None:
    with SmtpSink(refuse="sre@") as sink:
        with pytest.raises(DeliveryError, match=r"it refuses sre@example\.com"):
            sent(Settings(smtp=replace(MAILED, port=sink.port)))
        assert sink.recipients == [["finance@example.com"]]


def test_every_place_is_tried_and_every_refusal_told() -> None:
    hook = Hook()
    with listening(hook) as url, pytest.raises(DeliveryError, match=r"^127\.0\.0\.1:[0-9]+ did not take") as caught:
        sent(replace(HOOKED, smtp=replace(MAILED, port=free_port())), hook=url)
    assert len(hook.given) == 1
    assert "webhook" not in str(caught.value)
    assert caught.value.sent == ("the webhook",)


def test_who_has_it_already_is_spared() -> None:
    hook = Hook()
    with listening(hook) as url:
        assert deliver(SUMMARY, (), "Costs", HOOKED, opened({"hook": url}), ("the webhook",)) == ()
    assert hook.given == []


def test_a_secret_that_cannot_be_read_is_its_places_own_failure(tmp_path: Path) -> None:
    def secret(named: Secret, what: str) -> str:
        if named.env != "hook":
            raise ConfigError(Problem("file /run/password", "", f"{what} cannot be read", "It is one line of text."))
        return url

    hook, smtp = Hook(), replace(MAILED, username="mailer", password=Secret(file="/run/password"))
    with (
        listening(hook) as url,
        pytest.raises(DeliveryError, match="the mail server's password cannot be read") as caught,
    ):
        deliver(SUMMARY, (), "Costs", replace(HOOKED, smtp=smtp), secret)
    assert caught.value.sent == ("the webhook",)
    with SmtpSink() as sink:
        both = Settings(webhook_url=Secret(file="/run/url"), smtp=replace(MAILED, port=sink.port))
        with pytest.raises(DeliveryError, match="the webhook's URL cannot be read") as caught:
            deliver(SUMMARY, (), "Costs", both, secret)
        assert len(sink.mails) == 1
    assert caught.value.sent == (f"127.0.0.1:{sink.port}",)


def test_a_password_that_cannot_be_sent_is_not_shown() -> None:
    with SmtpSink(login=("mailer", "h")) as sink:
        smtp = replace(MAILED, port=sink.port, username="mailer", password=Secret(env="password"))
        with pytest.raises(DeliveryError, match=r"cannot be sent \(UnicodeEncodeError\)"):
            sent(Settings(smtp=smtp), password="hünter2")
