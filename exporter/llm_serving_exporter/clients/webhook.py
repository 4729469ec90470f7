"""Webhooks and APIs that commands post to, which answer in a line of text."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.clients.http import Answer, HttpError, HttpSession, Limits
from llm_serving_exporter.errors import PageError
from llm_serving_exporter.model.text import Masker, on_one_line, secrets_of_url
from llm_serving_exporter.settings.problems import shown

CONNECT_SECONDS, READ_SECONDS = 10.0, 20.0
MOST_BYTES = 64 * 1024  # of an answer; those that matter are a line
# where a server asks for patience and does not say how much
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
_SHOWN_CHARACTERS = 300


class Reply:
    """A status and the beginning of the body, without the secret where somebody echoes it."""

    def __init__(self, answer: Answer, secret: str | None) -> None:
        masker = Masker(() if secret is None else secrets_of_url(secret))
        self.url, self.status = answer.url, answer.status
        self._location = masker.mask_text(answer.headers.get("Location", ""))
        self._retry_after = answer.headers.get("Retry-After", "")
        self.text = masker.mask_text(answer.content.decode("utf-8", "replace").strip())

    @property
    def retry_after_seconds(self) -> float:
        """What the server asks for, within bounds."""
        asked = self._retry_after
        return min(float(asked), LONGEST_PAUSE_SECONDS) if asked.isascii() and asked.isdigit() else PAUSE_SECONDS

    def unexpected(self, wanted: str) -> PageError:
        """The error for a status that means nothing here."""
        if self._location:  # never followed: the key would go to whoever stands there
            return PageError(
                f"{self.url} redirects ({self.status}) to {shown(self._location)}. Give that URL if it is right."
            )
        said = f": {line(self.text)}" if self.text else ""
        return PageError(f"{self.url} answered {self.status}{said}, not {wanted}.")


def line(text: str) -> str:
    """What a server said, as a message shows it: one line, cut where it is long."""
    return on_one_line(text, _SHOWN_CHARACTERS)


def new_session() -> HttpSession:
    """A session for webhooks, to be closed by whoever asked for it. Proxies and authorities of the environment count."""
    limits = Limits(CONNECT_SECONDS, READ_SECONDS, MOST_BYTES, cut=True)
    return HttpSession(limits, proxies=True, trust_fix="REQUESTS_CA_BUNDLE names a file of other authorities")


def ask(session: HttpSession, method: str, url: str, secret: str | None = None, **more: Any) -> Reply:
    """One request. `secret`: what of it no message may show; `more`: as requests takes it (params, json).

    Raises PageError where no answer comes.
    """
    try:
        return Reply(session.ask(method, url, **more), secret)
    except HttpError as error:
        arrived = "; the page may have arrived all the same" if error.reason == "late" else ""
        raise PageError(f"{url} {error}{arrived}. Check the URL, and that it can be reached from here.") from None
