"""Who a client is, and who makes room when there are too many: no clock, no socket is read."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

# a connection is not called slow before it is so old: whoever has just come is about to send its request
GRACE_SECONDS = 1.0
# of all connections, as many as this share are kept for those who were answered
RESERVE_SHARE = 2
# of a full house, this share makes room at once: to look for one at each newcomer would take the time of a flood
ROOM_SHARE = 32
_IPV6_NETWORK_BITS = 64


class Guest(Protocol):
    """What is asked of a connection."""

    # whose it is, as `name_peer` says it
    peer: str
    # when what it does now began, in seconds of a clock that never falls
    since: float
    # whether a request of it has been answered with what it asked for
    has_earned: bool


One = TypeVar("One", bound=Guest)


def name_peer(address: object) -> str:
    """Whose connection it is: an IPv4 address, or the /64 network of an IPv6 address, of which one host has as many as it likes. "" for
    what is no such address."""
    host = address[0] if isinstance(address, tuple) and address else ""
    try:
        found = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Network((found, _IPV6_NETWORK_BITS), strict=False))
    return str(found)


def choose_leaving(
    guests: Collection[One], counts: Mapping[str, int], now: float, wanted: int, reserve: int = 0
) -> list[One]:
    """Who makes room for others, at most `wanted`: of the peers with the most connections (`counts`) the slowest first.

    Slow is who has had time and has not come to an answer; then come those who have only just come, the oldest first. Who was answered
    stays as long as there are others: the latest `reserve` of them, so that nobody fills the house by asking once with each connection.
    `guests`: who may be asked to leave.
    """
    earned = sorted((guest for guest in guests if guest.has_earned), key=lambda guest: guest.since)
    kept = set(map(id, earned[max(0, len(earned) - reserve) :])) if reserve else set()
    left = Counter(counts)
    leaving = _choose([guest for guest in guests if id(guest) not in kept], left, now, wanted)
    return leaving + _choose([guest for guest in guests if id(guest) in kept], left, now, wanted - len(leaving))


def _choose(guests: Iterable[One], left: Counter[str], now: float, wanted: int) -> list[One]:
    by_peer: dict[str, list[One]] = {}
    for guest in guests:
        by_peer.setdefault(guest.peer, []).append(guest)
    for found in by_peer.values():
        found.sort(key=lambda guest: _rank(guest, now), reverse=True)
    leaving: list[One] = []
    while by_peer and len(leaving) < wanted:
        # of two peers with as many, whose next one is slower
        peer = min(by_peer, key=lambda name: (-left[name], _rank(by_peer[name][-1], now)))
        leaving.append(by_peer[peer].pop())
        left[peer] -= 1
        if not by_peer[peer]:
            del by_peer[peer]
    return leaving


def _rank(guest: Guest, now: float) -> tuple[bool, float]:
    """Who leaves first has the least."""
    return now - guest.since < GRACE_SECONDS, guest.since
