"""Who a client is, and who makes room when there are too many: no clock, no socket is read.

In a flood somebody makes room hundreds of times a second, while scrapes wait: what is done for each connection there is kept cheap.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Protocol, TypeVar

# of all connections, as many as this share are kept for those who were answered
RESERVE_SHARE = 2
# of a full house, this share makes room at once: to look for one at each newcomer would take the time of a flood
ROOM_SHARE = 32
_IPV6_NETWORK_BITS = 64


class Guest(Protocol):
    """What is asked of a connection. Compared by identity."""

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
    return _name_host(str(address[0])) if isinstance(address, tuple) and address else ""


@lru_cache(maxsize=1024)
def _name_host(host: str) -> str:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Network((found, _IPV6_NETWORK_BITS), strict=False))
    return str(found)


def choose_leaving(guests: Collection[One], counts: Mapping[str, int], wanted: int, reserve: int = 0) -> list[One]:
    """Who makes room for others, at most `wanted`: of the peers with the most connections (`counts`) the slowest first.

    Slowest is who has been at the same thing for longest. Who was answered stays as long as there are others: the latest `reserve` of them,
    so that nobody fills the house by asking once with each connection. `guests`: who may be asked to leave.
    """
    earned = [guest for guest in guests if reserve and guest.has_earned]
    earned.sort(key=_since)
    kept = earned[max(0, len(earned) - reserve) :]
    left = Counter(counts)
    leaving = _choose(set(guests).difference(kept) if kept else guests, left, wanted)
    return leaving + _choose(kept, left, wanted - len(leaving))


def _choose(guests: Iterable[One], left: Counter[str], wanted: int) -> list[One]:
    by_peer: dict[str, list[One]] = {}
    for guest in guests:
        by_peer.setdefault(guest.peer, []).append(guest)
    for found in by_peer.values():
        found.sort(key=_since, reverse=True)
    # of two peers with as many, whose next one is slower
    order = [(-left[peer], found[-1].since, peer) for peer, found in by_peer.items()]
    heapify(order)
    leaving: list[One] = []
    while order and len(leaving) < wanted:
        peer = order[0][2]
        leaving.append(by_peer[peer].pop())
        left[peer] -= 1
        if by_peer[peer]:
            heapreplace(order, (-left[peer], by_peer[peer][-1].since, peer))
        else:
            heappop(order)
    return leaving


_since = attrgetter("since")
