"""Target -> Page: one GET, bounded in time and size, over a connection that is kept alive between ticks."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from llm_serving_exporter import __version__
from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.fetch.address import encode_request_target, parse_base_url, resolve_redirect
from llm_serving_exporter.fetch.answer import Body, Connection, Head, read_body, read_excerpt
from llm_serving_exporter.fetch.connect import answers_tls, connect, explain_tls_failure, explain_tls_server, start_tls
from llm_serving_exporter.fetch.credentials import RequestHeaders, make_client_context
from llm_serving_exporter.fetch.waits import ScrapeError, quote_first_line
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings
from llm_serving_exporter.model.text import count_nouns

# --- What sockets, TLS and http.client raise during an exchange -> the named failure.


_TLS_ALERT = "\x15\x03"  # RFC 8446, 5.1: what a TLS port answers to plain HTTP begins so


def translate_error(
    error: Exception, where: str, server_name: str, timeout_seconds: float, received: int, at_end: bool
) -> ScrapeError:
    """The failure for `error`, raised after `received` bytes of an answer; `at_end`: the server had closed by then.

    Any other exception is a fault of the exporter (INTERNAL). The message names only its type, because its text may hold
    a secret.
    """
    if isinstance(error, TimeoutError):
        limit, came = f"{timeout_seconds:g} s", count_nouns(received, "byte")
        detail = f"{where} accepted the request but sent no answer within {limit}; is the server stuck or overloaded?"
        if received:
            detail = f"{where} did not complete its answer within {limit} ({came} came); is it overloaded?"
        return ScrapeError(FailureReason.TIMEOUT, detail)
    if isinstance(error, ssl.SSLError):
        return explain_tls_failure(where, server_name, error)
    came = f"after {count_nouns(received, 'byte')}" if received else "before the first byte"
    if isinstance(error, ConnectionError) or (isinstance(error, http.client.IncompleteRead) and at_end):
        detail = f"{where} hung up {came} of a complete answer; did it crash or restart?"
        return ScrapeError(FailureReason.CLOSED, detail)
    if isinstance(error, OSError):
        cause = error.strerror or type(error).__name__
        return ScrapeError(FailureReason.UNREACHABLE, f"the connection to {where} broke {came} ({cause})")
    if isinstance(error, http.client.BadStatusLine):
        if _TLS_ALERT in str(error):
            return explain_tls_server(where)
        return ScrapeError(FailureReason.PROTOCOL, f"{where} does not answer in HTTP/1; is the port right?")
    name = type(error).__name__
    if isinstance(error, http.client.HTTPException):
        return ScrapeError(FailureReason.PROTOCOL, f"{where} sent an answer that breaks HTTP or its limits ({name})")
    return ScrapeError(FailureReason.INTERNAL, f"a fault of the exporter itself ({name}); please report it")


# --- The client.


MAX_REDIRECTS = 3

# Only the text format: prometheus_client >= 0.23 answers a request for OpenMetrics with ":" in names turned into "_".
_ACCEPT_METRICS = "text/plain;version=0.0.4"
_ACCEPT_JSON = "application/json"
_METRICS_TYPES = frozenset({"", "text/plain", "application/openmetrics-text"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

# Beyond the cap on the body itself: chunk sizes, trailers, what gzip adds. Ends a flood of those before the deadline.
_FRAMING_ALLOWANCE_BYTES = 1024 * 1024
_DRAIN_BYTES = 16 * 1024


# what servers answer while weights load (llama.cpp "Loading model") or ranks are added (vLLM "currently scaling");
# a gateway's "no healthy upstream" is JSON too, and means that the engine is gone
# what servers and proxies say to plain HTTP on a port of TLS (nginx, Go's net/http, Apache, Envoy and uvicorn hang up)
_WANTS_TLS = re.compile(
    r"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server|speaking plain HTTP to an SSL"
)
_NOT_READY = re.compile(r"\b(loading|scaling|starting|initiali[sz]ing|warming)\b", re.IGNORECASE)


# a server that routes to several models wants to be told which (llama.cpp in router mode)
_WHICH_MODEL = re.compile(r"\bmodel name is missing\b", re.IGNORECASE)


class JsonAnswer(Struct, frozen=True):
    """A side endpoint's answer."""

    value: object  # as json.loads() returns it
    status: int  # the HTTP status: 200


