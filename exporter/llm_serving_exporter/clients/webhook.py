"""Webhooks and APIs that commands post to, which answer in a line of text. Imports requests, which the daemon never pays for."""

from __future__ import annotations

import time
from typing import Any

import requests
from requests import Session

from llm_serving_exporter import __version__
from llm_serving_exporter.errors import PageError
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.schema.duration import format_duration
from llm_serving_exporter.schema.problems import shown

__all__ = ["Answer", "Session", "ask", "line", "new_session"]

CONNECT_SECONDS, READ_SECONDS = 10.0, 20.0
MOST_BYTES = 64 * 1024  # of an answer; those that matter are a line
# where a server asks for patience and does not say how much
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
_SHOWN_CHARACTERS = 300


class Answer:
    """A status and the beginning of the body, without the secret where somebody echoes it."""

    def __init__(self, response: requests.Response, secret: str | None) -> None:
        self.url, self.status = response.url.partition("?")[0], response.status_code
        self._location = _without(secret, response.headers.get("Location", ""))
        self._retry_after = response.headers.get("Retry-After", "")
        body = bytearray()
        deadline = time.monotonic() + READ_SECONDS
        for piece in response.iter_content(1):  # whatever is there: an answer that drips is cut at the deadline
            body += piece
            if len(body) >= MOST_BYTES or time.monotonic() > deadline:
                break
        self.text = _without(secret, body.decode("utf-8", "replace").strip())

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


def _without(secret: str | None, text: str) -> str:
    return text.replace(secret, "…") if secret else text


def line(text: str) -> str:
    """What a server said, as a message shows it: one line, cut where it is long."""
    return on_one_line(text, _SHOWN_CHARACTERS)


def new_session() -> Session:
    """To be closed by whoever asked for it."""
    session = Session()
    session.headers["User-Agent"] = f"llm-serving-exporter/{__version__}"
    # proxies and CAs of the environment are welcome, a password of ~/.netrc is nobody's business
    session.auth = lambda request: request
    return session


def ask(session: Session, method: str, url: str, secret: str | None = None, **more: Any) -> Answer:
    """One request, never redirected. `secret`: what of it no message may show; `more`: as requests takes it.

    Raises PageError where no answer comes.
    """
    try:
        with session.request(
            method, url, timeout=(CONNECT_SECONDS, READ_SECONDS), allow_redirects=False, stream=True, **more
        ) as response:
            return Answer(response, secret)
    except requests.RequestException as error:
        raise PageError(f"{url}: {_why(error)}.") from None


def _why(error: requests.RequestException) -> str:
    root: BaseException = error
    while (below := root.__cause__ or root.__context__) is not None:
        root = below
    words = getattr(root, "verify_message", None) or getattr(root, "strerror", None) or str(root)
    if isinstance(error, requests.ConnectTimeout):
        return f"no connection within {format_duration(CONNECT_SECONDS)}"
    if isinstance(error, requests.ReadTimeout):
        return f"no answer within {format_duration(READ_SECONDS)}; the page may have arrived all the same"
    if isinstance(error, requests.exceptions.ProxyError):
        return f"the proxy of HTTP_PROXY or HTTPS_PROXY does not let it through: {words}"
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not accepted: {words}; REQUESTS_CA_BUNDLE names a file of other authorities"
    return f"no connection: {words}"
