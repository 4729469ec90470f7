"""Whether a host in a URL is the exporter's own: the one answer for the configuration and for GPU attribution."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

# what /etc/hosts of Debian and of Red Hat call the loopback addresses, beside localhost itself
_LOOPBACK_NAMES = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
    | {"localhost4.localdomain4", "localhost6.localdomain6"}
)


# every look at a fleet asks again of each of its targets
@lru_cache(maxsize=4096)
def is_own_host(host: str, own_name: str) -> bool:
    """Whether `host`, as a URL names it (no brackets), is the host whose name is `own_name`.

    True for loopback and unspecified addresses (also IPv4-mapped ones), for loopback names (RFC 6761: all of `.localhost`) and for the own
    name; where that has a domain, also for its first label alone, which resolves within the same domain. Not true for the own name with a
    domain that it does not have itself: a host or pod of another domain may have the same short name. The resolver and the network
    interfaces are not asked, so that a target's identity depends on the configuration alone.
    """
    host, own_name = host.lower().rstrip("."), own_name.lower().rstrip(".")
    if not host:
        return False
    if host == own_name or host in _LOOPBACK_NAMES or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == own_name.partition(".")[0]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified


def encode_host(host: str) -> str | bytes:
    """What `getaddrinfo` is to be asked: of text, even of ASCII, it would load Python's tables of Unicode for domain names (0.3 MB).

    A name that needs them, or has an empty or too long label, stays text: then it raises UnicodeError for what is none.
    """
    # as its codec takes ASCII for what it is (RFC 3490, 4.1)
    plain = host.isascii() and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    return host.encode("ascii") if plain else host
