"""The connections that there are: whose they are, what they wait for and until when."""

from __future__ import annotations

import selectors
from collections import Counter
from collections.abc import Callable, Iterator

from llm_serving_exporter.web.clients import Client, Doing
from llm_serving_exporter.web.crowd import RESERVE_SHARE, ROOM_SHARE, choose_leaving
from llm_serving_exporter.web.limits import Limits

# deadlines are looked at no more often
_SWEEP_SECONDS = 0.05


class Guests:
    """Used by the loop's thread alone. `selector` says which of them can go on."""

    def __init__(self, limits: Limits, selector: selectors.BaseSelector, monotonic: Callable[[], float]) -> None:
        self._limits, self._selector, self._monotonic = limits, selector, monotonic
        self._clients: set[Client] = set()
        self._by_peer: Counter[str] = Counter()
        # those that only get a 503
        self._refused: set[Client] = set()
        # what answers that are not taken yet hold in memory
        self.unread_bytes = 0
        # when somebody's deadline is to be looked at
        self.next_sweep = float("inf")

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, client: Client) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[Client]:
        """Of a copy: whoever is asked may be closed."""
        return iter(list(self._clients))

    @property
    def is_full(self) -> bool:
        """Whether as many are served as may be."""
        return len(self._clients) - len(self._refused) >= self._limits.connections

    @property
    def may_refuse(self) -> bool:
        """Whether one more may be told that there is no room."""
        return len(self._refused) < self._limits.refusals

    def add(self, client: Client, *, serves: bool) -> None:
        """`serves`: not only to be told that there is no room."""
        self._clients.add(client)
        self._by_peer[client.peer] += 1
        if not serves:
            self._refused.add(client)

    def close(self, client: Client) -> None:
        """Ends a connection, if it is there still."""
        if client not in self._clients:
            return
        self.watch(client, 0)
        self._clients.remove(client)
        self._refused.discard(client)
        self._by_peer[client.peer] -= 1
        if not self._by_peer[client.peer]:
            del self._by_peer[client.peer]
        self.unread_bytes -= client.unread_bytes
        client.drop_answer()
        client.socket.close()

    def put_to(self, client: Client, doing: Doing, seconds: float | None) -> None:
        """Puts a connection to something, with so much time for it; None leaves the deadline that it has."""
        if doing is not client.doing or seconds is not None:
            client.since = self._monotonic()
        client.doing = doing
        if seconds is not None:
            client.deadline = client.since + seconds
            self.next_sweep = min(self.next_sweep, max(client.deadline, client.since + _SWEEP_SECONDS))
        if doing is Doing.WORKING:
            self.watch(client, 0)
        elif doing is Doing.WRITING or client.wants_write:
            self.watch(client, selectors.EVENT_WRITE)
        else:
            self.watch(client, selectors.EVENT_READ)

    def watch(self, client: Client, events: int) -> None:
        """Has the selector tell of these events of a connection; 0 of none."""
        # not asked of the selector: of what it does not know it first makes a text, with two calls of the system
        if not client.watched and events:
            self._selector.register(client.socket, events, client)
        elif client.watched and not events:  # a client that is gone would be told of in every turn
            self._selector.unregister(client.socket)
        elif client.watched != events:
            self._selector.modify(client.socket, events, client)
        client.watched = events

    def choose_leaving(self) -> list[Client]:
        """Who makes room for others; one whose request waits for a thread where nobody else can."""
        most = self._limits.connections
        asked = [client for client in self._clients - self._refused if client.may_make_room]
        leaving = choose_leaving(asked, self._by_peer, max(1, most // ROOM_SHARE), most // RESERVE_SHARE)
        if leaving:
            return leaving
        return choose_leaving([client for client in self._clients if client.waits_for_thread], self._by_peer, 1)

    def choose_readers(self) -> list[Client]:
        """Who takes an answer, the slowest of the peer with the most connections first."""
        readers = [client for client in self._clients if client.doing is Doing.WRITING]
        return choose_leaving(readers, self._by_peer, len(readers))

    def find_overdue(self, now: float) -> list[Client]:
        """Whose time is over; the others are looked at when the first of them is due."""
        overdue = [client for client in self._clients if client.deadline <= now]
        first = min((client.deadline for client in self._clients if client.deadline > now), default=float("inf"))
        self.next_sweep = max(first, now + _SWEEP_SECONDS)
        return overdue
