"""The API server: who it is and who we are (lightkube), lists page by page, and watches line by line. Every answer is bounded."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Generator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as ClientConfigError

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.errors import LLMServingExporterError, Problem
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.text import Masker, on_one_line

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 30.0
# a server that takes bookmarks sends one a minute; longer silence is a connection that nobody serves
SILENCE_SECONDS = 150.0
# for one page; the API server itself gives a list up after a minute
PAGE_SECONDS = 300.0
# how long a watch may last that was asked to end earlier
WATCH_SECONDS = 600.0
# etcd takes objects of 1.5 MiB; a page has at most PAGE_PODS of them, of some 10 kB
LONGEST_EVENT, LARGEST_PAGE = 8 * 1024 * 1024, 64 * 1024 * 1024
LONGEST_REFUSAL = 64 * 1024
# a server that wants to be left alone for longer is asked earlier
LONGEST_WAIT_SECONDS = 60.0
# a peer that is gone without a word is noticed within 25 s
_KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class ApiError(LLMServingExporterError):
    """The API server cannot be asked, or gave no usable answer. `code`: the HTTP status, None without an answer.

    `wait_seconds`: how long the server wants to be left alone; 0: it does not say.
    """

    def __init__(self, what: str, code: int | None = None, wait_seconds: float = 0.0) -> None:
        super().__init__(what)
        self.code, self.wait_seconds = code, wait_seconds


class SilentError(ApiError):
    """A watch was silent for too long, which says nothing about the server."""


class Account(Struct, frozen=True):
    """Which API server is asked, and as whom."""

    kubeconfig: str | None = None  # path; None: the service account of the exporter's own pod
    context: str | None = None  # of the kubeconfig; None: its current one


class Api:
    """One connection to an API server, used by one thread; `interrupt` may come from another.

    A token that stands in a file, as a service account's does, is read for each request: files are rotated, and an old one may be accepted
    for long. Raises ApiError where the account cannot be used.
    """

    def __init__(self, account: Account) -> None:
        # it would log each request
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        try:
            self._client = _make_client(account)
        except Exception as error:  # noqa: BLE001  # lightkube checks nothing of a file: its faults may raise any error
            pod = "the service account of the exporter's pod"
            what = f"kubeconfig {account.kubeconfig}" if account.kubeconfig else pod
            raise ApiError(f"{what} cannot be used: {describe_error(error)}") from None
        # that is being read
        self._response: httpx2.Response | None = None
        # what the server's clock said last, less the monotonic clock here; None: it has not said
        self.clock_offset_seconds: float | None = None

    @property
    def url(self) -> str:
        """Of the server."""
        return str(self._client.base_url)

    def get_page(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """One page of a list. Raises ApiError."""
        body, began = bytearray(), elapsed_seconds()
        for chunk in self._stream(path, parameters, ANSWER_SECONDS):
            body += chunk
            if len(body) > LARGEST_PAGE:
                raise ApiError(f"a page of the list is larger than {LARGEST_PAGE} bytes")
            if elapsed_seconds() - began > PAGE_SECONDS:
                raise ApiError(f"a page of the list takes longer than {PAGE_SECONDS:.0f} s")
        return bytes(body)

    def watch_lines(self, path: str, parameters: Mapping[str, str]) -> Iterator[bytes]:
        """Events, one a line, as they come, until the server ends the watch. The first is b"": it took the watch. Raises ApiError."""
        buffer = bytearray()
        began = heard = elapsed_seconds()
        for chunk in self._stream(path, parameters, SILENCE_SECONDS):
            if not chunk:
                yield b""
                continue
            buffer += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(buffer).split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    if line.strip():
                        heard = elapsed_seconds()
                        yield line
            if len(buffer) > LONGEST_EVENT:
                raise ApiError(f"an event is longer than {LONGEST_EVENT} bytes")
            # empty lines and events that never end are no sign of life
            now = elapsed_seconds()
            if now - heard > SILENCE_SECONDS:
                raise SilentError(f"the API server {self.url} tells nothing for {SILENCE_SECONDS:.0f} s")
            if now - began > WATCH_SECONDS:
                return
        if buffer.strip():
            text = on_one_line(buffer[:200].decode(errors="replace"), 60)
            raise ApiError(f"a watch ended in the middle of an event: {text}")

    def interrupt(self) -> None:
        """Ends an exchange under way: whoever reads it gets an ApiError."""
        response = self._response
        stream = response.extensions.get("network_stream") if response is not None else None
        if stream is not None:
            connection = stream.get_extra_info("socket")
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                return  # it is closed already

    def close(self) -> None:
        """Ends the connection. Only by the thread that uses it."""
        self._client.close()

    def _stream(self, path: str, parameters: Mapping[str, str], silence_seconds: float) -> Iterator[bytes]:
        """The body as it comes, b"" first: the server has answered with 200."""
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=silence_seconds)
        # not compressed: what is read is as large as it says
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            with self._client.stream(
                "GET", path, params=dict(parameters), headers=headers, timeout=timeout
            ) as response:
                self._response = response
                self._note_clock(response)
                if response.status_code != 200:
                    raise _explain_refusal(response)
                yield b""
                yield from response.iter_raw()
        except httpx2.ReadTimeout:
            raise SilentError(f"the API server {self.url} is silent for {silence_seconds:.0f} s") from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ClientConfigError) as error:
            raise ApiError(f"the API server {self.url} cannot be read: {describe_error(error)}") from None
        finally:
            self._response = None

    def _note_clock(self, response: httpx2.Response) -> None:
        try:
            served = parsedate_to_datetime(response.headers.get("date", ""))
        except ValueError:
            return
        self.clock_offset_seconds = served.timestamp() - elapsed_seconds()


class _TokenFile(httpx2.Auth):
    """A token out of a file. lightkube itself would read it again only once it is refused, which some servers do a year late."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Sets the header of a request. Raises ApiError where the file cannot be used."""
        try:
            token = self._path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise ApiError(f"the token file {self._path} cannot be read: {describe_error(error)}") from None
        if not token or not token.isprintable():
            raise ApiError(f"the token file {self._path} has no token in it")
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def _make_auth(user: User) -> httpx2.Auth | None:
    return _TokenFile(user.token_file) if user.token_file is not None else user_auth(user)


