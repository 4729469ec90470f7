"""Host and port -> a connected socket, plain or TLS, before a deadline.

Deadlines are instants of the injected monotonic clock, in seconds; they hold for the look-up of the name too. Proxies from the
environment (`http_proxy` and the like) are not used: the exporter connects to each target directly.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable
from errno import EINPROGRESS
from selectors import EVENT_READ, EVENT_WRITE

from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.scrape.failure import ScrapeError, quote_first_line
from llm_serving_exporter.scrape.lookup import RESOLVER
from llm_serving_exporter.scrape.waits import SocketWait


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
        raise ScrapeError(
            FailureReason.DNS,
            f"the host name {host} does not resolve ({cause}); check the target's url and this host's resolver",
        ) from error
    if addresses is None:
        raise ScrapeError(
            FailureReason.DNS, f"nobody said in time what the host name {host} resolves to; check this host's resolver"
        )
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
            return await _connect_one(
                socket.socket(family, kind, protocol), address, left / (len(addresses) - position)
            )
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
        return ScrapeError(
            FailureReason.UNREACHABLE,
            f"{where} did not accept a connection in time; is the host up, and does a firewall drop the packets?",
        )
    if any(isinstance(error, ConnectionRefusedError) for error in errors):
        return ScrapeError(FailureReason.REFUSED, f"nothing listens on {where}; is the server up and the port right?")
    cause = (errors[-1].strerror or type(errors[-1]).__name__) if errors else "no address"
    return ScrapeError(
        FailureReason.UNREACHABLE, f"{where} cannot be reached ({cause}); check the address, routes and firewall"
    )


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
            raise ScrapeError(
                FailureReason.TIMEOUT,
                f"{where} accepted the connection but did not finish the TLS handshake in time; does it speak HTTPS?",
            ) from error
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
    return ScrapeError(
        FailureReason.SPEAKS_TLS,
        f"{where} speaks TLS, and is asked by plain HTTP; let the target's url begin with https://",
    )


# what RFC 5280 demands of a certificate, and Python before 3.13 does not check
_STRICT = re.compile(r"Missing (?:Authority|Subject) Key Identifier|Basic Constraints of CA|include key usage")


def explain_tls_failure(where: str, server_name: str, error: Exception) -> ScrapeError:
    """The failure for an error in TLS, with the setting to check."""
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
        return ScrapeError(FailureReason.TLS, f"the certificate of {where} is not trusted ({cause}); {hint}")
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return ScrapeError(
                FailureReason.TLS, f"{where} does not answer in TLS; should the target's url begin with http://?"
            )
        cause = (error.reason or type(error).__name__).replace("_", " ").lower()
        hint = "; set cert_file and key_file to a client certificate that it accepts" if "certificate" in cause else ""
        return ScrapeError(FailureReason.TLS, f"TLS with {where} failed ({cause}){hint}")
    return ScrapeError(
        FailureReason.TLS,
        f"{where} hung up during the TLS handshake; does it speak HTTPS, and does it want a certificate?",
    )
