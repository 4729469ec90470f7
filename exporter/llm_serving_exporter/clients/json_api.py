"""One HTTP API of JSON documents with bounded answers. Imports requests, which the daemon never pays for."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from queue import Empty, SimpleQueue
from typing import Any

import requests

from llm_serving_exporter import __version__
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.text import on_one_line

# a day of a model's records at one second is 5 MB
LARGEST_ANSWER_BYTES = 32 * 2**20
_CHUNK_BYTES = 64 * 2**10
_LONGEST_WORDS = 300
# of an error page: a secret is masked before the text is cut, and it may be as long as its file
_SEARCHED_BYTES = 64 * 2**10
# Prometheus' --query.max-samples and --query.timeout, and its limit of 11,000 points a series
_TOO_LARGE = ("too many samples", "exceeded maximum resolution", "query timed out")

Query = Sequence[tuple[str, str]]


class ApiError(LLMServingExporterError):
    """An API that a command asks cannot be reached or does not answer as it should. The message is for users.

    `reason`: "unreachable", "late", "large" (it or its answer, so that asking for less may do), else "".
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Access:
    """Where an API is and how to get in. `what` names it in messages; `flag` is what to check; secrets are as they stood in their files."""

    what: str
    url: str
    flag: str
    bearer_token: str | None = None
    basic: tuple[str, str] | None = None
    ca_file: str | None = None


class JsonApi:
    """GET and POST of JSON. Each exchange ends within `timeout_seconds`, is sent once, follows no redirect and heeds no proxy or netrc.

    Raises ApiError with what was asked, what came, and the flag to check. What a secret says stands in none.
    """

    def __init__(self, access: Access, timeout_seconds: float = 10.0) -> None:
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._late = f"did not answer within {timeout_seconds:g} s"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = access.ca_file or True
        self._secrets = [access.bearer_token] if access.bearer_token is not None else []
        headers = {"Accept": "application/json", "User-Agent": f"llm-serving-exporter/{__version__}"}
        if access.bearer_token is not None:
            headers["Authorization"] = f"Bearer {access.bearer_token}"
        if access.basic is not None:
            pair = base64.b64encode(":".join(access.basic).encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
            self._secrets += [access.basic[1], pair]
        self._session.headers.update(headers)

    @property
    def flag(self) -> str:
        """What to check where it is the wrong server."""
        return self._access.flag

    def close(self) -> None:
        """Closes its connections."""
        self._session.close()

    def get(self, path: str, query: Query = ()) -> Any:
        """The JSON document at a path."""
        return self._exchange("GET", path, query, None)

    def post_form(self, path: str, form: Query) -> Any:
        """The answer to a form: for queries that are too long for an address."""
        return self._exchange("POST", path, (), form)

    def send(self, method: str, path: str, document: Mapping[str, Any]) -> Any:
        """The answer to a JSON document."""
        return self._exchange(method, path, (), document)

    def _exchange(self, method: str, path: str, query: Query, body: Query | Mapping[str, Any] | None) -> Any:
        try:
            status, content = self._in_time(lambda: self._ask(method, path, query, body))
        except requests.RequestException as error:
            if isinstance(error, requests.Timeout):
                raise self._error(self._late, "late") from None
            raise self._error(_cause(error), "unreachable") from None
        document = _document(content)
        if status != 200:
            words = self._words(document, content)
            raise self._error(
                f"answered {status} {responses.get(status, '')}".rstrip() + (f": {words}" if words else ""),
                "large" if any(said in words for said in _TOO_LARGE) else "",
            )
        if document is None:
            raise self._error("did not answer with JSON")
        return document

    def _in_time(self, ask: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
        """The answer of `ask`, which gets a thread of its own: requests' timeouts are between two bytes, so that a drip would never end."""
        answers: SimpleQueue[tuple[int, bytes] | Exception] = SimpleQueue()

        def work() -> None:
            try:
                answers.put(ask())
            except Exception as error:  # noqa: BLE001  # raised below, in the thread that asked
                answers.put(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            answer = answers.get(timeout=self._timeout_seconds)
        except Empty:
            raise self._error(self._late, "late") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ask(self, method: str, path: str, query: Query, body: Query | Mapping[str, Any] | None) -> tuple[int, bytes]:
        with self._session.request(
            method,
            f"{self._access.url.rstrip('/')}{path}",
            params=list(query),
            data=list(body) if body is not None and not isinstance(body, Mapping) else None,
            json=body if isinstance(body, Mapping) else None,
            timeout=self._timeout_seconds,
            stream=True,
            allow_redirects=False,
        ) as answer:
            content = bytearray()
            for chunk in answer.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > LARGEST_ANSWER_BYTES:
                    raise self._error(f"answered with more than {LARGEST_ANSWER_BYTES // 2**20} MiB", "large")
            return answer.status_code, bytes(content)

    def _words(self, document: Any, content: bytes) -> str:
        """What an API says about its refusal (Prometheus `error`, Grafana `message`, else its text), without a secret that it repeats."""
        if isinstance(document, dict):
            said = str(document.get("error") or document.get("message") or "")
        else:
            said = content[:_SEARCHED_BYTES].decode("utf-8", errors="replace")
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return on_one_line(said, _LONGEST_WORDS)

    def _error(self, what: str, reason: str = "") -> ApiError:
        return ApiError(f"{self._access.what} at {self._access.url} {what}; check {self._access.flag}", reason)


def _cause(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "cannot be trusted: its TLS certificate is not valid here (--ca-file names another authority)"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached"
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.MissingSchema):
        return "has no usable address"
    return f"broke off ({type(error).__name__})"


def _document(content: bytes) -> Any:
    """None where it is no JSON: no API that is asked here answers null."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
