"""A listen address -> a listening socket, or a sentence on why not."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.model.target import encode_host

FLAG = "--web.listen-address"
# whoever finds it full tries again one second later, a scraper among a crowd too; the kernel has a bound of its own (net.core.somaxconn)
BACKLOG = 65535
_ANY = ("", "::")
_CAUSES = {
    errno.EADDRINUSE: "the port is already in use by another process",
    errno.EACCES: "permission denied (ports below 1024 need the capability CAP_NET_BIND_SERVICE)",
    errno.EPERM: "permission denied (ports below 1024 need the capability CAP_NET_BIND_SERVICE)",
    errno.EADDRNOTAVAIL: "not an address of this machine",
}


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or `:port` -> host ("" = every interface) and port. Raises ListenError for anything else."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host:
        colon = ""
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ListenError(
            f"cannot listen on {address}: this is not host:port; write {FLAG} as in :10077 or [::1]:10077"
        )
    return host, int(port)


def listen(address: str) -> socket.socket:
    """A listening socket. Every interface means IPv6 and IPv4 where the machine has both.

    Raises ListenError with the address, the cause and the flag to change.
    """
    host, port = split_address(address)
    try:
        if host in _ANY:
            return _everywhere(port)
        family, where = _resolved(host, port)
        return socket.create_server(where, family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise _refused(address, f"the host name does not resolve ({error.strerror})") from error
    except OSError as error:
        raise _refused(address, name_cause(error)) from error
    except UnicodeError as error:  # a label of the name is empty or too long
        raise _refused(address, "this is not a host name") from error


def listen_on_all(addresses: Sequence[str]) -> list[socket.socket]:
    """A listening socket that does not block for each address. Raises ListenError, and then listens on none of them."""
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listeners.append(listen(address))
            listeners[-1].setblocking(False)
    except ListenError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            # IPv6 is compiled in but switched off (net.ipv6.conf.all.disable_ipv6, many containers)
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    found = socket.getaddrinfo(encode_host(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # a name with both families listens where clients without IPv6 find it, as Go's net.Listen does
    family, _, _, _, where = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
    # a link-local address carries its scope in two more members, which bind needs
    return family, where  # type: ignore[return-value]  # typeshed: an address of any family


def name_cause(error: OSError) -> str:
    """Why an address cannot be listened on, for a person."""
    number = error.errno or 0
    return _CAUSES.get(number) or os.strerror(number)


def _refused(address: str, cause: str) -> ListenError:
    return ListenError(f"cannot listen on {address}: {cause}; choose another address with {FLAG}")


def describe_listener(listener: socket.socket, scheme: str) -> str:
    """Where a socket listens, for a person: every interface is said, and where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    url = url_of(listener, scheme)
    if host not in ("::", "0.0.0.0"):  # noqa: S104  # compared with, not bound
        return url
    only = "" if listener.family is socket.AF_INET6 else " of IPv4"
    return f"every address{only}, port {port}: {url} on this machine"


def url_of(listener: socket.socket, scheme: str) -> str:
    """Where a client on this machine reaches the socket, with the port really bound."""
    host, port = listener.getsockname()[:2]
    if host in ("::", "0.0.0.0"):  # noqa: S104  # compared with, not bound
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