def _make_client(account: Account) -> httpx2.Client:
    if account.kubeconfig is not None:
        config = KubeConfig.from_file(account.kubeconfig).get(account.context)
    else:
        config = KubeConfig.from_service_account().get()
    if config is None or config.user is None:
        raise ClientConfigError("it names no user")
    verify = verify_cluster(config.cluster, config.user, config.abs_file)
    transport = httpx2.HTTPTransport(verify=verify, socket_options=_KEEP_ALIVE)
    return httpx2.Client(base_url=config.cluster.server, auth=_make_auth(config.user), transport=transport)


def _explain_refusal(response: httpx2.Response) -> ApiError:
    body = b""
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > LONGEST_REFUSAL:
            break
    try:
        status = json.loads(body)
        message = status.get("message") if isinstance(status, dict) else None
    except ValueError:
        message = None
    refusal = _describe_stranger(response)
    if isinstance(message, str):
        refusal = on_one_line(_sent_with(response).mask_text(message), 400)
    wait = response.headers.get("retry-after", "")
    seconds = min(float(wait), LONGEST_WAIT_SECONDS) if wait.isascii() and wait.isdigit() else 0.0
    return ApiError(refusal, response.status_code, seconds)


def _sent_with(response: httpx2.Response) -> Masker:
    """What a server may repeat of the account that asked it."""
    header = response.request.headers.get("authorization", "")
    return Masker((header, header.rpartition(" ")[2]))


def _describe_stranger(response: httpx2.Response) -> str:
    """A refusal that no API server words: of a proxy before it, of a page to log in."""
    kind = on_one_line(response.headers.get("content-type", "").partition(";")[0], 60) or "of no type"
    return f"status {response.status_code} ({kind}), which is no answer of an API server: something stands before it"


def describe_error(error: BaseException) -> str:
    """An error of a library in one line."""
    return on_one_line(str(error), 300) or type(error).__name__


# --- What is copied of an API server, and what is said of it where that does not go well.


class Listing(Struct, frozen=True):
    """What is copied."""

    name: str  # by which users know it; its problems begin with it
    what: str  # plural of the resource: "pods"
    path: str  # at the API server
    where: str  # for a sentence: "in the namespace a", "of all namespaces"
    remedy: str  # which rights are needed, a sentence
    parameters: Mapping[str, str] = field(default_factory=dict)  # selectors
    absent: str = ""  # what to do where the server knows no such resource, a sentence; "": every server knows it

    def explain_failure(self, error: ApiError, *, is_known: bool) -> Problem:
        """Why the list cannot be followed, with the remedy. `is_known`: whether it has been read once."""
        consequence = " What is known of them stays." if is_known else ""
        if error.code == 403:
            what = f"it may not list and watch {self.what} {self.where}: {error}"
            return Problem(self.name, "", what.rstrip("."), f"{self.remedy}{consequence}")
        if error.code == 401:
            fix = f"Check its service account, or the user of the kubeconfig.{consequence}"
            return Problem(self.name, "", "the API server does not accept the exporter's credentials", fix)
        if error.code == 404 and self.absent:
            return Problem(self.name, "", f"the API server knows no {self.what}", f"{self.absent}{consequence}")
        fix = f"It is asked again and again.{consequence}"
        return Problem(self.name, "", f"{self.what} {self.where} cannot be followed: {error}".rstrip("."), fix)

    def explain_oddity(self, error: Exception) -> Problem:
        """That an object of the list is not what it should be."""
        what = f"one of the {self.what} {self.where} cannot be made out: {describe_error(error)}"
        return Problem(self.name, "", what, "It is left out; please report it.")

    def explain_excess(self, number: int, most: int) -> Problem:
        """That so many objects are beyond the bound `most`."""
        what = f"{number} of the {self.what} {self.where} beyond {most} are left out"
        return Problem(self.name, "", what, "Narrow the section by namespaces or a selector.")