class Client(Protocol):
    """What reads one server: `HttpClient`, or a stand-in for a server that does not exist."""

    async def get_metrics(self, path: str) -> Page | Refusal:
        """As `HttpClient.get_metrics`."""
        ...

    async def get_json(
        self, path: str, max_bytes: int = 1024 * 1024, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        """As `HttpClient.get_json`."""
        ...

    async def get_any(self, path: str) -> Page | Refusal:
        """As `HttpClient.get_any`."""
        ...

    def close(self) -> None:
        """As `HttpClient.close`."""
        ...


class Connect(Protocol):
    """Makes a client; `HttpClient` itself is one."""

    def __call__(
        self, base_url: str, settings: HttpSettings, *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> Client:
        """A client of the server at `base_url`."""
        ...


class HttpClient:
    """Reads one server, one call at a time, and keeps the connection between calls. Calls are coroutines: see `fetch.waits`.

    `settings.timeout_seconds` is one deadline over the whole exchange: look-up of the name, redirects and a second attempt
    included. Proxy variables of the environment are ignored. A kept connection that turns out to be dead before the answer's
    first byte is opened again, within the same deadline; after any failure the next call starts with a new one.

    `monotonic` and `wall` are the clocks, in seconds. `own_headers`: name and value of further headers that a user's own of the same name
    replace. The constructor raises ConfigError for a URL or settings that cannot
    be used. After that no call raises, whatever the server does: a failure is returned as a `Refusal`.
    """

    def __init__(
        self,
        base_url: str,
        settings: HttpSettings,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
        user_agent: str = f"llm-serving-exporter/{__version__}",
        own_headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._address = parse_base_url(base_url)
        self._settings = settings
        self._monotonic = monotonic
        self._wall = wall
        self._where = self._address.authority
        self._headers = RequestHeaders(settings, self._address.host_header, user_agent, own_headers)
        self._connection: Connection | None = None
        self._context: ssl.SSLContext | None = None
        # bytes of the answer that last failed
        self._received = 0
        # whether the server answered a TLS hello when it last hung up on plain HTTP; None: it has not hung up since it last answered
        self._speaks_tls: bool | None = None

    def __repr__(self) -> str:
        return f"HttpClient({self._address.scheme}://{self._where})"

    async def get_metrics(self, path: str) -> Page | Refusal:
        """The metrics page at `path`, or why there is none."""
        started = self._monotonic()
        try:
            deadline = started + self._settings.timeout_seconds
            response = await self._get_answer(path, _ACCEPT_METRICS, deadline)
            content_type = response.headers.get("content-type", "")
            if _parse_media_type(content_type) not in _METRICS_TYPES:
                raise self._wrong_type_error(content_type, "a metrics page (text/plain)", path)
            body = await self._read_body(response, self._settings.max_body_bytes)
            if not body or body.isspace():
                detail = f"the page {_show_path(path)} is empty; is this the metrics path?"
                raise ScrapeError(FailureReason.EMPTY, detail, 200)
            self._speaks_tls = None
            return Page(body, content_type, self._wall(), self._monotonic())
        except Exception as error:  # noqa: BLE001  # nothing that the outside does may stop the daemon
            return await self._look_for_tls(self._make_refusal(error), started)

    async def get_json(
        self, path: str, max_bytes: int = 1024 * 1024, timeout_seconds: float | None = None
    ) -> JsonAnswer | Refusal:
        """The JSON value at `path`, of at most `max_bytes` after decompression, or why there is none.

        `timeout_seconds`: a shorter deadline than that of the settings, None for theirs. A body that is announced as JSON
        and is not JSON is refused as MALFORMED.
        """
        started = self._monotonic()
        try:
            longest = self._settings.timeout_seconds
            seconds = longest if timeout_seconds is None else min(timeout_seconds, longest)
            body = await self._get_json_body(path, max_bytes, started + seconds)
            try:
                return JsonAnswer(json.loads(body), 200)
            except (ValueError, RecursionError) as error:
                detail = f"the answer of {_show_path(path)} is not valid JSON"
                raise ScrapeError(FailureReason.MALFORMED, detail, 200) from error
        except Exception as error:  # noqa: BLE001  # nothing that the outside does may stop the daemon
            return self._make_refusal(error)

    async def get_json_text(self, path: str) -> Page | Refusal:
        """The JSON text at `path` as it came, or why there is none, for a caller that has bounds of its own for what is in it."""
        started = self._monotonic()
        try:
            deadline = started + self._settings.timeout_seconds
            body = await self._get_json_body(path, self._settings.max_body_bytes, deadline)
            return Page(body, _ACCEPT_JSON, self._wall(), self._monotonic())
        except Exception as error:  # noqa: BLE001  # nothing that the outside does may stop the daemon
            return self._make_refusal(error)

    async def get_any(self, path: str) -> Page | Refusal:
        """A 200 answer with any content, without its body, or why there is none: for a server that is only known to answer."""
        started = self._monotonic()
        try:
            response = await self._get_answer(path, "*/*", started + self._settings.timeout_seconds)
            content_type = response.headers.get("content-type", "")
            self.close()  # nobody needs the rest of the body
            return Page(b"", content_type, self._wall(), self._monotonic())
        except Exception as error:  # noqa: BLE001  # nothing that the outside does may stop the daemon
            return self._make_refusal(error)

    async def post(self, path: str, body: bytes, *header_lines: str) -> Page | Refusal:
        """The answer to a body that is sent to `path`, or why it was not taken. `header_lines`: what is said of the body, such as its type.

        Taken is what is answered with 200 to 299; no redirect is followed. Where a kept connection turns out to be dead, it is sent again.
        """
        started = self._monotonic()
        try:
            deadline = started + self._settings.timeout_seconds
            headers = self._render_headers()
            lines = (f"POST {encode_request_target(path)} HTTP/1.1", *header_lines, f"Content-Length: {len(body)}", "")
            response = await self._exchange("\r\n".join(lines).encode("ascii") + headers + body, deadline)
            if not 200 <= response.status < 300:
                raise await self._bad_status_error(response, path)
            content = b""
            if response.status != 204:  # which never has a body, and no length either
                content = await self._read_body(response, self._settings.max_body_bytes)
            content_type = response.headers.get("content-type", "")
            return Page(content, content_type, self._wall(), self._monotonic(), response.status)
        except Exception as error:  # noqa: BLE001  # nothing that the outside does may stop the daemon
            return self._make_refusal(error)

    def close(self) -> None:
        """Close the kept connection, if any. May be called twice; a later call opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _get_answer(self, path: str, accept: str, deadline: float) -> Head:
        """The 200 answer with its headers read, after redirects within the server."""
        headers = self._render_headers()
        target = encode_request_target(path)
        for _ in range(1 + MAX_REDIRECTS):
            request = f"GET {target} HTTP/1.1\r\nAccept: {accept}\r\n".encode("ascii")
            response = await self._exchange(request + headers, deadline)
            if response.status == 200:
                return response
            if response.status not in _REDIRECTS:
                raise await self._bad_status_error(response, path)
            location = response.headers.get("location")
            shown = self._quote_excerpt(location or "").partition("?")[0]
            target = resolve_redirect(self._address, target, location, shown, response.status)
            # A path without its trailing slash is redirected at every tick, so a short body is worth reading off.
            if response.will_close or response.length is None or response.length > _DRAIN_BYTES:
                self.close()
            else:
                assert self._connection is not None
                body = Body(response, self._connection)
                while await body.read_block():
                    pass
        detail = f"{_show_path(path)} redirects more than {MAX_REDIRECTS} times; set metrics_path"
        raise ScrapeError(FailureReason.REDIRECT, detail, response.status)

    def _render_headers(self) -> bytes:
        """The headers of every request, with the certificates as they are now."""
        headers = self._headers.render_block()
        if self._address.scheme == "https":
            context = make_client_context(self._settings)
            if context is not self._context:  # first use, or a certificate was rotated
                self.close()
                self._context = context
        return headers

    async def _get_json_body(self, path: str, max_bytes: int, deadline: float) -> bytes:
        """A body that is announced as JSON, and not empty."""
        response = await self._get_answer(path, _ACCEPT_JSON, deadline)
        content_type = response.headers.get("content-type", "")
        media_type = _parse_media_type(content_type)
        if media_type not in ("", _ACCEPT_JSON) and not media_type.endswith("+json"):
            raise self._wrong_type_error(content_type, "JSON", path)
        body = await self._read_body(response, max_bytes)
        if not body or body.isspace():
            raise ScrapeError(FailureReason.EMPTY, f"the answer of {_show_path(path)} is empty", 200)
        return body

    async def _exchange(self, request: bytes, deadline: float) -> Head:
        connection = self._connection
        if connection is not None and not connection.is_stale():
            try:
                return await connection.exchange(request, deadline)
            except TimeoutError:
                raise
            except OSError:
                if connection.received:
                    raise
        self.close()
        self._connection = connection = await self._open_connection(deadline)
        return await connection.exchange(request, deadline)

    async def _open_connection(self, deadline: float) -> Connection:
        sock = await connect(self._address.host, self._address.port, deadline, self._monotonic)
        if self._context is not None:
            name = self._server_name
            sock = await start_tls(sock, self._context, name, self._where, deadline, self._monotonic)
        return Connection(sock, self._monotonic)

    @property
    def _server_name(self) -> str:
        return self._settings.server_name or self._address.host.partition("%")[0]

    async def _read_body(self, response: Head, max_bytes: int) -> bytes:
        assert self._connection is not None
        self._connection.limit_rest(2 * max_bytes + _FRAMING_ALLOWANCE_BYTES)
        content = await read_body(response, self._connection, max_bytes)
        if response.will_close:
            self.close()
        return self._headers.redact_body(content)

    def _wrong_type_error(self, content_type: str, wanted: str, path: str) -> ScrapeError:
        came = self._quote_excerpt(content_type)
        detail = f"{_show_path(path)} answered with {came}, not with {wanted}; is the path right?"
        return ScrapeError(FailureReason.CONTENT_TYPE, detail, 200)

    async def _bad_status_error(self, response: Head, path: str) -> ScrapeError:
        assert self._connection is not None
        status, path = response.status, _show_path(path)
        if status in (401, 403):
            advice = "it wants credentials; set auth.bearer_token_file, auth.bearer_token_env or auth.basic"
            if using := self._headers.credential_settings:
                advice = f"it does not accept what is sent; check {using}"
            detail = f"the server answered {path} with {status}: {advice}"
            return ScrapeError(FailureReason.UNAUTHORIZED, detail, status)
        text = await read_excerpt(response, self._connection)
        excerpt = self._quote_excerpt(text)
        said = f": {excerpt}" if excerpt else ""
        if status == 400 and self._address.scheme == "http" and _WANTS_TLS.search(text):
            return explain_tls_server(self._where)
        media_type = _parse_media_type(response.headers.get("content-type", ""))
        if status == 503 and media_type == "application/json" and _NOT_READY.search(excerpt):
            return ScrapeError(FailureReason.LOADING, f"the server says that it is not ready yet{said}", status)
        hint = "; is the path right, and are metrics switched on?" if status == 404 else ""
        if status == 400 and _WHICH_MODEL.search(excerpt):
            hint = "; the server has a page for each model: set metrics_path: /metrics?model=NAME, a target for each"
        return ScrapeError(FailureReason.STATUS, f"the server answered {path} with {status}{said}{hint}", status)

    def _quote_excerpt(self, text: str) -> str:
        return quote_first_line(self._headers.redact(text))

    async def _look_for_tls(self, refusal: Refusal, started: float) -> Refusal:
        """The refusal of a metrics page. Where the server hung up on plain HTTP before a byte, a TLS hello says whether that is why.

        It is asked once, until the server has answered or failed otherwise.
        """
        if refusal.reason is not FailureReason.CLOSED or self._received or self._address.scheme == "https":
            self._speaks_tls = None
            return refusal
        if self._speaks_tls is None:
            self._speaks_tls = False
            try:
                deadline = started + self._settings.timeout_seconds
                sock = await connect(self._address.host, self._address.port, deadline, self._monotonic)
                self._speaks_tls = await answers_tls(sock, self._server_name, deadline, self._monotonic)
            except Exception:  # noqa: BLE001  # it is gone by now: what is known of it stands
                return refusal
        if not self._speaks_tls:
            return refusal
        failure = explain_tls_server(self._where)
        return replace(refusal, reason=failure.reason, detail=failure.detail)

    def _make_refusal(self, error: Exception) -> Refusal:
        if isinstance(error, ScrapeError):
            failure = error
        else:
            connection, timeout = self._connection, self._settings.timeout_seconds
            received, at_end = (connection.received, connection.at_end) if connection is not None else (0, False)
            failure = translate_error(error, self._where, self._server_name, timeout, received, at_end)
            self._received = received
        self.close()
        return Refusal(failure.reason, self._headers.redact(failure.detail), failure.status, self._wall())


def _parse_media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _show_path(path: str) -> str:
    """A path for a message: printable, and without its query, which may hold a key."""
    return encode_request_target(path).partition("?")[0]
