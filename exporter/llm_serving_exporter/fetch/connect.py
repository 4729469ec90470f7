"""Host and port -> a connected socket, plain or TLS, before a deadline.

Deadlines are instants of the injected monotonic clock, in seconds; they hold for the look-up of the name too. Proxies from the
environment (`http_proxy` and the like) are not used: the exporter connects to each target directly.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from errno import EINPROGRESS
from selectors import EVENT_READ, EVENT_WRITE

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.fetch.waits import FutureWait, ScrapeError, SocketWait, quote_first_line
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import encode_host

# --- Host names -> addresses, in a few threads of their own: `getaddrinfo` blocks for as long as the system's resolver is set to try.
#
# A name that hangs is asked for once at a time, however many targets have it, and holds one of these threads, never one that other work
# needs. Names that hung before come after the others and get half of the threads at most.


# (family, kind, protocol, canonical name, address), as `getaddrinfo` gives them
Found = Sequence[tuple[int, int, int, str, tuple[object, ...]]]
GetAddresses = Callable[[str, int], Found]

MOST_THREADS = 16
# the resolver keeps what it was told for as long as it is told to; this is for targets that are read together
KEPT_SECONDS = 2.0
# a look-up that took this long hangs
SLOW_SECONDS = 2.0
# a thread that has had nothing to look up for so long ends
_IDLE_SECONDS = 10.0
_MOST_KEPT = 4096


def get_addresses(host: str, port: int) -> Found:
    """As the system's resolver says. Raises OSError or UnicodeError."""
    return _ask_system(host, port)


def _ask_system(host: str, port: int, flags: int = 0) -> Found:
    return socket.getaddrinfo(encode_host(host), port, type=socket.SOCK_STREAM, flags=flags)


class Resolver:
    """Looks names up, for any number of threads. `ask`: what it asks, which may block."""

    def __init__(self, ask: GetAddresses | None = None, monotonic: Callable[[], float] = elapsed_seconds) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._changed = threading.Condition()
        # asked for and not answered yet, and those of them that no thread has taken
        self._pending: dict[tuple[str, int], Future[Found]] = {}
        self._fresh: deque[tuple[str, int]] = deque()
        self._hung: deque[tuple[str, int]] = deque()
        # names whose last look-up took long, and answers with when they came
        self._slow: set[str] = set()
        self._known: dict[tuple[str, int], tuple[float, Future[Found]]] = {}
        self._threads = self._idle = self._on_slow = 0

    async def look_up(self, host: str, port: int, seconds: float) -> Found | None:
        """The addresses of a host; None where nobody answers within so many seconds. Raises OSError or UnicodeError."""
        try:
            # an address needs nobody to ask
            return _ask_system(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass
        future = self._submit((host, port))
        if not future.done() and not await FutureWait(future, seconds):
            return None
        return future.result()

    def _submit(self, key: tuple[str, int]) -> Future[Found]:
        with self._changed:
            known = self._known.get(key)
            if known is not None and self._monotonic() - known[0] < KEPT_SECONDS:
                return known[1]
            pending = self._pending.get(key)
            if pending is not None:
                return pending
            future = self._pending[key] = Future[Found]()
            (self._hung if key[0] in self._slow else self._fresh).append(key)
            if self._idle:
                self._changed.notify()
            elif self._threads < MOST_THREADS:
                self._start()
            return future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name="look-up", daemon=True).start()
        except RuntimeError:
            return  # no thread to be had: those that there are take it, or its deadline passes
        self._threads += 1

    def _choose_next(self) -> tuple[str, int] | None:
        """What a thread is to look up next, as the lock's holder; None where it is to end."""
        while True:
            if self._fresh:
                return self._fresh.popleft()
            if self._hung and self._on_slow < MOST_THREADS // 2:
                return self._hung.popleft()
            self._idle += 1
            woken = self._changed.wait(_IDLE_SECONDS)
            self._idle -= 1
            if not woken:
                self._threads -= 1
                return None

    def _run(self) -> None:
        while True:
            with self._changed:
                key = self._choose_next()
                if key is None:
                    return
                slow = key[0] in self._slow
                self._on_slow += slow
                future = self._pending[key]
            started = self._monotonic()
            answer: Found | None = None
            failure: Exception | None = None
            try:
                # the module's own, so that it can be replaced
                answer = (self._ask or get_addresses)(*key)
            except Exception as error:  # noqa: BLE001  # whoever waits is told
                failure = error
            now = self._monotonic()
            with self._changed:
                self._on_slow -= slow
                del self._pending[key]
                (self._slow.add if now - started > SLOW_SECONDS else self._slow.discard)(key[0])
                if answer is not None:
                    if len(self._known) >= _MOST_KEPT:
                        self._known.clear()
                    self._known[key] = now, future
                if self._hung:
                    self._changed.notify()
            if answer is not None:
                future.set_result(answer)
            else:
                future.set_exception(failure or OSError("no answer"))


# one for the process: a name that hangs hangs for everybody
RESOLVER = Resolver()


# --- A connected socket.


