"""`hosts`: the servers that a list of targets from elsewhere may name."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from llm_serving_exporter.model.own_host import is_own_host
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, shown

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ANY = "*"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_EXAMPLE = "Write a name, *.example.com for all names below one, an address, a network such as 10.0.0.0/8, or *."


def _pattern(text: str) -> str:
    """A pattern in its normal form."""
    if text == _ANY:
        return text
    plain = text.lower().rstrip(".")
    bare = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    if "/" in plain or find_address(bare) is not None:
        try:
            return _write_network(bare)
        except ValueError as error:
            fix = _EXAMPLE
            if "has host bits set" in str(error):
                fix = f"Write {_write_network(bare, strict=False)}."
            raise InvalidValueError(f"{shown(text)} is neither an address nor a network", fix) from None
    if not _NAME.fullmatch(plain.removeprefix("*.")):
        fix = "Write the host alone, without scheme and port." if ":" in text else _EXAMPLE
        raise InvalidValueError(f"{shown(text)} is not a host", fix)
    return plain


def _write_network(text: str, strict: bool = True) -> str:
    """In its normal form. Raises ValueError."""
    network = ipaddress.ip_network(text, strict=strict)
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    # from 3.13 on the library writes it so too
    return str(network) if mapped is None else f"::ffff:{mapped}/{network.prefixlen}"


HOST_PATTERN = Kind("a host, a network or *", _pattern, is_text=True)


def find_address(host: str) -> IPAddress | None:
    """The address that a host of a URL is; None for a name.

    127.1 and 2130706433 are addresses too: the system's resolver takes them for 127.0.0.1 (inet_aton).
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


class AllowedHosts:
    """Decides which hosts a list of targets may name. `patterns`: as HOST_PATTERN gives them.

    A name is compared with names, an address with addresses: nothing is resolved, so that whoever owns a name's zone decides nothing about
    networks. `*` stands for every host but loopback, link-local, multicast and reserved ones, among them the metadata services of clouds:
    those are allowed only where a pattern names them.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._any = False
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._names: set[str] = set()
        self._endings: list[str] = []
        for pattern in patterns:
            if pattern == _ANY:
                self._any = True
            elif "/" in pattern:
                self._networks.append(ipaddress.ip_network(pattern))
            elif pattern.startswith("*."):
                self._endings.append(pattern[1:])
            else:
                self._names.add(pattern)

    def allow(self, host: str) -> bool:
        """Whether `host`, as a URL names it (no brackets), is allowed."""
        host = host.lower().rstrip(".")
        address = find_address(host)
        if address is None:
            named = host in self._names or any(host.endswith(ending) for ending in self._endings)
            return named or (self._any and not is_own_host(host, ""))
        return any(address in network for network in self._networks) or (self._any and not _is_special(address))


def _is_special(address: IPAddress) -> bool:
    return (
        address.is_loopback
        or address.is_unspecified
        or address.is_link_local
        or address.is_multicast
        or (isinstance(address, ipaddress.IPv4Address) and address.is_reserved)
    )
