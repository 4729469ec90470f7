"""Host and port -> a connected socket, plain or TLS, before a deadline.

Deadlines are instants of the injected monotonic clock, in seconds. The one step that they cannot cut short is name
resolution: getaddrinfo() blocks in the C library for as long as the system's resolver is configured to try (see
resolv.conf, `timeout` and `attempts`). Proxies from the environment (`http_proxy` and the like) are not used: the
exporter connects to each target directly.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.scrape.failure import ScrapeError, quote_first_line


def connect(host: str, port: int, deadline: float, monotonic: Callable[[], float]) -> socket.socket:
    """A TCP connection to the first address of `host` that accepts one.

    Each address gets an equal share of the time that is left, so one address that never answers cannot use up the
    deadline. Raises ScrapeError: DNS, REFUSED, UNREACHABLE; TIMEOUT where no time is left to try.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid host name"
        raise ScrapeError(
            FailureReason.DNS,
            f"the host name {host} does not resolve ({cause}); check the target's url and this host's resolver",
        ) from error
    if deadline <= monotonic():
        # nobody was asked, so nothing is known of the host
        raise ScrapeError(FailureReason.TIMEOUT, f"no time was left to connect to {where}")
    errors: list[OSError] = []
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        left = deadline - monotonic()
        if left <= 0:
            errors.append(TimeoutError())
            break
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(left / (len(addresses) - position))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            if sock is not None:
                sock.close()
            errors.append(error)
        else:
            return sock
    raise _connection_error(where, errors)


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


def start_tls(
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
    try:
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        return context.wrap_socket(sock, server_hostname=server_name)
    except TimeoutError as error:
        raise ScrapeError(
            FailureReason.TIMEOUT,
            f"{where} accepted the connection but did not finish the TLS handshake in time; does it speak HTTPS?",
        ) from error
    except (OSError, ValueError) as error:
        raise explain_tls_failure(where, server_name, error) from error
    finally:
        sock.close()  # wrap_socket took the descriptor over, unless it failed before


def explain_tls_failure(where: str, server_name: str, error: Exception) -> ScrapeError:
    """The failure for an error in TLS, with the setting to check."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = quote_first_line(error.verify_message)
        if "mismatch" in cause.lower() or "not valid for" in cause.lower():
            hint = f"the certificate is not for {server_name}; set server_name to a name that it holds"
        elif "expired" in cause.lower() or "not yet valid" in cause.lower():
            hint = "renew the certificate or check the clocks"
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
