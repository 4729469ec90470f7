"""A bounded HTTP client of the commands, secrets out of files, and webhooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import requests

from llm_serving_exporter import __version__
from llm_serving_exporter.errors import LLMServingExporterError, PageError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.model.text import Masker, on_one_line, secrets_of_url
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.settings.problems import shown

# --- HTTP as every command speaks it to another service: sent once, bounded in time and size, no redirect followed.
#
# The one module that imports requests, which the daemon never pays for.


_CHUNK_BYTES = 64 * 2**10
_LONGEST_CAUSE = 300


class HttpError(LLMServingExporterError):
    """There is no usable answer. The message continues a sentence that begins with the server: "cannot be reached: …".

    `reason`: "unreachable", "late" or "large". Never leaves this folder.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Limits(Struct, frozen=True):
    """How long an exchange may take and how large its answer may be."""

    connect_seconds: float  # until a connection stands
    answer_seconds: float  # from the request to the first byte of the answer, and again to the last
    most_bytes: int  # of the body, after decompression
    # an answer that is too long or too slow is cut, for its status says enough; otherwise it is an HttpError
    cut: bool = False
    total_seconds: float | None = None  # of the exchange as a whole, None = the sum of the above


class Answer(Struct, frozen=True):
    """What a server answered."""

    url: str  # where it was asked, without the query
    status: int
    headers: Mapping[str, str]  # names compare without case
    content: bytes  # at most `Limits.most_bytes`


class HttpSession:
    """A connection to one service or a few, to be closed by whoever made it. No password is taken from ~/.netrc.

    `headers`: sent with every request. `ca_file`: authorities to trust instead of the system's. `proxies`: whether HTTP_PROXY and
    REQUESTS_CA_BUNDLE of the environment count. `trust_fix`: what a user can do about a certificate that is not trusted.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        proxies: bool = False,
        trust_fix: str = "",
    ) -> None:
        self._limits = limits
        self._trust_fix = trust_fix
        self._session = requests.Session()
        self._session.trust_env = proxies
        self._session.verify = ca_file or True
        self._session.headers["User-Agent"] = f"llm-serving-exporter/{__version__}"
        self._session.headers.update(headers or {})
        # requests would look into ~/.netrc where a session has no authentication of its own
        self._session.auth = lambda request: request

    def close(self) -> None:
        """Closes its connections."""
        self._session.close()

    def ask(self, method: str, url: str, **more: Any) -> Answer:
        """One request; `more` as requests takes it (params, data, json). Raises HttpError."""
        limits = self._limits
        total = limits.total_seconds or limits.connect_seconds + 2 * limits.answer_seconds
        try:
            return _in_time(lambda: self._exchange(method, url, more), total)
        except Empty:
            raise HttpError(f"did not answer within {format_duration(total)}", "late") from None
        except requests.RequestException as error:
            raise self._in_words(error) from None

    def _exchange(self, method: str, url: str, more: Mapping[str, Any]) -> Answer:
        limits = self._limits
        timeout = (limits.connect_seconds, limits.answer_seconds)
        with self._session.request(
            method, url, timeout=timeout, allow_redirects=False, stream=True, **more
        ) as response:
            content = bytearray()
            overdue = threading.Event()
            timer = threading.Timer(limits.answer_seconds, overdue.set)
            timer.daemon = True
            if limits.cut:
                timer.start()
            try:
                # byte by byte where an answer that drips is to be cut: a larger piece would be waited for
                for chunk in response.iter_content(1 if limits.cut else _CHUNK_BYTES):
                    content += chunk
                    if limits.cut and (len(content) >= limits.most_bytes or overdue.is_set()):
                        break
                    if len(content) > limits.most_bytes:
                        raise HttpError(f"answered with more than {limits.most_bytes // 2**20} MiB", "large")
            finally:
                timer.cancel()
            return Answer(response.url.partition("?")[0], response.status_code, response.headers, bytes(content))

    def _in_words(self, error: requests.RequestException) -> HttpError:
        limits = self._limits
        cause = _innermost(error)
        if isinstance(error, requests.ConnectTimeout):
            return HttpError(f"took no connection within {format_duration(limits.connect_seconds)}", "unreachable")
        if isinstance(error, requests.Timeout):
            return HttpError(f"did not answer within {format_duration(limits.answer_seconds)}", "late")
        if isinstance(error, requests.exceptions.ProxyError):
            return HttpError(
                f"cannot be reached: the proxy of HTTP_PROXY or HTTPS_PROXY refuses: {cause}", "unreachable"
            )
        if isinstance(error, requests.exceptions.SSLError):
            fix = f"; {self._trust_fix}" if self._trust_fix else ""
            return HttpError(f"has a TLS certificate that is not accepted: {cause}{fix}", "unreachable")
        if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.MissingSchema):
            return HttpError("has no usable address", "unreachable")
        if isinstance(error, requests.ConnectionError):
            return HttpError(f"cannot be reached: {cause}", "unreachable")
        return HttpError(f"broke off ({type(error).__name__})", "unreachable")


def _in_time(work: Callable[[], Answer], seconds: float) -> Answer:
    """What `work` returns or raises; queue.Empty after that time. requests' own timeouts are between two bytes, so that an answer which
    drips would never end: the exchange has a thread of its own, which is left behind."""
    outcomes: SimpleQueue[Answer | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcomes.put(work())
        except Exception as error:  # noqa: BLE001  # raised below, in the thread that asked
            outcomes.put(error)

    threading.Thread(target=run, daemon=True).start()
    outcome = outcomes.get(timeout=seconds)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _innermost(error: BaseException) -> str:
    """The first cause in words: "Connection refused" instead of what each layer above made of it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    words = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
    return on_one_line(str(words))[:_LONGEST_CAUSE]


# --- Secrets of commands: one line of text in a file or an environment variable. No message ever shows one.


LARGEST_SECRET_BYTES = 16 * 2**10


class SecretError(LLMServingExporterError):
    """A secret that cannot be used. `where` names its file or variable; `what` completes a sentence: "cannot be read: …"."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where} {what}")
        self.where = where
        self.what = what


def read_secret(named: Secret, environ: Mapping[str, str]) -> str:
    """What the file or the environment variable holds, without the end of its line. Raises SecretError."""
    where = f"file {named.file}" if named.file is not None else f"environment variable {named.env}"
    if named.file is None:
        text = environ.get(named.env or "", "")
    else:
        try:
            with open(named.file, "rb") as file:
                text = file.read(LARGEST_SECRET_BYTES + 1).decode("ascii")
        except OSError as error:
            raise SecretError(where, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretError(where, "has characters that no HTTP header may carry") from None
        except ValueError:  # a null byte in the path
            raise SecretError(where, "cannot be read: this is not a path") from None
    text = text.rstrip("\r\n")
    if not text:
        raise SecretError(where, "is empty")
    if len(text) > LARGEST_SECRET_BYTES or not text.isprintable() or not text.isascii():
        raise SecretError(where, "does not hold a single line of plain text")
    return text


# --- Webhooks and APIs that commands post to, which answer in a line of text.


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