async def connect(host: str, port: int, deadline: float, monotonic: Callable[[], float]) -> socket.socket:
    """A TCP connection to the first address of `host` that accepts one.

    Each address gets an equal share of the time that is left, so one address that never answers cannot use up the
    deadline. Raises ScrapeError: DNS, REFUSED, UNREACHABLE; TIMEOUT where no time is left to try.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        addresses = await RESOLVER.look_up(host, port, max(0.0, deadline - monotonic()))
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid host name"
        detail = f"the host name {host} does not resolve ({cause}); check the target's url and this host's resolver"
        raise ScrapeError(FailureReason.DNS, detail) from error
    if addresses is None:
        detail = f"nobody said in time what the host name {host} resolves to; check this host's resolver"
        raise ScrapeError(FailureReason.DNS, detail)
    if deadline <= monotonic():
        # nobody was asked, so nothing is known of the host
        raise ScrapeError(FailureReason.TIMEOUT, f"no time was left to connect to {where}")
    errors: list[OSError] = []
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        left = deadline - monotonic()
        if left <= 0:
            errors.append(TimeoutError())
            break
        try:
            seconds = left / (len(addresses) - position)
            return await _connect_one(socket.socket(family, kind, protocol), address, seconds)
        except OSError as error:
            errors.append(error)
    raise _connection_error(where, errors)


async def _connect_one(sock: socket.socket, address: tuple[object, ...], seconds: float) -> socket.socket:
    """The socket, connected and never blocking. Raises OSError, the socket closed then."""
    try:
        sock.setblocking(False)
        status = sock.connect_ex(address)
        if status == EINPROGRESS:
            if not await SocketWait(sock, EVENT_WRITE, seconds):
                raise TimeoutError
            status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            raise OSError(status, os.strerror(status))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _connection_error(where: str, errors: list[OSError]) -> ScrapeError:
    """The most informative failure: a timeout before a refusal, a refusal before an address family that this host lacks."""
    if any(isinstance(error, TimeoutError) for error in errors):
        detail = f"{where} did not accept a connection in time; is the host up, and does a firewall drop the packets?"
        return ScrapeError(FailureReason.UNREACHABLE, detail)
    if any(isinstance(error, ConnectionRefusedError) for error in errors):
        return ScrapeError(FailureReason.REFUSED, f"nothing listens on {where}; is the server up and the port right?")
    cause = (errors[-1].strerror or type(errors[-1]).__name__) if errors else "no address"
    detail = f"{where} cannot be reached ({cause}); check the address, routes and firewall"
    return ScrapeError(FailureReason.UNREACHABLE, detail)


async def start_tls(
    sock: socket.socket,
    context: ssl.SSLContext,
    server_name: str,
    where: str,
    deadline: float,
    monotonic: Callable[[], float],
) -> ssl.SSLSocket:
    """TLS on a connected socket, which is closed if that fails.

    `server_name` is sent (SNI) and, unless verification is off, must be in the certificate. Raises ScrapeError: TLS,
    TIMEOUT.
    """
    tls: ssl.SSLSocket | None = None
    try:
        tls = context.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=False)
        while (events := _shake_hands(tls)) is not None:
            left = deadline - monotonic()
            if left <= 0 or not await SocketWait(tls, events, left):
                raise TimeoutError
        return tls
    except BaseException as error:
        (tls or sock).close()
        if isinstance(error, TimeoutError):
            what = "accepted the connection but did not finish the TLS handshake in time; does it speak HTTPS?"
            raise ScrapeError(FailureReason.TIMEOUT, f"{where} {what}") from error
        if isinstance(error, OSError | ValueError):
            raise explain_tls_failure(where, server_name, error) from error
        raise


def _shake_hands(tls: ssl.SSLSocket) -> int | None:
    """What the handshake waits for; None once it is done."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return EVENT_READ
    except ssl.SSLWantWriteError:
        return EVENT_WRITE
    return None


async def answers_tls(sock: socket.socket, server_name: str, deadline: float, monotonic: Callable[[], float]) -> bool:
    """Whether what is connected answers a TLS hello, whatever its certificate. The socket is closed. Never raises."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        (await start_tls(sock, context, server_name, "", deadline, monotonic)).close()
    except ScrapeError as error:
        # a server that wants other versions or a certificate says so in TLS
        return isinstance(error.__cause__, ssl.SSLError) and "ALERT" in (error.__cause__.reason or "")
    return True


def explain_tls_server(where: str) -> ScrapeError:
    """The failure of a server that speaks TLS and was asked without."""
    detail = f"{where} speaks TLS, and is asked by plain HTTP; let the target's url begin with https://"
    return ScrapeError(FailureReason.SPEAKS_TLS, detail)


# what RFC 5280 demands of a certificate, and Python before 3.13 does not check
_STRICT = re.compile(r"Missing (?:Authority|Subject) Key Identifier|Basic Constraints of CA|include key usage")


def explain_tls_failure(where: str, server_name: str, error: Exception) -> ScrapeError:
    """The failure for an error in TLS, with the setting to check."""
    detail = f"{where} hung up during the TLS handshake; does it speak HTTPS, and does it want a certificate?"
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = quote_first_line(error.verify_message)
        if "mismatch" in cause.lower() or "not valid for" in cause.lower():
            hint = f"the certificate is not for {server_name}; set server_name to a name that it holds"
        elif "expired" in cause.lower() or "not yet valid" in cause.lower():
            hint = "renew the certificate or check the clocks"
        elif _STRICT.search(cause):
            hint = "issue it again with that, for which Python asks from 3.13 on"
        else:
            hint = "set ca_file to the authority that signed it"
        detail = f"the certificate of {where} is not trusted ({cause}); {hint}"
    elif isinstance(error, ssl.SSLError):
        cause = (error.reason or type(error).__name__).replace("_", " ").lower()
        hint = "; set cert_file and key_file to a client certificate that it accepts" if "certificate" in cause else ""
        detail = f"TLS with {where} failed ({cause}){hint}"
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            detail = f"{where} does not answer in TLS; should the target's url begin with http://?"
    return ScrapeError(FailureReason.TLS, detail)
