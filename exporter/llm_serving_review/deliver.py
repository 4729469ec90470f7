"""Sends a finished review: to a webhook that takes {"text": …} (Slack and compatible services), and by mail."""

from __future__ import annotations

import base64
import re
import smtplib
import ssl
from collections.abc import Callable, Collection, Iterator, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path

from llm_serving_exporter.clients.http import ask, line, new_session
from llm_serving_exporter.errors import ConfigError, DeliveryError, PageError
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.model.text import Masker, on_one_line, secrets_of_url
from llm_serving_review.settings.settings import Settings, Smtp

SECONDS = 30.0
# Slack cuts a text at 40,000 characters (api.slack.com/reference/messaging: text) and shows 4,000 well
LONGEST_TEXT = 3900
# what mail servers take (Gmail and Exchange Online: 25 MB with encoding); a review is a tenth of a megabyte
MOST_ATTACHED_BYTES = 10 * 2**20
_TYPES = {".html": ("text", "html"), ".csv": ("text", "csv"), ".md": ("text", "markdown")}
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]<>#|~!&@])")
# Slack's own three entities; a character of no width breaks up what Slack would take for formatting
_ENTITIES = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "*": "∗", "_": "_\u200b", "~": "~\u200b", "`": "'", "@": "@\u200b",
}  # fmt: skip
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)

OpenSecret = Callable[[Secret, str], str]


def deliver(
    summary: str,
    files: Sequence[Path],
    title: str,
    settings: Settings,
    secret: OpenSecret,
    spared: Collection[str] = (),
) -> tuple[str, ...]:
    """Sends to each place that the settings name and returns their names. `summary` is Markdown; `secret` reads a secret; `spared`:
    places that already have it.

    Every place is tried; a secret that cannot be read stops only its own place. Raises DeliveryError with every place that refused.
    """
    sent, refused = [], []
    for where, send in _list_places(summary, files, title, settings, secret):
        if where in spared:
            continue
        try:
            send()
        except (PageError, ConfigError, OSError, ValueError, smtplib.SMTPException) as error:
            refused.append(f"{where} did not take the review: {_explain(error)}")
        else:
            sent.append(where)
    if refused:
        raise DeliveryError("; ".join(refused), tuple(sent))
    return tuple(sent)


def _list_places(
    summary: str, files: Sequence[Path], title: str, settings: Settings, secret: OpenSecret
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each place with the function that sends to it. That function reads its own secret, so a secret that fails is that place's failure."""
    url, smtp = settings.webhook_url, settings.smtp
    if url is not None:
        yield "the webhook", lambda: post_to_webhook(secret(url, "the webhook's URL"), summary)

    def send_by_mail(smtp: Smtp) -> None:
        password = secret(smtp.password, "the mail server's password") if smtp.password is not None else None
        send_mail(smtp, password, build_message(smtp, title, summary, files))

    if smtp is not None:
        yield f"{smtp.host}:{smtp.port}", lambda: send_by_mail(smtp)


def post_to_webhook(url: str, summary: str) -> None:
    """Posts the summary. Raises PageError without the URL in it, because whoever knows the URL may post."""
    session = new_session()
    try:
        answer = ask(session, "POST", url, url, json={"text": write_slack_text(summary)})
        if not 200 <= answer.status < 300:
            raise PageError(f"it answered {answer.status}: {line(answer.text)}. Check webhook_url.")
    except PageError as error:
        raise PageError(Masker(secrets_of_url(url)).mask_text(str(error))) from None
    finally:
        session.close()


def write_slack_text(summary: str) -> str:
    """Markdown as Slack's mrkdwn: one star for bold, no headings; tables, and whatever Slack would turn into a link or a mention, as
    plain text."""
    bold = _BOLD.sub(r"*\1*", _HEADING.sub(r"*\1*", summary))
    tables = _TABLE.sub(_write_table, bold)
    text = _ESCAPED.sub(lambda found: _ENTITIES.get(found[1], found[1]), tables)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 2] + "…"


def _write_table(found: re.Match[str]) -> str:
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for row in found[0].splitlines()
        if not re.fullmatch(r"[|:\- ]+", row)
    ]
    return "".join(" · ".join(cell for cell in row if cell) + "\n" for row in rows)


def build_message(smtp: Smtp, title: str, summary: str, files: Sequence[Path]) -> EmailMessage:
    """The summary as text, with the files attached that are not too large."""
    made = EmailMessage()
    made["Subject"] = on_one_line(title)
    made["From"], made["To"] = smtp.sender, ", ".join(smtp.to)
    made["Date"], made["Message-ID"] = formatdate(), make_msgid(domain=smtp.sender.rpartition("@")[2])
    made.set_content(summary)
    for path in files:
        content = path.read_bytes()
        if path.suffix in _TYPES and path.suffix != ".md" and len(content) <= MOST_ATTACHED_BYTES:
            main, sub = _TYPES[path.suffix]
            made.add_attachment(content, maintype=main, subtype=sub, filename=path.name)
    return made


def send_mail(smtp: Smtp, password: str | None, made: EmailMessage) -> None:
    """Sends a message. Raises OSError, SMTPException."""
    with smtplib.SMTP(smtp.host, smtp.port, timeout=SECONDS) as server:
        if smtp.starttls:
            server.starttls(context=ssl.create_default_context())
        if smtp.username is not None and password is not None:
            try:
                server.login(smtp.username, password)
            except smtplib.SMTPResponseException as error:
                raise _hide_password(error, smtp.username, password) from None
        refused = server.send_message(made)
    if refused:
        raise smtplib.SMTPRecipientsRefused(refused)


def _hide_password(error: smtplib.SMTPResponseException, username: str, password: str) -> smtplib.SMTPResponseException:
    """The same refusal without what the server repeats of the exchange: the password as it is, and as AUTH LOGIN and AUTH PLAIN send it."""
    sent = (password, f"\0{username}\0{password}")
    masker = Masker([password, *(base64.b64encode(text.encode()).decode("ascii") for text in sent)])
    return smtplib.SMTPResponseException(error.smtp_code, masker.mask_text(_decode_error(error)))


def _decode_error(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _explain(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"it refuses {', '.join(sorted(error.recipients))}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {line(_decode_error(error))}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ValueError):
        return f"the message cannot be sent ({type(error).__name__})"  # its words may show a secret
    return line(str(error)) or type(error).__name__
