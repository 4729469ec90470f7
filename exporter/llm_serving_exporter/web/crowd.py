"""Who comes: whose connection it is, how many there may be, who makes room when there are too many, and who was refused: counted, and
told in the log at most once a minute.

In a flood somebody makes room hundreds of times a second, while scrapes wait: what is done for each connection there is kept cheap.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Protocol, TypeVar

from llm_serving_exporter.model.record import Struct

# --- Bounds.

# of the descriptors that the process may open, the web server takes this share at most: targets, files and discovery need the rest
DESCRIPTOR_SHARE = 4


class Limits(Struct, frozen=True):
    """Bounds of the web server, for all clients together unless a line says otherwise."""

    # connections at the same time; beyond them the slowest one of the peer that has the most makes room
    connections: int = 512
    # connections that get a 503 while nobody can make room; beyond them there is no answer
    refusals: int = 16
    # requests that are answered at the same time, each in a thread: the thread that waits for all clients takes turns with them
    workers: int = 4
    # requests that wait for one of these threads
    queued: int = 128
    # requests that wait until a password has been compared with its hash
    password_checks: int = 64
    # memory of answers that their clients have not taken yet: a large page counts as it is kept, compressed. One answer may be larger,
    # while no other is taken
    unread_bytes: int = 64 * 1024 * 1024
    # from a request's first byte to its last, and for the TLS handshake
    head_seconds: float = 10.0
    # how long a kept connection may wait for its next request: above the usual scrape intervals of 15, 30 and 60 s
    idle_seconds: float = 75.0
    # for one whole answer
    write_seconds: float = 30.0
    # for the answer to a client whose request is not read
    refusal_seconds: float = 1.0
    # of a request's line and headers
    head_bytes: int = 32 * 1024
    # of a request's body, which no page reads
    body_bytes: int = 1024


def fit_connections(limits: Limits, descriptors: int) -> int:
    """How many connections there may be where the process may open so many descriptors."""
    return max(1, min(limits.connections, descriptors // DESCRIPTOR_SHARE))


# --- Who makes room.

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


G = TypeVar("G", bound=Guest)


def name_peer(address: object) -> str:
    """Whose connection it is: an IPv4 address, or the /64 network of an IPv6 address, of which one host has as many as it likes. "" for
    what is no such address."""
    return _name_host(str(address[0])) if isinstance(address, tuple) and address else ""


@lru_cache(maxsize=1024)
def _name_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, _IPV6_NETWORK_BITS), strict=False))
    return str(address)


def choose_leaving(guests: Collection[G], counts: Mapping[str, int], wanted: int, reserve: int = 0) -> list[G]:
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


def _choose(guests: Iterable[G], left: Counter[str], wanted: int) -> list[G]:
    by_peer: dict[str, list[G]] = {}
    for guest in guests:
        by_peer.setdefault(guest.peer, []).append(guest)
    for connections in by_peer.values():
        connections.sort(key=_since, reverse=True)
    # of two peers with as many, whose next one is slower
    order = [(-left[peer], connections[-1].since, peer) for peer, connections in by_peer.items()]
    heapify(order)
    leaving: list[G] = []
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


# --- Who was refused, and why.

# between two lines of the log
TOLD_EVERY_SECONDS = 60.0
# peers whose refusals are counted between two lines; the worst of them is named
_MOST_PEERS = 1000


class Reason(StrEnum):
    """Why a connection was refused or cut."""

    CROWDED = "crowded"  # there were too many, and nobody could make room: answered with 503, or not at all
    MADE_ROOM = "made_room"  # it was the slowest of the peer with the most connections
    DESCRIPTORS = "descriptors"  # the process may open no more: it waits, and is tried again
    SLOW = "slow"  # its request or handshake did not come to an end in time
    UNREAD = "unread"  # it did not take its answer in time, or too much of it
    PASSWORD = "password"  # noqa: S105  # too many waited for a password to be checked: answered with 429
    DENIED = "denied"  # name and password were not right: answered with 401
    BROWSER = "browser"  # another site's page asked through somebody's browser: answered with 403


class Refusals:
    """Counts since the start; used by any thread."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log, self._monotonic = log, monotonic
        self._lock = threading.Lock()
        self._counts: Counter[Reason] = Counter()
        self._untold: Counter[Reason] = Counter()
        self._peers: Counter[str] = Counter()
        self._told_at: float | None = None

    def add(self, reason: Reason, peer: str) -> None:
        """Counts one; the first, and then at most one a minute, is told with what came since."""
        with self._lock:
            self._counts[reason] += 1
            self._untold[reason] += 1
            if peer in self._peers or len(self._peers) < _MOST_PEERS:
                self._peers[peer] += 1
            now = self._monotonic()
            if self._told_at is not None and now - self._told_at < TOLD_EVERY_SECONDS:
                return
            self._told_at = now
            what = ", ".join(f"{count} {reason.value}" for reason, count in self._untold.most_common())
            worst, most = self._peers.most_common(1)[0] if self._peers else ("", 0)
            self._untold.clear()
            self._peers.clear()
        self._log.warning(
            "connections refused or cut since the last such line: %s; %d of them of %s", what, most, worst
        )

    def counts(self) -> Mapping[str, int]:
        """How many of each reason, 0 for those that have not occurred."""
        with self._lock:
            return {reason.value: self._counts[reason] for reason in Reason}
